"""A client of one group uses the topics of another: the same program, one more link."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pyarrow as pa
import pytest

import headpond
from headpond import sync
from headpond.model.errors import NotAcrossNodes, TopicNotFound, WrongGroup
from headpond.model.receipt import Outcome
from tests.client.two_groups import WEST, TwoGroups, with_two_groups


def rows(*values: bytes) -> pa.Table:
    return pa.table({"value": list(values)})


def test_producers_and_consumers_follow(tmp_path: Path) -> None:
    async def scenario(groups: TwoGroups) -> None:
        async with headpond.connect(groups.url) as client:
            for topic in (WEST, "plain"):
                async with client.producer(topic) as producer:
                    receipt = await producer.send(b"1")
                    assert receipt.destination == groups.url, "the service that the program named"
                async with client.consumer(topic, "s") as consumer:
                    message = await consumer.receive(10)
                    assert message is not None and message.value == b"1"
                    await consumer.ack(message)
                    await consumer.flush()
            assert groups.topics("west") == [WEST]
            assert groups.topics("main") == ["default/default/default/plain"]

    with_two_groups(tmp_path, scenario)


def test_a_client_of_several_addresses_follows_too(tmp_path: Path) -> None:
    async def scenario(groups: TwoGroups) -> None:
        url = f"{groups.url},127.0.0.1:1"
        async with (
            headpond.connect(url) as client,
            client.consumer(WEST, "s") as consumer,
            client.producer(WEST) as producer,
        ):
            await producer.send(b"1")
            message = await consumer.receive(10)
            assert message is not None and message.value == b"1"

    with_two_groups(tmp_path, scenario)


def test_the_addresses_of_a_group_are_one_node_to_a_consumer(tmp_path: Path) -> None:
    """Its entries are the same at all of them, so ranges of entries can be settled."""

    async def scenario(groups: TwoGroups) -> None:
        url = f"{groups.url},127.0.0.1:1"
        for topic in ("plain", WEST):
            async with (
                headpond.connect(url) as client,
                client.consumer(topic, "s") as consumer,
                client.producer(topic) as producer,
            ):
                await producer.send(b"1")
                assert await consumer.receive(10) is not None
                await consumer.ack_range(0, 0, 0)
                await consumer.flush()
                assert (await client.admin.show_subscription(topic, "s")).settled == 1

    with_two_groups(tmp_path, scenario)


def test_administration_of_topics_subscriptions_and_places_follows(tmp_path: Path) -> None:
    async def scenario(groups: TwoGroups) -> None:
        async with headpond.connect(groups.url) as client:
            admin = client.admin
            await admin.create_tenant("acme")
            await admin.create_topic(WEST, 2)
            assert (await admin.show_topic(WEST)).shards == 2
            await admin.set_topic(WEST, hard_ttl="7d")
            await admin.create_subscription(WEST, "s")
            assert [each.subscription for each in await admin.list_subscriptions(WEST)] == ["s"]
            async with client.producer(WEST, refill=None) as producer:
                await producer.send(b"1")
            assert [len(batch) async for batch in admin.browse(WEST)] == [1]
            assert [ends.topic for ends in await admin.ends([WEST])] == [WEST]
            assert (await admin.ledger(WEST)).topic == WEST
            assert (await admin.show_tenant("acme")).place == "acme"
            await admin.delete_subscription(WEST, "s")
            await admin.delete_topic(WEST)
            assert groups.topics("west") == [] and await admin.list_topics() == []

    with_two_groups(tmp_path, scenario)


def test_a_reader_follows(tmp_path: Path) -> None:
    async def scenario(groups: TwoGroups) -> None:
        async with headpond.connect(groups.url) as client:
            async with client.producer(WEST) as producer:
                await producer.send(b"1")
            async with client.reader(WEST) as reader:
                (end,) = await reader.ends()
                part = await reader.fetch(0, 0, end.entry_next)
                assert [message.value for batch in part.batches for message in batch.messages()] == [b"1"]
                assert part.batches[0].node == "west" * 8

    with_two_groups(tmp_path, scenario)


def test_a_writer_follows_its_first_topic_and_stays_there(tmp_path: Path) -> None:
    async def scenario(groups: TwoGroups) -> None:
        async with headpond.connect(groups.url) as client:
            async with client.writer("w") as writer:
                stage = await writer.stage(WEST, rows(b"1", b"2"))
                with pytest.raises(NotAcrossNodes):
                    await writer.stage("plain", rows(b"3"))
            async with client.writer("w") as other:  # as Spark's driver, which has staged nothing itself
                assert (await other.commit(1, [stage])).outcome == "committed"
                await other.delete()
            assert sum(each.entry_next for each in (await client.admin.show_topic(WEST)).shard_list) == 2
        async with headpond.connect(groups.urls["west"]) as there:
            assert await there.admin.list_writers() == []

    with_two_groups(tmp_path, scenario)


def test_the_blocking_client_follows(tmp_path: Path) -> None:
    def program(url: str) -> bytes:
        with sync.connect(url) as client:
            with client.producer(WEST) as producer:
                producer.send(b"1")
            assert client.admin.show_topic(WEST).topic == WEST
            with client.consumer(WEST, "s") as consumer:
                message = consumer.receive(10)
                assert message is not None
                consumer.ack(message)
                return bytes(message.value)

    async def scenario(groups: TwoGroups) -> None:
        assert await asyncio.to_thread(program, groups.url) == b"1"

    with_two_groups(tmp_path, scenario)


def test_one_link_serves_all_topics_of_a_group_and_ends_with_the_client(tmp_path: Path) -> None:
    async def scenario(groups: TwoGroups) -> None:
        counters = groups.servers["west"].core.context.counters
        async with headpond.connect(groups.url) as client:
            asked = [client.admin.create_topic(f"acme/a/b/t{number}") for number in range(10)]
            await asyncio.gather(*asked)
            async with client.producer("acme/a/b/t0") as producer, client.reader("acme/a/b/t1"):
                await producer.send(b"1")
            assert counters["connections_opened"] == 1
        while not counters["connections_closed"]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    with_two_groups(tmp_path, scenario)


def test_a_producer_that_began_while_its_group_was_away_sends_its_refill_to_the_right_one(
    tmp_path: Path,
) -> None:
    async def scenario(groups: TwoGroups) -> None:
        await groups.servers["main"].stop()
        async with (
            headpond.connect(groups.url, wait=False) as client,
            client.producer(WEST, refill=tmp_path / "refill", spill_after=0.1, close_timeout=30) as producer,
        ):
            assert (await producer.send(b"1")).outcome is Outcome.SPILLED
            await groups.start("main")
            await producer.reached()
            await producer.send(b"2")
        async with headpond.connect(groups.urls["west"]) as there, there.consumer(WEST, "s") as consumer:
            assert {(await consumer.receive(10)).value for _ in range(2)} == {b"1", b"2"}  # type: ignore[union-attr]

    with_two_groups(tmp_path, scenario)


def test_groups_that_do_not_agree_for_a_moment_are_asked_again(tmp_path: Path) -> None:
    async def scenario(groups: TwoGroups) -> None:
        moved = groups.map.place("acme", "west")
        groups.groups["west"] = groups.map.place("acme", "main")
        async with headpond.connect(groups.url) as client:
            asyncio.get_running_loop().call_later(0.1, groups.learn, moved)
            for _ in range(20):
                try:
                    await client.admin.create_topic(WEST, exist_ok=True)
                    break
                except WrongGroup:  # after a few rounds, which take a random time
                    continue
            assert groups.topics("west") == [WEST]

    with_two_groups(tmp_path, scenario)


def test_groups_that_never_agree_do_not_send_a_client_in_circles(tmp_path: Path) -> None:
    async def scenario(groups: TwoGroups) -> None:
        groups.groups["west"] = groups.map.place("acme", "main")
        async with headpond.connect(groups.url) as client:
            with pytest.raises(WrongGroup):
                await client.admin.show_topic(WEST)
            with pytest.raises(WrongGroup):
                await client.consumer(WEST, "s").open()
            with pytest.raises(WrongGroup):
                await client.producer(WEST).open()
        assert groups.servers["west"].core.context.counters["connections_opened"] == 1

    with_two_groups(tmp_path, scenario)


def test_without_redirects_a_client_stays_where_it_is(tmp_path: Path) -> None:
    async def scenario(groups: TwoGroups) -> None:
        async with headpond.connect(groups.url, redirects="none") as client:
            with pytest.raises(WrongGroup, match="tenant acme is on group west, at headpond://") as refused:
                await client.admin.show_topic(WEST)
            assert refused.value.successor == groups.urls["west"]

    with_two_groups(tmp_path, scenario)


def test_each_group_has_its_own_tokens(tmp_path: Path) -> None:
    async def scenario(groups: TwoGroups) -> None:
        secrets: dict[str, str] = {}
        for group, url in groups.urls.items():
            async with headpond.connect(url) as client:
                made = await client.admin.create_token("all", rights=["admin"], scopes=["*"])
                secrets[url] = made.secret
            assert made.secret, group
        async with headpond.connect(groups.url, token=secrets) as client:
            with pytest.raises(TopicNotFound):
                await client.admin.show_topic(WEST)
        async with headpond.connect(groups.url, token=secrets[groups.url]) as client:
            for _ in range(2):
                with pytest.raises(headpond.HeadpondError) as refused:
                    await client.admin.show_topic(WEST)
                assert refused.value.code == "token-unknown"

    with_two_groups(tmp_path, scenario)
