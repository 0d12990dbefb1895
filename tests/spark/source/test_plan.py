"""Which task reads which ranges; without a node and without Spark."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headpond.spark.options import read_source_options
from headpond.spark.source.plan import TASK_BYTES_MAX, ReadTask, Span, plan_tasks
from headpond.wire.control.reading import Ends, ShardEnds

MIB = 1024 * 1024


def plan(ranges: list[tuple[int, int]], *, entry_bytes: int = 100, **options: str) -> list[ReadTask]:
    """The tasks for one range of each shard of a topic."""
    spans = [Span("t", b"", None, shard, None, *each) for shard, each in enumerate(ranges)]
    ends = Ends("t", b"", None, [ShardEnds(1, 0, 1000, 1000 * entry_bytes)])
    return plan_tasks(spans, [ends], read_source_options({"topic": "t", **options}))


def read_of(tasks: list[ReadTask]) -> list[tuple[int, int, int]]:
    return [(span.shard, span.start, span.end) for task in tasks for span in task.spans]


def test_small_ranges_share_a_task_and_large_ones_have_their_own() -> None:
    assert len(plan([(0, 10)] * 64)) == 1
    assert len(plan([(0, 10)] * 64, taskPerShard="true")) == 64
    assert len(plan([(0, 10)] * 64, minPartitions="5")) == 5
    assert 2 <= len(plan([(0, 10)] * 500)) <= 10  # each range is a question to the node
    assert len(plan([(0, 10 * MIB)] * 8, entry_bytes=1)) == 8
    assert len(plan([(0, 1000)], entry_bytes=MIB)) == 16
    assert len(plan([(0, 50 * MIB), *[(0, 10)] * 64], entry_bytes=1)) == 2  # one is large, and many are small


def test_a_small_range_beside_a_large_one_does_not_make_that_wait() -> None:
    tasks = plan([(0, 60), (0, 1), (0, 1), (0, 60)], entry_bytes=MIB)
    assert [len(task.spans) for task in tasks] == [1, 2, 1]


def test_a_range_that_ends_before_it_begins_is_empty_and_takes_nothing_from_the_others() -> None:
    tasks = plan([(0, 10), (10, 0)], minPartitions="2")
    assert read_of(tasks) == [(0, 0, 5), (0, 5, 10)]


def test_a_gap_is_reported_once_where_its_range_begins_also_if_that_is_empty() -> None:
    gap = (3, 5, "retention")
    spans = [Span("t", b"", None, 0, None, 5, 9, gap), Span("t", b"", None, 1, None, 5, 0, gap)]
    tasks = plan_tasks(spans, [], read_source_options({"topic": "t", "minPartitions": "2"}))
    assert [(span.start, span.end, span.gap) for task in tasks for span in task.spans] == [
        (5, 7, gap),
        (7, 9, None),
        (5, 5, gap),
    ]


@given(
    st.lists(st.integers(0, 2000), max_size=80),
    st.integers(1, 300_000),
    st.integers(1, 200),
    st.booleans(),
)
def test_every_entry_is_in_one_task_in_order_and_there_are_as_many_tasks_as_asked_for(
    counts: list[int], entry_bytes: int, partitions: int, apart: bool
) -> None:
    tasks = plan(
        [(0, count) for count in counts],
        entry_bytes=entry_bytes,
        minPartitions=str(partitions),
        taskPerShard=str(apart).lower(),
    )
    found = read_of(tasks)
    assert found == sorted(found)
    for (shard, _, end), (following, start, _) in pairwise(found):
        assert start == (end if shard == following else 0)
    assert [
        sum(end - start for shard, start, end in found if shard == each) for each in range(len(counts))
    ] == counts
    assert len(tasks) >= min(partitions, sum(counts))
    assert all(task.spans for task in tasks)
    assert all((end - start) * entry_bytes <= 2 * TASK_BYTES_MAX for _, start, end in found)
