"""No acknowledged message is lost, repeated or out of order when a node is killed.

``make kill`` does the same fifty times and prints the ledger.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from headpond.model.message import Message, Origin
from tests.fire.kill_node import UNKEYED, Books, Ledger, compare, run


def test_a_node_that_is_killed_under_load_keeps_all_it_acknowledged(tmp_path: Path) -> None:
    ledger = asyncio.run(run(tmp_path, cycles=6, seed=7))
    assert ledger.balanced, f"\n{ledger}"
    assert ledger.acknowledged > 100
    assert ledger.settled > 0
    assert ledger.reconnects >= 6


def stored(books: Books, number: int, entry: int, value: bytes | None = None) -> Message:
    origin = Origin(UNKEYED, 0, 0, bytes(16), 0, 0, "")
    return Message(value or books.value(number), None, books.id(number), entry, 1, origin, 0, None)


def test_the_books_show_what_is_lost_repeated_altered_or_out_of_order() -> None:
    books = Books("p", UNKEYED, {number: (0, number) for number in range(4)}, sent=4)
    ledger = Ledger()
    compare(ledger, books, [stored(books, number, number) for number in range(4)])
    assert ledger.balanced
    for messages, fault in (
        ([stored(books, number, number) for number in range(3)], "lost"),
        ([*(stored(books, number, number) for number in range(4)), stored(books, 2, 4)], "repeated"),
        ([stored(books, 0, 0, b"x"), *(stored(books, number, number) for number in range(1, 4))], "altered"),
        ([stored(books, number, entry) for number, entry in ((0, 0), (1, 2), (2, 1), (3, 3))], "out_of_order"),
    ):
        ledger = Ledger()
        compare(ledger, books, messages)
        assert getattr(ledger, fault) > 0, fault
        assert not ledger.balanced
