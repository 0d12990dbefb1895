"""Leases, standby, seeking and pausing, as consumers see them."""

from __future__ import annotations

import pytest

from headpond.broker.subscriptions.journal import Subscriptions
from headpond.broker.subscriptions.records import CameBack, Change
from headpond.model.errors import SubscriptionBusy, SubscriptionNotFound
from headpond.model.policy import Policy
from headpond.storage.memory_disk import MemoryDisk
from headpond.wire.control.codec import read_result
from headpond.wire.control.consuming import (
    CreateSubscription,
    Credit,
    DeleteSubscription,
    Extend,
    GiveBack,
    ListSubscriptions,
    Lost,
    PauseSubscription,
    Renew,
    SeekSubscription,
    Settle,
    ShowSubscription,
    SubscriptionInfo,
    Unsubscribe,
)
from headpond.wire.control.greeting import Error
from headpond.wire.control.ledger import LedgerInfo, ShowLedger
from headpond.wire.control.status import ShowTop, TopInfo
from tests.broker.subscriptions.core_readers import LEASE_S, PLAIN, KindReader, Writer, shell
from tests.fire.core_shell import CoreShell


def test_the_standby_takes_over_at_once_after_a_clean_leave() -> None:
    it = shell()
    one, other = KindReader(it, "failover", "resilient"), KindReader(it, "failover", "resilient")
    assert (one.standing().active, other.standing().active) == (True, False)
    assert (one.entries(), other.entries()) == ([0, 1, 2, 3, 4, 5], [])
    one.settle(acked=[(0, 2)])
    one.client.send(Unsubscribe(1, [(0, 0, 3)]))
    it.work_all()
    assert other.standing().active
    assert other.got() == [(2, 2), (3, 1), (4, 1), (5, 1)], "exactly at the first that is not settled"


def test_the_standby_of_a_lost_consumer_waits_for_lease_and_margin() -> None:
    it = shell()
    one, other = KindReader(it, "failover", "resilient"), KindReader(it, "failover", "resilient")
    one.settle(acked=[(0, 2)])
    one.seconds(1.0)
    one.client.send(Renew(1, 1))
    assert one.standing().renewal == 1
    one.vanish()
    other.seconds(LEASE_S)
    assert other.entries() == [], "the lost one may still be working by its own clock"
    other.seconds(LEASE_S * 0.2 + 0.1)
    assert other.got()[0] == (2, 2)


def test_a_disconnected_consumer_does_not_step_back_while_its_lease_lasts() -> None:
    it = shell()
    policy = Policy(lease=LEASE_S, deadline=1.0, failover_after=1)
    one, other = (KindReader(it, "failover", "resilient", policy=policy) for _ in range(2))
    one.vanish()
    other.seconds(1.5)
    assert other.entries() == [], "its deadlines are over, and it may still be working"
    other.seconds(LEASE_S)
    assert other.got() == [(entry, 2) for entry in range(6)]


def test_all_refusals_of_one_settlement_count_though_the_first_makes_its_consumer_step_back() -> None:
    it = shell()
    policy = Policy(failover_after=1)
    one, other = (KindReader(it, "failover", "non_resilient", policy=policy) for _ in range(2))
    one.settle(nacked=[(0, 0.0), (1, 0.0)])
    other.seconds(1)
    assert sorted(other.got()) == [(n, 2) for n in range(6)], "its program may have had the others, too"
    (subscription,) = it.core.stores.subscriptions.all()
    assert [subscription.cursors[0].delivered.of(n) for n in range(6)] == [1, 1, 0, 0, 0, 0]


def test_a_silent_consumer_loses_its_lease_and_gets_an_error_when_it_wakes() -> None:
    it = shell()
    one, other = KindReader(it, "failover", "resilient"), KindReader(it, "failover", "resilient")
    other.seconds(LEASE_S * 1.3)
    assert other.entries() == [0, 1, 2, 3, 4, 5]
    (error,) = one.client.take(Error)
    assert (error.code, error.retryable, error.consumer) == ("lease-lost", True, 1)
    one.settle(acked=[(0, 1)])
    assert one.client.take(Error) == [], "what it says now is passed over until it subscribes again"


