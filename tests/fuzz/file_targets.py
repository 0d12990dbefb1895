"""Targets for files: rot, and files that somebody else wrote.

A **rotten** file is a good one with some changes (``rot``), so the target knows what was in it: everything that
recovery serves is true, and everything else is reported. A **forged** file is the input itself, with checksums
that are right, so it gets past them: it opens, or the error is the one that the docstring names.
"""

from __future__ import annotations

import random
import struct
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from functools import cache

from headpond.broker.settings import Settings
from headpond.broker.staging.stage_file import file_path, read_segment
from headpond.broker.staging.stages import Stages
from headpond.model.errors import BadData, BadRequest
from headpond.model.identity import SegmentKey
from headpond.model.ranges import RangeSet
from headpond.node.data_folder import NODE_FILE, read_identity
from headpond.producer.numbers import Numbers
from headpond.producer.refill.form import NOTE_SUFFIX, read_note
from headpond.producer.refill.refill import Refill
from headpond.storage.commit_journal import begin_round, encode_commit, generation_path, replay
from headpond.storage.disk import SALVAGE_BYTES
from headpond.storage.journal import FileJournal
from headpond.storage.log.shard_log import ShardLog
from headpond.storage.memory_disk import MemoryDisk
from headpond.storage.seal import SEAL_FILE, Seal, SealedFile, read_seal
from headpond.wire.connection import ConnectionFault
from headpond.wire.control.access import CreateToken, RevokeToken
from headpond.wire.control.staging import FinishStage
from headpond.wire.frame import FrameType, encode
from tests.broker.access.guarded import STAGE, GuardedNode
from tests.fire.core_shell import CoreShell
from tests.fire.raw_client import segment_frame
from tests.fuzz.alter import with_checksums
from tests.producer.refills import PATH, PLAIN, TYPED, carrying_another, pending_keys, sample, served
from tests.storage.log.logs import LogWriter, filled, log_files, open_log

EDIT = struct.Struct("<BBIHB")
Touched = dict[str, RangeSet]


