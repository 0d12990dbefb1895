"""The node's answer to each segment, by its number and content."""

from __future__ import annotations

import pytest

from headpond.model.errors import TopicExists, TopicNotFound
from headpond.storage.log import marks
from headpond.storage.memory_disk import MemoryDisk, Operation
from headpond.wire.connection import ConnectionFault
from headpond.wire.control.catalog import CreateTopic, DeleteTopic, OpenTopic, ShowTopic, TopicInfo
from headpond.wire.control.codec import read_result
from headpond.wire.control.producing import Ack, AckItem, BlockEnd, Hole
from headpond.wire.control.status import ShowNode
from headpond.wire.frame import FrameType, encode
from headpond.wire.plain.columns import rows_to_batch
from headpond.wire.plain.segment import encode_plain
from headpond.wire.title import Predecessor, Title, encode_title
from tests.fire.core_shell import CoreClient, CoreShell

BLOCK = b"b" * 16
OTHER = b"o" * 16


class Sender:
    """A producer's side of the conversation, one block."""

    def __init__(self, shell: CoreShell, block: bytes = BLOCK, predecessor: Predecessor | None = None) -> None:
        self.shell = shell
        self.block = block
        self.client: CoreClient = shell.connect()
        self.info = read_result(self.client.request(OpenTopic("orders", create=True)), TopicInfo)
        power = self.info.shards.bit_length() - 1
        title = Title(self.info.topic, self.info.uuid, "till", predecessor=predecessor)
        self.title = encode(FrameType.TITLE, encode_title(block, power, title))
        self.client.send(self.title)

    def send(self, segment: int, text: bytes = b"", *, shard: int = 0, rows: int = 1) -> None:
        values: list[bytes | None] = [text or b"%d" % segment] * rows
        body = encode_plain(rows_to_batch(values, None, None, None, [1] * rows))
        self.client.send(encode(FrameType.SEGMENT, body, shard=shard, segment=segment))

    def answers(self) -> list[AckItem]:
        return [item for ack in self.client.take(Ack) for item in ack.items]

    def ask(self, segment: int, text: bytes = b"", *, shard: int = 0, rows: int = 1) -> AckItem:
        """Sends a segment, lets the disk work, and returns its one answer."""
        self.send(segment, text, shard=shard, rows=rows)
        self.shell.work_all()
        (answer,) = self.answers()
        return answer


def shell() -> CoreShell:
    return CoreShell(MemoryDisk(), seed=1)


def counters(sender: Sender) -> dict[str, int]:
    found: dict[str, int] = sender.client.request(ShowNode())["counters"]
    return found


def test_the_next_segment_is_stored_and_its_entry_acknowledged() -> None:
    sender = Sender(shell())
    assert sender.ask(0, rows=3) == AckItem(0, "stored", 0)
    assert sender.ask(1) == AckItem(1, "stored", 3)


def test_nothing_is_answered_before_its_sync() -> None:
    sender = Sender(shell())
    sender.send(0)
    assert sender.answers() == []
    sender.shell.work_all()
    assert [answer.outcome for answer in sender.answers()] == ["stored"]


def test_segments_that_arrive_during_a_write_share_the_next_one() -> None:
    sender = Sender(shell())
    for segment in range(20):
        sender.send(segment)
    assert len(sender.shell.pending) == 1, "one write is under way, the rest is staged"
    sender.shell.work()
    assert len(sender.answers()) == 1
    sender.shell.work()
    assert [answer.segment for answer in sender.answers()] == list(range(1, 20))
    assert sender.shell.pending == []


def test_a_repeat_is_a_duplicate_and_names_the_first_copys_entry() -> None:
    sender = Sender(shell())
    sender.ask(0, rows=2)
    sender.ask(1, rows=2)
    assert sender.ask(1, rows=2) == AckItem(1, "duplicate", 2)
    assert sender.ask(2) == AckItem(2, "stored", 4)
    assert counters(sender)["segments_duplicate"] == 1


def test_an_old_repeat_is_compared_with_its_file_outside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marks, "RECENT_MAX", 1)
    sender = Sender(shell())
    for segment in range(3):
        sender.ask(segment, rows=2)
    sender.send(0, rows=2)
    assert sender.answers() == [], "a worker thread reads the file first"
    sender.shell.work_all()
    assert sender.answers() == [AckItem(0, "duplicate", 0)]
    assert sender.ask(1, b"another text").code == "conflict"
    assert sender.ask(3) == AckItem(3, "stored", 6)


@pytest.mark.parametrize("taken", [False, True])
def test_a_repeat_of_a_segment_that_is_not_durable_waits_for_its_sync(taken: bool) -> None:
    sender = Sender(shell())
    if taken:
        sender.send(0)
    else:
        sender.ask(0)
        sender.send(1)  # under way, so that segment 2 is staged behind it
    segment = 0 if taken else 2
    if not taken:
        sender.send(segment)
    sender.send(segment)
    assert sender.answers() == []
    sender.shell.work_all()
    outcomes = [answer.outcome for answer in sender.answers() if answer.segment == segment]
    assert outcomes == ["stored", "duplicate"]


def test_other_content_under_a_used_number_is_a_conflict() -> None:
    sender = Sender(shell())
    sender.ask(0, b"first")
    answer = sender.ask(0, b"second")
    assert (answer.outcome, answer.code) == ("rejected", "conflict")
    assert counters(sender)["segments_rejected_conflict"] == 1


