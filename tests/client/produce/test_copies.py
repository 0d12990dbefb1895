"""Several destinations: every message goes to each of them, and the receipt has the outcome of each."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import headpond
import headpond.sync
from headpond.client.link.dialling import Backoff
from headpond.model.errors import BadRequest, Closed, TopicMismatch
from headpond.wire.frame import Frame
from tests.client.peer import serving
from tests.client.reading import values_at
from tests.client.test_connecting import quick
from tests.fire.real_node import RealNode

QUICK = Backoff(0.01, 0.05)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[RealNode, RealNode]]:
    with RealNode(tmp_path / "one") as one, RealNode(tmp_path / "two") as two:
        yield one, two


async def test_both_nodes_have_every_message_under_the_same_identity(
    pair: tuple[RealNode, RealNode], topic: str
) -> None:
    one, two = pair
    async with headpond.connect(one.url) as client:
        await client.admin.create_topic(topic, shards=2)
        async with client.producer(topic, copies=[two.url]) as producer:
            receipt = await producer.send(b"x", key=b"k")
            assert receipt.outcome == "stored"
            assert [(copy.destination, copy.outcome) for copy in receipt.copies] == [
                (one.url, "stored"),
                (two.url, "stored"),
            ]
            assert {copy.identity for copy in receipt.copies} == {receipt.identity}
            result = await producer.send_batch(pa.table({"value": [b"a", b"b"], "key": [b"k", b"k"]}))
            assert result.stored == 2
    async with headpond.connect(two.url) as client:
        assert (await client.admin.show_topic(topic)).shards == 2, "the copy was made like the first"
    assert await values_at(one.url, topic) == await values_at(two.url, topic) == [b"x", b"a", b"b"]


async def test_a_destination_that_was_away_gets_the_missed_messages(
    pair: tuple[RealNode, RealNode], topic: str
) -> None:
    one, two = pair
    async with (
        headpond.connect(one.url, backoff=QUICK) as client,
        client.producer(topic, copies=[two.url], spill_after=0.1) as producer,
    ):
        await producer.send(b"0")
        two.kill()
        promises = [producer.post(b"%d" % number) for number in range(1, 20)]
        receipts = [await promise for promise in promises]
        for receipt in receipts:
            assert receipt.outcome == "spilled", "the gravest of both"
            assert [str(copy.outcome) for copy in receipt.copies] == ["stored", "spilled"]
        assert (await promises[0].confirmed("one")).stored
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await promises[0].confirmed("quorum")
        await asyncio.to_thread(two.start)
        for promise in promises:
            full = await promise.confirmed("all")
            assert [str(copy.outcome) for copy in full.copies] == ["stored", "stored"]
    assert await values_at(one.url, topic) == [b"%d" % number for number in range(20)]
    assert await values_at(two.url, topic) == [b"%d" % number for number in range(20)]


async def test_the_first_may_be_away_while_the_copy_is_there(
    pair: tuple[RealNode, RealNode], topic: str
) -> None:
    one, two = pair
    async with headpond.connect(two.url) as client:
        await client.admin.create_topic(topic, shards=4)
    one.kill()
    async with headpond.connect(one.url, backoff=QUICK, wait=False) as client:
        async with client.producer(topic, copies=[two.url]) as producer:
            await producer.send(b"early", key=b"k")
            await asyncio.to_thread(one.start)
            await producer.reached()
            assert producer.shards == 4, "the copy says how the topic is"
            receipt = await producer.send(b"late", key=b"k")
            assert [str(copy.outcome) for copy in receipt.copies] == ["stored", "stored"]
        assert (await client.admin.show_topic(topic)).shards == 4, "and the first was made like it"
    assert await values_at(one.url, topic) == await values_at(two.url, topic) == [b"early", b"late"]


async def test_a_copy_with_other_shards_refuses_and_the_first_still_stores(
    pair: tuple[RealNode, RealNode], topic: str
) -> None:
    one, two = pair
    async with headpond.connect(one.url) as client:
        await client.admin.create_topic(topic, shards=2)
    async with headpond.connect(two.url) as client:
        await client.admin.create_topic(topic, shards=8)
    async with headpond.connect(one.url) as client:
        producer = await client.producer(topic, copies=[two.url]).open()
        promise = producer.post(b"x")
        with pytest.raises(TopicMismatch, match="8 shards") as caught:
            await promise
        outcomes = [str(copy.outcome) for copy in caught.value.receipt.copies]
        assert outcomes == ["stored", "rejected"]
        assert (await promise.confirmed("one")).stored
        with pytest.raises(TopicMismatch):
            await promise.confirmed("all")
        assert producer.unreachable == [two.url]
        await producer.close()
    assert await values_at(one.url, topic) == [b"x"]
    assert await values_at(two.url, topic) == []


async def test_a_number_of_destinations_that_cannot_be_is_refused() -> None:
    async with serving() as peer, quick(peer) as client, client.producer("t") as producer:
        conversation = await peer.conversation()
        promise = producer.post(b"x")
        conversation.answer(await conversation.next(Frame))
        for by in (0, 2, "most"):
            with pytest.raises(BadRequest, match="there are 1 destinations"):
                await promise.confirmed(by)
        assert (await promise.confirmed(1)).stored and (await promise.confirmed("quorum")).stored


async def test_waiting_for_a_delivery_ends_with_the_producer(node: RealNode, topic: str) -> None:
    node.kill()
    async with headpond.connect(node.url, backoff=QUICK, wait=False) as client:
        producer = await client.producer(topic).open()
        promise = producer.post(b"x")
        assert (await promise).outcome == "spilled"
        waiting = asyncio.create_task(promise.confirmed())
        await asyncio.sleep(0)
        await producer.close()
        with pytest.raises(Closed, match="spilled"):
            await waiting


def test_the_blocking_twin_waits_for_one_or_all(pair: tuple[RealNode, RealNode], topic: str) -> None:
    one, two = pair
    two.kill()
    with headpond.sync.connect(one.url, backoff=QUICK) as client:
        producer = client.producer(topic, copies=[two.url])
        promise = producer.post(b"x")
        assert promise.confirmed("one", timeout=20).stored
        assert promise.result(timeout=20).outcome == "spilled"
        two.start()
        assert [str(c.outcome) for c in promise.confirmed("all", timeout=20).copies] == ["stored", "stored"]
    assert asyncio.run(values_at(two.url, topic)) == [b"x"]
