"""Stages and batches in the node's core: accepted, refused, dropped, and restored after a restart."""

from __future__ import annotations

import errno
import uuid
from typing import Any

import pytest

from headpond.broker.settings import Limits, Settings, StagingSettings
from headpond.broker.staging import compare as comparing
from headpond.broker.staging.stage_file import Chunk, ChunkLocation
from headpond.broker.staging.stages import StageMemory, StageState
from headpond.broker.staging.writers import (
    REMEMBERED,
    BatchRecorded,
    WriterChange,
    WriterDeleted,
    Writers,
    block_of,
    number_segments,
)
from headpond.model.errors import (
    BadRequest,
    BadSegment,
    BatchDiffers,
    BatchOutOfTurn,
    Conflict,
    Gap,
    HeadpondError,
    StageMismatch,
    StageNotFound,
    StagingFull,
    StorageFailed,
    TopicNotFound,
    WriterHeld,
)
from headpond.storage.memory_disk import MemoryDisk
from headpond.wire.control.catalog import CreateTopic, DeleteTopic, ShowTopic, TopicInfo
from headpond.wire.control.codec import Request, Response, read_result
from headpond.wire.control.staging import (
    AbortStages,
    BatchInfo,
    CommitBatch,
    DeleteWriter,
    FinishStage,
    OpenStage,
    ShowWriter,
    StageOpened,
    WriterInfo,
)
from tests.fire.core_shell import CoreShell
from tests.fire.raw_client import encode_chunk, segment_body

DAY_US = 86_400_000_000


class Node:
    """A core with one client that stages and commits, on a disk that outlives it."""

    def __init__(self, disk: MemoryDisk | None = None, *, compact_bytes: int = 1 << 20, **staging: Any) -> None:
        self.disk = disk or MemoryDisk()
        settings = Settings(
            data="memory", journal_compact_bytes=compact_bytes, staging=StagingSettings(**staging)
        )
        self.shell = CoreShell(self.disk, seed=1, settings=settings, now_us=DAY_US)
        self.client = self.shell.connect()
        self.client.request(CreateTopic("t", 2, exist_ok=True))

    def stage(self, name: str, *values: bytes, writer: str = "w", topic: str = "t", shard: int = 0) -> bytes:
        stage = name.encode().ljust(16, b".")
        self.client.request(OpenStage(stage, writer, topic))
        for number, value in enumerate(values):
            self.client.send(encode_chunk(stage, shard, number, segment_body([value])))
        self.client.request(FinishStage(stage, len(values)))
        return stage

    def commit(self, batch: int, *stages: bytes, writer: str = "w", **how: str) -> BatchInfo:
        return read_result(self.client.request(CommitBatch(writer, batch, list(stages), **how)), BatchInfo)

    def entries(self, topic: str = "t") -> list[int]:
        info = read_result(self.client.request(ShowTopic(topic)), TopicInfo)
        return [shard.entry_next for shard in info.shard_list]

    @property
    def counters(self) -> dict[str, int]:
        return self.shell.core.context.counters

    def restarted(self) -> Node:
        self.disk.crash(keep="none")
        return Node(self.disk)


def test_many_small_stages_share_syncs_and_files() -> None:
    node = Node()
    for number in range(200):
        stage = number.to_bytes(16, "big")
        node.client.send(Request(10 + number, OpenStage(stage, "w", "t")))
        node.client.send(encode_chunk(stage, number % 2, 0, segment_body([b"v"])))
        node.client.send(Request(1000 + number, FinishStage(stage, 1)))
    writes = 0
    while node.shell.pending:
        node.shell.work()
        writes += 1
    assert len(node.client.take(Response)) == 400
    assert writes <= 3
    assert [path for path in node.disk.paths() if path.startswith("stages/")] == ["stages/00000001.stages"]
    assert node.commit(0, *(number.to_bytes(16, "big") for number in range(200))).rows == 200
    assert node.entries() == [100, 100]


