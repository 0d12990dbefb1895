"""Staged writes over real sockets: a committed batch is in its topics once."""

from __future__ import annotations

import asyncio
import pickle
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

import headpond
from headpond.model.errors import (
    BadRequest,
    BatchDiffers,
    BatchOutOfTurn,
    Closed,
    SchemaMismatch,
    StageMismatch,
    StageNotFound,
    WriterNotFound,
)
from tests.client.reading import read_all
from tests.fire.real_node import RealNode


def rows(first: int, count: int, *, keyed: bool = False) -> pa.Table:
    columns: dict[str, Any] = {"value": [f"row {number}".encode() for number in range(first, first + count)]}
    if keyed:
        columns["key"] = [f"k{number % 7}".encode() for number in range(first, first + count)]
    return pa.table(columns)


async def stored(client: headpond.Client, topic: str, count: int) -> list[headpond.Message]:
    """Everything in the topic: ``count`` messages, and none behind them."""
    found = await read_all(client, topic, count)
    info = await client.admin.show_topic(topic)
    assert sum(shard.entry_next for shard in info.shard_list) == count
    return found


async def test_stages_of_several_connections_become_one_batch(shared_url: str, topic: str) -> None:
    async with headpond.connect(shared_url) as driver, headpond.connect(shared_url) as task:
        await driver.admin.create_topic(topic, 4)
        async with driver.writer(topic) as writer, task.writer(topic) as there:
            stages = [await there.stage(topic, rows(at, 100, keyed=True)) for at in (0, 100)]
            stages = pickle.loads(pickle.dumps(stages))
            assert [stage.rows for stage in stages] == [100, 100]
            assert sum(s.entry_next for s in (await driver.admin.show_topic(topic)).shard_list) == 0
            done = await writer.commit(0, stages)
            assert (done.outcome, done.rows) == ("committed", 200)
            assert (await writer.commit(3, [])).outcome == "committed"
            pieces = [rows(0, 200, keyed=True).slice(at, 50) for at in (150, 0, 100, 50)]
            again = await writer.commit(0, [await there.stage(topic, pieces)])
            assert (again.outcome, again.recorded) == ("duplicate", 3), "in any order, in other stages"
        found = await stored(driver, topic, 200)
        assert Counter(m.value for m in found) == Counter(f"row {n}".encode() for n in range(200))
        shards: dict[bytes | None, set[int]] = {}
        for message in found:
            shards.setdefault(message.key, set()).add(message.shard)
        assert all(len(each) == 1 for each in shards.values())
        info = await driver.admin.show_writer(topic)
        assert (info.batch, info.batches, info.rows, info.stages) == (3, 2, 200, 0)


async def test_a_batch_takes_finished_stages_of_its_writer_and_nothing_else(
    shared_url: str, topic: str
) -> None:
    async with headpond.connect(shared_url) as client:
        async with client.writer(topic) as writer, client.writer(f"{topic}-other") as other:
            good = await writer.stage(topic, rows(0, 5))
            foreign = await other.stage(topic, rows(5, 5))
            unfinished = await writer.begin(topic)
            await unfinished.add(rows(10, 5))
            gone = await writer.stage(topic, rows(15, 5))
            assert await writer.abort([gone, foreign]) == 1
            assert await writer.abort([gone]) == 0
            wrongs: list[tuple[list[headpond.Stage | bytes], type[headpond.HeadpondError]]] = [
                ([good, foreign], StageMismatch),
                ([good, unfinished.id], StageMismatch),
                ([good, gone], StageNotFound),
                ([good, good], StageMismatch),
                ([good, b"short"], BadRequest),
                ([good, bytes(16)], StageNotFound),
            ]
            for wrong, error in wrongs:
                with pytest.raises(error):
                    await writer.commit(0, wrong)
            with pytest.raises(BadRequest):
                await writer.commit(-1, [good])
            shown = await client.admin.show_writer(topic)
            assert (shown.batch, shown.stages) == (None, 2)
            assert (await writer.commit(0, [good])).rows == 5
            with pytest.raises(StageNotFound):
                await writer.commit(1, [good])
            assert await writer.abort([good, await unfinished.finish()]) == 1
            assert await client.admin.delete_writer(f"{topic}-other") == 1
        await stored(client, topic, 5)
        with pytest.raises(WriterNotFound):
            await client.admin.show_writer(f"{topic}-other")
        with pytest.raises(Closed):
            await writer.stage(topic, rows(0, 1))


