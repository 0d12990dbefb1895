"""The comparison with other brokers: what it counts, and how it judges."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bench.peers import report, workloads
from bench.peers.goals import Goal
from bench.peers.headpond_node import HeadpondNode
from bench.peers.plain_file import FileReader, PlainFile
from bench.peers.rounds import Pair, Spread, figures, ratios
from bench.peers.server import free_port
from bench.peers.workloads import Effort, Marks, check_arrived


def marks(values: list[bytes]) -> Marks:
    found = Marks()
    found.add_all(values)
    return found


VALUES = [os.urandom(100) for _ in range(10)]


def test_values_that_arrive_in_another_order_are_all_there() -> None:
    check_arrived("t", marks(VALUES), marks(VALUES[::-1]))


@pytest.mark.parametrize(
    ("received", "complaint"),
    [
        (VALUES[1:], "10 sent, 9 received"),
        ([*VALUES, VALUES[0]], "10 sent, 11 received"),
        ([*VALUES[1:], VALUES[1]], "10 sent, 9 distinct"),
        ([*VALUES[1:], bytes(100)], "nobody sent"),
    ],
    ids=["lost", "repeated", "one lost and one repeated", "altered"],
)
def test_a_message_that_is_lost_repeated_or_altered_ends_the_benchmark(
    received: list[bytes], complaint: str
) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_arrived("t", marks(VALUES), marks(received))


class Repeating(PlainFile):
    """Its consumers get the first message once more, after the last."""

    @asynccontextmanager
    async def consumer(self, topic: str, subscription: str) -> AsyncIterator[FileReader]:
        class Reader(FileReader):
            async def consume(self, count: int, each: Callable[[bytes], object]) -> None:
                if not self._data:
                    each(VALUES[0])
                else:
                    await super().consume(count, each)

        yield Reader(self.folder / topic)


def test_a_message_that_comes_again_after_the_last_one_is_noticed(tmp_path: Path) -> None:
    async def run() -> None:
        file = Repeating(tmp_path, 0)
        await file.create("t", [])
        async with file.producer("t") as producer:
            await producer.publish(VALUES)
        await workloads.receive_all(file, "t", "s", marks(VALUES))

    with pytest.raises(AssertionError, match="10 sent, 11 received"):
        asyncio.run(run())


def pair(number: int, theirs: float, ours: float, peer: str = "Other") -> Pair:
    return Pair("publish", number, peer, {"publish_100": theirs}, {"publish_100": ours})


PAIRS = [pair(0, 100, 1000), pair(1, 50, 600), pair(2, 10, 90)]


def test_a_ratio_is_that_of_neighbours_and_its_spread_that_of_the_rounds() -> None:
    assert ratios(PAIRS, "publish_100", "Other") == Spread(10, 9, 12)
    assert figures(PAIRS, "publish_100", None) == Spread(600, 90, 1000)


@pytest.mark.parametrize(("bound", "reached"), [(10, True), (10.1, False)])
def test_a_goal_is_reached_by_the_median(bound: float, reached: bool) -> None:
    goal = Goal("publish_100", bound, "Other")
    found = goal.measured(PAIRS)
    assert found is not None and goal.is_reached(found) is reached


def test_a_latency_is_to_be_below_its_goal() -> None:
    assert Goal("async_p50", 0.9, "Other").is_reached(Spread(0.8, 0.7, 2.0))
    assert not Goal("async_p50", 0.9, "Other").is_reached(Spread(1.0, 0.8, 1.1))


def test_the_column_of_a_peer_that_is_not_installed_says_missing() -> None:
    table = report.ratios_table(PAIRS, ["Other", "Kafka"])
    assert list(table.columns[-1].cells) == ["missing"]
    assert list(table.columns[-2].cells) == ["10 (9–12)"]


def test_a_real_node_is_measured_and_nothing_is_lost(tmp_path: Path) -> None:
    node = HeadpondNode(tmp_path, free_port())
    server = node.start()
    try:
        found = workloads.blocking(node, Effort(seconds=0.01))
    finally:
        server.stop()
    assert found["blocking_p99"] >= found["blocking_p50"] > 0
