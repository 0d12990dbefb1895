"""Dead letters: the copy is durable before the message is settled, and a redrive delivers it again."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from headpond.broker.settings import LogSettings, Settings
from headpond.broker.subscriptions.refusal_reasons import DROPPED, REASONS_MAX
from headpond.model.errors import BadRequest
from headpond.model.policy import Policy
from headpond.storage.memory_disk import MemoryDisk
from headpond.wire.control.catalog import CreateTopic, DeleteTopic
from headpond.wire.control.codec import Request, read_result
from headpond.wire.control.consuming import (
    Browse,
    Browsed,
    CreateSubscription,
    ListUnacked,
    Redrive,
    ShowSubscription,
    Subscribe,
    SubscriptionInfo,
    UnackedPage,
)
from headpond.wire.frame import decode_at
from headpond.wire.plain.segment import decode_plain
from headpond.wire.record import RECORD_HEADER_BYTES
from headpond.wire.typed.schema import encode_schema
from tests.broker.ingest.typed_sender import TypedSender
from tests.broker.subscriptions.core_readers import PLAIN, Reader, Writer
from tests.fire.core_shell import CoreShell

TWICE = Policy(max_attempts=2, backoff=0.0)
TYPED = encode_schema(pa.schema([("at", pa.int64())]))


class Trier(Reader):
    """A reader of a subscription that gives a message up after two attempts."""

    def __init__(
        self, shell: CoreShell, policy: Policy = TWICE, mode: str = "non_resilient", topic: str = "orders"
    ) -> None:
        self.shell = shell
        self.client = shell.connect()
        self.settles = 0
        ask = Subscribe(1, topic, "s", "unique", mode, "earliest", 1 << 20, "trier", policy=policy)
        self.client.send(ask)
        shell.work_all()

    def refuse(self, entry: int, times: int) -> None:
        for _ in range(times):
            self.settle(nacked=[(entry, 0.0)])
            self.shell.wait(100_000)
            self.shell.work_all()


def shown(it: CoreShell) -> SubscriptionInfo:
    return read_result(it.connect().request(ShowSubscription("orders", "s")), SubscriptionInfo)


def copies(it: CoreShell, topic: str = "orders.dead") -> list[dict[str, Any]]:
    found = read_result(it.connect().request(Browse(topic, 0, 0)), Browsed)
    rows: list[dict[str, Any]] = []
    for data in found.records:
        frame = decode_at(data, 0, 1 << 26)
        assert frame is not None
        rows += decode_plain(frame.body[RECORD_HEADER_BYTES:]).to_pylist()
    return rows


def test_after_its_last_attempt_a_message_has_a_copy_with_headers_of_its_origin() -> None:
    it = CoreShell(MemoryDisk(), seed=1, settings=PLAIN)
    Writer(it).write(3)
    reader = Trier(it)
    reader.refuse(1, 2)
    assert reader.got() == [(0, 1), (1, 1), (2, 1), (1, 2)]
    info = shown(it)
    assert (info.dead, info.dead_entries, info.unsettled, info.settled) == (1, [(0, 1, 2)], 2, 0)
    (copy,) = copies(it)
    headers = dict(copy["headers"])
    assert copy["value"] == bytes(10)
    assert headers["dead.reason"] == "max-attempts"
    assert headers["dead.attempts"] == "2"
    assert (headers["dead.topic"], headers["dead.subscription"]) == ("default/default/default/orders", "s")
    assert (headers["dead.shard"], headers["dead.entry"]) == ("0", "1")
    assert headers["dead.identity"] == f"{(b'b' * 16).hex()}/0/0/1"


def test_it_is_settled_only_when_its_copy_is_durable_and_a_crash_between_makes_no_second_copy() -> None:
    disk = MemoryDisk()
    it = CoreShell(disk, seed=1, settings=PLAIN)
    Writer(it).write(2)
    reader = Trier(it)
    reader.refuse(0, 1)
    reader.settle(nacked=[(0, 0.0)], durable=False)
    topic = it.core.stores.catalog.by_name("default/default/default/orders.dead")
    steps = 0
    while topic is None or topic.shards[0].log.entry_durable == 0:
        assert shown_now(it) == 0, "not dead before its copy is on the disk"
        it.work()
        topic = it.core.stores.catalog.by_name("default/default/default/orders.dead")
        steps += 1
    assert steps > 2
    disk.crash(keep="none")  # that it is settled was not written yet
    again = CoreShell(disk, seed=2, settings=PLAIN)
    assert len(copies(again)) == 1
    Trier(again)
    again.work_all()
    assert shown(again).dead == 1
    assert len(copies(again)) == 1, "the same copy again is a duplicate"


def shown_now(it: CoreShell) -> int:
    (subscription,) = it.core.stores.subscriptions.all()
    return subscription.dead


def test_a_redriven_message_is_delivered_again_and_its_attempts_start_at_one() -> None:
    it = CoreShell(MemoryDisk(), seed=1, settings=PLAIN)
    Writer(it).write(3)
    reader = Trier(it)
    reader.refuse(1, 2)
    reader.settle(acked=[(0, 1), (2, 3)])
    reader.got()
    assert shown(it).positions == [3]
    assert it.connect().request(Redrive("orders", "s", [(0, 0, 1)])) == {"redriven": 0}, "that one is not dead"
    assert it.connect().request(Redrive("orders", "s")) == {"redriven": 1}
    assert reader.got() == [(1, 1)]
    assert (shown(it).dead, shown(it).positions, shown(it).redriven) == (0, [1], 1)
    reader.refuse(1, 2)
    assert shown(it).dead == 1
    assert len(copies(it)) == 2, "it died twice"
    it.connect().request(Redrive("orders", "s"))
    assert Trier(CoreShell(it.disk, seed=2, settings=PLAIN)).got() == [(1, 2)], "once, over a crash too"
    reader.refuse(1, 2)
    restarted = CoreShell(it.disk, seed=3, settings=PLAIN)
    assert (shown(restarted).dead, shown(restarted).positions, shown(restarted).redriven) == (1, [3], 2)


def test_a_message_that_kills_its_consumers_dies_at_last() -> None:
    it = CoreShell(MemoryDisk(), seed=1, settings=PLAIN)
    Writer(it).write(1)
    for attempt in (1, 2):
        reader = Trier(it)
        assert reader.got() == [(0, attempt)]
        it.core.disconnected(len(it.clients))
        it.drain()
        it.work_all()
    assert Trier(it).got() == []
    assert shown(it).dead == 1


def test_without_a_dead_letter_topic_a_message_only_becomes_dead() -> None:
    it = CoreShell(MemoryDisk(), seed=1, settings=PLAIN)
    Writer(it).write(2)
    reader = Trier(it, Policy(max_attempts=1, dead_letter=""))
    reader.refuse(0, 1)
    assert shown(it).dead == 1
    assert it.core.stores.catalog.by_name("default/default/default/orders.dead") is None
    assert it.connect().request(Redrive("orders", "s")) == {"redriven": 1}
    assert reader.got() == [(0, 1), (1, 1), (0, 1)]


def test_a_resilient_subscription_redelivers_without_a_limit_unless_its_policy_has_one() -> None:
    it = CoreShell(MemoryDisk(), seed=1, settings=PLAIN)
    Writer(it).write(2)
    assert Policy().effective("a/b/c/d", "resilient").max_attempts == 0
    assert Policy().effective("a/b/c/d", "non_resilient").max_attempts == 16
    reader = Trier(it, TWICE, "resilient")
    reader.refuse(0, 2)
    assert shown(it).dead == 1
    assert [entry for entry, _ in reader.got()] == [0, 1, 0]


def test_a_failing_disk_delays_the_dead_letter_and_loses_nothing() -> None:
    disk = MemoryDisk()
    it = CoreShell(disk, seed=1, settings=Settings(data="memory", log=LogSettings(preallocate_bytes=1024)))
    Writer(it).write(1)
    reader = Trier(it)
    reader.refuse(0, 1)
    disk.fail_next("sync", 5, path_prefix="topics")
    reader.refuse(0, 1)
    assert shown(it).dead == 0
    for _ in range(3):
        it.wait(2_000_000)
        it.work_all()
    assert shown(it).dead == 1
    assert len(copies(it)) == 1


def test_a_dead_letter_topic_that_is_typed_is_refused_when_the_subscription_is_made() -> None:
    it = CoreShell(MemoryDisk(), seed=1, settings=PLAIN)
    Writer(it).write(1)
    it.connect().request(CreateTopic("orders.dead", schema=TYPED))
    ask = CreateSubscription("orders", "s", policy=TWICE)
    with pytest.raises(BadRequest, match="typed") as refused:
        it.connect().request(ask)
    assert "dead_letter" in refused.value.hint


def test_a_state_topic_takes_no_copies_since_they_would_change_its_state() -> None:
    it = CoreShell(MemoryDisk(), seed=1, settings=PLAIN)
    Writer(it).write(1)
    reader = Trier(it)
    it.connect().request(CreateTopic("orders.dead", settings={"state": True}))
    with pytest.raises(BadRequest, match="state topic") as refused:
        it.connect().request(CreateSubscription("orders", "another", policy=TWICE))
    assert "dead_letter" in refused.value.hint
    reader.refuse(0, 2)
    assert shown(it).dead == 0 and "state topic" in shown(it).bury_fault
    assert copies(it) == []


def test_a_dead_letter_topic_that_is_typed_later_stops_dead_letters_and_the_subscription_shows_why() -> None:
    it = CoreShell(MemoryDisk(), seed=1, settings=PLAIN)
    Writer(it).write(2)
    reader = Trier(it)
    it.connect().request(CreateTopic("orders.dead", schema=TYPED))
    reader.refuse(0, 2)
    assert (shown(it).dead, shown(it).unsettled) == (0, 2), "nothing is put aside without its copy"
    assert "typed" in shown(it).bury_fault
    it.connect().request(DeleteTopic("orders.dead"))
    it.wait(2_000_000)
    it.work_all()
    assert (shown(it).dead, shown(it).bury_fault) == (1, "")
    assert len(copies(it)) == 1


def test_a_deleted_dead_letter_topic_is_created_again_for_the_next_copy() -> None:
    it = CoreShell(MemoryDisk(), seed=1, settings=PLAIN)
    Writer(it).write(2)
    reader = Trier(it)
    reader.refuse(0, 2)
    it.connect().request(DeleteTopic("orders.dead"))
    reader.refuse(1, 2)
    it.wait(2_000_000)
    it.work_all()
    assert shown(it).dead == 2
    assert [dict(copy["headers"])["dead.entry"] for copy in copies(it)] == ["1"]


def test_a_dead_letter_topic_deleted_while_the_original_is_read_takes_nothing_with_it() -> None:
    it = CoreShell(MemoryDisk(), seed=1, settings=PLAIN)
    Writer(it).write(2)
    reader = Trier(it)
    reader.refuse(0, 2)
    reader.refuse(1, 1)
    (subscription,) = it.core.stores.subscriptions.all()
    reader.settle(nacked=[(1, 0.0)], durable=False)
    assert subscription.burying, "the original is asked for"
    it.connect().send(Request(1, DeleteTopic("orders.dead")))
    while it.core.stores.catalog.by_name("default/default/default/orders.dead") is not None:
        it.work(len(it.pending) - 1)  # the deletion overtakes the reading
    it.work_all()
    assert (shown(it).dead, shown(it).bury_fault) == (1, "topic orders.dead was deleted meanwhile")
    it.wait(2_000_000)
    it.work_all()
    assert (shown(it).dead, shown(it).bury_fault) == (2, "")
    assert [dict(copy["headers"])["dead.entry"] for copy in copies(it)] == ["1"]


def test_a_typed_message_of_any_columns_gets_a_copy() -> None:
    it = CoreShell(MemoryDisk(), seed=1, settings=PLAIN)
    schema = pa.schema(
        [
            ("far", pa.timestamp("s")),
            ("fine", pa.timestamp("ns", "UTC")),
            ("ratio", pa.float64()),
            ("raw", pa.binary()),
        ]
    )
    sender = TypedSender(it, schema)
    sender.send([{"far": 400_000_000_000, "fine": 1_001, "ratio": float("nan"), "raw": b"\xff"}])
    reader = Trier(it, topic="m")
    reader.refuse(0, 2)
    info = read_result(it.connect().request(ShowSubscription("m", "s")), SubscriptionInfo)
    assert (info.dead, info.bury_fault) == (1, "")
    (copy,) = copies(it, "m.dead")
    assert json.loads(copy["value"]) == {
        "far": 400_000_000_000,
        "fine": "1970-01-01T00:00:00.000001Z",
        "ratio": None,
        "raw": {"base64": "/w=="},
    }


def test_the_reason_of_the_last_refusal_is_listed_and_is_in_the_dead_letter() -> None:
    it = CoreShell(MemoryDisk(), seed=1, settings=PLAIN)
    Writer(it).write(2)
    reader = Trier(it)
    reader.settle(nacked=[(0, 3600.0), (1, 0.0)], reasons=[(0, "the bank is closed"), (1, "no stock")])
    page = read_result(it.connect().request(ListUnacked("orders", "s")), UnackedPage)
    assert [(each.entry, each.reason) for each in page.entries] == [(0, "the bank is closed"), (1, "no stock")]
    it.wait(100_000)
    it.work_all()
    reader.settle(nacked=[(1, 0.0)], reasons=[(1, "still no stock")])
    (copy,) = copies(it)
    assert dict(copy["headers"])["dead.reason"] == "still no stock"


@pytest.mark.parametrize("compacted", [False, True], ids=["records", "snapshot"])
def test_a_reason_that_is_dropped_is_counted_and_the_list_and_the_dead_letter_say_so(compacted: bool) -> None:
    disk = MemoryDisk()
    it = CoreShell(disk, seed=1, settings=PLAIN)
    count = REASONS_MAX + 3
    Writer(it).write(count)
    reader = Trier(it, Policy())
    (subscription,) = it.core.stores.subscriptions.all()
    subscription.bury_again_us = 2**62  # the dead-letter topic takes no copies
    entries = range(count)
    reader.settle(nacked=[(n, 3600.0) for n in entries], dead=[1], reasons=[(n, "no") for n in entries])
    assert shown(it).reasons_dropped == 3
    if compacted:
        it.core.stores.settlements.compact()
        it.work_all()
    disk.crash(keep="none")
    again = CoreShell(disk, seed=2, settings=PLAIN)
    Trier(again, Policy())
    again.work_all()
    (copy,) = copies(again)
    assert dict(copy["headers"])["dead.reason"] == DROPPED
    page = read_result(again.connect().request(ListUnacked("orders", "s", limit=3)), UnackedPage)
    assert [(each.entry, each.reason) for each in page.entries] == [(0, DROPPED), (2, DROPPED), (3, "no")]
    assert shown(again).reasons_dropped == 2, "the dead one is settled"


@pytest.mark.parametrize("mode", ["non_resilient", "resilient"])
def test_a_message_that_is_refused_for_good_dies_at_once_and_the_next_one_comes(mode: str) -> None:
    it = CoreShell(MemoryDisk(), seed=1, settings=PLAIN)
    Writer(it).write(2)
    reader = Trier(it, Policy(), mode)
    reader.settle(nacked=[(0, 0.0)], dead=[0])
    it.work_all()
    reader.settle(acked=[(1, 2)])
    info = shown(it)
    assert (info.dead_entries, info.unsettled, info.acked) == ([(0, 0, 1)], 0, 1)
    (copy,) = copies(it)
    headers = dict(copy["headers"])
    assert (headers["dead.reason"], headers["dead.attempts"]) == ("refused", "1")


@pytest.mark.parametrize("compacted", [False, True], ids=["records", "snapshot"])
def test_a_crash_before_the_copy_forgets_neither_that_a_message_is_dying_nor_why(compacted: bool) -> None:
    disk = MemoryDisk()
    it = CoreShell(disk, seed=1, settings=PLAIN)
    Writer(it).write(3)
    reader = Trier(it, Policy())
    (subscription,) = it.core.stores.subscriptions.all()
    subscription.bury_again_us = 2**62  # the dead-letter topic takes no copies
    why = [(0, "no such customer"), (1, "later")]
    reader.settle(nacked=[(0, 0.0), (1, 3600.0)], dead=[0], reasons=why)
    if compacted:
        it.core.stores.settlements.compact()
        it.work_all()
    assert shown(it).dead == 0, "it is dying"
    disk.crash(keep="none")
    again = CoreShell(disk, seed=2, settings=PLAIN)
    Trier(again, Policy())
    again.work_all()
    assert shown(again).dead_entries == [(0, 0, 1)]
    (copy,) = copies(again)
    assert dict(copy["headers"])["dead.reason"] == "no such customer"
    page = read_result(again.connect().request(ListUnacked("orders", "s")), UnackedPage)
    assert [(each.entry, each.reason) for each in page.entries] == [(1, "later")]
