"""Reading by position, without a subscription."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headpond
import headpond.sync
from headpond.broker.reading.fetch import READS_MAX
from headpond.client.reader import Reader
from headpond.model.errors import (
    BadFilter,
    BadRequest,
    Closed,
    HeadpondError,
    IncarnationChanged,
    LimitReached,
    TopicMismatch,
    TopicNotFound,
)
from tests.fire import packed_topic
from tests.fire.real_node import RealNode
from tests.fire.stored_topic import TOPIC, flip, log_files, records
from tests.fire.stored_topic import fill as fill_topic


async def fill(client: headpond.Client, topic: str, count: int, first: int = 0, batch_rows: int = 10) -> None:
    async with client.producer(topic, batch_rows=batch_rows) as producer:
        for number in range(first, first + count):
            producer.post(b"%d" % number)
        await producer.flush()


async def values(reader: Reader, start: int, end: int, **options: Any) -> list[bytes]:
    found: list[bytes] = []
    async for part in reader.read(0, start, end, **options):
        assert part.lost == []
        found += [message.value for batch in part.batches for message in batch.messages()]
    return found


async def test_many_segments_of_one_row_are_one_batch_of_the_rows_that_were_asked_for(
    shared_url: str, topic: str
) -> None:
    async with headpond.connect(shared_url) as client:
        await fill(client, topic, 100, batch_rows=1)
        async with client.reader(topic) as reader:
            (batch,) = (await reader.fetch(0, 5, 95)).batches
            messages = batch.messages()
            assert [message.value for message in messages] == [b"%d" % number for number in range(5, 95)]
            assert [(each.identity.segment, each.identity.row) for each in messages] == [
                (number, 0) for number in range(5, 95)
            ]
            chosen = await values(reader, 5, 95, filter="entry < 8 or entry > 92")
            assert chosen == [b"5", b"6", b"7", b"93", b"94"]
            singles = await reader.fetch(0, 0, rows_bytes_max=1)
            assert (singles.entry_next, len(singles.batches)) == (1, 1)


def test_packed_files_are_read_exactly_as_before(tmp_path: Path) -> None:
    with RealNode(tmp_path, config=packed_topic.CONFIG) as node:
        packed_topic.fill_packed(node, "t")

        async def scenario() -> None:
            async with headpond.connect(node.url) as client, client.reader("t") as reader:
                count = packed_topic.COUNT
                for start, end in ((0, count), (3, 4), (517, 1203), (count - 2, count)):
                    expected = [packed_topic.value(entry) for entry in range(start, end)]
                    assert await values(reader, start, end) == expected
                assert await values(reader, 40, 60, bytes_max=1) == list(map(packed_topic.value, range(40, 60)))
                whole = [batch async for part in reader.read(0, 0, count) for batch in part.batches]
                assert len(whole) < count / 20
                numbers = [each.identity.segment for batch in whole for each in batch.messages()]
                assert numbers == list(range(count))
                assert await values(reader, 0, count, filter="entry = 777 or entry = 3") == [b"3", b"777"]
                parts = [part async for part in reader.read(0, 50, count, named=True)]
                named = [batch for part in parts for batch in part.batches]
                assert len(named) < count / 20
                assert [each.value for batch in named for each in batch.messages()] == [
                    packed_topic.value(entry) for entry in range(50, count)
                ]
                names = {name for part in parts for name in part.producers.values()}
                blocks = {origin.block for batch in named for origin in batch.origins}
                assert names == {packed_topic.PRODUCER} and blocks == set(parts[0].producers)

        asyncio.run(scenario())


async def test_any_range_is_read_exactly_also_from_the_middle_of_a_segment(shared_url: str, topic: str) -> None:
    async with headpond.connect(shared_url) as client:
        await fill(client, topic, 95)
        async with client.reader(topic) as reader:
            (ends,) = await reader.ends()
            assert (ends.entry_first, ends.entry_next) == (0, 95)
            for start, end in ((0, 95), (3, 4), (7, 88), (94, 95), (5, 5)):
                expected = [b"%d" % number for number in range(start, end)]
                assert await values(reader, start, end) == expected
                assert await values(reader, start, end, bytes_max=1) == expected
            one = await reader.fetch(0, 90, bytes_max=1)
            assert one.entry_end == 95 and one.batches[0].entries.to_pylist()[0] == 90
            assert (await reader.fetch(0, 95)).batches == []
            with pytest.raises(BadRequest, match="ends at 95"):
                await values(reader, 90, 96)


async def test_a_part_ends_where_its_rows_take_too_much_however_small_they_were_stored(
    shared_url: str, topic: str
) -> None:
    async with headpond.connect(shared_url) as client:
        async with client.producer(topic, batch_rows=1) as producer:
            for number in range(10):
                await producer.send(b"%d" % number + b"x" * 100_000)
        async with client.reader(topic) as reader:
            assert (await reader.fetch(0, 0)).entry_next == 10
            found, entry = [], 0
            while entry < 10:
                part = await reader.fetch(0, entry, rows_bytes_max=250_000)
                assert part.nbytes < 350_000
                found += [message.value[:1] for batch in part.batches for message in batch.messages()]
                entry = part.entry_next
            assert found == [b"%d" % number for number in range(10)]


async def test_a_position_of_another_incarnation_or_topic_is_recognised(shared_url: str, topic: str) -> None:
    async with headpond.connect(shared_url) as client:
        await fill(client, topic, 3)
        async with client.reader(topic) as reader:
            with pytest.raises(IncarnationChanged):
                await reader.fetch(0, 0, incarnation=7)
            with pytest.raises(BadRequest, match="no shard 1"):
                await reader.fetch(1, 0)
            await client.admin.delete_topic(topic)
            with pytest.raises(TopicNotFound):
                await reader.fetch(0, 0)
            with pytest.raises(TopicNotFound):
                await reader.ends()
            uuid = reader.uuid
            await fill(client, topic, 1)
            with pytest.raises(TopicNotFound):
                await reader.fetch(0, 0)
            with pytest.raises(TopicMismatch):
                await reader.ends()
        with pytest.raises(TopicMismatch, match="created again"):
            await client.reader(topic, uuid=uuid).open()
        with pytest.raises(Closed):
            await reader.fetch(0, 0)


async def test_a_wait_for_growth_ends_with_it_and_not_before(shared_url: str, topic: str) -> None:
    async with headpond.connect(shared_url) as client:
        await client.admin.create_topic(topic, shards=2)
        await client.admin.create_topic(f"{topic}-other")
        names = [topic, f"{topic}-other", f"{topic}-none"]
        at_once = await client.admin.ends(names)
        assert [each.uuid is None for each in at_once] == [False, False, True]
        known = [[0, 0], [0], []]
        waiting = asyncio.create_task(client.admin.ends(names, known, wait=30))
        await client.admin.show_topic(topic)  # the node has taken the question by then
        assert not waiting.done()
        await fill(client, f"{topic}-other", 4)
        ends = await waiting
        assert [[shard.entry_next for shard in each.shards] for each in ends][1][0] > 0
        known = [[0, 0], [4], []]
        waiting = asyncio.create_task(client.admin.ends(names, known, wait=30))
        await client.admin.show_topic(topic)
        await client.admin.delete_topic(topic)
        assert (await waiting)[0].uuid is None
        assert (await client.admin.ends([f"{topic}-other"], [[4]], wait=0.05))[0].shards[0].entry_next == 4
        with pytest.raises(BadRequest):
            await client.admin.ends([topic], [[0], [0]], wait=1)
        with pytest.raises(BadRequest):
            await client.admin.ends([topic], [[0]], wait=1000)


async def test_entries_are_found_by_the_time_they_were_stored(shared_url: str, topic: str) -> None:
    async with headpond.connect(shared_url) as client, client.producer(topic) as producer:
        await producer.send(b"before")
        async with client.reader(topic) as reader:
            (batch,) = (await reader.fetch(0, 0)).batches
            (first,) = batch.messages()
            await producer.send(b"after")
            (_, batch) = (await reader.fetch(0, 0)).batches
            (second,) = batch.messages()
            assert await reader.entries_at(first.stored_at) == [0]
            assert await reader.entries_at(second.stored_at) == [1 if second.stored_at > first.stored_at else 0]
            assert await reader.entries_at(datetime(9000, 1, 1, tzinfo=UTC)) == [2]


async def test_fetches_of_one_connection_are_bounded_and_each_is_answered(shared_url: str, topic: str) -> None:
    async with headpond.connect(shared_url) as client:
        await fill(client, topic, 50)
        async with client.reader(topic) as reader:
            asked = [reader.fetch(0, number % 50, number % 50 + 1) for number in range(3 * READS_MAX)]
            answers = await asyncio.gather(*asked, return_exceptions=True)
    served = [answer for answer in answers if not isinstance(answer, BaseException)]
    refused = [answer for answer in answers if isinstance(answer, HeadpondError)]
    assert len(served) + len(refused) == 3 * READS_MAX and len(served) >= READS_MAX
    assert all(isinstance(answer, LimitReached) for answer in refused)


async def test_a_subscription_is_advanced_by_positions_and_never_goes_back(node: RealNode, topic: str) -> None:
    async with headpond.connect(node.url) as client:
        await client.admin.create_topic(topic, shards=2)
        await fill(client, topic, 40)
        ends = [shard.entry_next for shard in (await client.admin.ends([topic]))[0].shards]
        made = await client.admin.create_subscription(topic, "place", positions=[ends[0], 0])
        assert made.positions == [ends[0], 0] and made.unsettled == ends[1]
        again = await client.admin.create_subscription(topic, "place", start="latest", exist_ok=True)
        assert again.positions == made.positions
        assert await client.admin.advance(topic, "place", [0, 10]) == [ends[0], 10]
        assert await client.admin.advance(topic, "place", [0, 4]) == [ends[0], 10]
        with pytest.raises(BadRequest, match="its entries end"):
            await client.admin.advance(topic, "place", [ends[0] + 1, 10])
        with pytest.raises(BadRequest, match="2 shards"):
            await client.admin.advance(topic, "place", [1])
        with pytest.raises(TopicMismatch):
            await client.admin.advance(topic, "place", [0, 11], topic_uuid=bytes(16))
        node.kill()
        node.start()
        info = await client.admin.show_subscription(topic, "place")
        assert info.positions == [ends[0], 10] and info.unsettled == ends[1] - 10


async def test_entries_that_retention_deleted_are_reported_by_exact_ranges(node: RealNode, topic: str) -> None:
    async with headpond.connect(node.url) as client:
        await client.admin.create_topic(topic, settings={"hard_ttl": 1.0})
        await fill(client, topic, 10)
        kept = 0
        while not kept:
            await fill(client, topic, 1)
            kept = (await client.admin.ends([topic]))[0].shards[0].entry_first
            await asyncio.sleep(0.2)
        async with client.reader(topic) as reader:
            part = await reader.fetch(0, 2)
        assert [tuple(span) for span in part.lost] == [(0, 2, kept, "retention")]
        entries = [entry for batch in part.batches for entry in batch.entries.to_pylist()]
        assert entries == list(range(kept, part.entry_next))


def test_the_blocking_twin_reads_the_same(shared_url: str, topic: str) -> None:
    with headpond.sync.connect(shared_url) as client:
        with client.producer(topic) as producer:
            for number in range(20):
                producer.post(b"%d" % number)
        with client.reader(topic) as reader:
            assert reader.shards == 1 and reader.schemas is None
            assert reader.ends()[0].entry_next == 20
            parts = list(reader.read(0, 5, 20, bytes_max=1))
            found = [message.value for part in parts for batch in part.batches for message in batch.messages()]
            assert found == [b"%d" % number for number in range(5, 20)]
            assert reader.entries_at(datetime(1990, 1, 1, tzinfo=UTC)) == [0]


async def test_a_filter_is_held_against_the_rows_at_the_node(shared_url: str, topic: str) -> None:
    async with headpond.connect(shared_url) as client:
        async with client.producer(topic, batch_rows=10) as producer:
            for number in range(100):
                producer.post(b"%d" % number, key=b"k%d" % (number // 50), headers={"odd": str(number % 2)})
        async with client.reader(topic) as reader:
            odd = await values(reader, 5, 95, filter="headers['odd'] = '1' and entry < 93")
            assert odd == [b"%d" % number for number in range(5, 93, 2)]
            none = [part async for part in reader.read(0, 0, 100, filter="id is not null", bytes_max=1)]
            assert [part.batches for part in none] == [[]] * len(none) and none[-1].entry_next == 100
            with pytest.raises(BadFilter, match="character 1 of the filter"):
                await reader.fetch(0, 0, filter="nothing = 1")
        await client.admin.create_topic(f"{topic}-typed", schema=pa.schema([("n", pa.int32())]))
        async with client.producer(f"{topic}-typed") as producer:
            await producer.send_batch(pa.table({"n": pa.array(range(50), pa.int32())}))
            wider = pa.schema([("n", pa.int64()), ("new", pa.string())])
            await client.admin.alter_topic(f"{topic}-typed", schema=wider)
        async with client.reader(f"{topic}-typed") as reader:
            part = await reader.fetch(0, 0, filter="value.n in (3, 4, 40) and value.new is null")
            assert part.batches[0].entries.to_pylist() == [3, 4, 40]
            assert part.batches[0].arrow["value"].to_pylist()[2] == {"n": 40, "new": None}


async def test_chosen_columns_alone_travel_and_producers_have_names(shared_url: str, topic: str) -> None:
    typed = f"{topic}-typed"
    columns = pa.schema([pa.field("n", pa.int64(), nullable=False), pa.field("text", pa.string())])
    async with headpond.connect(shared_url) as client:
        await client.admin.create_topic(typed, schema=columns)
        async with client.producer(topic, name="till-1") as producer, client.producer(typed) as other:
            for number in range(20):
                producer.post(b"v" * 1000, key=b"%d" % number, headers={"h": "1"})
                other.post({"n": number, "text": "t" * 100}, id=f"i-{number}")
        async with client.reader(topic) as reader:
            part = await reader.fetch(0, 0, columns=["key"], named=True)
            (whole,) = (await reader.fetch(0, 0)).batches
            assert set(part.producers.values()) == {"till-1"} and whole.nbytes > 20_000
            (batch,) = part.batches
            assert batch.nbytes < 1000 and batch.column("value") is batch.column("headers") is None
            assert [each.key for each in batch.messages()] == [each.key for each in whole.messages()]
            assert (batch.origins, batch.messages()[3].sent_at) == (
                whole.origins,
                whole.messages()[3].sent_at,
            )
            part = await reader.fetch(0, 0, columns=[], filter="key = '7'")
            assert [batch.spans for batch in part.batches] == [[(7, 8)]] and part.producers == {}
            with pytest.raises(BadRequest, match="no column 'colour'"):
                await reader.fetch(0, 0, columns=["colour"])
        async with client.reader(typed) as reader:
            (batch,) = (await reader.fetch(0, 0, columns=["id"], named=True)).batches
            assert [each.id for each in batch.messages()] == [f"i-{number}" for number in range(20)]
            value = batch.column("value")
            assert value is not None and value.null_count == 20


def test_damaged_entries_are_reported_by_exact_ranges_and_never_served(node: RealNode) -> None:
    stored = fill_topic(node.url)
    node.stop()
    path = log_files(node)[0]
    found = list(records(path))
    place, header = found[len(found) // 2]
    flip(path, place.end - 20)
    node.start()
    with headpond.sync.connect(node.url) as client, client.reader(TOPIC) as reader:
        parts = list(reader.read(0, 0, len(stored)))
    lost = [(span.start, span.end, span.reason) for part in parts for span in part.lost]
    assert lost == [(header.first_entry, header.end_entry, "damaged")]
    served = {
        message.entry: message.value for part in parts for batch in part.batches for message in batch.messages()
    }
    gone = range(header.first_entry, header.end_entry)
    assert served == {entry: text for entry, text in stored.items() if entry not in gone}
