"""The settlement journal restores every subscription completely."""

from hypothesis import given, settings
from hypothesis import strategies as st

from headpond.broker.subscriptions.attachment import Attachment
from headpond.broker.subscriptions.journal import Subscriptions
from headpond.broker.subscriptions.records import (
    DAMAGED,
    Change,
    EntriesRedriven,
    Missed,
    Moved,
    Opened,
    Paused,
    Removed,
    Settlement,
    came_back,
)
from headpond.model.entry_set import EntrySet
from headpond.model.policy import Policy
from headpond.storage.journal import encode_change

TOPIC = b"t" * 16
END = 300
POLICY = Policy(max_attempts=4, deadline=3.0).effective("a/b/c/t", "non_resilient")

Step = tuple[str, int, int, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["ack", "skip", "miss", "nack", "release", "offer", "bury", "redrive", "upto", "seek", "pause"]
        ),
        st.integers(0, 1),
        st.integers(0, END - 1),
        st.integers(1, 20),
    ),
    max_size=40,
)


def empty() -> Subscriptions:
    return Subscriptions(lambda: 0, lambda: 0, lambda topic: None, lambda topic: "")


def run(steps: list[Step], subscriptions: Subscriptions) -> list[Change]:
    """Runs the steps on a subscription; returns the records of the journal."""
    opened = Opened(TOPIC, "s", "unique", "non_resilient", [0, 5], 17, POLICY)
    subscriptions.apply(opened)
    subscription = subscriptions.get(TOPIC, "s")
    assert subscription is not None
    journal: list[Change] = [opened]
    reader = Attachment(1, 1, "reader", 1 << 20, welcome=True)
    subscription.admit(reader, 0)
    for what, shard, start, length in steps:
        end = min(END, start + length)
        cursor = subscription.cursors[shard]
        if what == "offer":
            spans = cursor.available(0, end, 10)
            cursor.take(spans)
            reader.hold(shard, spans)
            if spans:
                cursor.advance(0, spans[-1][1])
        elif what == "release":
            returned = cursor.give_back(EntrySet.of([(start, end)]))
            journal += came_back(TOPIC, "s", shard, returned)
        elif what == "bury":
            if subscription.bury(shard, start, end):
                journal.append(Settlement(TOPIC, "s", shard, [], [], [], [], [(start, end)]))
        elif what == "redrive":
            subscription.redrives += 1
            again = subscription.redrive(shard, start, end)
            journal.append(EntriesRedriven(TOPIC, "s", shard, again, subscription.redrives))
        elif what == "upto":
            subscription.ack_upto(shard, end)
            journal.append(Settlement(TOPIC, "s", shard, [], [], [], [], upto=end))
        elif what == "seek":
            cursor.move(start)
            journal.append(Moved(TOPIC, "s", shard, start))
        elif what == "pause":
            subscription.paused = bool(start % 2)
            journal.append(Paused(TOPIC, "s", subscription.paused))
        elif what == "nack":
            refusal = subscription.nack(shard, start, length / 10, 0, END, reader)
            if refusal is not None:
                journal.append(Settlement(TOPIC, "s", shard, [], [], [], [(start, start + 1, *refusal)]))
        elif what == "miss":
            missed = Missed(TOPIC, "s", shard, [(start, end)], DAMAGED, 0)
            subscriptions.apply(missed)
            journal.append(missed)
        else:
            spans = [(start, end)]
            getattr(subscription, what)(shard, start, end)
            fields = {"ack": (spans, []), "skip": ([], spans)}[what]
            journal.append(Settlement(TOPIC, "s", shard, *fields, [], []))
    return journal


def settled(subscriptions: Subscriptions) -> list[set[int]]:
    subscription = subscriptions.get(TOPIC, "s")
    assert subscription is not None
    return [
        {entry for entry in range(END) if entry < cursor.cursor or entry in cursor.settled}
        for cursor in subscription.cursors
    ]


def counts(subscriptions: Subscriptions) -> tuple[object, ...]:
    subscription = subscriptions.get(TOPIC, "s")
    assert subscription is not None
    found = subscription.counts
    counted = (found.acked, found.skipped, found.lost, found.nacked, found.buried, found.redriven)
    dead = [list(cursor.dead.spans(0, END)) for cursor in subscription.cursors]
    return *counted, subscription.redrives, subscription.paused, dead, subscription.policy


@settings(deadline=None)
@given(STEPS)
def test_replaying_the_journal_restores_settlements(steps: list[Step]) -> None:
    lived = empty()
    journal = run(steps, lived)
    replayed = empty()
    for change in journal:
        replayed.apply(Subscriptions.decoder.decode(encode_change(change)))
    assert settled(replayed) == settled(lived)
    assert counts(replayed) == counts(lived)


@settings(deadline=None)
@given(STEPS)
def test_a_snapshot_stands_for_the_whole_journal(steps: list[Step]) -> None:
    lived = empty()
    run(steps, lived)
    restored = empty()
    for change in lived.snapshot():
        restored.apply(Subscriptions.decoder.decode(encode_change(change)))
    assert settled(restored) == settled(lived)
    assert counts(restored) == counts(lived)
    before, after = lived.get(TOPIC, "s"), restored.get(TOPIC, "s")
    assert before is not None
    assert after is not None
    for one, other in zip(before.cursors, after.cursors, strict=True):
        assert [one.delivered.of(entry) for entry in range(END)] == [
            other.delivered.of(entry) for entry in range(END)
        ]


def test_reading_a_record_twice_does_no_harm() -> None:
    subscriptions = empty()
    journal = run([("offer", 0, 0, 20), ("ack", 0, 3, 5), ("skip", 0, 10, 2)], subscriptions)
    for change in journal[1:]:
        subscriptions.apply(change)
    assert settled(subscriptions)[0] == {3, 4, 5, 6, 7, 10, 11}
    assert counts(subscriptions)[:4] == (5, 2, 0, 0)


def test_records_of_a_removed_subscription_are_skipped() -> None:
    subscriptions = empty()
    run([], subscriptions)
    subscriptions.apply(Removed(TOPIC, "s"))
    assert subscriptions.get(TOPIC, "s") is None
    subscriptions.apply(Settlement(TOPIC, "s", 0, [(0, 5)], [], [], []))
    assert list(subscriptions.snapshot()) == []
