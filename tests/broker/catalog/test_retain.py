"""Retention on a node: it deletes files, and subscriptions get the exact losses, also after a restart."""

from __future__ import annotations

import errno
import logging
from collections.abc import Mapping

import msgspec
import pytest

from headpond.broker.settings import Limits, LogSettings, Settings
from headpond.model.errors import SubscriptionNotFound
from headpond.model.topic_settings import Value
from headpond.storage.log.marks import DAY_US
from headpond.storage.memory_disk import MemoryDisk
from headpond.wire.control.catalog import ChangeSettings, CreateTopic, ShowTopic, TopicInfo
from headpond.wire.control.codec import Request, read_result
from headpond.wire.control.consuming import (
    CreateSubscription,
    Deliver,
    Lost,
    Settle,
    Settled,
    ShowSubscription,
    Subscribe,
    SubscriptionInfo,
)
from headpond.wire.control.producing import Ack, AckItem
from headpond.wire.control.reading import FetchEntries
from headpond.wire.control.status import ShowNode
from headpond.wire.expiry import TTL_HEADER
from headpond.wire.frame import Frame, FrameType, encode
from headpond.wire.plain.columns import rows_to_batch
from headpond.wire.plain.segment import encode_plain
from tests.fire.core_shell import CoreClient, CoreShell
from tests.fire.raw_client import title_frame

SECOND_US = 1_000_000
START_US = 1_000 * DAY_US
SETTINGS = Settings(data="memory", log=LogSettings(preallocate_bytes=1024))
BLOCK = b"b" * 16
Headers = Mapping[str, str] | None


