"""Delivery, redelivery and settlement in unique, non-resilient subscriptions."""

from __future__ import annotations

import pytest

from headpond.broker.subscriptions import consume as consuming
from headpond.broker.subscriptions.attachment import Attachment
from headpond.broker.subscriptions.cursor import REACH_MIN, ShardCursor
from headpond.model.errors import SubscriptionBusy
from headpond.model.policy import BACKOFF_S
from headpond.storage.memory_disk import MemoryDisk
from headpond.wire.control.catalog import DeleteTopic
from headpond.wire.control.codec import Request, read_result
from headpond.wire.control.consuming import (
    CreateSubscription,
    Credit,
    DeleteSubscription,
    Deliver,
    ListSubscriptions,
    Lost,
    PauseSubscription,
    SeekSubscription,
    Settled,
    Subscribe,
    Subscribed,
    SubscriptionInfo,
    Unsubscribe,
    Unsubscribed,
)
from headpond.wire.control.greeting import Error
from headpond.wire.frame import Frame, FrameType, encode
from headpond.wire.plain.columns import rows_to_batch
from headpond.wire.plain.segment import encode_plain
from tests.broker.subscriptions.core_readers import PLAIN, Reader, Writer
from tests.fire.core_shell import CoreShell


def shell() -> CoreShell:
    return CoreShell(MemoryDisk(), seed=1, settings=PLAIN)


def info(it: CoreShell) -> SubscriptionInfo:
    (found,) = it.connect().request(ListSubscriptions("orders"))
    return read_result(found, SubscriptionInfo)


def test_older_messages_are_read_and_new_ones_are_pushed() -> None:
    it = shell()
    writer = Writer(it)
    writer.write(5)
    reader = Reader(it)
    assert reader.entries() == [0, 1, 2, 3, 4]
    writer.write(2)
    assert reader.entries() == [5, 6]


def test_nothing_is_offered_before_its_sync() -> None:
    it = shell()
    writer, reader = Writer(it), None
    reader = Reader(it)
    body = encode_plain(rows_to_batch([b"x"], None, None, None, [1]))
    writer.client.send(encode(FrameType.SEGMENT, body, segment=0))
    assert reader.got() == []
    it.work_all()
    assert reader.entries() == [0]


def test_starts_choose_where_a_new_subscription_begins_and_are_ignored_later() -> None:
    for start, expected in (("earliest", [0, 1, 2, 3]), ("latest", []), (2, [2, 3]), ("3", [3]), (99, [])):
        it = shell()
        Writer(it).write(4)
        assert Reader(it, start=start).entries() == expected
    it = shell()
    Writer(it).write(4)
    first = Reader(it, start="latest")
    first.client.send(Unsubscribe(1))
    it.work_all()
    assert Reader(it, start="earliest").entries() == []


def test_a_time_chooses_the_first_entry_stored_at_or_after_it() -> None:
    it = shell()
    writer = Writer(it)
    it.now_us = 1_000_000_000
    writer.write(3)
    it.now_us = 2_000_000_000
    writer.write(3)
    assert Reader(it, start="1970-01-01T00:25:00+00:00").entries() == [3, 4, 5]


@pytest.mark.parametrize(("read", "code"), [(False, "storage-failed"), (True, "topic-not-found")])
def test_a_worker_looks_for_a_time_and_the_topic_may_be_deleted_meanwhile(
    monkeypatch: pytest.MonkeyPatch, read: bool, code: str
) -> None:
    it = shell()
    Writer(it).write(1)
    admin = it.connect()
    admin.send(Request(1, CreateSubscription("orders", "s", start="1970-01-01T00:00:01+00:00")))
    (looking,) = it.pending
    it.pending.clear()
    (topic,) = it.core.stores.catalog
    it.connect().request(DeleteTopic("orders"))
    if read:  # the worker was done before
        monkeypatch.setattr(it.core, "log_of", lambda fetch: topic.shards[0].log)
    it.pending.append(looking)
    it.work_all()
    (answer,) = admin.take(Error)
    assert answer.code == code
    assert list(it.core.stores.subscriptions.all()) == []


def test_a_start_that_makes_no_sense_is_refused_for_this_consumer_alone() -> None:
    it = shell()
    Writer(it)
    reader = Reader(it, start="yesterday")
    assert reader.error().code == "bad-request"
    assert not reader.client.closed


def test_credit_bounds_deliveries_and_more_credit_brings_more() -> None:
    it = shell()
    writer = Writer(it)
    for _ in range(10):
        writer.write(1, size=1000)
    reader = Reader(it, credit=2500)
    assert reader.entries() == [0, 1, 2], "a record that does not fit the rest of the credit is sent whole"
    writer.write(1, size=1000)
    assert reader.entries() == []
    reader.client.send(Credit(1, 2000))
    it.work_all()
    assert reader.entries() == [3, 4]
    reader.client.send(Credit(1, 1 << 20))
    it.work_all()
    assert reader.entries() == [5, 6, 7, 8, 9, 10]


