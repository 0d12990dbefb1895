"""Producing to a real node."""

from __future__ import annotations

import asyncio

import pyarrow as pa
import pytest

import headpond
from headpond.client.heap import LARGE_BYTES
from headpond.client.link.spin import LoopSpin
from headpond.client.produce import producer as producer_module
from headpond.model.errors import (
    BadRequest,
    BadTopicName,
    BufferFull,
    Closed,
    SchemaMismatch,
    SegmentTooLarge,
    TopicNotFound,
)
from headpond.producer.encoder import Sharder
from tests.client.reading import read_all


async def test_a_message_comes_back_as_it_was_sent(shared_url: str, topic: str) -> None:
    async with headpond.connect(shared_url) as client:
        async with client.producer(topic, name="till-1") as producer:
            receipt = await producer.send(b"v", key=b"k", id="o-1", headers={"a": "b", "ü": "☃"})
            assert receipt.outcome == "stored"
            assert receipt.durability == "sync"
            assert receipt.entry == 0
            assert receipt.destination == shared_url
        [message] = await read_all(client, topic, 1)
        assert (message.value, message.key, message.id) == (b"v", b"k", "o-1")
        assert message.headers == {"a": "b", "ü": "☃"}
        assert message.identity == receipt.identity
        assert (message.entry, message.shard, message.attempt) == (0, 0, 1)
        assert message.topic == f"default/default/default/{topic}"
        assert message.sent_at <= message.stored_at


async def test_mutable_bytes_are_taken_as_they_are_when_they_are_posted(shared_url: str, topic: str) -> None:
    async with headpond.connect(shared_url) as client, client.producer(topic) as producer:
        buffer = bytearray(b"before")
        producer.post(buffer)
        producer.post(memoryview(b"view")[1:3])
        buffer[:] = b"after!"
        await producer.flush()
        assert [message.value for message in await read_all(client, topic, 2)] == [b"before", b"ie"]


async def test_posts_keep_their_order_in_few_segments(shared_url: str, topic: str) -> None:
    async with headpond.connect(shared_url) as client, client.producer(topic) as producer:
        promises = [producer.post(b"%d" % number) for number in range(20_000)]
        await producer.flush()
        assert [(await promise).entry for promise in promises] == list(range(20_000))
        messages = await read_all(client, topic, 20_000)
        assert [int(message.value) for message in messages] == list(range(20_000))
        assert len({message.identity.segment for message in messages}) == 4
        assert producer.stats.stored == 20_000
        assert producer.stats.memory_bytes == 0


async def test_concurrent_sends_share_segments(shared_url: str, topic: str) -> None:
    async with headpond.connect(shared_url) as client, client.producer(topic) as producer:
        receipts = await asyncio.gather(*(producer.send(b"x") for _ in range(200)))
        assert {receipt.identity.segment for receipt in receipts} == {0}
        assert sorted(receipt.entry or 0 for receipt in receipts) == list(range(200))