def test_a_unique_lease_belongs_to_its_holder_until_it_ends_and_over_a_reconnect() -> None:
    it = shell()
    one = KindReader(it, "unique", "resilient", instance=b"me")
    one.settle(acked=[(0, 1)])
    one.vanish()
    assert KindReader(it, "unique", "resilient", instance=b"you").error().code == "subscription-busy"
    back = KindReader(it, "unique", "resilient", instance=b"me", seen=[(0, 1, 2)])
    assert back.got() == [(n, 1) for n in range(2, 6)], (
        "it holds what its program has, and the rest was no attempt"
    )
    back.vanish()
    back.seconds(LEASE_S * 1.3)
    assert KindReader(it, "unique", "resilient", instance=b"you").entries() == [1, 2, 3, 4, 5]


def test_in_resilient_mode_nothing_is_offered_behind_a_message_that_waits() -> None:
    it = shell(2)
    reader = KindReader(it, "unique", "resilient")
    assert reader.entries() == [0, 1]
    reader.settle(nacked=[(0, 1.0)])
    reader.client.send(Unsubscribe(1, [(0, 0, 1)]))
    it.work_all()
    following = KindReader(it, "unique", "resilient")
    assert following.entries() == []
    following.seconds(1.1)
    assert following.got() == [(0, 2), (1, 1)]


@pytest.mark.parametrize("kind", ["unique", "failover"])
def test_the_message_that_the_order_waits_for_needs_no_credit(kind: str) -> None:
    it = shell()
    reader = KindReader(it, kind, "resilient")
    (attachment,) = next(it.core.stores.subscriptions.all()).attachments
    assert reader.entries() == list(range(6))
    attachment.credit_bytes = 0  # prefetched messages used all of it, and cannot be handed out
    for attempt in (2, 3):
        reader.settle(nacked=[(0, 0.0)])
        reader.seconds(1)
        assert reader.got() == [(0, attempt)], "and nothing else"
    reader.settle(acked=[(0, 1)], nacked=[(3, 0.0)])
    reader.seconds(1)
    assert reader.got() == [], "the consumer has others to hand out before it"
    assert attachment.credit_bytes < 0
    reader.settle(acked=[(1, 3)])
    assert reader.got() == [(3, 2)]


def test_the_message_that_the_order_waits_for_comes_when_its_connection_drains() -> None:
    it = shell()
    reader = KindReader(it, "unique", "resilient")
    (attachment,) = next(it.core.stores.subscriptions.all()).attachments
    assert reader.entries() == list(range(6))
    attachment.credit_bytes = 0
    it.core.set_writable(reader.number, False)
    reader.settle(nacked=[(0, 0.0)])
    reader.seconds(1)
    assert reader.got() == []
    it.core.set_writable(reader.number, True)
    it.drain()
    it.work_all()
    assert reader.got() == [(0, 2)]


def test_a_message_that_comes_back_while_the_next_is_read_is_redelivered_first() -> None:
    it = CoreShell(MemoryDisk(), seed=1, settings=PLAIN)
    writer = Writer(it)
    writer.write(6)
    one, other = KindReader(it, "failover", "resilient"), KindReader(it, "failover", "resilient")
    active = next(it.core.stores.subscriptions.all()).attachments[0]
    active.credit_bytes = 0
    writer.write(3)
    assert one.entries() == list(range(6))
    one.client.send(Credit(1, 1000))
    assert len(it.pending) == 1, "the rest is being read"
    one.client.send(Unsubscribe(1, []))
    it.work_all()
    assert other.entries() == list(range(9)), "in the log's order"


def test_a_seek_detaches_consumers_and_sets_every_position() -> None:
    it = shell()
    reader = KindReader(it, "shared", "non_resilient")
    reader.settle(acked=[(0, 6)])
    reader.got()
    info = read_result(it.connect().request(SeekSubscription("orders", "s", 3)), SubscriptionInfo)
    assert (info.positions, info.consumers) == ([3], [])
    (error,) = reader.client.take(Error)
    assert (error.code, error.retryable) == ("subscription-moved", True)
    assert KindReader(it, "shared", "non_resilient").got() == [(3, 1), (4, 1), (5, 1)]
    it.connect().request(SeekSubscription("orders", "s", "latest"))
    restarted = CoreShell(it.disk, seed=2, settings=PLAIN)
    assert KindReader(restarted, "shared", "non_resilient").entries() == []
    restarted.connect().request(SeekSubscription("orders", "s", "earliest", 0))
    assert KindReader(restarted, "shared", "non_resilient").entries() == [0, 1, 2, 3, 4, 5]