def test_chunks_are_written_when_a_client_waits_for_them() -> None:
    node = Node()
    stage = bytes(16)
    node.client.request(OpenStage(stage, "w", "t"))
    for number in range(9):
        node.client.send(encode_chunk(stage, 0, number, segment_body([b"v"])))
        assert not node.shell.pending
    node.client.send(Request(7, FinishStage(stage, 5, last=False)))  # more have come by now
    assert len(node.shell.pending) == 1
    node.shell.work()
    assert len(node.client.take(Response)) == 1
    assert not node.shell.pending
    node.client.request(FinishStage(stage, 9))
    assert node.commit(0, stage).rows == 9


def test_a_connection_stopped_for_bytes_that_are_not_durable_is_read_again() -> None:
    settings = Settings(data="memory", limits=Limits(window_bytes=40_000))
    shell = CoreShell(MemoryDisk(), seed=1, settings=settings)
    client = shell.connect()
    client.request(CreateTopic("t"))
    client.request(OpenStage(bytes(16), "w", "t"))
    for number in range(200):  # no request needs them, and none is large
        client.send(encode_chunk(bytes(16), 0, number, segment_body([b"v"])))
        shell.work_all()
        assert shell.core.unacked_bytes <= settings.limits.window_bytes // 2


def test_segments_in_memory_are_published_without_a_read() -> None:
    node = Node(memory_bytes=10_000)
    early, late = node.stage("early", b"rot " * 2000), node.stage("late", b"rut " * 2000)
    path = "stages/00000001.stages"
    node.disk.flip(path, node.disk.contents(path).index(b"rut rut"))
    assert node.commit(0, late).rows == 1
    assert node.counters["messages_lost_staged"] == 0
    assert node.commit(1, early).rows == 1  # pushed out of memory by the other, and whole on the disk
    assert node.entries() == [2, 0]


def test_memory_holds_the_newest_chunks_and_lets_go_of_those_that_are_done_with() -> None:
    memory = StageMemory(100)
    stages = [StageState(bytes([number]) * 16, "w", b"t", 0, 0) for number in range(3)]
    for stage in stages:
        for number in range(2):
            stage.chunks.append(Chunk(0, 1, 0, 20, ChunkLocation(1, 0)))
            memory.keep(stage, number, bytes(20))
    assert [[chunk.segment is not None for chunk in stage.chunks] for stage in stages] == [
        [False, True],
        [True, True],
        [True, True],
    ]
    memory.forget(stages[1])
    memory.forget(stages[1])
    assert memory.bytes == 60
    stages[0].chunks.append(Chunk(0, 1, 0, 200, ChunkLocation(1, 0)))
    memory.keep(stages[0], 2, bytes(200))
    assert memory.bytes == 0


def test_a_chunk_that_cannot_be_taken_is_the_answer_to_the_finish() -> None:
    node = Node(stage_bytes_max=1000, bytes_max=1500, writer_stages_max=5, stages_max=6)
    good = segment_body([b"v"])
    for name, chunks, error in (
        ("bad", [(0, 0, b"no segment")], BadSegment),
        ("shard", [(2, 0, good)], HeadpondError),
        ("gap", [(0, 1, good)], Gap),
        ("conflict", [(0, 0, good), (0, 0, segment_body([b"other"]))], Conflict),
    ):
        stage = name.encode().ljust(16, b".")
        node.client.request(OpenStage(stage, "w", "t"))
        for shard, number, segment in chunks:
            node.client.send(encode_chunk(stage, shard, number, segment))
        with pytest.raises(error):
            node.client.request(FinishStage(stage, len(chunks)))
        with pytest.raises(StageMismatch):
            node.commit(0, stage)
    with pytest.raises(HeadpondError, match="stage_bytes_max"):
        node.stage("large", bytes(2000))
    with pytest.raises(StagingFull, match="writer_stages_max"):
        node.stage("sixth", b"v")
    node.stage("sixth", b"v", writer="other")
    with pytest.raises(StagingFull, match="there are 6 stages"):
        node.stage("seventh", b"v", writer="other")
    node.client.request(AbortStages("w", [b"bad".ljust(16, b"."), b"large".ljust(16, b".")]))
    first = node.stage("first", bytes(800))
    with pytest.raises(StagingFull, match="bytes_max"):
        node.stage("second", bytes(800))
    node.commit(0, first)
    again = read_result(node.client.request(OpenStage(b"second".ljust(16, b"."), "w", "t")), StageOpened)
    assert again.chunks == 0, "what can pass is forgotten when the stage is opened again"
    node.client.send(encode_chunk(b"second".ljust(16, b"."), 0, 0, segment_body([bytes(800)])))
    node.client.request(FinishStage(b"second".ljust(16, b"."), 1))


