"""Damaged refill files: no false segment is read, and every lost segment is named."""

from __future__ import annotations

import gc
import os
from contextlib import suppress
from pathlib import Path

import pytest

from headpond.model.errors import BadData, HeadpondError, UnknownSegment, UnknownShard
from headpond.model.identity import SegmentKey
from headpond.producer.refill.form import NOTE_SUFFIX
from headpond.producer.refill.refill import Refill
from headpond.storage.frame_file import Found, scan
from headpond.storage.memory_disk import Keep, MemoryDisk
from headpond.storage.os_disk import OsDisk
from headpond.wire.frame import FrameType
from headpond.wire.title import Title
from tests.producer.refills import (
    ALL,
    PATH,
    PLAIN,
    TYPED,
    A,
    B,
    key,
    keys,
    new_refill,
    pending_keys,
    restored,
    sample,
    save,
    segment_frame,
    served,
    snapshot_frame,
    true_frame,
    write,
)

OWED_A = keys(2, 3)
OWED_B = [*keys(0, 1, 2), key(5, 1), key(6, 1)]


def ends(disk: MemoryDisk) -> dict[SegmentKey, int]:
    """Where each segment's frame ends."""
    return {
        SegmentKey(item.frame.shard, item.frame.segment): item.end
        for item in scan(disk.open(PATH))
        if isinstance(item, Found) and item.frame.type == FrameType.SEGMENT
    }


def with_content(content: bytes) -> MemoryDisk:
    disk = MemoryDisk()
    disk.create(PATH).write_at(0, [content])
    return disk


def accounted(refill: Refill) -> set[SegmentKey]:
    """Segments that can be read, or are named as lost."""
    lost = {key(n, shard) for shard, ranges in refill.lost.items() for run in ranges for n in range(*run)}
    return set(served(refill)) | lost


def owed(refill: Refill, destination: str) -> set[SegmentKey]:
    """What a destination is sent, or is reported to have lost."""
    lost = {each for each in accounted(refill) if each.segment in refill.lost.get(each.shard, ())}
    return set(pending_keys(refill, destination)) | lost


def test_the_sample_is_as_the_tests_expect() -> None:
    for title in (PLAIN, TYPED):
        refill = Refill.open(sample(title), PATH)
        assert sorted(served(refill)) == ALL and refill.damage == [] and refill.closed == {0: 4, 1: 7}
        assert (pending_keys(refill, A), pending_keys(refill, B)) == (OWED_A, OWED_B)


# --- cut off ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("title", [PLAIN, TYPED], ids=["plain", "typed"])
def test_cut_at_every_byte_all_whole_frames_before_are_found(title: Title) -> None:
    disk = sample(title)
    content, whole = disk.contents(PATH), ends(disk)
    head = [item.end for item in scan(disk.open(PATH)) if isinstance(item, Found)][1]
    for size in range(len(content)):
        cut = with_content(content[:size])
        if size < head:
            with pytest.raises(BadData):
                Refill.open(cut, PATH)
            continue
        refill = Refill.open(cut, PATH)
        expected = {each: true_frame(each) for each, end in whole.items() if end <= size}
        assert served(refill) == expected, size
        assert refill.damage == [] and refill.closed is None, size
        assert set(expected) & set(OWED_A) <= set(pending_keys(refill, A)), size
        assert set(expected) & set(OWED_B) <= set(pending_keys(refill, B)), size


def test_cut_off_bytes_are_gone_before_more_is_written() -> None:
    content = sample(closed=False).contents(PATH)
    for size in range(len(content) - 200, len(content)):
        disk = with_content(content[:size])
        refill = Refill.open(disk, PATH)
        pending = pending_keys(refill, B)
        refill.ack(pending[0], B)
        refill.close(None)
        again = Refill.open(disk, PATH)
        assert pending_keys(again, B) == pending[1:], size
        assert again.damage == [] and again.torn_bytes == 0, size


# --- power cuts ---------------------------------------------------------------------------------------


class Run:
    """A producer on a disk that may lose its power at any moment, and its spilled segments."""

    def __init__(self, disk: MemoryDisk, durability: str = "sync") -> None:
        self.disk = disk
        self.durability = durability
        self.safe: set[SegmentKey] = set()
        self.acked: set[SegmentKey] = set()
        """Written to the file and synced."""
        self.sent: set[SegmentKey] = set()

    def go(self) -> None:
        refill = new_refill(self.disk, durability=self.durability)
        held: set[SegmentKey] = set()
        for first in range(0, 12, 3):
            for segment in range(first, first + 3):
                big = segment_frame(segment, payload=bytes([segment + 1]) * 700)
                refill.write_segment(key(segment), big)
                self.sent.add(key(segment))
                held.add(key(segment))
            acked = {key(n) for n in range(first)}
            for each in acked:
                refill.ack(each, A)
            refill.write_statuses()
            refill.sync()
            self.safe, self.acked = set(held), acked
        refill.close({0: 12})


