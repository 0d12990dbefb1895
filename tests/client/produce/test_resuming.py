"""``resume=True``: one block over all runs, and a sequence that never goes backwards without being noticed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import headpond
from headpond.client.link.dialling import Backoff
from headpond.model.errors import Conflict, RefillInUse
from headpond.producer.numbers import RESERVE
from tests.client.processes import lines_until, lone_producer
from tests.client.reading import read_all, values_at
from tests.fire.real_node import RealNode

BLOCK = bytes(range(16))


def connect(url: str) -> headpond.Client:
    return headpond.connect(url, backoff=Backoff(0.01, 0.05), wait=False)


def remove_numbers(folder: Path) -> None:
    """Removes the reserved numbers: an old copy of the machine may lack them."""
    (numbers,) = folder.glob("**/numbers")
    numbers.unlink()


async def test_after_a_clean_end_the_next_number_follows(node: RealNode, topic: str) -> None:
    for run in range(3):
        async with connect(node.url) as client:
            async with client.producer(topic, name="p", resume=True, block=BLOCK) as producer:
                receipt = await producer.send(b"%d" % run)
                assert (receipt.identity.block, receipt.identity.segment) == (BLOCK, run)
            assert producer.stats.holes == ()


async def test_the_block_of_the_first_run_is_kept_without_being_named(node: RealNode, topic: str) -> None:
    blocks = set()
    for _ in range(2):
        async with connect(node.url) as client, client.producer(topic, "p", resume=True) as producer:
            blocks.add((await producer.send(b"x")).identity.block)
    assert len(blocks) == 1


async def test_after_a_kill_numbers_continue_after_the_reserve_and_the_skipped_are_declared(
    node: RealNode, topic: str
) -> None:
    for run in range(2):
        with lone_producer("send", node.url, topic, "p", 3, "resume=True", "spill_after=60.0") as process:
            said = lines_until(process, "done")
            assert [line.split()[1] for line in said[1:]] == [str(run * RESERVE + n) for n in range(3)]
            assert {line.split()[0] for line in said[1:]} == {"stored"}
    async with connect(node.url) as client:
        messages = await read_all(client, topic, 6)
        async with client.producer(topic, name="p", resume=True) as producer:
            assert producer.block == messages[0].identity.block
            assert (await producer.send(b"last")).identity.segment == 2 * RESERVE
            (hole,) = producer.stats.holes
            assert f"segments {RESERVE + 3}–{2 * RESERVE - 1}" in hole
    assert {message.identity.block for message in messages} == {messages[0].identity.block}
    assert [int(message.value) for message in messages] == [0, 1, 2] * 2


async def test_a_sequence_that_went_backwards_is_answered_with_a_conflict(
    node: RealNode, topic: str, state_folder: Path
) -> None:
    async with connect(node.url) as client:
        async with client.producer(topic, "p", resume=True, block=BLOCK, batch_rows=1) as producer:
            for number in range(3):
                await producer.send(b"%d" % number)
        remove_numbers(state_folder)
        producer = await client.producer(topic, "p", resume=True, block=BLOCK, batch_rows=1).open()
        for _ in range(3):
            with pytest.raises(Conflict) as caught:
                await producer.send(b"other")
            assert caught.value.receipt.outcome == "rejected"
            assert "another `block`" in caught.value.hint and "resume=True" not in caught.value.hint
        assert (await producer.send(b"fresh number")).stored
        await producer.close()
        assert producer.stats.rejected == 3
    assert await values_at(node.url, topic) == [b"0", b"1", b"2", b"fresh number"]


async def test_a_second_producer_of_a_kept_block_is_refused(shared_url: str, topic: str) -> None:
    async with headpond.connect(shared_url) as client, client.producer(topic, "p", resume=True):
        with pytest.raises(RefillInUse, match="process"):
            await client.producer(topic, "p", resume=True).open()
        async with client.producer(topic, "other", resume=True) as producer:
            assert (await producer.send(b"x")).stored


def test_spilled_segments_of_a_killed_kept_block_arrive_before_its_next_ones(
    node: RealNode, topic: str
) -> None:
    async def open_once() -> None:
        """Makes the number of shards known while the node is unreachable."""
        async with connect(node.url) as client, client.producer(topic, "p", resume=True):
            pass

    asyncio.run(open_once())
    node.kill()
    with lone_producer("send", node.url, topic, "p", 3, "resume=True") as process:
        assert [line.split()[0] for line in lines_until(process, "done")[1:]] == ["spilled"] * 3
    node.start()

    async def scenario() -> None:
        async with connect(node.url) as client:
            async with client.producer(topic, "p", resume=True) as producer:
                await producer.send(b"3")
            messages = await read_all(client, topic, 4)
        assert [(int(m.value), m.identity.segment) for m in messages] == [(0, 0), (1, 1), (2, 2), (3, RESERVE)]
        assert len({message.identity.block for message in messages}) == 1

    asyncio.run(scenario())


async def test_rows_that_had_no_shard_when_they_were_spilled_arrive_before_the_kept_block(
    node: RealNode, topic: str
) -> None:
    node.kill()
    with lone_producer("send", node.url, topic, "p", 3, "resume=True") as process:
        assert [line.split()[0] for line in lines_until(process, "done")[1:]] == ["spilled"] * 3
    node.start()
    async with connect(node.url) as client:
        async with client.producer(topic, "p", resume=True) as producer:
            kept = (await producer.send(b"3")).identity
        messages = await read_all(client, topic, 4)
    assert [int(message.value) for message in messages] == [0, 1, 2, 3]
    assert messages[3].identity == kept and kept.segment == 0, "no number of the kept block was used before"