async def test_the_loop_spins_for_the_answers_of_sends_that_follow_each_other(
    shared_url: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[float] = []
    ended: list[float] = []
    begin, end = LoopSpin.begin, LoopSpin.end

    def note_begin(it: LoopSpin) -> float:
        begun.append(begin(it))
        return begun[-1]

    def note_end(it: LoopSpin, began_s: float) -> None:
        ended.append(began_s)
        end(it, began_s)

    monkeypatch.setattr(LoopSpin, "begin", note_begin)
    monkeypatch.setattr(LoopSpin, "end", note_end)
    async with headpond.connect(shared_url) as client, client.producer(topic) as producer:
        await producer.send(b"makes the file")
        for _ in range(3):
            await producer.send(b"alone")
        await asyncio.gather(*(producer.send(b"together") for _ in range(3)))
    assert len(begun) == 4, "those together share a segment, but for the first"
    assert ended == begun


@pytest.mark.parametrize("bytes_each", [100, 200_000])
async def test_a_program_that_sends_large_segments_keeps_freed_memory(
    shared_url: str, topic: str, monkeypatch: pytest.MonkeyPatch, bytes_each: int
) -> None:
    calls: list[str] = []
    monkeypatch.setattr(producer_module, "keep_freed_memory", lambda: calls.append(""))
    async with headpond.connect(shared_url) as client, client.producer(topic) as producer:
        await producer.send(bytes(bytes_each))
        await producer.send_batch(pa.table({"value": [bytes(bytes_each)]}))
    assert len(calls) == (2 if bytes_each > LARGE_BYTES else 0)


async def test_posts_are_sent_after_a_lone_send_was_refused(shared_url: str, topic: str) -> None:
    async with headpond.connect(shared_url) as client, client.producer(topic) as producer:
        await producer.send(b"one")
        with pytest.raises(BadRequest):
            await producer.send("two")  # type: ignore[arg-type]
        async with asyncio.timeout(20):
            assert (await producer.post(b"three")).entry == 1


async def test_keys_stay_on_their_shard_in_order(shared_url: str, topic: str) -> None:
    async with headpond.connect(shared_url) as client:
        await client.admin.create_topic(topic, shards=8)
        async with client.producer(topic, batch_rows=100) as producer:
            for number in range(3000):
                producer.post(b"%d" % number, key=b"k%d" % (number % 37))
        seen: dict[bytes, list[int]] = {}
        for message in await read_all(client, topic, 3000):
            assert message.key is not None
            assert message.shard == Sharder(3).of_key(message.key)
            seen.setdefault(message.key, []).append(int(message.value))
        assert all(numbers == sorted(numbers) for numbers in seen.values())
        assert sum(map(len, seen.values())) == 3000


async def test_messages_without_a_key_use_all_shards(shared_url: str, topic: str) -> None:
    async with headpond.connect(shared_url) as client:
        await client.admin.create_topic(topic, shards=4)
        async with client.producer(topic, batch_rows=10) as producer:
            receipts = [producer.post(b"x") for _ in range(80)]
            shards = [(await receipt).shard for receipt in receipts]
        assert {shard: shards.count(shard) for shard in range(4)} == dict.fromkeys(range(4), 20)


@pytest.mark.parametrize("shards", [1, 4])
async def test_a_table_is_sent_in_columns_with_receipts_in_its_order(
    shared_url: str, topic: str, shards: int
) -> None:
    rows = 30_000
    table = pa.table(
        {
            "value": pa.array([b"%d" % row for row in range(rows)]),
            "key": pa.array([None if row % 5 == 0 else f"k{row % 11}" for row in range(rows)]),
        }
    )
    async with headpond.connect(shared_url) as client:
        await client.admin.create_topic(topic, shards=shards)
        async with client.producer(topic, batch_bytes=32 * 1024) as producer:
            result = await producer.send_batch(table)
            assert (result.rows, result.stored) == (rows, rows)
            assert (result.duplicate, result.spilled, result.rejected) == (0, 0, 0)
            places = {(receipt.shard, receipt.entry): row for row, receipt in enumerate(result.receipts)}
            assert producer.stats.posted == rows
        assert len(places) == rows
        messages = await read_all(client, topic, rows)
        assert all(places[message.shard, message.entry] == int(message.value) for message in messages)


async def test_a_table_comes_after_messages_posted_before_it(shared_url: str, topic: str) -> None:
    async with headpond.connect(shared_url) as client, client.producer(topic) as producer:
        producer.post(b"first")
        await producer.send_batch(pa.table({"value": [b"second"]}))
        await producer.send(b"third")
        values = [message.value for message in await read_all(client, topic, 3)]
        assert values == [b"first", b"second", b"third"]


async def test_a_table_at_fault_sends_nothing(shared_url: str, topic: str) -> None:
    async with headpond.connect(shared_url) as client, client.producer(topic) as producer:
        with pytest.raises(SchemaMismatch, match="colour"):
            await producer.send_batch(pa.table({"value": [b"x"], "colour": ["red"]}))
        assert producer.stats.posted == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"value": "text"}, "value is bytes, not str"),
        ({"value": b"", "key": 5}, "key is bytes or text, not int"),
        ({"value": b"", "id": b"bytes"}, "id is text, not bytes"),
        ({"value": b"", "id": "\ud800"}, "UTF-8"),
        ({"value": b"", "headers": {"a": 1}}, "header 'a' is text, not int"),
        ({"value": b"", "headers": {1: "a"}}, "header's name is text, not int"),
        ({"value": b"", "headers": ["a"]}, "headers are a mapping"),
    ],
)
async def test_a_message_of_the_wrong_kind_is_refused_at_once(
    shared_url: str, topic: str, arguments: dict[str, object], words: str
) -> None:
    async with headpond.connect(shared_url) as client, client.producer(topic) as producer:
        with pytest.raises(BadRequest, match=words):
            producer.post(**arguments)  # type: ignore[arg-type]
        assert (await producer.send(b"fine")).entry == 0


async def test_a_message_too_large_for_a_segment_is_refused_at_once_and_the_largest_passes(
    shared_url: str, topic: str
) -> None:
    async with headpond.connect(shared_url) as client, client.producer(topic) as producer:
        with pytest.raises(SegmentTooLarge):
            producer.post(b"x" * 8 * 1024 * 1024)
        largest = 8 * 1024 * 1024 - 5000
        await producer.send(b"x" * largest)
        assert len((await read_all(client, topic, 1))[0].value) == largest


async def test_a_full_buffer_refuses_posts_and_makes_sends_wait(shared_url: str, topic: str) -> None:
    async with headpond.connect(shared_url) as client, client.producer(topic, memory_max=1000) as producer:
        for _ in range(7):
            producer.post(b"x" * 100)
        with pytest.raises(BufferFull):
            producer.post(b"x" * 100)
        receipts = await asyncio.gather(*(producer.send(b"y" * 100) for _ in range(500)))
        assert all(receipt.stored for receipt in receipts)
        assert producer.stats.stored == 507


async def test_lingering_rows_wait_for_company(shared_url: str, topic: str) -> None:
    async with headpond.connect(shared_url) as client, client.producer(topic, linger_s=0.2) as producer:
        first = producer.post(b"a")
        await asyncio.sleep(0.01)
        second = producer.post(b"b")
        assert (await first).identity.segment == (await second).identity.segment == 0


async def test_a_topic_is_created_on_first_use_only_if_asked(shared_url: str, topic: str) -> None:
    async with headpond.connect(shared_url) as client:
        with pytest.raises(TopicNotFound):
            await client.producer("nowhere", create=False).open()
        with pytest.raises(BadTopicName):
            client.producer("a//b")
        with pytest.raises(BadRequest):
            client.producer(topic, copies=[shared_url])
        async with client.producer(f"a/b/c/{topic}") as producer:
            await producer.send(b"x")
        assert (await client.admin.show_topic(f"a/b/c/{topic}")).shards == 1


async def test_a_producer_that_was_closed_takes_nothing(shared_url: str, topic: str) -> None:
    async with headpond.connect(shared_url) as client:
        async with client.producer(topic) as producer:
            await producer.send(b"x")
        for call in (
            producer.send(b"y"),
            producer.flush(),
            producer.send_batch(pa.table({"value": [b"z"]})),
        ):
            with pytest.raises(Closed):
                await call
        await producer.close()