def test_a_batch_that_comes_again_must_have_the_rows_that_it_had(shared_url: str, topic: str) -> None:
    with headpond.sync.connect(shared_url) as client, client.writer(topic) as writer:
        for batch in (4, 9):
            writer.commit(batch, [writer.stage(topic, rows(10 * batch, 10))])
        for batch, table, error in (
            (9, rows(90, 9), BatchDiffers),
            (9, rows(91, 10), BatchDiffers),
            (9, rows(90, 10).append_column("id", pa.array(["x"] * 10)), BatchDiffers),
            (4, rows(90, 10), BatchDiffers),
            (5, rows(50, 10), BatchOutOfTurn),
        ):
            other = writer.stage(topic, table)
            with pytest.raises(error):
                writer.commit(batch, [other])
            assert writer.abort([other]) == 1, "nothing was done with it"
        assert writer.commit(4, [writer.stage(topic, rows(40, 10))]).outcome == "duplicate"
        assert writer.commit(5, [writer.stage(topic, rows(1, 1))], on_repeat="drop").outcome == "duplicate"
        assert client.admin.show_topic(topic).shard_list[0].entry_next == 20


def test_a_deleted_writer_starts_over(shared_url: str, topic: str) -> None:
    with headpond.sync.connect(shared_url) as client, client.writer(topic) as writer:
        for _ in range(2):
            writer.commit(0, [writer.stage(topic, iter([rows(0, 3), rows(3, 2).to_batches()[0]]))])
            client.admin.delete_writer(topic)
        assert client.admin.show_topic(topic).shard_list[0].entry_next == 10
        assert topic not in [info.writer for info in client.admin.list_writers()]


async def test_rows_of_a_typed_topic_are_checked_when_they_are_staged(shared_url: str, topic: str) -> None:
    schema = pa.schema([pa.field("name", pa.string(), nullable=False), pa.field("size", pa.int64())])
    table = pa.table({"name": ["a", "b"], "size": [1, None]}, schema=schema)
    async with headpond.connect(shared_url) as client:
        await client.admin.create_topic(topic, 2, schema=schema)
        async with client.writer(topic) as writer:
            for wrong in (pa.table({"value": [b"x"]}), pa.table({"name": ["a"], "more": [1]})):
                with pytest.raises(SchemaMismatch):
                    await writer.stage(topic, wrong)
            await writer.commit(0, [await writer.stage(topic, table)])
            other = table.append_column("@shard", pa.array([1, 1], pa.int8()))
            await writer.commit(1, [await writer.stage(topic, other)])
        found = await stored(client, topic, 4)
        assert [message.value for message in found if message.shard == 1][-2:] == table.to_pylist()


async def test_a_large_stage_over_a_node_that_is_killed_arrives_once(node: RealNode) -> None:
    batch = pa.record_batch({"value": [bytes(4000)] * 250})
    async with headpond.connect(node.url) as client, client.writer("w") as writer:
        stage = await writer.begin("big")
        for number in range(24):
            if number in (8, 20):
                await asyncio.to_thread(node.kill)
                await asyncio.to_thread(node.start)
            await stage.add(batch)
        done = await stage.finish()
        assert (await writer.commit(0, [done])).rows == 24 * 250
        info = await client.admin.show_topic("big")
        assert info.shard_list[0].entry_next == 24 * 250


async def test_the_node_is_killed_between_stage_commit_and_publish(node: RealNode) -> None:
    async with headpond.connect(node.url) as client, client.writer("w") as writer:
        await client.admin.create_topic("t", 2)
        for batch in range(5):
            stages = [await writer.stage("t", rows(100 * batch + 50 * part, 50)) for part in range(2)]
            if batch % 2:
                await asyncio.to_thread(node.restart)
            committing = asyncio.create_task(writer.commit(batch, stages))
            await asyncio.sleep(0.002 * batch)
            await asyncio.to_thread(node.kill)
            await asyncio.to_thread(node.start)
            assert (await committing).recorded == batch
        found = await stored(client, "t", 500)
        assert Counter(m.value for m in found) == Counter(f"row {n}".encode() for n in range(500))
