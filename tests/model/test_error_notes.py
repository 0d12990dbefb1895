"""An error shows its public name and its hint in a traceback, and public objects complete to public names."""

from __future__ import annotations

import pickle
import traceback

import headpond
import headpond.sync
from headpond.errors import CATALOGUE, TopicNotFound
from headpond.model.identity import Identity


def test_a_traceback_names_the_public_module_and_the_hint() -> None:
    text = "".join(traceback.format_exception(TopicNotFound("topic 'x' does not exist", hint="Create it.")))
    assert text == "headpond.errors.TopicNotFound: topic 'x' does not exist\nhint: Create it.\n"
    assert {kind.__module__ for kind in CATALOGUE.values()} == {"headpond.errors"}
    assert (headpond.Retry.__module__, headpond.Skip.__module__) == ("headpond", "headpond")


def test_a_copy_and_a_pickled_error_have_the_hint_once() -> None:
    error = TopicNotFound("gone", hint="Look.")
    for same in (error.again(), pickle.loads(pickle.dumps(error))):
        assert (type(same), same.message, same.hint, same.__notes__) == (
            TopicNotFound,
            "gone",
            "Look.",
            ["hint: Look."],
        )
    error.again().add_note("of the copy")
    assert error.__notes__ == ["hint: Look."]


def test_public_objects_complete_to_public_names() -> None:
    client = headpond.connect("headpond://127.0.0.1:1")
    for thing in (client, headpond.App()):
        assert [name for name in dir(thing) if name.startswith("_") and not name.startswith("__")] == []
    assert {"producer", "consumer", "admin"} <= set(dir(client))


def test_a_receipt_prints_in_one_line() -> None:
    where = ("headpond://a:1", "t", Identity(bytes(16), 2, 3, 4))
    stored = headpond.Receipt(headpond.Outcome.STORED, *where, 7, headpond.Durability.SYNC)
    assert str(stored) == "stored (sync): t shard 2 entry 7 at headpond://a:1"
    refused = headpond.Receipt(headpond.Outcome.REJECTED, *where, error=TopicNotFound("gone"))
    assert str(refused) == "rejected: t shard 2 at headpond://a:1: topic-not-found: gone"
    assert str(headpond.BatchReceipt(5, 3, 0, 2, 0, ())) == "5 rows: 3 stored, 2 spilled"
