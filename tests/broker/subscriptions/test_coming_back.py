"""A consumer reconnects after a lost connection: what it still holds, and what counts as an attempt."""

from __future__ import annotations

import msgspec
import pytest

from headpond.broker.subscriptions.subscription import Subscription
from headpond.model.policy import Policy
from headpond.storage.memory_disk import MemoryDisk
from headpond.wire.control.consuming import KnownRecord, Subscribe, Subscribed, Unsubscribe, Unsubscribed
from headpond.wire.control.greeting import Error
from headpond.wire.frame import Frame
from headpond.wire.record import decode_record_header
from tests.broker.subscriptions.core_readers import PLAIN, POLICY, KindReader, Writer, shell
from tests.fire.core_shell import CoreShell

SHARED = ("shared", "key_shared")
SINGLE = ("unique", "failover")
MODES = ("resilient", "non_resilient")
NOTHING: list[tuple[int, int, int]] = []


def only(it: CoreShell) -> Subscription:
    (subscription,) = it.core.stores.subscriptions.all()
    return subscription


def deliveries(it: CoreShell) -> list[int]:
    """How many deliveries of each of six entries count."""
    return [only(it).cursors[0].delivered.of(entry) for entry in range(6)]


def restarted(it: CoreShell) -> CoreShell:
    """Kills the node, which then knows only what is on disk."""
    assert isinstance(it.disk, MemoryDisk)
    it.disk.crash()
    return CoreShell(it.disk, seed=2, settings=PLAIN, now_us=it.now_us)


@pytest.mark.parametrize("noticed", [True, False])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", SINGLE)
def test_the_active_consumer_continues_to_hold_what_its_program_has_in_hand(
    kind: str, mode: str, noticed: bool
) -> None:
    it = shell()
    one = KindReader(it, kind, mode, instance=b"me")
    assert one.entries() == [0, 1, 2, 3, 4, 5]
    if noticed:
        one.vanish()
    back = KindReader(it, kind, mode, instance=b"me", seen=[(0, 0, 2)])
    assert back.got() == [(2, 1), (3, 1), (4, 1), (5, 1)], "the rest was sent ahead, and is sent again"
    assert deliveries(it) == [0] * 6
    back.settle(acked=[(0, 1)], nacked=[(1, 0.0)])
    back.seconds(1.0)
    assert back.got() == [(1, 2)], "what it held on to is refused like anything else"


@pytest.mark.parametrize("noticed", [True, False])
@pytest.mark.parametrize("kind", SHARED)
def test_messages_in_hand_come_flagged_to_another_consumer_and_count_as_no_attempt(
    kind: str, noticed: bool
) -> None:
    it = shell()
    one, other = (KindReader(it, kind, "non_resilient", instance=name) for name in (b"me", b"you"))
    mine = one.entries()
    if noticed:
        one.vanish()
    back = KindReader(it, kind, "non_resilient", instance=b"me", seen=[(0, mine[0], mine[0] + 1)])
    assert deliveries(it) == [0] * 6
    back.client.send(Unsubscribe(1, NOTHING))
    other.client.send(Unsubscribe(1, NOTHING))
    it.work_all()
    last = dict(KindReader(it, kind, "non_resilient", instance=b"last").got())
    assert last == {entry: 2 if entry == mine[0] else 1 for entry in range(6)}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", [*SINGLE, *SHARED])
def test_a_storm_of_reconnects_kills_no_message(kind: str, mode: str) -> None:
    it = shell()
    policy = Policy(lease=POLICY.lease, max_attempts=3)
    one = KindReader(it, kind, mode, instance=b"me", policy=policy)
    for _ in range(5):
        one.vanish()
        one = KindReader(it, kind, mode, instance=b"me", policy=policy, seen=[(0, 0, 1)])
    one.settle(acked=[(0, 6)])
    counts = only(it).counts
    assert (only(it).dead, counts.acked, counts.late) == (0, 6, 0)


def test_a_consumer_that_does_not_come_back_is_presumed_to_have_had_what_it_held() -> None:
    it = shell()
    KindReader(it, "shared", "non_resilient", instance=b"me").vanish()
    assert deliveries(it) == [1] * 6
    assert KindReader(it, "shared", "non_resilient", instance=b"you").got() == [(n, 2) for n in range(6)]


def test_the_journal_has_the_attempts_that_are_taken_back_when_a_consumer_comes_back() -> None:
    it = shell()
    KindReader(it, "shared", "non_resilient", instance=b"me").vanish()
    KindReader(it, "shared", "non_resilient", instance=b"me", seen=NOTHING)
    assert deliveries(it) == deliveries(restarted(it)) == [0] * 6


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", SINGLE)
def test_after_a_restart_of_the_node_a_consumer_holds_what_its_program_has_in_hand(
    kind: str, mode: str
) -> None:
    it = shell()
    KindReader(it, kind, mode, instance=b"me")
    it = restarted(it)
    back = KindReader(it, kind, mode, instance=b"me", seen=[(0, 1, 3)])
    assert back.entries() == [0, 3, 4, 5]
    back.settle(acked=[(0, 6)])
    assert only(it).cursors[0].cursor == 6