def rot(disk: MemoryDisk, paths: list[str], script: bytes) -> Touched:
    """Changes files as the script says: 9 bytes per change. Returns the bytes of each file that it changed."""
    touched: Touched = defaultdict(RangeSet)
    for how, which, place, length, byte in EDIT.iter_unpack(script[: len(script) // EDIT.size * EDIT.size]):
        path = paths[which % len(paths)]
        size = len(disk.contents(path)) if disk.exists(path) else 0
        if not size:
            continue
        file = disk.open(path, writable=True)
        start = place % size
        end = min(size, start + 1 + length % 1024)
        match how % 7:
            case 0 | 1:
                end = start + 1
                disk.flip(path, start, byte % 8)
            case 2:
                file.write_at(start, [bytes((byte,)) * (end - start)])
            case 3:
                file.write_at(start, [bytes(end - start)])
            case 4:
                start, end = start - start % SALVAGE_BYTES, -(-end // SALVAGE_BYTES) * SALVAGE_BYTES
                disk.spoil(path, start, end - start)
            case 5:
                end = size
                file.truncate(start)
            case 6:
                start, end = 0, size
                disk.remove(path)
        touched[path].add(start, max(end, start + 1))
    return touched


# --- logs -----------------------------------------------------------------------------------------------

Records = dict[int, bytes]
"""The frames of records by their first entry."""


@cache
def a_log() -> tuple[MemoryDisk, Records, SealedFile]:
    disk = MemoryDisk()
    writer = filled(disk, rounds=12, seed=4)
    writer.append(count=2)
    writer.commit(disk)
    records, _ = records_in(writer.log)
    sealed = writer.log.close()
    assert sealed is not None
    return disk, records, sealed


def records_in(opened: ShardLog) -> tuple[Records, RangeSet]:
    """The records of a log, and the entries that it reports as lost."""
    found: Records = {}
    at, lost = opened.entry_first, RangeSet()
    while at < opened.entry_durable:
        run = opened.read(at, 1 << 20)
        assert run.next_entry > at
        found |= {each.header.first_entry: b"".join(each.parts) for each in run.records}
        for span in run.lost:
            lost.add(*span)
        at = run.next_entry
    return found, lost


def check_hit(whole: MemoryDisk, touched: Touched, frames: Iterable[bytes]) -> None:
    """Each of these frames, which are lost, was changed in its file."""
    for frame in frames:
        path = next(each for each in whole.paths() if frame in whole.contents(each))
        start = whole.contents(path).index(frame)
        assert touched[path].overlap(start, start + len(frame)), f"the frame at {start} of {path} was whole"


def log(data: bytes) -> None:
    """Nothing false is served, everything else is reported, and the log goes on.

    After a clean stop one change costs the records that it hit and no others; after a crash so does one flipped
    bit. After several changes a whole record may be lost too: nothing proves that it is not part of a payload.
    """
    whole, records, sealed = a_log()
    disk = whole.copy()
    touched = rot(disk, whole.paths(), data[1:])
    clean = bool(data) and data[0] & 1 == 0
    opened = open_log(disk, sealed=sealed if clean else None)
    found, lost = records_in(opened)
    assert found.items() <= records.items() and not any(entry in lost for entry in found)
    gone = records.keys() - found.keys()
    assert all(entry in lost or (entry >= opened.entry_next and not clean) for entry in gone)
    alone = len(data) < 1 + 2 * EDIT.size
    if alone and (clean or data[1:2] in (b"\0", b"\1")):
        check_hit(whole, touched, [records[entry] for entry in gone])
    opened.stage_loss(now_us=20)
    writer = LogWriter(opened, random.Random(1))
    row = writer.append(count=1)
    writer.commit(disk)
    opened.close()
    again, lost = records_in(open_log(disk))
    assert again.pop(row.first_entry) and again.items() <= found.items()
    assert all(entry in lost and not alone for entry in found.keys() - again.keys())


def forged_log(data: bytes) -> None:
    """A log opens, or the error is BadData; each read makes progress, and the next start finds the same."""
    disk = disk_with(log_files(a_log()[0])[0], with_checksums(data))
    with suppress(BadData):
        opened = open_log(disk)
        found = records_in(opened)
        opened.close()
        assert records_in(open_log(disk)) == found


def disk_with(path: str, content: bytes) -> MemoryDisk:
    disk = MemoryDisk(capacity_bytes=2**22)
    file = disk.create(path)
    file.write_at(0, [content])
    file.sync()
    return disk


# --- journals -------------------------------------------------------------------------------------------

BODIES = [b"%d " % number * (1 + number % 5 * 40) for number in range(12)]


@cache
def a_journal() -> tuple[MemoryDisk, Seal]:
    disk = MemoryDisk()
    opened = FileJournal.open(disk, "tokens")
    for number, body in enumerate(BODIES):
        opened.append(body)
        write = opened.take() if number % 3 == 2 else None
        if write is not None:
            write.run(disk)
            opened.committed(write)
    sealed = opened.close()
    assert sealed is not None
    return disk, Seal([sealed], found=True)


def journal(data: bytes) -> None:
    """Lost records are reported by number. After a clean stop one change costs only those that it hit."""
    whole, seal = a_journal()
    disk = whole.copy()
    touched = rot(disk, whole.paths(), data[1:])
    clean = bool(data) and data[0] & 1 == 0
    opened = FileJournal.open(disk, "tokens", seal if clean else None)
    found = list(opened.records)
    assert set(found) <= set(BODIES) and found == sorted(found, key=BODIES.index)
    lost = RangeSet(each.lost for each in opened.report.damaged if each.lost and each.lost[0] < each.lost[1])
    gone = [number for number, body in enumerate(BODIES) if body not in found]
    assert not clean or (all(number in lost for number in gone) and not opened.report.torn)
    assert sum(number in lost for number in range(len(BODIES))) <= len(gone)
    if clean and len(data) < 1 + 2 * EDIT.size:
        check_hit(whole, touched, [encode(FrameType.RECORD, BODIES[each], segment=each) for each in gone])
    opened.close()
    assert list(FileJournal.open(disk, "tokens").records) == found


# --- refills --------------------------------------------------------------------------------------------


@cache
def a_refill(number: int) -> tuple[MemoryDisk, dict[SegmentKey, bytes]]:
    """A refill file with its note, and the frames of its segments."""
    disk = (lambda: sample(PLAIN), lambda: sample(TYPED), carrying_another)[number]()
    return disk, served(Refill.open(disk.copy(), PATH))


def refill(data: bytes) -> None:
    """Nothing false is served. While the note is whole all losses are counted, and one change costs no more."""
    whole, frames = a_refill(data[0] % 3 if data else 0)
    disk = whole.copy()
    touched = rot(disk, whole.paths(), data[1:])
    try:
        opened = Refill.open(disk, PATH)
    except (BadData, BadRequest):
        assert touched[PATH]
        return
    found = served(opened)
    assert found.items() <= frames.items()
    if PATH + NOTE_SUFFIX not in touched:
        lost = sum(ranges.count for ranges in opened.lost.values())
        assert len(found) + lost + opened.unnamed >= len(frames), opened.damage
        if len(data) < 1 + 2 * EDIT.size:  # after several changes a whole frame may not be found
            assert opened.unnamed == 0, opened.damage
            check_hit(whole, touched, [frames[each] for each in frames.keys() - found.keys()])
    deliver(disk, opened)


def forged_refill(data: bytes) -> None:
    """A refill opens, and all that it claims to owe can be sent, or the error is BadData."""
    disk = disk_with(PATH, with_checksums(data))
    with suppress(BadData):
        deliver(disk, Refill.open(disk, PATH))


def deliver(disk: MemoryDisk, opened: Refill) -> None:
    """Sends everything; then nothing is left to send, also for the next run."""
    for destination in opened.destinations:
        for each in pending_keys(opened, destination):
            opened.get(each)
            opened.ack(each, destination)
    opened.close(None)
    again = Refill.open(disk, PATH)
    assert not any(pending_keys(again, destination) for destination in again.destinations)


# --- other files ----------------------------------------------------------------------------------------

STAGES = file_path(1)
COMMITS = generation_path(1)


def forged_stages(data: bytes) -> None:
    """Stages open, and a chunk is the bytes of its stage, or a BadFrame."""
    disk, report = disk_with(STAGES, with_checksums(data)), list[str]()
    for stage in Stages(disk, report, Seal(), {}, Settings(data="memory")).all():
        for number, chunk in enumerate(stage.chunks):
            assert len(read_segment(disk, chunk.place, stage.uuid, number)) == chunk.bytes


def forged_commits(data: bytes) -> None:
    """Commits change only files that exist; a full disk is an OSError."""
    disk = disk_with(COMMITS, with_checksums(data))
    disk.create("a")
    with suppress(OSError):
        found = replay(disk)
        assert sorted(disk.paths()) == ["a", *([COMMITS] if found.lost else [])]


def small_file(data: bytes) -> None:
    """The identity and the reserved numbers are read or are BadData; a seal or a note is read or ignored."""
    content = with_checksums(data[1:]) if data and data[0] & 1 else data[1:]
    for path in (NODE_FILE, "numbers"):
        with suppress(BadData):
            disk = disk_with(path, content)
            read_identity(disk) if path == NODE_FILE else Numbers(disk, "", path, None, bytes(16)).first()
    read_seal(disk_with(SEAL_FILE, content))
    read_note(disk_with(PATH + NOTE_SUFFIX, content), PATH)


# --- a whole node -----------------------------------------------------------------------------------------


@cache
def a_node() -> tuple[MemoryDisk, bytes, str, dict[int, bytes]]:
    """A data folder after a clean stop, its topic, a token that was revoked, and all records by first entry."""
    node = GuardedNode()
    node.admin.request(FinishStage(STAGE, 1))
    for number in range(1, 6):
        node.admin.send(segment_frame([b"%d" % number * 20] * 2, segment=number))
        node.shell.work_all()
    ended = node.made(node.admin, CreateToken("leaver", ["admin"], ["*"]))
    node.admin.request(RevokeToken(ended.info.token))
    records = records_of(node.shell, node.uuid)[0]
    node.shell.core.close()
    return node.disk.copy(), node.uuid, ended.secret, records


def records_of(shell: CoreShell, uuid: bytes) -> tuple[dict[int, bytes], RangeSet]:
    """The records that a topic serves, and the entries that are lost."""
    topic = shell.core.stores.catalog.by_uuid(uuid)
    return records_in(topic.shards[0].log) if topic is not None else ({}, RangeSet([(0, 2**62)]))


def folder(data: bytes) -> None:
    """A node starts on a rotten folder, serves nothing false, reports what it lost, and honours revocations."""
    whole, uuid, revoked, records = a_node()
    disk = whole.copy()
    touched = rot(disk, whole.paths(), data)
    images = [{(path, each.contents(path)) for path in each.paths()} for each in (whole, disk)]
    changed = [path for path, _ in images[0] - images[1]]
    shell = CoreShell(disk, seed=2, now_us=2_000_000)
    found, lost = records_of(shell, uuid)
    assert found.items() <= records.items()
    report = shell.core.stores.recovered
    if SEAL_FILE not in touched:  # without it a file that lost its end may look like one after a crash
        assert all(entry in lost for entry in records.keys() - found.keys())
        for place, _, name in (path.rpartition("/") for path in changed):
            topic = place.rpartition("/")[0]
            words = (name, topic, "a file is missing") if topic else (f"{place}: {name}", f"{place}/{name}")
            assert any(word in line for word in words for line in report), (name, report)
        assert shell.connect(revoked).take(ConnectionFault)
    assert "faults_internal" not in shell.core.context.counters


# --- seeds ------------------------------------------------------------------------------------------------


def contents(disk: MemoryDisk, ending: str) -> list[bytes]:
    return [disk.contents(path).rstrip(b"\0") for path in disk.paths() if path.endswith(ending)]


_EDITS = [EDIT.pack(how, 1, 300, 40, 3) + EDIT.pack(how, 3, 700, 90, 200) for how in range(7)]
_COMMITS = [encode_commit(1, "a", 0, [b"bytes"]), encode_commit(1, "b", 3, [b"more"])]
_ROUND = begin_round(1, 0, [SealedFile("a", 5, 1), SealedFile("b", 7, 2)], _COMMITS)
SEEDS = {
    log: [b"\0" + each for each in _EDITS],
    forged_log: [content[:1000] for content in contents(a_log()[0], ".log")],
    journal: [b"\0" + each for each in _EDITS],
    refill: [bytes((number % 3,)) + each for number, each in enumerate(_EDITS)],
    forged_refill: [*contents(sample(PLAIN), PATH), *contents(sample(TYPED), PATH)],
    forged_stages: contents(a_node()[0], ".stages"),
    forged_commits: [b"".join((_ROUND, *_COMMITS))],
    small_file: [b"\1" + each for each in contents(a_node()[0], SEAL_FILE) + contents(sample(PLAIN), "note")],
    folder: _EDITS,
}
