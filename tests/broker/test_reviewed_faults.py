"""Faults that a review found; each test is the shortest way to one."""

from __future__ import annotations

import msgspec
import pytest

from headpond.broker.catalog.topics import TOPICS_FOLDER
from headpond.broker.settings import Limits, LogSettings, Settings
from headpond.broker.subscriptions.consume import READ_BYTES
from headpond.model.errors import HeadpondError, LimitReached, TopicExists
from headpond.storage.log.shard_log import ShardLog
from headpond.storage.memory_disk import MemoryDisk
from headpond.wire.connection import ConnectionFault
from headpond.wire.control.catalog import CreateTopic, DeleteTopic, ListTopics
from headpond.wire.control.codec import Request, Response
from headpond.wire.control.consuming import Credit, Deliver, Settle, Subscribe, Subscribed, Unsubscribe
from headpond.wire.control.greeting import Error
from headpond.wire.control.producing import AckItem
from headpond.wire.control.status import ShowNode
from headpond.wire.frame import Frame, FrameType, encode
from tests.broker.ingest.test_ingest import BLOCK, Sender
from tests.broker.subscriptions.core_readers import PLAIN, Reader, Writer
from tests.fire.core_shell import CoreShell


def shell(**limits: int) -> CoreShell:
    settings = Settings(data="memory", log=LogSettings(preallocate_bytes=1024), limits=Limits(**limits))
    return CoreShell(MemoryDisk(), seed=1, settings=settings)


def log_of(it: CoreShell) -> ShardLog:
    topic = it.core.stores.catalog.by_name("default/default/default/orders")
    assert topic is not None
    return topic.shards[0].log


def test_a_repeat_is_never_answered_before_its_original_is_durable_however_many_are_staged() -> None:
    sender = Sender(shell())
    for segment in range(1200):
        sender.send(segment)
    assert sender.answers() == []
    sender.send(0)
    sender.send(1)
    assert sender.answers() == []
    sender.shell.work_all()
    answers = sender.answers()
    for segment in (0, 1):
        assert [item.outcome for item in answers if item.segment == segment] == ["stored", "duplicate"]


def test_a_refused_segment_that_comes_again_is_refused_again() -> None:
    sender = Sender(shell())
    sender.ask(0)
    garbage = encode(FrameType.SEGMENT, b"not arrow", segment=1)
    for _ in range(2):
        sender.client.send(garbage)
        sender.shell.work_all()
        (answer,) = sender.answers()
        assert (answer.outcome, answer.code) == ("rejected", "bad-segment")
    assert sender.ask(2) == AckItem(2, "stored", 1)


@pytest.mark.parametrize("start", ["²", "9" * 5000, "١٢"])
def test_an_invalid_start_harms_no_other_client(start: str) -> None:
    it = shell()
    hostile, victim = it.connect(), it.connect()
    hostile.send(Subscribe(1, "fresh", "s", "unique", "non_resilient", start, 1000, "", True))
    victim.send(Request(1, CreateTopic("wanted")))
    it.work_all()
    assert [type(event) for event in victim.take(Response)] == [Response]
    (error,) = hostile.take(Error)
    assert error.code == "bad-request"
    assert not hostile.closed


def is_busy(shell: CoreShell) -> bool:
    """Whether an alarm is due again at once after it fired."""
    shell.wait(2_000_000)
    return shell.core.due_us is not None and shell.core.due_us <= shell.now_us


def test_after_a_failed_write_nothing_is_due() -> None:
    disk = MemoryDisk()
    sender = Sender(CoreShell(disk, seed=1))
    disk.fail_next("sync", 5, path_prefix="topics")
    sender.send(0)
    sender.send(1)  # staged behind it, and dropped with it
    sender.shell.work_all()
    assert [item.code for item in sender.answers()] == ["storage-failed", "storage-failed"]
    assert not is_busy(sender.shell)


def test_a_fault_in_one_who_waits_for_a_sync_does_not_keep_the_others_waiting() -> None:
    it = shell()
    lane = it.core.stores.settlements.lane
    it.core.stores.settlements.journal.append(b"anything")
    told: list[str] = []

    def faulty(error: HeadpondError | None) -> None:
        raise ValueError("a fault of ours")

    lane.wait(faulty)
    lane.wait(lambda error: told.append("told"))
    write = lane.take()
    write.run(it.disk)
    with pytest.raises(ExceptionGroup):
        it.core.wrote(lane, write, None)
    assert told == ["told"]


def test_a_refused_message_that_is_due_does_not_keep_the_clock_busy_while_there_is_no_credit() -> None:
    it = shell()
    Writer(it).write(1, size=1000)
    reader = Reader(it, credit=1)
    assert reader.entries() == [0]
    reader.settle(nacked=[(0, 0.5)])
    it.wait(1_000_000)
    assert not is_busy(it)
    reader.client.send(Credit(1, 5000))
    it.work_all()
    assert reader.got() == [(0, 2)]


def test_empty_segments_count_for_the_window_too() -> None:
    sender = Sender(shell())
    for segment in range(1000):
        sender.client.send(encode(FrameType.SEGMENT, b"", segment=segment))
    assert sender.shell.core.unacked_bytes >= 500_000
    sender.shell.work_all()
    assert sender.shell.core.unacked_bytes == 0


def test_a_consumer_that_leaves_cannot_name_endless_spans() -> None:
    it = shell()
    Writer(it).write(1)
    reader = Reader(it)
    reader.client.send(Unsubscribe(1, [(0, 0, 1)] * 20_000))
    (fault,) = reader.client.take(ConnectionFault)
    assert fault.error.code == "bad-frame"