def test_a_paused_subscription_offers_nothing_and_takes_settlements() -> None:
    it = shell()
    reader = KindReader(it, "unique", "non_resilient")
    assert reader.entries() == [0, 1, 2, 3, 4, 5]
    it.connect().request(PauseSubscription("orders", "s", True))
    assert reader.standing().paused
    reader.settle(acked=[(0, 1)], nacked=[(1, 0.0)])
    reader.seconds(1.0)
    assert reader.got() == []
    restarted = CoreShell(it.disk, seed=2, settings=PLAIN, now_us=it.now_us)
    following = KindReader(restarted, "unique", "non_resilient")
    assert following.standing().paused
    assert following.entries() == []
    restarted.connect().request(PauseSubscription("orders", "s", False))
    assert following.got() == [*((n, 2) for n in range(2, 6)), (1, 2)], "all were delivered before the crash"


def test_subscriptions_are_created_shown_and_deleted_without_a_consumer() -> None:
    it = shell()
    admin = it.connect()
    made = read_result(
        admin.request(CreateSubscription("orders", "s", "key_shared", start=4)), SubscriptionInfo
    )
    assert (made.kind, made.positions, made.unsettled) == ("key_shared", [4], 2)
    with pytest.raises(SubscriptionBusy, match="already"):
        admin.request(CreateSubscription("orders", "s", "key_shared"))
    admin.request(CreateSubscription("orders", "s", "key_shared", exist_ok=True))
    (listed,) = read_result(admin.request(ListSubscriptions("")), list[SubscriptionInfo])
    assert listed == made
    assert made.policy is not None
    assert made.policy.max_attempts == 16
    admin.request(DeleteSubscription("orders", "s"))
    with pytest.raises(SubscriptionNotFound):
        admin.request(ShowSubscription("orders", "s"))


def test_idle_subscriptions_cost_a_published_message_nothing() -> None:
    it = CoreShell(MemoryDisk(), seed=1, settings=PLAIN)
    writer = Writer(it)
    admin = it.connect()
    for number in range(50):
        admin.request(CreateSubscription("orders", f"idle-{number}"))
    asked: list[str] = []
    for subscription in it.core.stores.subscriptions.all():
        subscription.next_read = lambda *_: asked.append("want")  # type: ignore[method-assign]
    due_us = it.core.due_us
    writer.write(5)
    assert asked == []
    assert it.core.due_us == due_us


def test_a_million_unsettled_entries_cost_little() -> None:
    it = shell(1)
    KindReader(it, "unique", "non_resilient")
    (subscription,) = it.core.stores.subscriptions.all()
    cursor, (reader,) = subscription.cursors[0], subscription.attachments
    cursor.take([(1, 1_000_001)])
    reader.hold(0, [(1, 1_000_001)])
    for entry in range(1, 1_000_001, 2):
        cursor.settle(entry, entry + 1)
        reader.let_go(0, entry, entry + 1)
    sets = [cursor.settled, cursor.held, reader.held[0]]
    assert sum(len(each.encode()) for each in sets) < 1_000_000