def test_a_second_consumer_is_refused_with_the_name_of_the_first() -> None:
    it = shell()
    Writer(it)
    Reader(it, name="ann")
    error = Reader(it, name="bob").error()
    assert error.code == "subscription-busy"
    assert "ann" in error.message


def test_another_kind_or_mode_than_the_subscriptions_is_refused() -> None:
    it = shell()
    Writer(it)
    Reader(it)
    assert Reader(it, kind="shared").error().code == "subscription-mismatch"
    assert Reader(it, mode="resilient").error().code == "subscription-mismatch"
    assert Reader(it, kind="round").error().code == "bad-request"


def test_a_settlement_is_confirmed_when_it_is_durable() -> None:
    it = shell()
    Writer(it).write(3)
    reader = Reader(it)
    reader.settle(acked=[(0, 2)], durable=False)
    assert reader.client.take(Settled) == []
    it.work_all()
    assert reader.client.take(Settled) == [Settled(1, 1, 0)]
    reader.settle(acked=[(0, 3)])
    assert reader.client.take(Settled) == [Settled(1, 2, 2)], "two of the three had been settled before"


def test_settlements_of_one_write_are_confirmed_in_one_frame_and_never_before_it() -> None:
    it = shell()
    Writer(it).write(100)
    reader = Reader(it)
    for entry in range(50):  # the first is being written; the others wait for the next write
        reader.settle(acked=[(entry, entry + 1)], durable=False)
    reader.settle(acked=[(49, 51)], durable=False)
    assert reader.client.take(Settled) == []
    it.work()
    assert reader.client.take(Settled) == [Settled(1, 1, 0)]
    reader.settle(acked=[(51, 52)], durable=False)  # behind the write that is under way now
    it.work()
    assert reader.client.take(Settled) == [Settled(1, 51, 1)]
    it.work()
    assert reader.client.take(Settled) == [Settled(1, 52, 0)]
    reader.settle(durable=False)
    assert reader.client.take(Settled) == [Settled(1, 53, 0)], "a flush with nothing to wait for"


def test_after_a_restart_only_unsettled_messages_are_delivered() -> None:
    it = shell()
    Writer(it).write(10)
    reader = Reader(it)
    reader.settle(acked=[(0, 3), (5, 6)], skipped=[(8, 9)])
    again = Reader(CoreShell(it.disk, seed=2, settings=PLAIN))
    assert again.entries() == [3, 4, 6, 7, 9]
    assert again.client.take(Subscribed)[0].positions == [3]


def test_messages_of_a_lost_consumer_are_redelivered_with_a_higher_attempt() -> None:
    it = shell()
    Writer(it).write(4)
    reader = Reader(it)
    reader.settle(acked=[(1, 2)])
    it.core.disconnected(2)
    assert info(it).consumers == []
    assert Reader(it).got() == [(0, 2), (2, 2), (3, 2)]


def test_prefetched_messages_do_not_count_as_attempts() -> None:
    it = shell()
    Writer(it).write(5)
    reader = Reader(it)
    reader.settle(acked=[(0, 1)])
    reader.client.send(Unsubscribe(1, [(0, 0, 3)]))
    it.work_all()
    assert Reader(it).got() == [(1, 2), (2, 2), (3, 1), (4, 1)]


def test_a_clean_leave_is_answered_when_its_settlements_are_durable() -> None:
    it = shell()
    Writer(it).write(2)
    reader = Reader(it)
    reader.settle(acked=[(0, 1)], durable=False)
    reader.client.send(Unsubscribe(1))
    assert reader.client.take(Unsubscribed) == []
    it.work_all()
    assert reader.client.take(Unsubscribed) == [Unsubscribed(1)]


def test_a_refused_message_comes_again_after_its_backoff_and_not_before() -> None:
    it = shell()
    writer = Writer(it)
    writer.write(3)
    reader = Reader(it)
    assert reader.entries() == [0, 1, 2]
    reader.settle(nacked=[(1, None)], acked=[(0, 1)])
    writer.write(1)
    assert reader.entries() == [3], "new messages flow on meanwhile"
    it.wait(int(BACKOFF_S * 0.5e6))
    it.work_all()
    assert reader.got() == []
    it.wait(int(BACKOFF_S * 1e6))
    it.work_all()
    assert reader.got() == [(1, 2)]
    reader.settle(nacked=[(1, 5.0)])
    it.wait(4_900_000)
    it.work_all()
    assert reader.got() == []
    it.wait(200_000)
    it.work_all()
    assert reader.got() == [(1, 3)]
    found = info(it)
    assert (found.settled, found.in_flight, found.unacked, found.unsettled) == (1, 3, 0, 3)


