"""The copy tracker of a reader of several nodes, against nodes that are lists of entries."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headpond.client.consume.batch import NodeEntries
from headpond.client.consume.copy_tracker import FORGET_AFTER_S, CopyTracker
from headpond.model.message import Origin

BLOCK = b"b" * 16
ROWS = 3
Row = tuple[int, int]
"""Segment and row."""


def origin(node: str, segment: int, first: int, block: bytes = BLOCK) -> Origin:
    return Origin("t", 0, first, block, segment, 0, node, ROWS)


def arrive(
    tracker: CopyTracker, node: str, segment: int, first: int, rows: tuple[int, int] = (0, ROWS), at: float = 0
) -> Any:
    return tracker.arrive(origin(node, segment, first), [(first + rows[0], first + rows[1])], at)


@pytest.fixture
def tracker() -> CopyTracker:
    found = CopyTracker()
    found.up("a")
    found.up("b")
    return found


def test_the_first_node_to_bring_a_message_leads_it_and_a_copy_waits_for_its_settlement(
    tracker: CopyTracker,
) -> None:
    assert arrive(tracker, "a", 0, 10) == ([(10, 13)], [])
    assert arrive(tracker, "b", 0, 70) == ([], []), "held: the program has it in hand"
    assert tracker.held("b") == [(0, (70, 73))]
    assert tracker.settle("a", 0, [(11, 12)]) == [NodeEntries("b", 0, [(71, 72)])]
    assert tracker.held("b") == [(0, (70, 71)), (0, (72, 73))]
    assert tracker.settle("b", 0, [(71, 72)]) == [], "it goes no rounds"
    assert tracker.copies == 3


def test_a_copy_of_what_is_settled_is_settled_at_once_however_much_later_it_comes(tracker: CopyTracker) -> None:
    for segment in range(100):
        arrive(tracker, "a", segment, segment * ROWS)
    tracker.settle("a", 0, [(0, 300)])
    assert not tracker._open and len(tracker._blocks[BLOCK, 0].done) == 1, "a hundred segments are one range"
    for segment in range(100):
        at = segment * ROWS
        assert arrive(tracker, "b", segment, at, (0, 1)) == ([], [(at, at + 1)])
        assert arrive(tracker, "b", segment, at, (1, 3)) == ([], [(at + 1, at + 3)]), "in two parts"
    assert len(tracker._blocks[BLOCK, 0].given["b"]) == 1 and not tracker._blocks[BLOCK, 0].part


def test_a_redelivery_by_the_leading_node_passes_in_hand_or_settled(tracker: CopyTracker) -> None:
    arrive(tracker, "a", 0, 10)
    assert tracker.refuse("a", 0, [(11, 12)]) == [NodeEntries("a", 0, [(11, 12)])]
    assert arrive(tracker, "a", 0, 10, (1, 2)) == ([(11, 12)], [])
    tracker.settle("a", 0, [(10, 11)])
    assert arrive(tracker, "a", 0, 10, (0, 1)) == ([(10, 11)], []), "its deadline passed before it was settled"
    tracker.settle("a", 0, [(10, 13)])
    assert arrive(tracker, "a", 0, 10) == ([(10, 13)], []), "set back by somebody"
    assert arrive(tracker, "b", 0, 70) == ([], []), "and in hand again"


def test_a_refused_message_whose_node_is_lost_comes_from_the_one_that_has_a_copy(tracker: CopyTracker) -> None:
    arrive(tracker, "a", 0, 10)
    arrive(tracker, "b", 0, 70)
    tracker.refuse("a", 0, [(12, 13)])
    assert arrive(tracker, "b", 0, 70, (2, 3)) == ([], []), "it follows the first node as long as that is there"
    assert tracker.down("a") == [NodeEntries("b", 0, [(72, 73)])]
    assert arrive(tracker, "b", 0, 70, (2, 3)) == ([(72, 73)], [])
    tracker.up("a")
    assert arrive(tracker, "a", 0, 10, (2, 3)) == ([], []), "the other one leads now"
    assert tracker.settle("b", 0, [(72, 73)]) == [NodeEntries("a", 0, [(12, 13)])]


def test_a_copy_that_was_held_when_its_node_was_lost_is_a_copy_when_it_comes_again(
    tracker: CopyTracker,
) -> None:
    arrive(tracker, "a", 0, 10)
    arrive(tracker, "b", 0, 70)
    assert tracker.drop_held("b") == [(0, (70, 73))]
    assert arrive(tracker, "b", 0, 70, (0, 1)) == ([], []), "held as before"
    assert tracker.settle("a", 0, [(10, 12)]) == [NodeEntries("b", 0, [(70, 72)])], "it hears of that at once"
    assert arrive(tracker, "b", 0, 70, (1, 2)) == ([], [(71, 72)]), "its way here crossed the settlement"
    tracker.settle("a", 0, [(12, 13)])
    assert arrive(tracker, "b", 0, 70, (2, 3)) == ([], [(72, 73)]), "also of a segment that is done"
    assert arrive(tracker, "b", 0, 70) == ([(70, 73)], []), "and this somebody wants"


def test_a_node_that_was_asked_in_vain_brings_a_copy_also_when_all_is_settled(tracker: CopyTracker) -> None:
    arrive(tracker, "a", 0, 10)
    arrive(tracker, "b", 0, 70)
    tracker.refuse("a", 0, [(12, 13)])
    tracker.down("a")
    arrive(tracker, "b", 0, 70, (2, 3))
    tracker.settle("b", 0, [(70, 73)])
    tracker.up("a")
    assert arrive(tracker, "a", 0, 10, (2, 3)) == ([], [(12, 13)]), (
        "what it was asked for crossed what came of it"
    )
    assert arrive(tracker, "a", 0, 10, (0, 1)) == ([(10, 11)], []), "and this somebody wants"


def test_a_message_refused_while_its_node_is_away_is_asked_for_where_a_copy_is(tracker: CopyTracker) -> None:
    arrive(tracker, "a", 0, 10)
    arrive(tracker, "b", 0, 70)
    assert tracker.down("a") == [], "the program has it in hand: it can still be settled everywhere"
    assert tracker.refuse("a", 0, [(10, 11)]) == [NodeEntries("b", 0, [(70, 71)])]
    assert tracker.settle("a", 0, [(11, 13)]) == [NodeEntries("b", 0, [(71, 73)])]


def test_a_message_refused_with_no_node_there_comes_from_whichever_is_back_first(tracker: CopyTracker) -> None:
    arrive(tracker, "a", 0, 10)
    tracker.down("a")
    tracker.down("b")
    tracker.refuse("a", 0, [(10, 11)])
    tracker.up("b")
    assert arrive(tracker, "b", 0, 70, (0, 1)) == ([(70, 71)], [])


def test_copies_of_a_dead_message_are_skipped_and_a_redrive_passes(
    tracker: CopyTracker,
) -> None:
    arrive(tracker, "a", 0, 10)
    arrive(tracker, "b", 0, 70)
    tracker.refuse("a", 0, [(10, 11)])
    assert tracker.dead("a", 0, [(10, 11)]) == [NodeEntries("b", 0, [(70, 71)])]
    assert tracker.held("b") == [(0, (71, 73))]
    assert arrive(tracker, "a", 0, 10, (0, 1)) == ([(10, 11)], [])


def test_a_refused_message_that_its_node_lost_comes_from_another(tracker: CopyTracker) -> None:
    arrive(tracker, "a", 0, 10)
    arrive(tracker, "b", 0, 70)
    tracker.refuse("a", 0, [(10, 11)])
    assert tracker.lost("a", 0, [(10, 13)]) == [NodeEntries("b", 0, [(70, 71)])]


def test_a_node_that_is_read_again_brings_nothing_that_is_settled_or_in_hand(tracker: CopyTracker) -> None:
    arrive(tracker, "a", 0, 10)
    arrive(tracker, "a", 1, 13)
    tracker.settle("a", 0, [(10, 14)])
    tracker.gone("a")
    assert tracker.settle("a", 0, [(14, 15)]) == [], "what the program has in hand can still be settled"
    tracker.up("a")
    assert arrive(tracker, "a", 0, 10) == ([], [(10, 13)])
    assert arrive(tracker, "a", 1, 13) == ([], [(13, 15)]), "its last row is in hand"
    assert arrive(tracker, "b", 1, 70) == ([], [(70, 72)])


def test_a_node_that_is_read_again_brings_copies_also_while_a_settlement_is_on_its_way(
    tracker: CopyTracker,
) -> None:
    arrive(tracker, "a", 0, 10)
    tracker.gone("a")
    tracker.up("a")
    tracker.settle("a", 0, [(10, 12)])
    assert arrive(tracker, "a", 0, 10) == ([], [(10, 12)]), "its last row is in hand"


def test_a_subscription_that_was_moved_brings_everything_again(tracker: CopyTracker) -> None:
    arrive(tracker, "a", 0, 10)
    arrive(tracker, "b", 0, 70)
    assert tracker.clear() == [NodeEntries("b", 0, [(70, 73)])], "held copies are given back"
    assert arrive(tracker, "b", 0, 70) == ([(70, 73)], [])


def test_blocks_are_forgotten_after_a_month_of_silence_and_not_before() -> None:
    tracker = CopyTracker()
    tracker.arrive(origin("a", 0, 0), [(0, 3)], 0.0)
    tracker.settle("a", 0, [(0, 3)])
    tracker.arrive(origin("a", 0, 3, b"c" * 16), [(3, 6)], FORGET_AFTER_S - 1)
    assert tracker.arrive(origin("b", 0, 0), [(0, 3)], FORGET_AFTER_S - 1).settled == [(0, 3)]
    tracker.arrive(origin("a", 0, 6, b"d" * 16), [(6, 9)], 3 * FORGET_AFTER_S)
    assert len(tracker._blocks) == 1 and not tracker.forgotten


def test_the_limits_hold_and_count_what_the_tracker_forgot() -> None:
    tracker = CopyTracker(blocks_max=4, open_max=4)
    for number in range(10):
        tracker.arrive(
            origin("a", 0, number * ROWS, bytes([number] * 16)), [(number * ROWS, number * ROWS + 3)], 0.0
        )
    assert len(tracker._blocks) == 4 and len(tracker._open) == 4
    assert tracker.forgotten == 12
    assert len(tracker._index["a", 0]) == 4
    assert tracker.settle("a", 0, [(0, 3)]) == [], "forgotten: settled at its own node alone"


# --- against a model --------------------------------------------------------------------------------


@dataclass
class Node:
    """A subscription at one node, with its own order and settlements."""

    name: str
    order: list[int]
    up: bool = True
    available: set[int] = field(default_factory=set)
    under_way: set[int] = field(default_factory=set)
    """Entries sent again over a new connection: they arrive even if they are settled meanwhile."""
    settled: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.available = set(range(len(self.order) * ROWS))

    def row_at(self, entry: int) -> Row:
        return self.order[entry // ROWS], entry % ROWS


class World:
    """The program acknowledges or refuses messages; nodes are lost and come back."""

    def __init__(self, orders: list[list[int]]) -> None:
        self.tracker = CopyTracker()
        self.nodes = {name: Node(name, order) for name, order in zip("abc", orders, strict=False)}
        self.hand: list[tuple[str, int]] = []
        self.handed: list[Row] = []
        for name in self.nodes:
            self.tracker.up(name)

    def give(self, name: str, at: int) -> None:
        """A node delivers as much of a segment as it can."""
        node = self.nodes[name]
        first = at % len(node.order) * ROWS
        entries = sorted((node.available | node.under_way) & set(range(first, first + ROWS)))
        if not node.up or not entries:
            return
        node.available -= set(entries)
        node.under_way -= set(entries)
        spans = [(entry, entry + 1) for entry in entries]
        arrival = self.tracker.arrive(origin(name, node.order[first // ROWS], first), spans, 0.0)
        for start, end in arrival.passed:
            for entry in range(start, end):
                self.hand.append((name, entry))
                self.handed.append(node.row_at(entry))
        self.settle([NodeEntries(name, 0, arrival.settled)])

    def settle(self, found: list[NodeEntries]) -> None:
        for name, _, spans in found:
            for start, end in spans:
                self.nodes[name].settled |= set(range(start, end))
                self.nodes[name].available -= set(range(start, end))

    def again(self, found: list[NodeEntries]) -> None:
        for name, _, spans in found:
            for start, end in spans:
                self.nodes[name].available |= set(range(start, end)) - self.nodes[name].settled

    def ack(self, at: int) -> None:
        if self.hand:
            name, entry = self.hand.pop(at % len(self.hand))
            self.settle([NodeEntries(name, 0, [(entry, entry + 1)])])
            self.settle(self.tracker.settle(name, 0, [(entry, entry + 1)]))

    def refuse(self, at: int) -> None:
        if self.hand:
            name, entry = self.hand.pop(at % len(self.hand))
            self.again(self.tracker.refuse(name, 0, [(entry, entry + 1)]))

    def lose(self, name: str) -> None:
        """After a reconnect it sends again what the program did not get."""
        self.nodes[name].up = False
        self.again(self.tracker.down(name))
        self.again([NodeEntries(name, shard, [span]) for shard, span in self.tracker.drop_held(name)])

    def find(self, name: str) -> None:
        node = self.nodes[name]
        if not node.up:
            node.under_way = set(node.available)
        node.up = True
        self.tracker.up(name)

    def replace(self, name: str) -> None:
        """The node is read again: all that it has not settled comes again."""
        node = self.nodes[name]
        self.again(self.tracker.gone(name))
        node.available = set(range(len(node.order) * ROWS)) - node.settled
        self.find(name)

    def drain(self) -> None:
        for name in self.nodes:
            self.find(name)
        before = None
        while before != (before := [sorted(node.settled) for node in self.nodes.values()]):
            for name, node in self.nodes.items():
                for at in range(len(node.order)):
                    self.give(name, at)
            while self.hand:
                self.ack(0)


SEGMENTS = 4
nodes = st.sampled_from("abc")
numbers = st.integers(0, 50)
steps = st.one_of(
    st.tuples(st.just("give"), nodes, numbers),
    st.tuples(st.just("give"), nodes, numbers),
    st.tuples(st.just("ack"), numbers),
    st.tuples(st.just("refuse"), numbers),
    st.tuples(st.just("lose"), nodes),
    st.tuples(st.just("find"), nodes),
    st.tuples(st.just("replace"), nodes),
)
orders = st.lists(st.permutations(range(SEGMENTS)), min_size=3, max_size=3)


@settings(max_examples=150)
@given(orders, st.lists(steps, max_size=60))
def test_whatever_happens_everything_is_handed_out_and_settled_at_every_node(
    order: list[list[int]], script: list[tuple[Any, ...]]
) -> None:
    world = World(order)
    refused = 0
    for what, *how in script:
        refused += what == "refuse" and bool(world.hand)
        getattr(world, what)(*how)
    world.drain()
    every = {(segment, row) for segment in range(SEGMENTS) for row in range(ROWS)}
    assert set(world.handed) == every
    for node in world.nodes.values():
        assert len(node.settled) == len(every), f"{node.name} still owes some"
    assert len(world.handed) <= len(every) + refused, "a message comes again only where it was refused"
    assert not world.tracker._open and not world.tracker._refused and not any(world.tracker._index.values())
