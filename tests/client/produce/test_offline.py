"""A producer whose node is unreachable: at the start, in between, for good."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pyarrow as pa

import headpond
import headpond.sync
from headpond.client.link.dialling import Backoff
from headpond.producer.encoder import Sharder
from tests.client.processes import lone_producer
from tests.client.reading import read_all, values_at
from tests.fire.real_node import RealNode, wait_until

QUICK = Backoff(0.01, 0.05)


def connect(url: str) -> headpond.Client:
    return headpond.connect(url, backoff=QUICK, wait=False)


def refill_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("**/*.refill"))


async def test_a_producer_starts_with_the_node_away_and_delivers_when_it_is_there(
    node: RealNode, topic: str, state_folder: Path
) -> None:
    node.kill()
    async with connect(node.url) as client, client.producer(topic) as producer:
        promises = [producer.post(b"%d" % number) for number in range(5)]
        receipts = [await promise for promise in promises]
        assert {receipt.outcome for receipt in receipts} == {"spilled"}
        assert {receipt.durability for receipt in receipts} == {"sync"} and receipts[0].safe
        assert len(refill_files(state_folder)) == 1
        await asyncio.to_thread(node.start)
        for promise in promises:
            assert (await promise.confirmed()).stored
        assert (await promises[0]).outcome == "stored", "the receipt says it too"
        assert producer.stats.spilled == 5
    assert await values_at(node.url, topic) == [b"%d" % number for number in range(5)]
    assert refill_files(state_folder) == []


async def test_with_a_topic_that_is_remembered_messages_are_cut_for_its_shards(
    node: RealNode, topic: str
) -> None:
    async with headpond.connect(node.url) as client:
        await client.admin.create_topic(topic, shards=4)
        async with client.producer(topic) as producer:
            await producer.send(b"first", key=b"a")
    node.kill()
    async with connect(node.url) as client, client.producer(topic) as producer:
        assert producer.shards == 4
        receipts = [await producer.send(b"%d" % n, key=b"key %d" % n) for n in range(8)]
        await asyncio.to_thread(node.start)
        await producer.reached()
    async with headpond.connect(node.url) as client:
        messages = await read_all(client, topic, 9)
    found = {message.value: message.identity for message in messages}
    assert [found[b"%d" % n] for n in range(8)] == [receipt.identity for receipt in receipts]


async def test_rows_without_a_shard_get_the_shards_of_their_keys_and_every_key_keeps_its_order(
    node: RealNode, topic: str, state_folder: Path
) -> None:
    async with headpond.connect(node.url) as client:
        await client.admin.create_topic(topic, shards=4)
    node.kill()
    async with connect(node.url) as client, client.producer(topic, batch_rows=10) as producer:
        assert producer.shards == 1
        for number in range(300):
            await producer.send(b"%d" % number, key=b"key %d" % (number % 13))
        await asyncio.to_thread(node.start)
        for number in range(300, 400):  # with a shard or without one
            await producer.send(b"%d" % number, key=b"key %d" % (number % 13))
        await producer.reached()
        assert producer.shards == 4
        assert (await producer.send(b"400", key=b"key 10")).stored
    async with headpond.connect(node.url) as client:
        messages = await read_all(client, topic, 401)
        info = await client.admin.show_topic(topic)
    assert sum(shard.entry_next for shard in info.shard_list) == 401
    by_key: dict[bytes | None, list[int]] = {}
    for message in messages:
        assert message.key is not None and message.shard == Sharder(2).of_key(message.key)
        by_key.setdefault(message.key, []).append(int(message.value))
    assert all(numbers == sorted(numbers) for numbers in by_key.values())
    assert refill_files(state_folder) == []


async def test_promises_of_rows_that_had_no_shard_give_their_final_identities(
    node: RealNode, topic: str
) -> None:
    async with headpond.connect(node.url) as client:
        await client.admin.create_topic(topic, shards=4)
    node.kill()
    async with connect(node.url) as client, client.producer(topic) as producer:
        promises = [producer.post(b"%d" % n, key=b"key %d" % n) for n in range(20)]
        spilled = [await promise for promise in promises]
        assert {str(receipt.outcome) for receipt in spilled} == {"spilled"}
        assert {receipt.identity.segment for receipt in spilled} == {-1}, "they have no number yet"
        await asyncio.to_thread(node.start)
        stored = [await promise.confirmed() for promise in promises]
    async with headpond.connect(node.url) as client:
        messages = await read_all(client, topic, 20)
    found = {message.value: (message.identity, message.entry) for message in messages}
    assert [found[b"%d" % n] for n in range(20)] == [(each.identity, each.entry) for each in stored]
    assert len({receipt.shard for receipt in stored}) == 4


def test_rows_of_the_blocking_twin_get_their_shards_while_threads_send(node: RealNode, topic: str) -> None:
    with headpond.sync.connect(node.url) as client:
        client.admin.create_topic(topic, shards=4)
    node.kill()
    with (
        headpond.sync.connect(node.url, backoff=QUICK, wait=False) as client,
        client.producer(topic) as producer,
    ):
        starting = threading.Thread(target=node.start)
        starting.start()
        number = 0
        while starting.is_alive() or number % 500:
            producer.post(b"%d" % number, key=b"key %d" % (number % 13))
            number += 1
        starting.join()
        producer.flush()
        wait_until(lambda: producer.stats.refill_bytes == 0)  # closing waits only for a node that is connected
    messages = asyncio.run(_all(node.url, topic, number))
    by_key: dict[bytes | None, list[int]] = {}
    for message in messages:
        assert message.key is not None and message.shard == Sharder(2).of_key(message.key)
        by_key.setdefault(message.key, []).append(int(message.value))
    assert sorted(n for numbers in by_key.values() for n in numbers) == list(range(number))
    assert all(numbers == sorted(numbers) for numbers in by_key.values())


async def _all(url: str, topic: str, count: int) -> list[headpond.Message]:
    async with headpond.connect(url) as client:
        return await read_all(client, topic, count)


async def test_tables_under_way_when_the_shards_turn_out_are_cut_for_them(node: RealNode, topic: str) -> None:
    async with headpond.connect(node.url) as client:
        await client.admin.create_topic(topic, shards=4)
    node.kill()

    def table(first: int) -> pa.Table:
        numbers = range(first, first + 2000)
        return pa.table({"value": [b"%d" % n for n in numbers], "key": [b"%d" % (n % 29) for n in numbers]})

    async with (
        connect(node.url) as client,
        client.producer(topic, batch_bytes=2000, memory_max=10_000) as producer,
    ):
        starting = asyncio.create_task(asyncio.to_thread(node.start))
        sent, after = 0, 3
        while after:
            result = await producer.send_batch(table(sent))
            assert result.rows == len(result.receipts) == 2000 and result.rejected == 0
            sent += 2000
            after -= producer.shards == 4
        await starting
    async with headpond.connect(node.url) as client:
        messages = await read_all(client, topic, sent)
    last: dict[bytes | None, int] = {}
    for message in messages:
        assert message.key is not None and message.shard == Sharder(2).of_key(message.key)
        assert int(message.value) == last.get(message.key, int(message.value) % 29 - 29) + 29
        last[message.key] = int(message.value)


async def test_a_remembered_topic_that_was_created_again_with_other_shards_is_recognised(
    node: RealNode, topic: str
) -> None:
    async with headpond.connect(node.url) as client:
        await client.admin.create_topic(topic, shards=2)
        async with client.producer(topic) as producer:
            await producer.send(b"gone with the topic")
        await client.admin.delete_topic(topic)
        await client.admin.create_topic(topic, shards=8)
    node.kill()
    async with connect(node.url) as client, client.producer(topic) as producer:
        assert producer.shards == 2
        await producer.send(b"a", key=b"k")
        await asyncio.to_thread(node.start)
        await producer.reached()
        assert producer.shards == 8
    assert await values_at(node.url, topic) == [b"a"]


async def test_a_node_that_lost_its_disk_gets_the_topic_again_as_it_was(tmp_path: Path, topic: str) -> None:
    with RealNode(tmp_path / "one") as node, RealNode(tmp_path / "empty") as other:
        async with connect(node.url) as client:
            await client.admin.create_topic(topic, shards=4)
            async with client.producer(topic, batch_rows=1) as producer:
                for number in range(8):
                    await producer.send(b"%d" % number)
                node.kill()
                other.kill()
                node.data = other.data
                await asyncio.to_thread(node.start)
                receipts = [await producer.send(b"later %d" % number) for number in range(8)]
                assert {str(receipt.outcome) for receipt in receipts} <= {"stored", "spilled"}
                await producer.reached()
                info = await client.admin.show_topic(topic)
                assert info.shards == 4
            assert len(producer.stats.holes) == 4, "two segments of each shard are named as lost"
            assert all("segments 0–1" in hole for hole in producer.stats.holes)
        assert sorted(await values_at(node.url, topic)) == [b"later %d" % n for n in range(8)]


async def test_messages_spilled_by_one_run_come_before_those_of_the_next_one(
    node: RealNode, topic: str
) -> None:
    node.kill()
    async with connect(node.url) as client, client.producer(topic, name="p") as producer:
        await producer.send(b"before")
    node.start()
    async with connect(node.url) as client, client.producer(topic, name="p") as producer:
        await producer.send(b"after")
    assert await values_at(node.url, topic) == [b"before", b"after"]


async def test_a_node_that_comes_back_late_gets_all_of_it_in_order(node: RealNode, topic: str) -> None:
    async with (
        connect(node.url) as client,
        client.producer(topic, spill_after=0.1, batch_rows=10) as producer,
    ):
        for number in range(100):
            producer.post(b"%d" % number)
        await producer.flush()
        node.kill()
        for number in range(100, 300):
            producer.post(b"%d" % number)
        await producer.flush()
        assert producer.stats.spilled > 0
        await asyncio.to_thread(node.start)
        for number in range(300, 400):
            producer.post(b"%d" % number)
        await producer.flush()
        await producer.reached()
    assert await values_at(node.url, topic) == [b"%d" % number for number in range(400)]


def test_a_program_that_ends_without_closing_leaves_nothing_behind_in_memory(
    node: RealNode, topic: str, state_folder: Path
) -> None:
    with lone_producer("post", node.url, topic, 1000) as process:
        assert process.wait(60) == 0
    assert asyncio.run(values_at(node.url, topic)) == [b"%d" % number for number in range(1000)]
    node.kill()
    with lone_producer("post", node.url, topic, 10) as process:
        assert process.wait(60) == 0
    assert len(refill_files(state_folder)) == 1
    node.start()
    with headpond.sync.connect(node.url) as client, client.producer(topic):
        pass
    assert len(asyncio.run(values_at(node.url, topic))) == 1010