def test_attempts_of_refused_messages_are_kept_over_a_restart() -> None:
    it = shell()
    Writer(it).write(2)
    reader = Reader(it)
    reader.settle(nacked=[(0, 0.0)])
    it.wait(1_000_000)
    it.work_all()
    reader.settle(nacked=[(0, 0.0)])
    restarted = CoreShell(it.disk, seed=2, settings=PLAIN, now_us=it.now_us + 20_000)
    (subscription,) = restarted.core.stores.subscriptions.all()
    assert subscription.cursors[0].delivered.of(0) == 2
    assert Reader(restarted).got() == [(1, 2), (0, 3)], "the backlog first; it was delivered before the crash"


def test_after_a_crash_exactly_what_could_be_delivered_is_flagged() -> None:
    it = shell()
    writer = Writer(it)
    Reader(it)
    writer.write(REACH_MIN + 10)
    reach = only_cursor(it).reach
    assert reach > REACH_MIN
    crashed = CoreShell(it.disk, seed=2, settings=PLAIN, now_us=it.now_us)
    more = Writer(crashed)
    more.segments = writer.segments
    more.write(reach)
    attempts = dict(Reader(crashed).got())
    assert {entry for entry, attempt in attempts.items() if attempt == 2} == set(range(REACH_MIN + 10))


def test_after_a_clean_stop_what_no_program_had_is_not_flagged() -> None:
    it = shell()
    Writer(it).write(6)
    reader = Reader(it)
    reader.settle(acked=[(0, 2)])
    reader.client.send(Unsubscribe(1, [(0, 2, 4)]))
    it.work_all()
    it.core.close()
    restarted = CoreShell(it.disk, seed=2, settings=PLAIN, now_us=it.now_us)
    assert Reader(restarted).got() == [(2, 2), (3, 2), (4, 1), (5, 1)]


def test_an_offer_waits_until_the_journal_allows_it() -> None:
    it = shell()
    writer, reader = Writer(it), Reader(it)
    only_cursor(it).reach = only_cursor(it).reach_staged = 0  # as if its record were not durable yet
    writer.write(3)
    assert reader.entries() == [0, 1, 2], "after the next record"
    assert only_cursor(it).reach > 3


def only_cursor(it: CoreShell) -> ShardCursor:
    (subscription,) = it.core.stores.subscriptions.all()
    return subscription.cursors[0]


def test_an_invalid_settlement_has_no_effect() -> None:
    it = shell()
    Writer(it).write(2)
    for what in (
        {"acked": [(0, 1), (0, 3)]},
        {"acked": [(0, 1)], "skipped": [(-1, 1)]},
        {"acked": [(0, 1)], "nacked": [(1, -1.0)]},
        {"acked": [(0, 1)], "nacked": [(7, None)]},
    ):
        reader = Reader(it)
        reader.settle(**what)
        assert reader.error().code == "bad-request"
        assert info(it).settled == 0
        reader.client.send(Unsubscribe(1))
        it.work_all()


