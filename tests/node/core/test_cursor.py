"""Every entry of a shard is in exactly one state, whatever order it is offered, settled and returned in."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.model.ranges import RangeSet
from penstock.node.core.cursor import DUE_STEP_US, ShardCursor

END = 120


def in_order(offers: list[tuple[int, list[tuple[int, int]]]]) -> None:
    """Whatever their attempts, entries are offered in their order."""
    spans = [span for _, group in offers for span in group]
    assert spans == sorted(spans)


def _disjoint(pieces: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """(start, length) pairs as spans that do not overlap."""
    return list(RangeSet((start, start + length) for start, length in pieces))


class CursorAgainstModel(RuleBasedStateMachine):
    """The model: a state and a count of deliveries for every single entry."""

    def __init__(self) -> None:
        super().__init__()
        self.cursor = ShardCursor()
        self.state = ["new"] * END
        self.delivered = [0] * END
        self.due: dict[int, int] = {}
        self.now_us = 0

    def out(self, entry: int, attempt: int) -> None:
        assert attempt == self.delivered[entry] + 1
        self.state[entry] = "held"

    @rule(end=st.integers(0, END), spans_max=st.integers(1, 5))
    def offer_new(self, end: int, spans_max: int) -> None:
        offered_before = self.cursor.offered
        offers = self.cursor.offer_new(end, spans_max)
        in_order(offers)
        for attempt, spans in offers:
            for start, stop in spans:
                for entry in range(start, stop):
                    assert self.state[entry] == "new"
                    assert offered_before <= entry < end
                    self.out(entry, attempt)
        for entry in range(min(self.cursor.offered, END)):
            assert self.state[entry] != "new"

    @rule(start=st.integers(0, END), length=st.integers(0, END), spans_max=st.integers(1, 5))
    def offer_again(self, start: int, length: int, spans_max: int) -> None:
        offers = self.cursor.offer_again(start, start + length, spans_max)
        in_order(offers)
        for attempt, spans in offers:
            for first, last in spans:
                for entry in range(first, last):
                    assert self.state[entry] == "ready"
                    assert start <= entry < start + length
                    self.out(entry, attempt)

    @rule(start=st.integers(0, END - 1), length=st.integers(1, 30))
    def settle(self, start: int, length: int) -> None:
        end = min(END, start + length)
        fresh = [entry for entry in range(start, end) if self.state[entry] != "settled"]
        assert self.cursor.settle(start, end) == len(fresh)
        for entry in fresh:
            self.state[entry] = "settled"

    @rule(entry=st.integers(0, END - 1), delay=st.integers(0, 5))
    def nack(self, entry: int, delay: int) -> None:
        deliveries = self.cursor.nack(entry, self.now_us + delay * DUE_STEP_US)
        if self.state[entry] not in ("held", "ready"):
            assert deliveries is None
            return
        self.delivered[entry] += self.state[entry] == "held"
        assert deliveries == self.delivered[entry]
        self.state[entry] = "waiting"
        self.due[entry] = self.now_us + delay * DUE_STEP_US

    @rule(steps=st.integers(0, 3))
    def wake(self, steps: int) -> None:
        self.now_us += steps * DUE_STEP_US
        self.cursor.wake(self.now_us)
        for entry, due_us in list(self.due.items()):
            if due_us <= self.now_us:
                del self.due[entry]
                if self.state[entry] == "waiting":
                    self.state[entry] = "ready"

    @rule(seen=st.none() | st.lists(st.tuples(st.integers(0, END), st.integers(1, 40)), max_size=3))
    def release(self, seen: list[tuple[int, int]] | None) -> None:
        held = [entry for entry in range(END) if self.state[entry] == "held"]
        spans = None if seen is None else _disjoint(seen)
        assert self.cursor.release(spans) == len(held)
        for entry in held:
            if spans is None or any(start <= entry < end for start, end in spans):
                self.delivered[entry] += 1
            self.state[entry] = "ready"

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
                "waiting": entry in cursor.waiting,
                "new": not settled and entry >= cursor.offered,
            }
            assert [name for name, here in found.items() if here] == [self.state[entry]]
        assert (cursor.due_us is not None) or not cursor.waiting


CursorAgainstModel.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestCursor = CursorAgainstModel.TestCase


def test_a_million_entries_settled_out_of_order_stay_small() -> None:
    cursor = ShardCursor()
    cursor.offer_new(1_000_000, 1)
    for entry in range(1, 1_000_000, 2):
        cursor.settle(entry, entry + 1)
    assert cursor.cursor == 0
    assert len(cursor.settled.encode()) < 300_000
    cursor.settle(0, 1_000_000)
    assert cursor.cursor == 1_000_000
    assert not cursor.settled
    assert not cursor.held
