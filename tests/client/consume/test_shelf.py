"""The shelf hands out messages in order, and drops those that must not be handed out."""

from __future__ import annotations

import pyarrow as pa

from headpond.client.consume.batch import Batch
from headpond.client.consume.shelf import Shelf
from headpond.model.message import Origin


def batch(first: int, end: int, *, shard: int = 0, node: str = "a") -> Batch:
    origin = Origin("t", shard, first, b"b" * 16, 0, 0, node, end - first)
    sent_at = pa.array([0] * (end - first), pa.timestamp("us", "UTC"))
    rows = pa.record_batch({"value": [b"%d" % entry for entry in range(first, end)], "sent_at": sent_at})
    return Batch(rows, [origin], [(first, end)], 1)


def filled() -> Shelf:
    """Entries 0 to 4 of node a, of which the program has two, then 5 to 8 of node b, then 9 of node a."""
    shelf = Shelf(None)
    shelf.begin(batch(0, 5))
    assert [next(shelf.current).entry for _ in range(2)] == [0, 1]
    shelf.batches.extend([batch(5, 9, node="b"), batch(9, 10)])
    return shelf


def left(shelf: Shelf) -> list[int]:
    """The entries that it still hands out, in order."""
    entries = [message.entry for message in shelf.current]
    while shelf.batches:
        shelf.begin(shelf.batches.popleft())
        entries += [message.entry for message in shelf.current]
    return entries


def entries(places: list[tuple[int, tuple[int, int]]]) -> list[int]:
    return [entry for _, (start, end) in places for entry in range(start, end)]


def test_unread_names_the_entries_that_the_program_does_not_have() -> None:
    shelf = filled()
    assert entries(shelf.unread()) == list(range(2, 10))
    assert entries(shelf.unread("a")) == [2, 3, 4, 9]
    assert entries(shelf.unread("b")) == [5, 6, 7, 8]
    assert left(shelf) == list(range(2, 10)), "looking at them takes nothing away"
    assert shelf.unread() == []


def test_take_unread_takes_away_what_came_from_one_node_or_from_all() -> None:
    shelf = filled()
    assert entries(shelf.take_unread("b")) == [5, 6, 7, 8]
    assert left(shelf) == [2, 3, 4, 9]
    shelf = filled()
    assert entries(shelf.take_unread("a")) == [2, 3, 4, 9]
    assert left(shelf) == [5, 6, 7, 8]
    shelf = filled()
    assert entries(shelf.take_unread()) == list(range(2, 10))
    assert left(shelf) == [] and shelf.drops == 1


def test_withdraw_drops_entries_of_the_current_batch_and_of_later_ones() -> None:
    shelf = filled()
    shelf.withdraw(0, [(1, 4), (6, 7)])
    assert left(shelf) == [4, 5, 7, 8, 9]
    shelf = filled()
    shelf.withdraw(0, [(1, 4), (6, 7)], "a")
    assert left(shelf) == [4, 5, 6, 7, 8, 9], "entries of another node are other messages"
    shelf = filled()
    shelf.withdraw(1, [(0, 10)])
    assert left(shelf) == list(range(2, 10)), "entries of another shard, too"


def test_the_rest_of_a_batch_is_a_batch() -> None:
    shelf = filled()
    rest = shelf.rest()
    assert rest is not None and rest.spans == [(2, 5)]
    assert shelf.rest() is None
    assert left(shelf) == [5, 6, 7, 8, 9]


def test_a_shelf_elsewhere_counts_too() -> None:
    shelf, elsewhere = Shelf(None), filled()
    shelf.keep_elsewhere(elsewhere.unread, elsewhere.take_unread, elsewhere.withdraw)
    assert entries(shelf.unread()) == list(range(2, 10))
    shelf.withdraw(0, [(2, 5)])
    assert entries(shelf.take_unread()) == [5, 6, 7, 8, 9]
    assert left(elsewhere) == []