@pytest.mark.parametrize("kind", ["unique", "key_shared"])
def test_the_entries_of_a_lost_consumer_are_one_record_of_the_journal(kind: str) -> None:
    rows, segments = 5000, 4
    it = CoreShell(MemoryDisk(), seed=1, settings=PLAIN)
    writer = Writer(it)
    for _ in range(segments):
        writer.write(rows, size=1, keys=[b"%d" % (row % 7) for row in range(rows)])
    reader = KindReader(it, kind, "non_resilient")
    for at in range(0, rows * segments, rows):
        reader.settle(acked=[(entry, entry + 1) for entry in range(at, at + rows, 2)])
    cursor = next(it.core.stores.subscriptions.all()).cursors[0]
    noted: list[Change] = []
    journal = it.core.stores.settlements.journal
    append = journal.append

    def note(body: bytes) -> None:
        noted.append(Subscriptions.decoder.decode(body))
        append(body)

    journal.append = note  # type: ignore[method-assign]
    reader.vanish()
    assert [type(each) for each in noted].count(CameBack) == 1
    assert (len(cursor.ready), cursor.delivered.of(1)) == (rows * segments // 2, 1)
    again = CoreShell(it.disk, seed=2, settings=PLAIN)
    restored = next(again.core.stores.subscriptions.all()).cursors[0]
    assert [(count, len(entries)) for count, entries in restored.delivered.sets.items()] == [
        (1, rows * segments // 2)
    ]
    assert restored.delivered.of(1) == 1
    assert restored.delivered.of(2) == 0


def test_a_consumer_may_settle_what_another_holds_and_may_not_refuse_it() -> None:
    it = shell(2)
    one, other = KindReader(it, "shared", "non_resilient"), KindReader(it, "shared", "non_resilient")
    assert one.entries() == [0, 1]
    other.client.send(Settle(1, 1, 0, nacked=[(1, 0.0)]), Settle(1, 2, 0, acked=[(0, 1)]))
    it.work_all()
    info = read_result(it.connect().request(ShowSubscription("orders", "s")), SubscriptionInfo)
    assert (info.acked, info.nacked, info.late, info.in_flight) == (1, 0, 1, 1)


def test_a_topic_is_not_its_own_dead_letter_topic() -> None:
    it = shell()
    reader = KindReader(it, "unique", "non_resilient", policy=Policy(dead_letter="orders"))
    assert reader.error().code == "bad-request"
    assert it.connect().request(ListSubscriptions("orders")) == []


def test_prefetched_messages_go_to_a_consumer_that_joins() -> None:
    it = shell(10)
    one = KindReader(it, "shared", "non_resilient")
    assert one.entries() == list(range(10))
    other = KindReader(it, "shared", "non_resilient")
    assert one.standing().recall
    one.client.send(GiveBack(1, 0, [(4, 10)]), GiveBack(1, 0, [], done=True))
    it.work_all()
    mine, theirs = one.got(), other.got()
    assert sorted(mine + theirs) == [(entry, 1) for entry in range(4, 10)], "and it counts as no attempt"
    assert mine
    assert theirs


def test_a_consumer_that_holds_or_refuses_what_another_settled_is_notified() -> None:
    it = shell(2)
    policy = Policy(lease=LEASE_S, deadline=1.0, failover_after=1)
    one, other = (KindReader(it, "failover", "resilient", policy=policy) for _ in range(2))
    one.seconds(1.5)
    assert other.got() == [(0, 2), (1, 2)]
    one.settle(acked=[(0, 1)])
    assert Lost(1, 0, [(0, 1)], "settled") in other.client.take(Lost)
    other.settle(nacked=[(0, 0.0)])
    assert other.client.take(Lost) == [Lost(1, 0, [(0, 1)], "settled")], "it does not come again"


def test_messages_that_come_back_while_later_ones_are_read_are_redelivered_first() -> None:
    it = CoreShell(MemoryDisk(), seed=1, settings=PLAIN)
    writer = Writer(it)
    writer.write(2)
    one, other = KindReader(it, "failover", "non_resilient"), KindReader(it, "failover", "non_resilient")
    it.core.set_writable(one.number, False)
    writer.write(2)
    it.core.set_writable(one.number, True)
    it.drain()
    assert it.pending, "the second two are being read"
    one.client.send(Unsubscribe(1, []))
    it.work_all()
    assert other.entries() == [0, 1, 2, 3]


def test_a_recalled_consumer_is_sent_nothing_before_it_has_given_back() -> None:
    it = CoreShell(MemoryDisk(), seed=1, settings=PLAIN)
    writer = Writer(it)
    writer.write(5, keys=[b"k"] * 5)
    one = KindReader(it, "key_shared", "non_resilient")
    assert one.entries() == [0, 1, 2, 3, 4]
    other = KindReader(it, "key_shared", "non_resilient")
    assert one.standing().recall
    writer.write(2, keys=[b"k"] * 2)
    assert (one.entries(), other.entries()) == ([], []), "the key is with one, to whom nothing may be under way"
    one.client.send(GiveBack(1, 0, [(2, 5)]))
    it.work_all()
    assert (one.entries(), other.entries()) == ([], [])
    one.client.send(GiveBack(1, 0, [], done=True))
    it.work_all()
    assert one.entries() == [2, 3, 4, 5, 6], "behind the two that its application has"
    assert other.entries() == []


def test_a_key_moves_to_a_consumer_that_joins_when_all_of_it_came_back() -> None:
    it = CoreShell(MemoryDisk(), seed=1, settings=PLAIN)
    Writer(it).write(40, keys=[b"k%d" % (row % 20) for row in range(40)])
    one = KindReader(it, "key_shared", "non_resilient")
    other = KindReader(it, "key_shared", "non_resilient")
    assert one.standing().recall
    one.entries()
    one.client.send(GiveBack(1, 0, [(3, 20)]))
    it.work_all()
    assert other.entries() == [], "of each key something is with the other one"
    one.client.send(GiveBack(1, 0, [(20, 40)]), GiveBack(1, 0, [], done=True))
    it.work_all()
    mine, theirs = one.entries(), other.entries()
    assert sorted(mine + theirs) == list(range(3, 40))
    assert {0, 1, 2} <= {entry - 20 for entry in mine}, "keys that it has in hand stay with it"
    assert not {entry % 20 for entry in mine} & {entry % 20 for entry in theirs}
    assert theirs == sorted(theirs)


def test_a_key_of_which_a_message_expired_moves_when_its_consumer_has_given_back_the_rest() -> None:
    it = CoreShell(MemoryDisk(), seed=1, settings=PLAIN)
    Writer(it).write(3, keys=[b"k"] * 3)
    policy = Policy(deadline=2.0)
    one = KindReader(it, "key_shared", "non_resilient", policy=policy)
    assert one.entries() == [0, 1, 2]
    other = KindReader(it, "key_shared", "non_resilient", policy=policy)
    one.client.send(GiveBack(1, 0, [], done=True), Extend(1, 0, [(1, 3)], 60.0))
    assert one.standing().recall
    one.seconds(2.5)
    assert one.standing().recall, "it may have more of the key"
    assert (one.got(), other.got()) == ([], []), "its application may be at the next one by now"
    one.client.send(GiveBack(1, 0, [(2, 3)]), GiveBack(1, 0, [], done=True))
    one.settle(acked=[(1, 2)])
    assert (one.got(), other.got()) == ([], [(0, 2), (2, 1)])


def test_unacked_is_one_number_everywhere_and_does_not_count_returned_prefetched_messages() -> None:
    it = shell(10)
    one, admin = KindReader(it, "shared", "non_resilient", policy=Policy(deadline=2.0)), it.connect()

    def unacked() -> tuple[int, int]:
        it.work_all()
        info = read_result(admin.request(ShowSubscription("orders", "s")), SubscriptionInfo)
        (listed,) = read_result(admin.request(ListSubscriptions("orders")), list[SubscriptionInfo])
        (account,) = read_result(admin.request(ShowLedger("orders")), LedgerInfo).subscriptions
        ledger = account.account
        (top,) = read_result(admin.request(ShowTop()), TopInfo).subscriptions
        assert ledger.difference == 0
        assert ledger.unacked == listed.unacked == top.unacked == info.unacked
        assert ledger.available == info.unsettled - info.unacked - info.in_flight
        return info.unacked, ledger.available

    one.client.send(GiveBack(1, 0, [(4, 10)]))
    assert unacked() == (0, 0), "it was handed out again at once"
    it.core.set_writable(one.number, False)
    one.client.send(GiveBack(1, 0, [(4, 10)]))
    assert unacked() == (0, 6)
    one.settle(nacked=[(0, 0.5), (1, 5.0)])
    assert unacked() == (2, 6)
    it.wait(1_000_000)
    assert unacked() == (2, 6), "also when it is due, and while nobody takes it"
    it.wait(2_000_000)
    assert unacked() == (4, 6), "and what was not settled in time"
    it.core.set_writable(one.number, True)
    one.client.send(GiveBack(1, 0, [], done=True))
    assert unacked() == (1, 0), "the rest is with the consumer again"