class World:
    def __init__(self, settings: Settings = SETTINGS, **of_topic: Value) -> None:
        self.disk = MemoryDisk()
        self.settings = settings
        self.segment = 0
        self._open(START_US)
        info = read_result(self.client.request(CreateTopic("t", settings=of_topic)), TopicInfo)
        self.uuid = info.uuid

    def _open(self, now_us: int) -> None:
        self.shell = CoreShell(self.disk, seed=1, settings=self.settings, now_us=now_us)
        self.client: CoreClient = self.shell.connect()

    def restart(self, *, keep_all: bool = True) -> None:
        """Cuts the power and opens the node again."""
        self.disk.crash(keep="all" if keep_all else "none")
        self._open(self.shell.now_us)

    def send(self, rows: int = 1, headers: Headers = None, each: list[Headers] | None = None) -> AckItem:
        """One segment; its answer."""
        of_rows = each or [headers] * rows
        with_headers = of_rows if any(of_rows) else None
        batch = rows_to_batch([b"x" * 50] * len(of_rows), None, None, with_headers, [1] * len(of_rows))
        frame = encode(FrameType.SEGMENT, encode_plain(batch), segment=self.segment)
        self.client.send(title_frame(BLOCK, self.uuid), frame)
        self.shell.work_all()
        (answer,) = [item for ack in self.client.take(Ack) for item in ack.items]
        self.segment += answer.outcome != "rejected"
        return answer

    def wait(self, seconds: float) -> None:
        """Moves the clock forward, tick by tick."""
        for _ in range(round(seconds * 2)):
            self.shell.wait(SECOND_US // 2)
            self.shell.work_all()

    @property
    def kept(self) -> int:
        """The first entry that is kept."""
        return read_result(self.client.request(ShowTopic("t")), TopicInfo).shard_list[0].entry_first

    @property
    def end(self) -> int:
        return read_result(self.client.request(ShowTopic("t")), TopicInfo).shard_list[0].entry_next

    def subscribe(self, name: str, start: str = "earliest") -> None:
        """A subscription without a consumer."""
        self.client.request(CreateSubscription("t", name, start=start))

    def show(self, name: str) -> SubscriptionInfo:
        return read_result(self.client.request(ShowSubscription("t", name)), SubscriptionInfo)

    def lost(self, name: str) -> list[tuple[int, int, int, str]]:
        return [lost[:4] for lost in self.show(name).lost_ranges]

    def read(self, name: str, mode: str = "non_resilient", credit: int = 1 << 20) -> CoreClient:
        """A consumer's connection."""
        client = self.shell.connect()
        client.send(Subscribe(1, "t", name, "unique", mode, "earliest", credit))
        self.shell.work_all()
        return client

    def settle(self, client: CoreClient, start: int, end: int) -> None:
        client.send(Settle(1, start + 1, 0, [(start, end)]))
        self.shell.work_all()
        assert client.take(Settled)


def delivered(client: CoreClient) -> list[int]:
    client.take(Frame)
    return [entry for deliver in client.take(Deliver) for span in deliver.spans for entry in range(*span)]


# --- soft, hard, bytes --------------------------------------------------------------------------------


def test_soft_ttl_waits_for_the_slowest_subscription() -> None:
    world = World(soft_ttl=8.0)
    world.subscribe("slow")
    reader = world.read("quick")
    for _ in range(4):
        world.send(10)
        world.wait(2)
    world.settle(reader, 0, 40)
    world.wait(60)
    assert world.kept == 0, "one subscription has settled nothing"
    slow = world.read("slow")
    world.settle(slow, 0, 15)
    world.wait(3)
    assert world.kept == 10, "whole files go: the second one holds an unsettled entry"
    world.settle(slow, 15, 40)
    world.wait(3)
    assert (world.kept, world.end) == (40, 40), "the last file goes too"
    assert world.lost("slow") == world.lost("quick") == []
    assert world.shell.core.context.counters["messages_dropped_soft_ttl"] == 40


def test_soft_ttl_deletes_nothing_that_waits_to_come_again() -> None:
    world = World(soft_ttl=2.0)
    reader = world.read("s")
    world.send(3)
    world.wait(2)
    world.send(1)
    reader.send(Settle(1, 1, 0, [(0, 1), (2, 4)], [], [(1, 3600.0)]))
    world.wait(30)
    assert world.kept == 0
    assert delivered(reader) == [0, 1, 2, 3]


def test_hard_ttl_deletes_unread_messages_and_names_them() -> None:
    world = World(hard_ttl=8.0)
    world.subscribe("slow")
    reader = world.read("half")
    world.send(10)
    world.wait(2)
    world.send(10)
    world.settle(reader, 0, 4)
    world.settle(reader, 6, 20)
    world.wait(7)
    assert (world.kept, world.end) == (10, 20)
    assert world.lost("slow") == [(0, 0, 10, "retention")]
    assert world.lost("half") == [], "entries 4 and 5 are in a consumer's hands"
    assert world.show("half").in_flight == 2
    info = world.show("slow")
    assert (info.lost, info.unsettled, info.positions) == (10, 10, [10])
    world.wait(5)
    assert world.lost("slow") == [(0, 0, 20, "retention")], "ranges that touch are one"
    assert world.shell.core.context.counters["files_dropped_hard_ttl"] == 2
    assert world.shell.core.context.counters["messages_lost_retention"] == 20


def test_a_deleted_message_in_hand_is_lost_if_its_consumer_returns_it() -> None:
    world = World(hard_ttl=2.0)
    reader = world.read("s")
    world.send(5)
    assert delivered(reader) == [0, 1, 2, 3, 4]
    world.settle(reader, 0, 3)
    world.wait(10)
    assert (world.kept, world.lost("s")) == (5, [])
    reader.send(Settle(1, 99, 0, [], [], [(3, 0.0)]))
    world.wait(2)
    assert world.lost("s") == [(0, 3, 4, "retention")]
    assert [(lost.spans, lost.reason) for lost in reader.take(Lost)] == [([(3, 4)], "retention")]
    world.settle(reader, 4, 5)
    assert world.show("s").positions == [5]


def test_a_connected_consumer_gets_a_notice_of_lost_entries_at_once() -> None:
    world = World(hard_ttl=2.0)
    world.send(20)
    reader = world.read("s", credit=1)
    first = delivered(reader)
    world.send(20)
    world.wait(10)
    spans = [span for lost in reader.take(Lost) for span in lost.spans]
    assert spans == [(20, 40)], f"{first} were delivered"
    world.send(2)
    world.settle(reader, 0, 20)
    assert world.show("s").positions == [40]


def test_max_bytes_keeps_a_shard_about_as_large_as_it_says() -> None:
    world = World(max_bytes=512 * 1024)
    world.subscribe("slow")
    for _ in range(300):
        world.send(100)
    world.wait(3)
    shard = read_result(world.client.request(ShowTopic("t")), TopicInfo).shard_list[0]
    assert 300 * 1024 < shard.bytes <= 512 * 1024
    assert world.lost("slow") == [(0, 0, shard.entry_first, "retention")]
    assert world.shell.core.context.counters["messages_dropped_max_bytes"] == shard.entry_first


def test_settings_that_change_take_effect() -> None:
    world = World()
    world.subscribe("s")
    world.send(5)
    world.wait(100)
    assert world.kept == 0
    world.client.request(ChangeSettings("topic", "t", set={"hard_ttl": 50.0}))
    world.wait(2)
    assert world.kept == 5
    world.client.request(ChangeSettings("topic", "t", unset=["hard_ttl"]))
    world.send(5)
    world.wait(100)
    assert world.kept == 5


# --- over restarts ------------------------------------------------------------------------------------


def test_lost_ranges_are_shown_after_a_restart_and_after_the_journal_was_compacted() -> None:
    world = World(msgspec.structs.replace(SETTINGS, journal_compact_bytes=512), hard_ttl=2.0)
    world.subscribe("s")
    world.send(7)
    world.wait(8)
    before = world.show("s")
    assert [lost[:4] for lost in before.lost_ranges] == [(0, 0, 7, "retention")]
    for _ in range(2):
        world.restart(keep_all=False)
        after = world.show("s")
        assert (after.lost_ranges, after.lost, after.positions) == (before.lost_ranges, 7, [7])
        for number in range(20):
            world.subscribe(f"other-{number}-{world.shell.now_us}")
        world.wait(1)


def test_a_cut_between_the_drop_and_telling_of_it_still_ends_in_telling() -> None:
    world = World(hard_ttl=8.0)
    world.subscribe("s")
    world.send(4)
    world.wait(2)
    world.send(4)
    lane_write = "topics/"
    while world.kept == 0:
        world.shell.wait(SECOND_US // 2)
        while world.shell.pending:
            world.shell.work()
            synced = [str(path) for operation, path, *_ in world.disk.operations if operation == "remove"]
            if any(path.startswith(lane_write) and path.endswith(".log") for path in synced):
                break  # the files are deleted; later records about them are on no disk
        else:
            continue
        break
    world.restart(keep_all=False)
    assert world.lost("s") == [(0, 0, 4, "retention")]
    world.restart(keep_all=False)
    assert world.lost("s") == [(0, 0, 4, "retention")]


def test_deleted_segments_cannot_be_sent_again() -> None:
    """The marks outlive the entries: a repeated segment is still a duplicate."""
    world = World(hard_ttl=2.0)
    world.send(3)
    world.wait(10)
    assert world.kept == 3
    for _ in range(2):
        world.segment = 0
        answer = world.send(3)
        assert (answer.outcome, world.end) == ("duplicate", 3)
        world.restart()


# --- blocks -------------------------------------------------------------------------------------------


def test_a_silent_block_is_forgotten_after_thirty_days_or_the_retention_if_that_is_longer() -> None:
    for ttl_days, days, outcome in ((1, 29, "duplicate"), (1, 31, "stored"), (60, 31, "duplicate")):
        world = World(hard_ttl=ttl_days * 86_400.0)
        world.send()
        world.shell.wait(days * DAY_US)
        for _ in range(4):
            world.wait(1)
            world.shell.wait(3_600 * SECOND_US)
        world.segment = 0
        assert world.send().outcome == outcome, (ttl_days, days)


# --- a message's own time to live ---------------------------------------------------------------------


def test_an_expired_message_is_not_delivered_and_counts_as_such() -> None:
    world = World()
    world.send(each=[None, {TTL_HEADER: "5"}, {TTL_HEADER: "500"}, {TTL_HEADER: "5", "a": "b"}])
    world.wait(6)
    reader = world.read("s")
    assert delivered(reader) == [0, 2]
    assert reader.take(Lost) == [], "nobody wanted them any more: that is no loss"
    info = world.show("s")
    assert (info.expired, info.lost, info.unsettled) == (2, 0, 2)
    world.settle(reader, 0, 1)
    world.settle(reader, 2, 3)
    assert world.show("s").positions == [4]
    world.restart(keep_all=False)
    assert (world.show("s").expired, world.show("s").positions) == (2, [4])


def test_a_message_that_expires_while_it_waits_to_come_again_does_not_come() -> None:
    world = World()
    reader = world.read("s", "resilient")
    world.send(each=[{TTL_HEADER: "5"}, None])
    assert delivered(reader)[0] == 0
    reader.send(Settle(1, 1, 0, [], [], [(0, 8.0)]))
    world.wait(20)
    assert 0 not in delivered(reader)
    assert [(lost.spans, lost.reason) for lost in reader.take(Lost)] == [([(0, 1)], "expired")], (
        "it waits for it"
    )
    assert world.show("s").expired == 1


@pytest.mark.parametrize("restart", [False, True])
def test_a_file_goes_when_every_message_in_it_has_expired(restart: bool) -> None:
    small = LogSettings(rotate_bytes=1, preallocate_bytes=1024)
    world = World(msgspec.structs.replace(SETTINGS, log=small))
    world.subscribe("s")
    world.send(each=[{TTL_HEADER: "5"}, {TTL_HEADER: "9"}])
    world.send(each=[{TTL_HEADER: "5"}, {TTL_HEADER: "20"}])
    world.send(each=[{TTL_HEADER: "5"}, None])
    if restart:
        world.restart()
    world.wait(8)
    assert world.kept == 0
    world.wait(4)
    assert world.kept == 2
    world.wait(20)
    assert world.kept == 4, "one message of the last file lasts"
    assert (world.show("s").expired, world.lost("s")) == (4, [])
    assert world.shell.core.context.counters["files_dropped_ttl"] == 2
    left = [path for path in world.disk.paths() if path.endswith(".expires")]
    assert left == [], "what was noted beside the files went with them"


def test_a_time_to_live_that_is_no_number_is_none() -> None:
    world = World()
    world.send(each=[{TTL_HEADER: "soon"}, {TTL_HEADER: "-1"}, {TTL_HEADER: "nan"}, {TTL_HEADER: ""}])
    world.wait(20)
    assert delivered(world.read("s")) == [0, 1, 2, 3]


def test_the_log_distinguishes_retention_from_damage(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    world = World(hard_ttl=8.0)
    for _ in range(60):
        world.send()
        world.wait(0.5)
    kept = world.kept
    assert 0 < kept < world.end
    last = [path for path in world.disk.paths() if path.endswith(".log")][-1]
    world.disk.flip(last, world.disk.contents(last).rindex(b"x" * 50))
    caplog.clear()
    end = world.end
    for number in range(3):
        world.client.send(Request(100 + number, FetchEntries(world.uuid, 0, 0)))
        world.shell.work_all()
    assert caplog.messages == [
        f"topic t, shard 0: retention dropped entries 0 to {kept - 1}",
        f"topic t, shard 0: entries {end - 1} to {end - 1} are damaged or missing",
    ]


# --- the watermark ------------------------------------------------------------------------------------


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Log lines about room on the disk since the last call."""
    found = [text for text in caplog.messages if "bytes are free" in text]
    caplog.clear()
    return found


def test_the_log_says_once_that_sends_are_refused_and_once_that_they_are_taken_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(msgspec.structs.replace(SETTINGS, limits=Limits(free_bytes_min=1_000_000)))
    world.send(3)
    assert told(caplog) == [] and not world.client.request(ShowNode())["disk_full"]
    world.disk.capacity_bytes = 900_000
    world.wait(2)
    for _ in range(5):
        assert world.send().code == "disk-full"
        world.wait(2)
    (line,) = told(caplog)
    assert "disk-full" in line and "1,000,000" in line and f"{world.disk.free_bytes():,}" in line
    assert world.client.request(ShowNode())["disk_full"]
    world.disk.capacity_bytes = 30_000_000
    world.wait(2)  # no client sends
    (line,) = told(caplog)
    assert "taken again" in line and not world.client.request(ShowNode())["disk_full"]


def test_a_write_that_does_not_fit_counts_as_a_full_disk_until_one_fits(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    world.send()
    world.disk.fail_next("write", errno.ENOSPC, count=3, path_prefix="topics")
    for _ in range(3):
        assert world.send().code == "disk-full"
        world.wait(1)
    assert world.client.request(ShowNode())["disk_full"] and len(told(caplog)) == 1
    assert world.send().outcome == "stored"
    assert not world.client.request(ShowNode())["disk_full"]
    (line,) = told(caplog)
    assert "taken again" in line


def test_below_the_watermark_sends_are_refused_and_settlements_work() -> None:
    limits = Limits(free_bytes_min=1_000_000)
    world = World(msgspec.structs.replace(SETTINGS, limits=limits))
    reader = world.read("s")
    world.send(3)
    world.disk.capacity_bytes = 900_000
    world.wait(2)
    for _ in range(2):
        answer = world.send(3)
        assert (answer.outcome, answer.code) == ("rejected", "disk-full")
    world.settle(reader, 0, 3)
    assert world.show("s").positions == [3]
    world.disk.capacity_bytes = 30_000_000
    world.wait(1)
    assert world.send(3).outcome == "stored"


# --- abandoned subscriptions --------------------------------------------------------------------------


def test_an_abandoned_subscription_is_removed_when_its_time_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(expires_after=60.0)
    world.subscribe("never")
    kept = world.read("kept")
    left = world.read("left")
    world.send(2)
    world.wait(50)
    world.shell.core.disconnected(3)  # the second consumer's connection
    assert left is world.shell.clients[3]
    with caplog.at_level(logging.WARNING, "headpond.node"):
        world.wait(20)
    with pytest.raises(SubscriptionNotFound):
        world.show("never")
    assert "'never'" in caplog.text and "2 messages were unread" in caplog.text
    world.wait(30)
    assert world.show("left").seen_at_us > 0, "60 s from when its consumer left, not from the beginning"
    world.wait(20)
    with pytest.raises(SubscriptionNotFound):
        world.show("left")
    assert world.show("kept").consumers and kept is not None
    assert world.shell.core.context.counters["subscriptions_expired"] == 2
    world.restart(keep_all=False)
    with pytest.raises(SubscriptionNotFound):
        world.show("never")


def test_a_node_that_was_away_gives_consumers_time_to_come_back() -> None:
    world = World(expires_after=60.0)
    world.read("s")
    world.shell.core.disconnected(2)
    world.shell.work_all()
    world.shell.now_us += 3_600 * SECOND_US
    world.restart()
    world.wait(30)
    assert world.show("s").subscription == "s"
    world.wait(40)
    with pytest.raises(SubscriptionNotFound):
        world.show("s")