def frame_of(each: SegmentKey) -> bytes:
    return segment_frame(each.segment, payload=bytes([each.segment + 1]) * 700)


@pytest.mark.parametrize("keep", ["none", "all", "some"])
def test_after_a_power_cut_at_every_change_synced_segments_are_found(keep: Keep) -> None:
    clean = MemoryDisk()
    Run(clean).go()
    changes = sum(operation not in ("read", "open") for operation, *_ in clean.operations)
    for seed in range(8 if keep == "some" else 1):
        for after in range(changes + 1):
            disk = MemoryDisk(seed)
            disk.cut_power_after(after)
            run = Run(disk)
            with suppress(HeadpondError, OSError):
                run.go()
            disk.crash(keep=keep)
            check_after_power_cut(run, (seed, after))


def check_after_power_cut(run: Run, where: object) -> None:
    if not run.disk.exists(PATH):
        assert not run.safe, where
        return
    refill = Refill.open(run.disk, PATH)
    found = served(refill)
    assert run.safe <= set(found) <= run.sent, where
    assert all(frame == frame_of(each) for each, frame in found.items()), where
    assert run.safe - run.acked <= set(pending_keys(refill, B)), where
    assert not run.acked & set(pending_keys(refill, A)), where
    assert refill.damage == [], (where, "a power cut damages nothing that was synced")
    if refill.closed is not None:
        assert refill.closed == {0: 12} and len(found) == 12, where


def test_with_durability_os_a_power_cut_may_lose_but_never_falsifies() -> None:
    for seed in range(30):
        for after in range(10, 25):
            disk = MemoryDisk(seed)
            disk.cut_power_after(after)
            run = Run(disk, "os")
            with suppress(HeadpondError, OSError):
                run.go()
            disk.crash(keep="some")
            if disk.exists(PATH):
                found = served(Refill.open(disk, PATH))
                assert all(frame == frame_of(each) for each, frame in found.items())


# --- a file that was cut short --------------------------------------------------------------------------


