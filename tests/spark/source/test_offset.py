"""How much of a backlog goes into a batch, and how long idle sources wait; without a node and without Spark."""

from __future__ import annotations

import pytest

from headpond.spark.source.offset import IDLE_WAIT_S_MAX, BatchDelay, IdleWait, limited, limited_by_bytes

SPARK_POLLS_S = 0.01
"""The pause after which Spark polls an idle query."""


class Query:
    """A query of several sources as Spark drives it, on a virtual clock: all but the first are idle."""

    def __init__(self, sources: int) -> None:
        self.now = 0.0
        self.questions = 0
        self._idle = [IdleWait() for _ in range(sources - 1)]
        self._active = IdleWait()

    def _ask(self, source: IdleWait) -> None:
        self.questions += 1
        self.now += source.seconds(self.now)
        source.answered(self.now)

    def run_batch(self) -> float:
        """The seconds that polls of idle sources add to a batch of the active one."""
        begun = self.now
        for source in self._idle:
            self._ask(source)
        for source in (self._active, *self._idle):
            source.batch_made()
        return self.now - begun

    def stay_idle(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            for source in (self._active, *self._idle):
                self._ask(source)
            self.now += SPARK_POLLS_S


@pytest.mark.parametrize("sources", [2, 4, 16])
def test_idle_sources_do_not_delay_the_batches_of_another(sources: int) -> None:
    query = Query(sources)
    assert [query.run_batch() for _ in range(5)] == [0.0] * 5
    query.stay_idle(1.0)
    assert query.run_batch() <= 0.06  # a twentieth of the time that the query was idle, however many wait
    query.stay_idle(60.0)
    assert query.run_batch() <= IDLE_WAIT_S_MAX
    assert query.run_batch() == 0.0


@pytest.mark.parametrize("sources", [1, 4])
def test_an_idle_query_does_not_poll_busily(sources: int) -> None:
    query = Query(sources)
    query.run_batch()
    query.stay_idle(10.0)
    before = query.questions
    query.stay_idle(60.0)
    assert query.questions - before <= sources * 60 / IDLE_WAIT_S_MAX + sources


def test_entries_wait_for_others_until_they_are_enough_or_the_first_has_waited_long_enough() -> None:
    gathering = BatchDelay()

    def waits_s(entries: int, now: float) -> float:
        return gathering.waits_s(entries, entries_min=10, delay_s_max=60.0, now=now)

    assert waits_s(0, 0.0) == 0.0  # nothing waits
    assert (waits_s(3, 100.0), waits_s(9, 130.0)) == (60.0, 30.0)
    assert waits_s(10, 131.0) == 0.0  # a batch
    assert (waits_s(1, 200.0), waits_s(1, 259.0), waits_s(1, 260.0)) == (60.0, 1.0, 0.0)
    assert waits_s(1, 261.0) == 60.0  # the next batch


def test_a_limit_is_shared_in_proportion_to_backlogs_and_always_admits_an_entry() -> None:
    starts = {("a", 0): 10, ("a", 1): 0, ("b", 0): 5}
    ends = {("a", 0): 110, ("a", 1): 300, ("b", 0): 5}
    assert limited(starts, ends, None) == limited(starts, ends, 400) == ends
    cut = limited(starts, ends, 40)
    assert cut == {("a", 0): 20, ("a", 1): 30, ("b", 0): 5}
    assert sum(limited(starts, ends, 1).values()) == sum(starts.values()) + 1
    sizes = {("a", 0): 100.0, ("a", 1): 10.0, ("b", 0): 1.0}
    assert limited_by_bytes(starts, ends, sizes, 13_000) == ends
    by_bytes = limited_by_bytes(starts, ends, sizes, 1300)
    assert sum((by_bytes[shard] - starts[shard]) * sizes[shard] for shard in ends) == pytest.approx(
        1300, abs=100
    )
    assert sum(limited_by_bytes(starts, ends, sizes, 1).values()) == sum(starts.values()) + 1