def test_a_recorded_batch_is_out_of_reach_also_after_a_restart() -> None:
    node = Node()
    stage = node.stage("s", b"a", b"b")
    node.client.send(Request(77, CommitBatch("w", 0, [stage])))
    node.shell.work()  # the record is durable; nothing is published
    node.disk.crash(keep="none")
    shell = CoreShell(node.disk, seed=1, settings=Settings(data="memory"), now_us=DAY_US)
    client = shell.connect()
    client.send(Request(1, AbortStages("w", [stage])))  # before any of it is published again
    shell.work_all()
    assert [answer.result for answer in client.take(Response)] == [0]
    node = Node(node.disk)
    assert node.commit(0, stage).outcome == "duplicate"
    assert node.entries() == [2, 0]
    with pytest.raises(StageNotFound):
        node.commit(1, stage)


def test_two_commits_of_one_writer_at_a_time_come_one_after_the_other() -> None:
    node = Node()
    first, second, third = (node.stage(name, name[:1].encode()) for name in ("a1", "a2", "b"))
    for number, (batch, stage) in enumerate(((0, first), (0, second), (1, third)), 1):
        node.client.send(Request(70 + number, CommitBatch("w", batch, [stage])))
    node.shell.work_all()
    answers = sorted(node.client.take(Response), key=lambda answer: answer.number)
    outcomes = [read_result(answer.result, BatchInfo).outcome for answer in answers]
    assert outcomes == ["committed", "duplicate", "committed"]
    assert node.entries() == [2, 0]
    assert node.counters["stages_duplicate"] == 1


def test_a_batch_that_comes_again_with_other_rows_is_refused_and_nothing_of_it_dropped() -> None:
    node = Node()
    first = node.stage("first", b"a", b"b")
    assert node.commit(3, first, node.stage("second", b"c", shard=1)).rows == 3
    assert node.commit(3, first, b"second".ljust(16, b".")).outcome == "duplicate", "the same call once more"
    fewer, other = node.stage("fewer", b"a"), node.stage("other", b"a", b"b", b"x")
    for batch, stage, error, words in (
        (3, fewer, BatchDiffers, "is a repeat with 1 rows and was committed with 3"),
        (3, other, BatchDiffers, "is a repeat with other rows, 3 as before"),
        (2, other, BatchOutOfTurn, "batch 2 of writer 'w' is below batch 3"),
        (0, fewer, BatchOutOfTurn, "not among the last 20"),
    ):
        with pytest.raises(error, match=words):
            node.commit(batch, stage)
    same = node.stage("one", b"c", b"a", b"b")
    assert node.commit(3, same).outcome == "duplicate", "in any order and shard"
    assert node.commit(3, same).outcome == "duplicate", "its answer was lost, and its stage is gone"
    assert node.commit(3, fewer, on_repeat="drop").outcome == "duplicate"
    assert node.commit(1, other, on_repeat="drop").outcome == "duplicate"
    assert node.entries() == [2, 1] and node.counters["batches_duplicate"] == 5
    with pytest.raises(BadRequest):
        node.commit(4, on_repeat="ask")


def test_rows_that_went_to_another_topic_are_other_rows() -> None:
    node = Node()
    node.client.request(CreateTopic("u"))
    node.commit(0, node.stage("t1", b"a"), node.stage("u1", b"b", topic="u"))
    same = [node.stage("t2", b"a"), node.stage("u2", b"b", topic="u")]
    assert node.commit(0, *same).outcome == "duplicate"
    swapped = [node.stage("t3", b"b"), node.stage("u3", b"a", topic="u")]
    with pytest.raises(BatchDiffers):
        node.commit(0, *swapped)


