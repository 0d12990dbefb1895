"""Every entry of a shard is in exactly one state, in any order of offers, settlements and returns."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headpond.broker.subscriptions.cursor import ShardCursor
from headpond.broker.subscriptions.unacked_log import DUE_STEP_US
from headpond.model.entry_set import EntrySet
from headpond.model.ranges import RangeSet

END = 120
ATTEMPTS_MAX = 3


def in_order(offers: list[tuple[int, list[tuple[int, int]]]]) -> None:
    """Entries are offered in order, independent of their attempts."""
    spans = [span for _, group in offers for span in group]
    assert spans == sorted(spans)


def entries(spans: list[tuple[int, int]]) -> list[int]:
    return [entry for start, end in spans for entry in range(start, end)]


def _disjoint(pieces: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """(start, length) pairs as spans that do not overlap."""
    return list(RangeSet((start, start + length) for start, length in pieces))


class CursorAgainstModel(RuleBasedStateMachine):
    """The model: a state and a count of deliveries for every single entry."""

    def __init__(self) -> None:
        super().__init__()
        self.cursor = ShardCursor()
        self.cursor.attempts_max = ATTEMPTS_MAX
        self.dead: set[int] = set()
        self.state = ["new"] * END
        self.delivered = [0] * END
        self.due: dict[int, int] = {}
        self.now_us = DUE_STEP_US  # 0 is no time

    def out(self, entry: int, attempt: int) -> None:
        assert attempt == self.delivered[entry] + 1
        self.state[entry] = "held"

    @rule(
        start=st.integers(0, END),
        length=st.integers(0, END),
        spans_max=st.integers(1, 5),
        strict=st.booleans(),
        park=st.booleans(),
    )
    def offer(self, start: int, length: int, spans_max: int, strict: bool, park: bool) -> None:
        cursor, end = self.cursor, min(END, start + length)
        barrier = min((n for n in range(END) if self.state[n] in ("waiting", "dying")), default=END)
        assert cursor.barrier == (barrier if barrier < END else None)
        end = min(end, barrier) if strict else end
        spans = cursor.available(start, end, spans_max)
        assert spans == cursor.available(start, end, spans_max), "asking changes nothing"
        for entry in entries(spans):
            assert start <= entry < end
            assert self.state[entry] == "ready" or (self.state[entry] == "new" and start <= cursor.offered)
            assert not strict or entry < barrier
        if park:
            cursor.park(EntrySet.of(spans))
            for entry in entries(spans):
                self.state[entry] = "parked"
        else:
            offers = cursor.take(spans)
            in_order(offers)
            for attempt, some in offers:
                for entry in entries(some):
                    self.out(entry, attempt)
        reached = spans[-1][1] if len(spans) == spans_max else end
        if start <= reached:
            cursor.advance(start, reached)

    @rule(strict=st.booleans())
    def want(self, strict: bool) -> None:
        entry = self.cursor.next_wanted(END, in_order=strict)
        offerable = [n for n in range(END) if self.state[n] in ("ready", "new")]
        barrier = min((n for n in range(END) if self.state[n] in ("waiting", "dying")), default=END)
        if any(n < barrier or not strict for n in offerable):
            assert entry is not None or (strict and all(n >= barrier for n in offerable))
        if entry is not None and self.state[entry] not in ("ready", "new"):
            assert entry == self.cursor.offered, "what is settled already is only passed over"

    @rule(start=st.integers(0, END), length=st.integers(0, 20))
    def unpark(self, start: int, length: int) -> None:
        self.cursor.unpark(EntrySet.of([(start, start + length)]))
        for entry in range(start, min(END, start + length)):
            if self.state[entry] == "parked":
                self.state[entry] = "ready"

    @rule(start=st.integers(0, END - 1), length=st.integers(1, 30))
    def settle(self, start: int, length: int) -> None:
        end = min(END, start + length)
        fresh = [entry for entry in range(start, end) if self.state[entry] != "settled"]
        assert self.cursor.settle(start, end) == len(fresh)
        for entry in fresh:
            self.state[entry] = "settled"

    @rule()
    def bury(self) -> None:
        dying = [entry for entry in range(END) if self.state[entry] == "dying"]
        for entry in dying:
            assert self.cursor.bury(entry, entry + 1) == 1
            self.state[entry] = "settled"
            self.dead.add(entry)

    @rule(start=st.integers(0, END - 1), length=st.integers(1, 60))
    def reopen(self, start: int, length: int) -> None:
        found = self.cursor.reopen(start, start + length)
        again = {entry for entry in self.dead if start <= entry < start + length}
        assert set(entries(found)) == again
        self.dead -= again
        for entry in again:
            self.state[entry] = "ready" if entry < self.cursor.offered else "new"
            self.delivered[entry] = 0

    @rule(entry=st.integers(0, END), rarely=st.integers(0, 9))
    def seek(self, entry: int, rarely: int) -> None:
        if rarely:
            return
        self.cursor.move(entry)
        self.state = ["settled"] * entry + ["new"] * (END - entry)
        self.delivered = [0] * END
        self.due.clear()
        self.dead = {each for each in self.dead if each < entry}

    @rule(entry=st.integers(0, END - 1), delay=st.integers(0, 5))
    def nack(self, entry: int, delay: int) -> None:
        deliveries = self.cursor.nack(entry, self.now_us + delay * DUE_STEP_US, 0)
        if self.state[entry] not in ("held", "ready", "parked"):
            assert deliveries is None
            return
        if self.state[entry] == "held" or not self.delivered[entry]:  # a consumer that refuses it had it
            self.delivered[entry] += 1
        assert deliveries == self.delivered[entry]
        if deliveries >= ATTEMPTS_MAX:
            self.state[entry] = "dying"
            return
        self.state[entry] = "waiting"
        self.due[entry] = self.now_us + delay * DUE_STEP_US

    @rule(steps=st.integers(0, 3))
    def wake(self, steps: int) -> None:
        self.now_us += steps * DUE_STEP_US
        self.cursor.unacked_log.wake(self.now_us)
        self.cursor.release(END)
        for entry, due_us in list(self.due.items()):
            if due_us <= self.now_us:
                del self.due[entry]
                if self.state[entry] == "waiting":
                    self.state[entry] = "ready"

    @rule(
        start=st.integers(0, END),
        length=st.integers(1, END),
        seen=st.none() | st.lists(st.tuples(st.integers(0, END), st.integers(1, 40)), max_size=3),
    )
    def give_back(self, start: int, length: int, seen: list[tuple[int, int]] | None) -> None:
        back = [n for n in range(start, min(END, start + length)) if self.state[n] == "held"]
        spans = None if seen is None else _disjoint(seen)
        entries = EntrySet.of([(start, start + length)])
        returned = self.cursor.give_back(entries, None if spans is None else EntrySet.of(spans))
        told = {entry: count for count, back in returned for entry in back.numbers()}
        for entry in back:
            counted = spans is None or any(first <= entry < last for first, last in spans)
            self.delivered[entry] += counted
            assert told.pop(entry, None) == (self.delivered[entry] if counted else None)
            dies = counted and self.delivered[entry] >= ATTEMPTS_MAX
            self.state[entry] = "dying" if dies else "ready"
        assert not told

    @invariant()
    def states_agree(self) -> None:
        cursor = self.cursor
        assert cursor.cursor == next((n for n in range(END) if self.state[n] != "settled"), END)
        for entry in range(END):
            settled = entry < cursor.cursor or entry in cursor.settled
            found = {
                "settled": settled,
                "held": entry in cursor.held,
                "ready": entry in cursor.ready,
                "waiting": entry in cursor.unacked_log.entries,
                "parked": entry in cursor.parked,
                "dying": entry in cursor.dying,
                "new": not settled and entry >= cursor.offered,
            }
            assert [name for name, here in found.items() if here] == [self.state[entry]]
        assert (cursor.unacked_log.due_us is not None) or not cursor.unacked_log
        assert set(entries(list(cursor.dead.spans(0, END)))) == self.dead


CursorAgainstModel.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestCursor = CursorAgainstModel.TestCase


def test_a_million_entries_settled_out_of_order_stay_small() -> None:
    cursor = ShardCursor()
    cursor.take(cursor.available(0, 1_000_000, 1))
    cursor.advance(0, 1_000_000)
    for entry in range(1, 1_000_000, 2):
        cursor.settle(entry, entry + 1)
    assert cursor.cursor == 0
    assert len(cursor.settled.encode()) < 300_000
    cursor.settle(0, 1_000_000)
    assert cursor.cursor == 1_000_000
    assert not cursor.settled
    assert not cursor.held


def test_an_entry_that_reached_max_attempts_is_dying_after_a_restart() -> None:
    cursor = ShardCursor()
    cursor.attempts_max = 3
    cursor.restore_deliveries(EntrySet.of([(4, 6)]), 3)
    cursor.restore_deliveries(EntrySet.of([(7, 8)]), 2)
    cursor.begin()
    assert cursor.available(0, 10, 9) == [(0, 4), (6, 10)]
    assert cursor.barrier == 4