def test_a_segment_ahead_of_its_turn_is_a_gap_that_names_the_one_expected() -> None:
    sender = Sender(shell())
    sender.ask(0)
    answer = sender.ask(5)
    assert (answer.outcome, answer.code, answer.expected) == ("rejected", "gap", 1)
    assert sender.ask(1).outcome == "stored"


def test_admission_continues_behind_a_declared_hole_and_late_segments_are_stored() -> None:
    sender = Sender(shell())
    sender.ask(0)
    sender.client.send(Hole(BLOCK, 0, 4))
    assert sender.ask(4) == AckItem(4, "stored", 1)
    assert sender.ask(2) == AckItem(2, "stored", 2)
    assert sender.ask(2) == AckItem(2, "duplicate", 2)
    assert sender.ask(5) == AckItem(5, "stored", 3)
    found = counters(sender)
    assert (found["segments_in_holes"], found["segments_late"]) == (3, 1)


def test_blocks_and_shards_are_numbered_apart() -> None:
    it = shell()
    it.connect().request(CreateTopic("orders", shards=2))
    one, other = Sender(it), Sender(it, OTHER)
    assert one.ask(0) == AckItem(0, "stored", 0)
    assert other.ask(0) == AckItem(0, "stored", 1)
    assert one.ask(0, shard=1) == AckItem(0, "stored", 0)
    assert one.ask(1, shard=1) == AckItem(1, "stored", 1)


def test_a_segment_that_is_not_arrow_is_refused_for_good_and_the_next_one_is_stored() -> None:
    sender = Sender(shell())
    sender.client.send(encode(FrameType.SEGMENT, b"not arrow", segment=0))
    sender.shell.work_all()
    (answer,) = sender.answers()
    assert (answer.outcome, answer.code) == ("rejected", "bad-segment")
    assert sender.ask(1) == AckItem(1, "stored", 0)


def test_a_new_block_waits_for_its_predecessor() -> None:
    it = shell()
    first = Sender(it)
    first.ask(0)
    late = Sender(it, OTHER, Predecessor(BLOCK, {0: 2}))
    assert late.ask(0).code == "predecessor"
    first.ask(1)
    assert late.ask(0).outcome == "stored"


def test_a_declared_hole_stands_for_a_lost_predecessor() -> None:
    it = shell()
    first = Sender(it)
    late = Sender(it, OTHER, Predecessor(BLOCK, {0: 2}))
    assert late.ask(0).code == "predecessor"
    first.client.send(Hole(BLOCK, 0, 2))
    assert late.ask(0).outcome == "stored"


def test_marks_are_kept_over_a_restart() -> None:
    it = shell()
    sender = Sender(it)
    for segment in range(30):
        sender.ask(segment, rows=3)
    sender.client.send(BlockEnd(BLOCK, {0: 30}))
    it.work_all()
    again = Sender(CoreShell(it.disk, seed=2))
    assert again.info.uuid == sender.info.uuid
    assert [again.ask(segment, rows=3) for segment in range(30)] == [
        AckItem(segment, "duplicate", 3 * segment) for segment in range(30)
    ]
    assert again.ask(30) == AckItem(30, "stored", 90)


@pytest.mark.parametrize(
    ("operation", "error", "code"), [("sync", 5, "storage-failed"), ("write", 28, "disk-full")]
)
def test_a_failed_write_is_refused_and_a_second_try_is_stored(
    operation: Operation, error: int, code: str
) -> None:
    disk = MemoryDisk()
    sender = Sender(CoreShell(disk, seed=1))
    sender.ask(0)
    disk.fail_next(operation, error, path_prefix="topics")
    answer = sender.ask(1)
    assert (answer.outcome, answer.code) == ("rejected", code)
    sender.send(1)
    sender.shell.wait(1_000_000)
    sender.shell.work_all()
    assert sender.answers() == [AckItem(1, "stored", 1)]
    assert sender.shell.core.context.counters["messages_stored"] == 2, "a message that failed does not count"


def test_segments_of_a_deleted_topic_are_refused() -> None:
    sender = Sender(shell())
    sender.ask(0)
    sender.client.request(DeleteTopic("orders"))
    assert sender.ask(1).code == "topic-not-found"
    with pytest.raises(TopicNotFound):
        sender.client.request(ShowTopic("orders"))
    renewed = Sender(sender.shell, OTHER)
    assert renewed.info.uuid != sender.info.uuid
    assert renewed.ask(0) == AckItem(0, "stored", 0)
    sender.client.send(sender.title)
    assert sender.ask(1).code == "topic-mismatch"


def test_a_topic_cannot_be_created_twice_with_other_shards() -> None:
    client = shell().connect()
    client.request(CreateTopic("orders", shards=4))
    client.request(CreateTopic("orders", shards=4, exist_ok=True))
    with pytest.raises(TopicExists):
        client.request(CreateTopic("orders", shards=2, exist_ok=True))


def test_a_segment_before_any_title_ends_the_connection() -> None:
    it = shell()
    client = it.connect()
    client.send(encode(FrameType.SEGMENT, b"x"))
    (fault,) = client.take(ConnectionFault)
    assert fault.error.code == "protocol"
    assert client.closed
