"""State topics over real sockets: the state, then the stream, while others write and the node is killed."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from pathlib import Path

import pyarrow as pa
import pytest

import headpond
from headpond.client.link.dialling import Backoff
from headpond.client.options import KindName, ModeName
from headpond.errors import BadRequest, KeyMissing, ValueMissing
from headpond.sync import connect as connect_blocking
from tests.client.consume.cells import each_cell
from tests.client.reading import receive
from tests.fire.real_node import RealNode, wait_until

SMALL_FILES = "[log]\nrotate_bytes = 4096\npreallocate_bytes = 4096\n"
KEYS = 20
WAIT_S = 20.0

Entry = tuple[int, bytes | None, bytes | None]
"""Entry, key and value."""


async def write(client: headpond.Client, topic: str, count: int, draw: random.Random, rows: int = 7) -> None:
    """Values and deletes of keys that come again and again."""
    async with client.producer(topic, batch_rows=rows) as producer:
        for number in range(count):
            value = None if draw.random() < 0.15 else b"%d" % number
            producer.post(value, key=b"k%d" % draw.randrange(KEYS))
            if number % 20 == 0:
                await asyncio.sleep(0)


async def read_rest(consumer: headpond.Consumer, idle_s: float = 0.5) -> dict[int, list[Entry]]:
    """Receives and settles messages until none comes; returns them by shard."""
    found: dict[int, list[Entry]] = defaultdict(list)
    while (message := await consumer.receive(idle_s)) is not None:
        found[message.shard].append((message.entry, message.key, message.value))
        await consumer.ack(message)
    await consumer.flush()
    return found


def current(rows: list[Entry]) -> list[Entry]:
    latest = {key: (entry, key, value) for entry, key, value in rows}
    return sorted(each for each in latest.values() if each[2] is not None)


def begins_with_a_state(got: list[Entry], rows: list[Entry]) -> bool:
    """Whether the messages are the state at some entry, and then everything after it, once."""
    return any(sorted(got) == current(rows[:end]) + rows[end:] for end in range(len(rows) + 1))


@each_cell
async def test_the_state_then_the_stream_without_gap_or_repeat_while_a_producer_writes_on(
    shared_url: str, topic: str, kind: KindName, mode: ModeName
) -> None:
    draw = random.Random(f"{kind} {mode}")
    async with headpond.connect(shared_url) as client:
        await client.admin.create_topic(topic, shards=2, state=True)
        await client.admin.create_subscription(topic, "all")
        await write(client, topic, 150, draw)
        writing = asyncio.create_task(write(client, topic, 150, draw))
        async with client.consumer(topic, "s", kind=kind, mode=mode, start="state") as consumer:
            await writing
            got = await read_rest(consumer)
        async with client.consumer(topic, "all") as consumer:
            rows = await read_rest(consumer)
    for shard in range(2):
        assert len(rows[shard]) > 50 and len(got[shard]) < len(rows[shard])
        assert begins_with_a_state(got[shard], rows[shard])


async def test_a_key_is_deleted_by_none_and_both_doors_ask_for_keys(shared_url: str, topic: str) -> None:
    async with headpond.connect(shared_url) as client:
        await client.admin.create_topic(topic, state=True)
        async with client.producer(topic) as producer:
            await producer.send(b"1", key=b"a")
            await producer.send(b"2", key=b"b")
            await producer.send(None, key=b"a")
            with pytest.raises(KeyMissing, match="no key"):
                await producer.send(b"3")
            with pytest.raises(KeyMissing, match="no key"):
                await producer.send_batch(pa.table({"value": [b"x"], "key": pa.array([None], pa.binary())}))
            await producer.send_batch(pa.table({"value": [b"4", None], "key": [b"c", b"d"]}))
        async with client.consumer(topic, "s", start="state") as consumer:
            got = await read_rest(consumer)
            assert got == {0: [(1, b"b", b"2"), (3, b"c", b"4")]}
        async with client.producer(f"{topic}.plain") as plain:
            with pytest.raises(ValueMissing, match="no state topic"):
                await plain.send(None, key=b"a")
            with pytest.raises(ValueMissing, match="no state topic"):
                await plain.send_batch(pa.table({"value": pa.array([b"x", None]), "key": [b"a", b"a"]}))
        with pytest.raises(BadRequest, match="no state topic"):
            await client.consumer(f"{topic}.plain", "s", start="state").open()


def test_the_blocking_twin_deletes_and_compacts(node: RealNode) -> None:
    with connect_blocking(node.url) as client:
        client.admin.create_topic("t", state=True)
        with client.producer("t") as producer:
            for number in range(5):
                producer.send(b"%d" % number, key=b"k")
            producer.send(None, key=b"gone")
        assert client.admin.compact_topic("t").shards[0].compacted == 4
        with client.consumer("t", "s", start="state") as consumer:
            message = consumer.receive(WAIT_S)
            assert message is not None and (message.entry, message.value) == (4, b"4")


async def test_a_kill_between_making_the_subscription_and_reading_changes_nothing(node: RealNode) -> None:
    draw = random.Random(5)
    async with headpond.connect(node.url, backoff=Backoff(0.02, 0.2)) as client:
        await client.admin.create_topic("t", state=True)
        await client.admin.create_subscription("t", "all")
        await write(client, "t", 100, draw)
        made = await client.admin.create_subscription("t", "s", start="state")
        node.kill()
        await asyncio.to_thread(node.start)
        await client.admin.list_topics()
        await write(client, "t", 50, draw)
        async with client.consumer("t", "all") as consumer:
            rows = (await read_rest(consumer))[0]
        async with client.consumer("t", "s", start="latest") as consumer:
            got = (await read_rest(consumer))[0]
        assert got == current(rows[:100]) + rows[100:]
        assert made.compacted == 100 - len(current(rows[:100]))
        assert (await client.admin.show_subscription("t", "s")).compacted == made.compacted


async def test_compaction_between_kills_takes_nothing_from_a_slow_subscription(tmp_path: Path) -> None:
    with RealNode(tmp_path / "node", config=SMALL_FILES) as node:
        draw = random.Random(6)
        async with headpond.connect(node.url, backoff=Backoff(0.02, 0.2)) as client:
            await client.admin.create_topic("t", state=True, settings={"tombstone_ttl": 0})
            await client.admin.create_subscription("t", "slow")
            rows: list[Entry] = []
            async with client.consumer("t", "all") as everything:
                for _ in range(3):
                    await write(client, "t", 300, draw, rows=20)
                    rows += (await read_rest(everything))[0]
                    compacting = asyncio.create_task(client.admin.compact_topic("t"))
                    await asyncio.sleep(draw.random() * 0.1)
                    node.kill()
                    await asyncio.to_thread(node.start)
                    await asyncio.gather(compacting, return_exceptions=True)
                    await client.admin.list_topics()
            assert len(rows) == 900
            async with client.consumer("t", "slow") as consumer:
                assert (await read_rest(consumer))[0] == rows, "it owes all of it"
            before = (await client.admin.show_topic("t")).shard_list[0]
            await client.admin.compact_topic("t")
            after = (await client.admin.show_topic("t")).shard_list[0]
            assert after.bytes < before.bytes / 2
            assert after.compacted >= 900 - KEYS
            async with client.consumer("t", "new", start="earliest") as consumer:
                left = (await read_rest(consumer))[0]
            assert [each for each in left if each[2] is not None] == current(rows)
            browsed = [
                (message.entry, message.key, message.value)
                async for batch in client.admin.browse("t")
                for message in batch.messages()
            ]
            assert browsed == left, "a removed message belongs to nobody"


async def test_compaction_does_not_disturb_a_reader(tmp_path: Path) -> None:
    with RealNode(tmp_path / "node", config=SMALL_FILES) as node:
        draw = random.Random(7)
        async with headpond.connect(node.url) as client:
            await client.admin.create_topic("t", state=True)
            await write(client, "t", 600, draw, rows=3)
            async with client.consumer("t", "s", credit_bytes=2000) as consumer:
                got: list[Entry] = []
                for _ in range(6):
                    for _ in range(100):
                        message = await receive(consumer)
                        got.append((message.entry, message.key, message.value))
                        await consumer.ack(message)
                    await consumer.flush()
                    await client.admin.compact_topic("t")
                assert [entry for entry, _, _ in got] == list(range(600))
            assert (await client.admin.show_topic("t")).shard_list[0].compacted > 500


async def test_a_typed_state_topic_keeps_the_latest_row_of_a_key_and_compacts_the_others(
    node: RealNode,
) -> None:
    schema = pa.schema([("price", pa.float64()), ("unit", pa.string())])
    async with headpond.connect(node.url) as client:
        await client.admin.create_topic("prices", schema=schema, state=True)
        async with client.producer("prices") as producer:
            with pytest.raises(KeyMissing):
                producer.post({"price": 1.0})
            await producer.send({"price": 3.1, "unit": "cup"}, key=b"tea")
            await producer.send_batch(
                pa.table({"@key": [b"tea", b"coffee"], "price": [3.3, 2.8], "unit": ["cup", None]})
            )
            await producer.send(None, key=b"coffee")
            await producer.send({"price": None, "unit": "mug"}, key=b"cocoa")
        wanted = [(b"tea", {"price": 3.3, "unit": "cup"}), (b"cocoa", {"price": None, "unit": "mug"})]
        async with client.consumer("prices", "state", start="state") as consumer:
            found = await read_rest(consumer)
        assert [row[1:] for rows in found.values() for row in rows] == wanted
        compacted = await client.admin.compact_topic("prices")
        assert sum(each.compacted for each in compacted.shards) == 2
        async with client.consumer("prices", "rest") as consumer:
            found = await read_rest(consumer)
        left = [row[1:] for rows in found.values() for row in rows]
        assert left == [wanted[0], (b"coffee", None), wanted[1]]


def test_state_topics_follow_over_a_real_link(node: RealNode, tmp_path: Path) -> None:
    with RealNode(tmp_path / "west") as west, connect_blocking(node.url) as here:
        here.admin.create_topic("menu", state=True)
        with here.producer("menu") as producer:
            for value in (b"1", b"2", None, b"3"):
                producer.send(value, key=b"tea")
            producer.send(b"1", key=b"cocoa")
        here.admin.compact_topic("menu")
        here.admin.add_peer(west.url, ["menu"], direction="push")
        with connect_blocking(west.url) as there:
            wait_until(lambda: len(there.admin.list_topics()) == 1)
            wait_until(lambda: there.admin.show_topic("menu").shard_list[0].entry_next > 0)
            wait_until(lambda: here.admin.list_peers()[0].state == "connected")
            with there.consumer("menu", "board", start="state") as consumer:
                got = {}
                while (message := consumer.receive(0.5)) is not None:
                    got[message.key] = message.value
            assert got == {b"tea": b"3", b"cocoa": b"1"}