def test_a_batch_whose_rows_are_gone_is_not_taken_for_a_repeat() -> None:
    node = Node()
    node.commit(0, node.stage("first", b"a", b"b"))
    node.client.request(DeleteTopic("t"))
    node.client.request(CreateTopic("t"))
    with pytest.raises(BatchOutOfTurn, match="only 0 of its 2 rows are still in their topics"):
        node.commit(0, node.stage("again", b"a", b"b"))


def test_a_large_batch_is_compared_beside_what_others_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparing, "PORTION_BYTES", 3000)
    node = Node(memory_bytes=0)
    rows = [bytes([65 + number]) * 500 for number in range(20)]
    node.commit(0, node.stage("first", *rows))
    node.commit(0, node.stage("next", b"n", writer="other"), writer="other")
    node.client.send(Request(77, CommitBatch("w", 0, [node.stage("again", *reversed(rows))])))
    portions = 0
    while node.shell.pending:
        node.shell.work()
        portions += 1
    assert portions > 4
    (answer,) = node.client.take(Response)
    assert read_result(answer.result, BatchInfo).outcome == "duplicate"


def test_a_disk_that_cannot_be_read_leaves_it_open_whether_a_batch_is_the_same() -> None:
    node = Node(memory_bytes=0)
    node.commit(0, node.stage("first", b"a"))
    again = node.stage("again", b"a")
    node.disk.fail_next("read", errno.EIO)
    with pytest.raises(StorageFailed) as failed:
        node.commit(0, again)
    assert failed.value.retryable
    node.disk.fail_never()
    assert node.commit(0, again).outcome == "duplicate"


def test_the_last_batches_are_remembered_over_restarts_and_a_compacted_journal() -> None:
    node = Node(compact_bytes=4096)
    for batch in range(REMEMBERED + 6):
        node.commit(batch, node.stage(f"s{batch}", f"row {batch}".encode()))
    (writer,) = node.shell.core.stores.writers
    assert len(writer.history) == REMEMBERED
    for again in (node.restarted(), node.restarted().restarted()):
        assert again.commit(6, again.stage("known", b"row 6")).outcome == "duplicate"
        with pytest.raises(BatchDiffers):
            again.commit(7, again.stage("other", b"row 6"))
        with pytest.raises(BatchOutOfTurn):
            again.commit(5, again.stage("old", b"row 5"))


def test_a_second_query_under_one_name_is_refused_while_the_first_lives() -> None:
    node = Node()
    node.commit(0, node.stage("a0", b"a"), holder="first")
    node.commit(1, node.stage("a1", b"b"), holder="first")
    assert node.commit(0, node.stage("b0", b"a"), holder="second").outcome == "duplicate"
    with pytest.raises(BatchDiffers, match="from second where batch 1 was from first"):
        node.commit(1, node.stage("b1", b"x"), holder="second")
    same, beyond = node.stage("same", b"b"), node.stage("beyond", b"x")
    for batch, stage in ((1, same), (2, beyond), (50, beyond)):
        with pytest.raises(WriterHeld, match="in use by first, which committed batch 1 0 s ago") as held:
            node.commit(batch, stage, holder="second")
        assert held.value.retryable
    assert node.commit(2, node.stage("a2", b"c"), holder="first").outcome == "committed"
    assert node.entries() == [3, 0]


def test_another_query_continues_once_it_has_repeated_the_last_batch() -> None:
    node = Node()
    node.commit(0, node.stage("a0", b"a"), holder="first")
    node.shell.wait(31_000_000)
    beyond = node.stage("beyond", b"x")
    for stranger in ("second", ""):
        with pytest.raises(BatchOutOfTurn, match="did not repeat batch 0, the newest, of first"):
            node.commit(1, beyond, holder=stranger)
    assert node.commit(0, node.stage("b0", b"a"), holder="second").outcome == "duplicate"
    node = node.restarted()
    assert read_result(node.client.request(ShowWriter("w")), WriterInfo).holder == "second"
    assert node.commit(1, node.stage("b1", b"b"), holder="second").outcome == "committed"
    node.shell.wait(31_000_000)
    with pytest.raises(BatchOutOfTurn):
        node.commit(2, node.stage("a2", b"c"), holder="first")