def test_a_deleted_topics_folder_is_removed_when_its_last_write_is_done() -> None:
    it = shell()
    sender = Sender(it)
    sender.ask(0)
    admin = it.connect()
    sender.send(1)
    sender.send(2)  # staged behind it
    admin.send(Request(7, DeleteTopic("orders")))
    it.work(1)  # the catalog's write; the log's is still under way
    assert it.disk.list(TOPICS_FOLDER) != []
    it.work_all()
    assert it.disk.list(TOPICS_FOLDER) == []
    assert {item.segment: item.outcome for item in sender.answers()} == {1: "stored", 2: "rejected"}


def test_reads_under_way_count_against_the_credit() -> None:
    it = shell()
    it.connect().request(CreateTopic("orders", shards=8))
    sender = Sender(it)
    for shard in range(8):
        sender.ask(0, b"x" * 2000, shard=shard)
    client = it.connect()
    client.send(Subscribe(1, "orders", "s", "unique", "non_resilient", "earliest", READ_BYTES + 1))
    it.work()
    assert client.take(Subscribed)
    assert len(it.pending) == 2, "one read takes all the credit but a byte, the next one that"


def test_two_who_create_a_topic_at_once_with_other_shards_do_not_both_succeed() -> None:
    it = shell()
    one, other = it.connect(), it.connect()
    one.send(Request(1, CreateTopic("orders", shards=4)))
    other.send(Request(1, CreateTopic("orders", shards=8)))
    it.work_all()
    assert one.take(Response)
    (error,) = other.take(Error)
    assert isinstance(error.as_exception(), TopicExists)


def test_a_delay_holds_also_when_the_message_came_back_before_it_was_said() -> None:
    it = shell()
    Writer(it).write(1)
    ask = Subscribe(1, "orders", "s", "unique", "non_resilient", "earliest", 1 << 20, instance=b"me")
    client = it.connect()
    client.send(ask)
    it.work_all()
    assert len(client.take(Deliver)) == 1
    it.core.disconnected(2)
    client = it.connect()
    client.send(
        msgspec.structs.replace(ask, credit_bytes=0, seen=[]),
        Settle(1, 1, 0, nacked=[(0, 60.0)]),
        Credit(1, 1 << 20),
    )
    it.work_all()
    it.wait(1_000_000)
    it.work_all()
    (subscription,) = it.core.stores.subscriptions.all()
    assert 0 in subscription.cursors[0].unacked_log.entries


def test_a_read_for_one_consumer_is_not_sent_to_the_next_before_its_welcome() -> None:
    it = shell()
    Writer(it).write(3)
    first = it.connect()
    first.send(Subscribe(1, "orders", "s", "unique", "non_resilient", "earliest", 1 << 20))
    it.work()  # the subscription is durable; the read is asked for
    it.core.disconnected(2)
    other, second = it.connect(), it.connect()
    other.send(Subscribe(1, "orders", "another", "unique", "non_resilient", "earliest", 1 << 20))
    second.send(Subscribe(1, "orders", "s", "unique", "non_resilient", "earliest", 1 << 20))
    assert len(it.pending) == 2, "the read, and the write that both wait for"
    it.work(0)
    assert second.events[1:] == [], "only the greeting has come"
    it.work_all()
    assert [type(event) for event in second.events[1:]] == [Subscribed, Deliver, Frame]


def test_limits_hold_on_topics_shards_and_subscriptions() -> None:
    it = shell(topics=2, shards=5, subscriptions=1)
    client = it.connect()
    client.request(CreateTopic("orders", shards=4))
    with pytest.raises(LimitReached, match="shards"):
        client.request(CreateTopic("wide", shards=2))
    client.request(CreateTopic("narrow"))
    with pytest.raises(LimitReached, match="topics"):
        client.request(CreateTopic("more"))
    Reader(it)
    client.send(Subscribe(5, "narrow", "s", "unique", "non_resilient", "earliest", 10))
    it.work_all()
    (error,) = client.take(Error)
    assert isinstance(error.as_exception(), LimitReached)


def test_a_long_list_of_topics_is_answered() -> None:
    it = shell(topics=20_000)
    client = it.connect()
    for number in range(300):
        client.send(Request(number, CreateTopic(f"{'t' * 100}/{'p' * 128}/{'c' * 128}/{number}{'n' * 120}")))
    it.work_all()
    assert len(it.connect().request(ListTopics())) == 300


def test_a_fault_of_the_nodes_own_ends_one_connection_and_is_counted() -> None:
    it = shell()
    sender = Sender(it)
    sender.ask(0)
    log_of(it).append = None  # type: ignore[assignment, method-assign]
    sender.send(1)
    assert sender.client.closed
    assert it.connect().request(ShowNode())["counters"]["faults_internal"] == 1


def test_a_consumer_of_another_topic_of_the_same_name_is_refused() -> None:
    it = shell()
    Writer(it)
    client = it.connect()
    client.send(Subscribe(1, "orders", "s", "unique", "non_resilient", "earliest", 10, topic_uuid=b"x" * 16))
    it.work_all()
    (error,) = client.take(Error)
    assert error.code == "topic-mismatch"


def test_a_refused_settlement_detaches_its_consumer() -> None:
    it = CoreShell(MemoryDisk(), seed=1, settings=PLAIN)
    Writer(it).write(1)
    reader = Reader(it)
    reader.settle(acked=[(0, 99)])
    assert reader.error().code == "bad-request"
    assert Reader(it).got() == [(0, 2)]


def test_a_title_that_repeats_itself_only_switches() -> None:
    it = shell()
    sender = Sender(it)
    sender.ask(0)
    sender.client.send(sender.title)
    assert sender.ask(1) == AckItem(1, "stored", 1)
    session = it.core.sessions.get(1)
    assert session is not None
    assert list(session.blocks) == [BLOCK]