def test_damaged_entries_are_reported_and_the_subscription_continues_behind_them() -> None:
    disk = MemoryDisk()
    it = CoreShell(disk, seed=1, settings=PLAIN)
    writer = Writer(it)
    for _ in range(5):
        writer.write(2, size=100)
    log = it.core.stores.catalog.by_name("default/default/default/orders").shards[0].log  # type: ignore[union-attr]
    (path,) = [f"{log.place.folder}/{name}" for name in disk.list(log.place.folder)]
    third = log.read(4, 1).records[0]
    whole = b"".join(third.parts)
    data = disk.open(path).read_at(0, 1 << 20)
    disk.flip(path, data.index(whole) + len(whole) // 2)
    reader = Reader(it)
    assert reader.entries() == [0, 1, 2, 3, 6, 7, 8, 9]
    assert [lost.spans for lost in reader.client.take(Lost)] == [[(4, 6)]]
    assert info(it).lost == 2
    reader.settle(acked=[(0, 4), (6, 10)])
    restarted = CoreShell(disk, seed=2, settings=PLAIN)
    assert info(restarted).positions == [10]


def test_deleting_a_topic_ends_its_consumers() -> None:
    it = shell()
    writer = Writer(it)
    writer.write(1)
    reader = Reader(it)
    writer.client.request(DeleteTopic("orders"))
    assert reader.error().code == "topic-not-found"
    assert not reader.client.closed


def test_a_subscription_is_deleted_only_without_consumers() -> None:
    it = shell()
    Writer(it).write(1)
    reader = Reader(it)
    admin = it.connect()
    with pytest.raises(SubscriptionBusy):
        admin.request(DeleteSubscription("orders", "s"))
    reader.client.send(Unsubscribe(1))
    it.work_all()
    admin.request(DeleteSubscription("orders", "s"))
    assert admin.request(ListSubscriptions("orders")) == []
    assert CoreShell(it.disk, seed=2, settings=PLAIN).connect().request(ListSubscriptions("orders")) == []


def test_a_failed_write_of_settlements_is_repeated_before_they_are_confirmed() -> None:
    disk = MemoryDisk()
    it = CoreShell(disk, seed=1, settings=PLAIN)
    Writer(it).write(3)
    reader = Reader(it)
    disk.fail_next("sync", 5, path_prefix="settlements")
    reader.settle(acked=[(0, 2)])
    assert reader.client.take(Settled) == []
    it.wait(1_000_000)
    it.work_all()
    assert reader.client.take(Settled) == [Settled(1, 1, 0)]
    disk.crash(keep="none")
    assert Reader(CoreShell(disk, seed=2, settings=PLAIN)).entries() == [2]


def test_a_full_write_buffer_stops_deliveries_until_it_drains() -> None:
    it = shell()
    writer = Writer(it)
    reader = Reader(it)
    it.core.set_writable(2, False)
    writer.write(2)
    assert reader.got() == []
    it.core.set_writable(2, True)
    it.drain()
    it.work_all()
    assert reader.entries() == [0, 1]


def test_a_subscription_without_credit_costs_a_stored_message_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    it = shell()
    writer = Writer(it)
    reader = Reader(it, credit=1)
    writer.write(1)
    writer.write(1)
    assert reader.entries() == [0], "that took all of its credit"
    (subscription,) = it.core.stores.subscriptions.all()
    looks: list[int] = []
    receivers = subscription.receivers

    def counted() -> list[Attachment]:
        looks.append(1)
        return receivers()

    monkeypatch.setattr(subscription, "receivers", counted)
    for _ in range(5):
        writer.write(1)
    assert looks == []
    reader.client.send(Credit(1, 1 << 20))
    it.work_all()
    assert reader.entries() == [1, 2, 3, 4, 5, 6]
    writer.write(1)
    assert reader.entries() == [7], "it is looked at again"


@pytest.mark.parametrize(("ahead", "reads"), [(consuming.AHEAD_BYTES, 4), (1, 1)])
def test_shards_are_read_side_by_side_unless_too_many_connections_may_have_to_wait_for_them(
    monkeypatch: pytest.MonkeyPatch, ahead: int, reads: int
) -> None:
    it = shell()
    writer = Writer(it, shards=4)
    for shard in range(4):
        writer.write(1, shard=shard)
    monkeypatch.setattr(consuming, "AHEAD_BYTES", ahead)
    client = it.connect()
    client.send(Subscribe(1, "orders", "s", "unique", "non_resilient", "earliest", 1 << 24))
    it.work()
    assert len(it.pending) == reads
    it.work_all()
    assert sorted(deliver.shard for deliver in client.take(Deliver)) == [0, 1, 2, 3]


def test_a_resumed_subscription_delivers_messages_stored_meanwhile() -> None:
    it = shell()
    writer = Writer(it)
    reader = Reader(it)
    admin = it.connect()
    admin.request(PauseSubscription("orders", "s", True))
    for _ in range(3):
        writer.write(1)
    assert reader.got() == []
    admin.request(PauseSubscription("orders", "s", False))
    it.work_all()
    assert reader.entries() == [0, 1, 2]
    writer.write(1)
    assert reader.entries() == [3]


def test_a_consumer_gets_no_message_before_the_answer_to_its_subscribe() -> None:
    it = shell()
    Writer(it).write(2)
    client = it.connect()
    client.send(Subscribe(1, "orders", "s", "unique", "non_resilient", "earliest", 1 << 20))
    it.core.set_writable(2, False)
    it.core.set_writable(2, True)
    it.drain()
    assert len(it.pending) == 1, "the subscription's own write, and no read yet"
    assert client.events[1:] == [], "only the greeting has come; the subscription is on its way to the disk"
    it.work_all()
    assert [type(event) for event in client.events[1:]] == [Subscribed, Deliver, Frame]


def test_a_seek_to_a_time_finds_that_its_subscription_was_deleted_meanwhile() -> None:
    it = shell()
    Writer(it).write(1)
    admin = it.connect()
    admin.request(CreateSubscription("orders", "s"))
    admin.send(Request(9, SeekSubscription("orders", "s", "1970-01-01T00:00:01+00:00")))
    (looking,) = it.pending
    it.pending.clear()
    other = it.connect()
    other.request(DeleteSubscription("orders", "s"))
    other.request(CreateSubscription("orders", "s", start="latest"))
    it.pending.append(looking)
    it.work_all()
    (answer,) = admin.take(Error)
    assert answer.code == "subscription-not-found"
    (info,) = (read_result(each, SubscriptionInfo) for each in other.request(ListSubscriptions("orders")))
    assert info.positions == [1]