@pytest.mark.parametrize("kind", SHARED)
def test_after_a_crash_of_the_node_what_was_delivered_comes_flagged(kind: str) -> None:
    it = shell()
    KindReader(it, kind, "non_resilient", instance=b"me")
    it = restarted(it)
    back = KindReader(it, kind, "non_resilient", instance=b"me", seen=[(0, 1, 3)])
    assert sorted(back.got()) == [(entry, 2) for entry in range(6)]


def test_a_standby_does_not_hold_what_it_had_when_it_was_active() -> None:
    it = shell()
    one = KindReader(it, "failover", "non_resilient", instance=b"me")
    one.entries()
    other = KindReader(it, "failover", "non_resilient", instance=b"you")
    one.vanish()
    assert other.got() == [(n, 2) for n in range(6)]
    back = KindReader(it, "failover", "non_resilient", instance=b"me", seen=[(0, 0, 2)])
    assert (back.standing().active, back.got()) == (False, [])
    other.settle(acked=[(0, 1)])
    other.client.send(Unsubscribe(1, NOTHING))
    it.work_all()
    assert back.got() == [(1, 2), (2, 1), (3, 1), (4, 1), (5, 1)], "its program had one of them in hand"


def test_a_refusal_counts_that_was_on_its_way_when_the_connection_was_lost() -> None:
    it = shell()
    one = KindReader(it, "shared", "non_resilient", instance=b"me")
    one.vanish()
    back = KindReader(it, "shared", "non_resilient", instance=b"me", seen=NOTHING, credit=0)
    back.settle(nacked=[(0, 5.0)])
    subscription = only(it)
    assert 0 in subscription.cursors[0].unacked_log.entries
    assert deliveries(it) == [1, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", [*SINGLE, *SHARED])
def test_a_refusal_that_is_repeated_counts_once(kind: str, mode: str) -> None:
    it = shell(1)
    one = KindReader(it, kind, mode, instance=b"me")
    one.settle(nacked=[(0, 0.0)])
    for _ in range(3):
        one.seconds(1)  # it goes out again, and the connection is lost before it or the confirmation comes
        one.vanish()
        one = KindReader(it, kind, mode, instance=b"me", seen=[(0, 0, 1)], credit=0)
        one.settle(nacked=[(0, 0.0)])
    assert only(it).cursors[0].delivered.of(0) == 1
    one.pay()
    one.seconds(1)
    assert one.got()[-1] == (0, 2)


def test_a_consumer_cannot_refuse_what_another_consumer_lost() -> None:
    it = shell()
    one, other = (
        KindReader(it, "shared", "non_resilient", instance=name, credit=0) for name in (b"me", b"you")
    )
    one.pay()
    assert one.entries() == [0, 1, 2, 3, 4, 5]
    one.vanish()
    other.settle(nacked=[(0, 60.0)])
    subscription = only(it)
    assert not subscription.cursors[0].unacked_log.entries
    assert subscription.counts.late == 1


def test_a_refusal_of_a_message_that_no_consumer_holds_after_a_restart_flags_it() -> None:
    it = shell()
    KindReader(it, "shared", "non_resilient", instance=b"me")
    it = restarted(it)
    back = KindReader(it, "shared", "non_resilient", instance=b"me", seen=NOTHING, credit=0)
    back.settle(nacked=[(0, 60.0)])
    back.pay()
    assert dict(back.got())[0] == 2


def test_entries_that_do_not_exist_yet_are_ignored_among_those_in_hand() -> None:
    it = shell(2)
    back = KindReader(it, "unique", "non_resilient", instance=b"me", seen=[(0, 1, 2**62), (9, 0, 1)])
    assert back.entries() == [0]
    Writer(it).write(1)
    assert back.entries() == []  # the writer began its block again, so this is a duplicate
    subscription = only(it)
    assert subscription.cursors[0].held.end == 2


def test_settlements_over_a_replaced_connection_are_ignored() -> None:
    it = shell()
    one = KindReader(it, "unique", "resilient", instance=b"me")
    back = KindReader(it, "unique", "resilient", instance=b"me", seen=NOTHING)
    assert [error.code for error in one.client.take(Error)] == ["lease-lost"]
    back.got()
    one.settle(acked=[(0, 3)], nacked=[(3, 60.0)])
    subscription = only(it)
    assert (subscription.cursors[0].cursor, bool(subscription.cursors[0].unacked_log.entries)) == (0, False)
    assert subscription.attachments[0].held[0].count(0, 6) == 6


def test_no_credit_is_needed_to_subscribe() -> None:
    it = shell()
    one = KindReader(it, "shared", "non_resilient", credit=0)
    assert one.entries() == []
    one.pay()
    assert one.entries() == [0, 1, 2, 3, 4, 5]


# --- an old copy was restored --------------------------------------------------------------------------


def known_of(reader: KindReader) -> list[KnownRecord]:
    """The last record that a consumer was sent."""
    frame = reader.client.take(Frame)[-1]
    header = decode_record_header(frame.body)
    return [KnownRecord(0, header.first_entry, header.block, frame.segment, header.stored_at_us)]


def stored(rows: int, copied: int) -> tuple[CoreShell, CoreShell, list[KnownRecord]]:
    """A node with two segments, one from a copy with the first ``copied``, and the last record read."""
    disk, copy = MemoryDisk(), MemoryDisk()
    shells = []
    for each, segments in ((disk, 2), (copy, copied)):
        it = CoreShell(each, seed=1, settings=PLAIN)
        writer = Writer(it)
        for _ in range(segments):
            it.now_us += 1000
            writer.write(rows)
        shells.append(it)
    return shells[0], shells[1], known_of(KindReader(shells[0], "shared", "non_resilient"))


def test_a_consumer_that_knows_what_the_log_has_comes_back() -> None:
    it, _, known = stored(3, 2)
    back = KindReader(it, "shared", "non_resilient", instance=b"me", seen=NOTHING, known=known)
    assert back.standing().active


@pytest.mark.parametrize("more", [0, 1, 5])
def test_a_consumer_that_knows_more_than_a_restored_copy_has_is_refused_by_name(more: int) -> None:
    _, it, known = stored(3, 1)
    writer = Writer(it)
    writer.segments = [1]
    for _ in range(more):  # the first of them is the same segment as before, in the same place, stored later
        it.now_us += 5000
        writer.write(3)
    before = len(list(it.core.stores.subscriptions.all()))
    back = KindReader(it, "shared", "non_resilient", instance=b"me", seen=[(0, 3, 6)], known=known)
    assert back.error().code == "incarnation-changed"
    assert len(list(it.core.stores.subscriptions.all())) == before
    assert KindReader(it, "shared", "non_resilient", instance=b"me", seen=NOTHING).entries() == list(
        range(3 + 3 * more)
    )


def test_a_record_deleted_by_retention_is_no_sign_of_a_restored_copy() -> None:
    it, _, known = stored(3, 2)
    (topic,) = it.core.stores.catalog
    log = topic.shards[0].log
    log.entry_first = 6
    assert KindReader(it, "shared", "non_resilient", instance=b"me", known=known).standing().active


def test_an_error_after_the_log_was_read_is_sent_to_the_consumer() -> None:
    it, _, known = stored(3, 2)
    KindReader(it, "shared", "non_resilient", instance=b"me")
    assert KindReader(it, "unique", "non_resilient", known=known).error().code == "subscription-mismatch"


def asking(known: list[KnownRecord], topic: str = "orders") -> Subscribe:
    return Subscribe(
        1, topic, "s", "shared", "non_resilient", "earliest", 1 << 20, create_topic=True, known=known
    )


@pytest.mark.parametrize("topic", ["orders", "made-for-it"])
def test_a_consumer_that_leaves_while_the_node_reads_for_it_is_not_attached(topic: str) -> None:
    it, _, known = stored(3, 2)
    before = attached(it)
    client = it.connect()
    client.send(asking(known if topic == "orders" else [], topic), Unsubscribe(1, NOTHING))
    it.work_all()
    assert (len(client.take(Subscribed)), len(client.take(Unsubscribed))) == (0, 1)
    assert attached(it) == before


def test_a_consumer_that_leaves_and_subscribes_again_under_its_number_is_answered_once() -> None:
    it, _, known = stored(3, 2)
    before = attached(it)
    client = it.connect()
    wrong = [msgspec.structs.replace(known[0], segment=99)]
    client.send(asking(wrong), Unsubscribe(1, NOTHING), asking(known))
    it.work_all()
    assert len(client.take(Subscribed)) == 1
    assert client.take(Error) == [], "what became of the first is nothing to the second"
    assert attached(it) == before + 1


def test_a_consumer_that_subscribes_twice_is_attached_once_and_refused_once() -> None:
    it, _, known = stored(3, 2)
    client = it.connect()
    client.send(asking(known), asking(known))
    (error,) = client.take(Error)
    assert (error.code, error.consumer) == ("protocol", 1)
    it.work_all()
    assert len(client.take(Subscribed)) == 1


def attached(it: CoreShell) -> int:
    return sum(len(each.attachments) for each in it.core.stores.subscriptions.all())


@pytest.mark.parametrize("killed", [True, False])
@pytest.mark.parametrize("kind", SINGLE)
def test_a_refused_message_waits_for_the_settlements_that_its_consumer_repeats(kind: str, killed: bool) -> None:
    """A consumer that reconnects asks without credit, repeats its settlements, and then grants credit."""
    it = shell()
    one = KindReader(it, kind, "resilient", instance=b"me")
    one.settle(nacked=[(0, 0.0)])
    one.seconds(1.0)
    assert one.got()[-1] == (0, 2)
    if killed:  # before its acknowledgement of the second delivery came
        it = restarted(it)
    else:
        one.vanish()
    back = KindReader(it, kind, "resilient", instance=b"me", seen=[(0, 0, 1)], credit=0)
    assert back.got() == [], "its acknowledgement may be on the way"
    back.settles = 1
    back.settle(acked=[(0, 2)])
    back.pay()
    assert back.entries() == [2, 3, 4, 5]