def test_stages_that_are_never_committed_expire_and_are_counted() -> None:
    node = Node(expire_s=3600)
    node.stage("orphan", b"a", b"b")
    kept = node.stage("kept", b"c", writer="other")
    node.shell.wait(3_500_000_000)
    node.client.request(OpenStage(kept, "other", "t"))
    node.shell.wait(200_000_000)
    node.shell.work_all()
    assert (node.counters["stages_expired"], node.counters["messages_expired_staged"]) == (1, 2)
    assert node.commit(0, kept, writer="other").rows == 1
    with pytest.raises(StageNotFound):
        node.commit(0, b"orphan".ljust(16, b"."))
    node = node.restarted()
    with pytest.raises(StageNotFound):
        node.commit(0, b"orphan".ljust(16, b"."))


def test_a_topic_that_is_deleted_before_the_commit_refuses_it_and_after_it_is_named() -> None:
    node = Node(memory_bytes=0)
    node.client.request(CreateTopic("gone"))
    kept, lost = node.stage("kept", b"a"), node.stage("lost", b"b", b"c", topic="gone")
    node.client.send(Request(77, CommitBatch("w", 0, [kept, lost])))
    node.shell.work()
    node.client.send(Request(78, DeleteTopic("gone")))
    node.shell.work(1)  # the deletion, before the stages are read
    node.shell.work_all()
    assert len(node.client.take(Response)) == 2
    assert node.entries() == [1, 0]
    assert node.counters["messages_dropped_topic_deleted"] == 2
    assert read_result(node.client.request(ShowWriter("w")), WriterInfo).batch == 0
    node.client.request(CreateTopic("gone"))
    late = node.stage("late", b"d", topic="gone")
    node.client.request(DeleteTopic("gone"))
    with pytest.raises(TopicNotFound):
        node.commit(1, late)


def test_a_stage_that_rots_before_its_batch_is_published_is_named_and_the_rest_published() -> None:
    node = Node(memory_bytes=0)
    good, bad = node.stage("good", b"a"), node.stage("bad", b"rot " * 50)
    after = node.stage("after", b"z")
    path = "stages/00000001.stages"
    node.disk.flip(path, node.disk.contents(path).index(b"rot rot"))
    node.client.send(Request(77, CommitBatch("w", 0, [good, bad, after])))
    for _ in range(8):
        node.shell.work_all()
        node.shell.wait(1_500_000)
    assert node.client.take(Response)
    assert node.entries() == [2, 0]
    assert node.counters["messages_lost_staged"] == 1
    assert node.commit(1, node.stage("next", b"n")).outcome == "committed"
    assert node.entries() == [3, 0]


def test_damage_in_a_stage_file_costs_the_stages_that_it_hit() -> None:
    node = Node()
    good, bad = node.stage("good", b"a"), node.stage("bad", b"rot " * 50, b"b")
    path = "stages/00000001.stages"
    node.disk.flip(path, node.disk.contents(path).index(b"rot rot"))
    node = node.restarted()
    assert any("stages/00000001.stages" in line for line in node.shell.core.stores.recovered)
    with pytest.raises(StageMismatch, match="not finished"):
        node.commit(0, good, bad)
    assert node.commit(0, good).rows == 1


def test_files_are_removed_when_nothing_in_them_counts() -> None:
    node = Node(file_bytes=2000)
    orphan = node.stage("orphan", b"o")
    for batch in range(20):
        node.commit(batch, node.stage(f"s{batch}", bytes(500)))
    node.shell.work_all()
    paths = [path for path in node.disk.paths() if path.startswith("stages/")]
    assert paths[0] == "stages/00000001.stages" and len(paths) <= 4, paths
    with pytest.raises(StageNotFound):  # its end is known as long as its file is there
        Node(node.disk.copy()).commit(20, b"s1".ljust(16, b"."))
    node.client.request(AbortStages("w", [orphan]))
    node.shell.work_all()
    assert "stages/00000001.stages" not in node.disk.paths()
    node = node.restarted()
    node.shell.work_all()
    assert not [path for path in node.disk.paths() if path.startswith("stages/")]
    assert node.entries() == [20, 0]