def spilled(segments: int, *, closed: bool, title: Title = PLAIN) -> MemoryDisk:
    """A file of this many segments, two per sync, of which A has confirmed the first half."""
    disk = MemoryDisk()
    refill = new_refill(disk, title)
    if title is TYPED:
        refill.write_snapshot(0, snapshot_frame(0))
    for segment in range(segments):
        refill.write_segment(key(segment), segment_frame(segment, payload=bytes([segment + 1]) * 100))
        if segment % 2:
            refill.sync()
    for segment in range(segments // 2):
        refill.ack(key(segment), A)
    refill.write_statuses()
    refill.sync()
    if closed:
        refill.close({0: segments})
    else:
        refill.release()
    return disk


def test_a_note_that_is_older_than_its_file_or_cannot_be_read_says_nothing() -> None:
    whole = spilled(12, closed=True)
    older = spilled(4, closed=False).contents(PATH + NOTE_SUFFIX)
    for note in (older, b"", b"\xa5" * 100):
        disk = whole.copy()
        file = disk.open(PATH + NOTE_SUFFIX, writable=True)
        file.truncate(0)
        file.write_at(0, [note])
        refill = Refill.open(disk, PATH)
        assert len(served(refill)) == 12 and refill.damage == [] and refill.continuable


# --- rot ----------------------------------------------------------------------------------------------


def test_two_segments_and_the_status_that_lists_them_are_named_by_their_headers() -> None:
    disk = sample()
    content = disk.contents(PATH)
    for segment in (2, 3):
        disk.flip(PATH, content.index(segment_frame(segment)) + 25)
    statuses = [i for i in scan(disk.open(PATH)) if isinstance(i, Found) and i.frame.type == FrameType.STATUS]
    listing = next(each for each in statuses if each.offset > content.index(segment_frame(3)))
    disk.flip(PATH, listing.offset + 14)
    refill = Refill.open(disk, PATH)
    assert accounted(refill) == set(ALL)
    assert refill.lost[0].count == 2 and refill.unnamed == 0


def test_a_loss_that_nothing_names_is_counted_and_keeps_the_file() -> None:
    disk = sample(closed=False)
    content = disk.contents(PATH)
    start = content.index(segment_frame(2))
    last = content.rindex(bytes((FrameType.STATUS,)) + bytes(2), 0, len(content) - 40)
    for offset in range(start, last):
        disk.flip(PATH, offset, offset % 8)
    refill = Refill.open(disk, PATH)
    named = sum(ranges.count for ranges in refill.lost.values())
    assert len(served(refill)) + named + refill.unnamed == len(ALL) and refill.damage
    for each in pending_keys(refill, A):
        refill.ack(each, A)
    for each in pending_keys(refill, B):
        refill.ack(each, B)
    for destination in (A, B):
        refill.refuse_pending(destination, "dropped")
    assert refill.done() == (refill.unnamed == 0)


def test_damage_is_named_by_bytes_and_segments() -> None:
    disk = sample()
    offset = disk.contents(PATH).index(segment_frame(2))
    disk.flip(PATH, offset + 30)
    refill = Refill.open(disk, PATH)
    (damage,) = refill.damage
    assert (damage.offset, damage.end) == (offset, offset + len(segment_frame(2)))
    assert (damage.shard, damage.first, damage.segments_end) == (0, 2, 3)
    assert "segment 2 of shard 0" in str(damage) and f"bytes {offset}" in str(damage)
    with pytest.raises(UnknownSegment, match="lost segment"):
        refill.get(key(2))
    assert key(2) not in pending_keys(refill, A)
    assert refill.read(key(3), 0) == [segment_frame(3)]


def deliver_all(refill: Refill) -> None:
    for destination in refill.destinations:
        for each in pending_keys(refill, destination):
            refill.ack(each, destination)
    refill.close(None)


def test_a_lost_segment_is_skipped_and_named_and_keeps_the_file() -> None:
    disk = sample()
    disk.flip(PATH, disk.contents(PATH).index(segment_frame(2)) + 30)
    deliver_all(Refill.open(disk, PATH))
    again = Refill.open(disk, PATH)
    assert pending_keys(again, A) == pending_keys(again, B) == [], "a confirmed segment is not sent again"
    assert (again.tally(A).lost, again.tally(B).lost, again.undelivered) == (1, 1, 1)
    assert {each.destination for each in again.claims.refusals if each.code == "damaged"} == {A, B}
    assert not again.done()
    before = disk.contents(PATH)
    again.close(None)
    assert disk.contents(PATH) == before, "it is reported once"


def test_a_lost_segment_that_is_dropped_lets_the_file_go() -> None:
    disk = sample()
    disk.flip(PATH, disk.contents(PATH).index(segment_frame(2)) + 30)
    deliver_all(Refill.open(disk, PATH))
    refill = Refill.open(disk, PATH)
    for destination in (A, B):
        refill.refuse_pending(destination, "dropped")
    refill.close(None)
    last = Refill.open(disk, PATH)
    assert last.done() and last.tally(A) == (0, 5, 1, 0)


def test_a_segment_that_can_be_read_after_all_is_sent() -> None:
    disk = sample()
    offset = disk.contents(PATH).index(segment_frame(2)) + 30
    disk.flip(PATH, offset)
    deliver_all(Refill.open(disk, PATH))
    disk.flip(PATH, offset)
    refill = Refill.open(disk, PATH)
    assert pending_keys(refill, A) == pending_keys(refill, B) == keys(2) and refill.damage == []
    assert not refill.done()
    deliver_all(refill)
    assert refill.done()


def test_a_lost_snapshot_costs_the_segments_that_only_it_leads_to() -> None:
    disk = MemoryDisk()
    refill = new_refill(disk, TYPED)
    refill.write_snapshot(0, snapshot_frame(0))
    write(refill, 0, 1)
    refill.write_snapshot(0, snapshot_frame(2))
    write(refill, 2, 3)
    save(refill)
    disk.flip(PATH, disk.contents(PATH).index(snapshot_frame(0)) + 12)
    again = Refill.open(disk, PATH)
    assert pending_keys(again, A) == keys(2, 3)
    assert list(again.lost[0]) == [(0, 2)]
    assert any("cannot be decoded" in each.why for each in again.damage)
    with pytest.raises(UnknownShard):
        restored(again, key(1))
    assert restored(again, key(3)) == (snapshot_frame(2), [segment_frame(2)])


def test_a_lost_segment_of_a_typed_topic_takes_those_behind_it_up_to_a_snapshot() -> None:
    disk = MemoryDisk()
    refill = new_refill(disk, TYPED)
    refill.write_snapshot(0, snapshot_frame(0))
    write(refill, 0, 1, 2)
    refill.write_snapshot(0, snapshot_frame(3))
    write(refill, 3)
    save(refill)
    disk.flip(PATH, disk.contents(PATH).index(segment_frame(1)) + 25)
    assert pending_keys(Refill.open(disk, PATH), A) == keys(0, 3)
    with pytest.raises(UnknownSegment):  # the writer notices it when it reads
        refill.get(key(1))
    assert pending_keys(refill, A) == keys(0, 3)
    assert refill.read(key(2), 0) == [segment_frame(2)], "its bytes are well"


def test_rot_after_opening_is_found_when_it_is_read() -> None:
    disk = sample()
    refill = Refill.open(disk, PATH)
    disk.flip(PATH, disk.contents(PATH).index(segment_frame(1)) + 25)
    assert refill.read(key(0), 2**40) == [segment_frame(0)], "what stands before it is served"
    with pytest.raises(UnknownSegment):
        refill.get(key(1))
    assert key(1) not in pending_keys(refill, B) and len(refill.damage) == 1
    assert not refill.done()


def test_a_snapshot_that_rots_after_opening_is_not_handed_out() -> None:
    disk = sample(TYPED)
    refill = Refill.open(disk, PATH)
    disk.flip(PATH, disk.contents(PATH).index(snapshot_frame(0)) + 12)
    with pytest.raises(UnknownShard):
        restored(refill, key(1))
    assert pending_keys(refill, A) == [] and refill.damage


def test_a_bad_sector_beside_zeros_is_not_taken_for_a_torn_write() -> None:
    disk = MemoryDisk()
    refill = new_refill(disk)
    zeros = [segment_frame(n, payload=bytes(9000)) for n in range(3)]
    for number, frame in enumerate(zeros):
        refill.write_segment(key(number), frame)
    disk.spoil(PATH, 4096, 1)  # before anything was synced
    again = Refill.open(disk, PATH)
    assert sorted(served(again)) == keys(1, 2)
    assert list(again.lost[0]) == [(0, 1)] and again.torn_bytes == 0


def test_a_loss_of_unknown_segments_is_not_continued() -> None:
    disk = sample()
    disk.remove(PATH + NOTE_SUFFIX)  # it would name them
    content = disk.contents(PATH)
    third = content.index(segment_frame(2))
    for offset in range(third, third + 11):  # its header, and the STATUS that lists it
        disk.flip(PATH, offset, 6)
    listing = next(
        item
        for item in scan(disk.copy().open(PATH))
        if isinstance(item, Found) and item.frame.type == FrameType.STATUS and item.offset > third
    )
    disk.flip(PATH, listing.offset + 14)
    refill = Refill.open(disk, PATH, [A, B])
    assert refill.unnamed == 1 and refill.closed is not None
    assert not refill.continuable and "not known which" in refill.why_not_continuable


def test_a_hole_behind_the_last_status_that_nothing_names_is_counted() -> None:
    disk = MemoryDisk()
    refill = new_refill(disk)
    write(refill, 0, 1)
    third = disk.contents(PATH).index(segment_frame(0))
    for offset in range(third, third + 7):
        disk.flip(PATH, offset, 6)
    again = Refill.open(disk, PATH)
    assert pending_keys(again, A) == keys(1) and again.unnamed == 1 and not again.done()


def test_frames_between_two_damaged_places_count() -> None:
    disk = MemoryDisk()
    refill = new_refill(disk)
    write(refill, 0, 1, 2)
    save(refill)
    content = disk.contents(PATH)
    disk.flip(PATH, content.index(segment_frame(0)) + 25)
    third = content.index(segment_frame(2))
    for offset in range(third, third + 11):
        disk.flip(PATH, offset, 6)
    again = Refill.open(disk, PATH)
    assert pending_keys(again, A) == keys(1) and list(again.lost[0]) == [(0, 1), (2, 3)]


def test_a_file_whose_head_is_gone_raises() -> None:
    disk = sample()
    for offset in range(200):
        disk.flip(PATH, offset, 1)
    with pytest.raises(BadData, match="beginning"):
        Refill.open(disk, PATH)


# --- handles ------------------------------------------------------------------------------------------


def test_no_file_stays_open(tmp_path: Path) -> None:
    def open_files() -> int:
        return sum(
            os.path.realpath(f"/proc/self/fd/{fd}").startswith(str(tmp_path))
            for fd in os.listdir("/proc/self/fd")
        )

    disk = OsDisk(tmp_path)
    refill = new_refill(disk)
    write(refill, 0, 1)
    refill.close({0: 2})
    Refill.open(disk, PATH).release()
    opened = Refill.open(disk, PATH)
    opened.resume()
    write(opened, 2)
    opened.close(None)
    (tmp_path / "slot" / "bad.refill").write_bytes(b"nothing")
    with pytest.raises(BadData):
        Refill.open(disk, "slot/bad.refill")
    Refill.open(disk, PATH).remove(force=True)
    gc.collect()
    assert open_files() == 0
