"""A message has the fields of its producer, those of the node, and its identity."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from headpond.model.errors import Gap
from headpond.model.identity import Identity
from headpond.model.message import Message, Origin, from_micros
from headpond.model.receipt import Durability, Outcome, Receipt

BLOCK = b"b" * 16
ORIGIN = Origin("default/default/default/orders", 3, 1000, BLOCK, 7, 1_700_000_000_000_001, "node-a")


def message(header_items: list[tuple[str, str]] | None = None) -> Message:
    return Message(b"v", b"k", "o-1", 1004, 2, ORIGIN, 1_600_000_000_000_000, header_items)


def test_a_message_takes_its_place_from_its_origin() -> None:
    found = message()
    assert (found.topic, found.shard, found.node) == (ORIGIN.topic, 3, "node-a")
    assert found.identity == Identity(BLOCK, 3, 7, 4)


def test_headers_are_always_a_dict() -> None:
    assert message().headers == {}
    assert message([("a", "b"), ("c", "d")]).headers == {"a": "b", "c": "d"}


def test_times_are_aware_and_exact_to_the_microsecond() -> None:
    assert message().sent_at == datetime(2020, 9, 13, 12, 26, 40, tzinfo=UTC)
    assert message().stored_at == datetime(2023, 11, 14, 22, 13, 20, 1, tzinfo=UTC)
    assert from_micros(-1) == datetime(1970, 1, 1, tzinfo=UTC) - timedelta(microseconds=1)


def test_a_receipt_counts_a_duplicate_as_stored_and_nothing_else() -> None:
    identity = Identity(BLOCK, 3, 7, 4)
    receipts = {
        outcome: Receipt(outcome, "headpond://a:7411", "orders", identity, durability=Durability.SYNC)
        for outcome in Outcome
    }
    assert [outcome for outcome in Outcome if receipts[outcome].stored] == [Outcome.STORED, Outcome.DUPLICATE]
    assert receipts[Outcome.STORED].shard == 3
    assert Receipt(Outcome.REJECTED, "d", "t", identity, error=Gap("why")).error is not None