def test_a_full_disk_refuses_the_commit_and_takes_it_later() -> None:
    node = Node()
    stage = node.stage("s", b"a")
    node.disk.capacity_bytes = 1
    node.shell.wait(2_000_000)
    with pytest.raises(HeadpondError) as refused:
        node.commit(0, stage)
    assert refused.value.code == "disk-full"
    node.disk.capacity_bytes = None
    node.shell.wait(2_000_000)
    assert node.commit(0, stage).rows == 1


def test_a_stage_whose_write_failed_is_finished_once_all_of_it_is_durable() -> None:
    node = Node()
    node.disk.fail_next("sync", errno.EIO, path_prefix="stages/")
    with pytest.raises(StorageFailed):
        node.stage("s", b"a", b"b")
    node.shell.wait(2_000_000)
    stage = node.stage("s", b"a", b"b")
    node = node.restarted()
    assert node.commit(0, stage).rows == 2
    assert node.entries() == [2, 0]


def test_a_dropped_stage_stays_dropped_though_the_write_that_noted_it_failed() -> None:
    node = Node()
    stage, _ = node.stage("s", b"a"), node.stage("other", b"b")
    node.disk.fail_next("sync", errno.EIO, path_prefix="stages/")
    node.client.request(AbortStages("w", [stage]))
    node.shell.wait(2_000_000)
    node.shell.work_all()
    with pytest.raises(StageNotFound):
        node.restarted().commit(0, stage)


def test_a_deletion_waits_for_the_batch_being_published() -> None:
    node = Node()
    stage = node.stage("s", b"a")
    node.client.send(Request(77, CommitBatch("w", 0, [stage])), Request(78, DeleteWriter("w")))
    node.shell.work_all()
    assert [answer.number for answer in node.client.take(Response)] == [77, 78]
    assert node.commit(0, node.stage("s2", b"a")).outcome == "committed"
    assert node.restarted().entries() == [2, 0]


def test_marks_that_a_batch_needs_outlast_any_silence() -> None:
    node = Node()
    stage = node.stage("s", b"a", b"b")
    node.client.send(Request(77, CommitBatch("w", 0, [stage])))
    node.shell.work()
    node.shell.work()  # the portion is read
    node.shell.work()  # and durable in the topic, while the journal does not know of that
    node.disk.crash(keep="none")
    shell = CoreShell(node.disk, seed=1, settings=Settings(data="memory"), now_us=60 * DAY_US)
    shell.work_all()
    again = Node(node.disk)
    assert again.entries() == [2, 0]


def test_records_repeated_after_a_snapshot_change_nothing() -> None:
    old = BatchRecorded("w", b"o" * 16, 5, 1, [], 0, 0, "")
    new = BatchRecorded("w", b"n" * 16, 0, 2, [], 0, 0, "")
    staged: list[WriterChange] = [old, WriterDeleted("w", old.uuid), new]
    writers = Writers()
    for change in staged:
        writers.apply(change)
    replayed = Writers()
    for kept in writers.snapshot():
        replayed.apply(kept)
    for change in staged:
        replayed.apply(change)
    assert list(replayed.snapshot()) == list(writers.snapshot())
    assert [(writer.uuid, writer.batch) for writer in replayed] == [(new.uuid, 0)]


def test_a_block_is_a_version_5_uuid_and_a_used_up_one_is_followed_by_another() -> None:
    writer, topic = uuid.uuid4(), uuid.uuid4()
    assert uuid.UUID(bytes=block_of(writer.bytes, topic.bytes)).version == 5
    chunk = Chunk(0, 1, 0, 20, ChunkLocation(1, 0))
    stages = [StageState(b"s", "w", topic.bytes, 0, 0, chunks) for chunks in ([chunk], [chunk, chunk])]
    known = {(topic.bytes, 0): (b"b" * 16, 2**32 - 2)}
    early, late = number_segments(writer.bytes, known, stages)
    assert early.runs == [(0, b"b" * 16, 2**32 - 2, 1)]
    ((_, block, first, count),) = late.runs
    assert (first, count) == (0, 2) and block not in (b"b" * 16, block_of(writer.bytes, topic.bytes))
