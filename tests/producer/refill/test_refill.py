"""A refill stores segments, and which destination has them."""

from __future__ import annotations

import pytest

from headpond.model.errors import (
    BadData,
    BadFrame,
    BadRequest,
    Closed,
    Conflict,
    RefillFull,
    UnknownSegment,
    UnknownShard,
)
from headpond.producer.refill.form import Status, decode_body, encode_head
from headpond.producer.refill.refill import Refill
from headpond.storage.frame_file import Found, scan
from headpond.storage.memory_disk import MemoryDisk
from headpond.wire.frame import FrameType, encode
from tests.producer.refills import (
    BLOCK,
    PATH,
    PLAIN,
    ROWS,
    TYPED,
    A,
    B,
    key,
    keys,
    new_refill,
    pending_keys,
    restored,
    save,
    segment_frame,
    served,
    snapshot_frame,
    true_frame,
    write,
)


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


def frames(disk: MemoryDisk) -> list[Found]:
    return [item for item in scan(disk.open(PATH)) if isinstance(item, Found)]


def types(disk: MemoryDisk) -> list[str]:
    return [FrameType(each.frame.type).name for each in frames(disk)]


def test_nothing_is_on_the_disk_before_the_first_write(disk: MemoryDisk) -> None:
    refill = new_refill(disk)
    refill.ack(key(0), A)
    refill.reject(key(1), B)
    assert not refill.write_statuses()
    refill.sync()
    refill.close(None)
    assert disk.paths() == [] and refill.size_bytes == 0 and refill.done()


def test_a_file_begins_with_title_and_destinations_and_continues_with_events(disk: MemoryDisk) -> None:
    refill = new_refill(disk, TYPED)
    refill.write_snapshot(0, snapshot_frame(0))
    write(refill, 0)
    refill.reject(key(0), A)
    save(refill)
    assert types(disk) == ["TITLE", "DESTINATIONS", "SNAPSHOT", "SEGMENT", "REJECT", "STATUS", "STATUS"]
    assert disk.contents(PATH)[11 : 11 + 16] == BLOCK, "the title's first bytes are the block"


def test_a_file_that_has_its_name_begins_whole(disk: MemoryDisk) -> None:
    write(new_refill(disk), 0)
    disk.crash(keep="none")
    refill = Refill.open(disk, PATH)
    assert (refill.block, refill.shard_power, refill.title) == (BLOCK, 1, PLAIN)
    assert refill.destinations == (A, B) and refill.index.count == 0


def test_a_segment_comes_back_as_it_was_given(disk: MemoryDisk) -> None:
    refill = new_refill(disk)
    write(refill, 0, 1)
    write(refill, 7, shard=1)
    for each in (refill, Refill.open(disk, PATH)):
        assert served(each) == {k: true_frame(k) for k in [key(0), key(1), key(7, 1)]}
        assert each.size_bytes == len(disk.contents(PATH))
        assert each.index.rows == 3 * ROWS


def test_a_segment_that_is_not_there_is_unknown(disk: MemoryDisk) -> None:
    refill = new_refill(disk)
    for wanted in (key(0), key(0, 1)):
        with pytest.raises(UnknownSegment):
            refill.get(wanted)
    write(refill, 0, 2)
    with pytest.raises(UnknownSegment):
        refill.get(key(1))


def test_reading_stops_at_a_gap_or_at_the_number_of_bytes(disk: MemoryDisk) -> None:
    refill = new_refill(disk)
    write(refill, 3, 4, 5, 8)
    size = len(segment_frame(3))
    assert refill.read(key(3), 0) == [segment_frame(3)], "one is given in any case"
    assert refill.read(key(3), 2 * size) == [segment_frame(3), segment_frame(4)]
    assert refill.read(key(3), 2**40) == [segment_frame(n) for n in (3, 4, 5)]
    assert refill.read(key(8), 2**40) == [segment_frame(8)]
    with pytest.raises(UnknownSegment):
        refill.read(key(6), 100)


def test_segments_that_came_late_are_read_in_their_order(disk: MemoryDisk) -> None:
    refill = new_refill(disk)
    write(refill, 5, 6)
    write(refill, 0, shard=1)
    write(refill, 3, 4)
    assert refill.read(key(3), 2**40) == [segment_frame(n) for n in (3, 4, 5, 6)]
    assert pending_keys(Refill.open(disk, PATH), A) == [*keys(3, 4, 5, 6), key(0, 1)]


def test_a_segment_is_written_once(disk: MemoryDisk) -> None:
    refill = new_refill(disk)
    write(refill, 0)
    before = refill.size_bytes
    write(refill, 0)
    assert refill.size_bytes == before
    with pytest.raises(Conflict):
        refill.write_segment(key(0), segment_frame(0, payload=b"other"))
    assert refill.get(key(0)) == segment_frame(0)


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        segment_frame(0)[:-1],
        segment_frame(0) + b"x",
        segment_frame(1),
        segment_frame(0, 1),
        snapshot_frame(0),
    ],
    ids=["empty", "cut", "longer", "other segment", "other shard", "snapshot"],
)
def test_a_frame_that_is_not_the_named_segment_is_not_written(disk: MemoryDisk, frame: bytes) -> None:
    refill = new_refill(disk)
    with pytest.raises(BadFrame):
        refill.write_segment(key(0), frame)
    assert disk.paths() == []


def test_a_frame_that_was_altered_in_memory_is_not_written(disk: MemoryDisk) -> None:
    altered = bytearray(segment_frame(0))
    altered[15] ^= 1
    with pytest.raises(BadFrame):
        new_refill(disk).write_segment(key(0), bytes(altered))


# --- typed topics -------------------------------------------------------------------------------------


def test_a_typed_segment_needs_the_one_before_it_or_a_snapshot_at_it(disk: MemoryDisk) -> None:
    refill = new_refill(disk, TYPED)
    with pytest.raises(UnknownShard):
        write(refill, 4)
    refill.write_snapshot(0, snapshot_frame(4))
    with pytest.raises(UnknownShard):
        write(refill, 5)
    write(refill, 4, 5)
    with pytest.raises(UnknownShard):
        write(refill, 7)
    with pytest.raises(UnknownShard):
        write(refill, 4, shard=1)


def test_a_plain_segment_needs_nothing(disk: MemoryDisk) -> None:
    refill = new_refill(disk)
    write(refill, 9, 4)
    assert restored(refill, key(9)) == (None, [])
    assert restored(refill, key(100)) == (None, [])


def test_restoring_gives_the_last_snapshot_and_the_segments_after_it(disk: MemoryDisk) -> None:
    made = new_refill(disk, TYPED)
    made.write_snapshot(0, snapshot_frame(4))
    write(made, 4, 5, 6)
    made.write_snapshot(0, snapshot_frame(10))
    write(made, 10, 11)
    for refill in (made, Refill.open(disk, PATH)):
        assert restored(refill, key(4)) == (snapshot_frame(4), [])
        assert restored(refill, key(6)) == (snapshot_frame(4), [segment_frame(4), segment_frame(5)])
        assert restored(refill, key(7)) == (snapshot_frame(4), [segment_frame(n) for n in (4, 5, 6)])
        assert restored(refill, key(12)) == (snapshot_frame(10), [segment_frame(10), segment_frame(11)])
        assert refill.restore_from(key(6)) == (snapshot_frame(4), 4)
        for unreachable in (key(3), key(8), key(9), key(13), key(4, 1)):
            with pytest.raises(UnknownShard):
                restored(refill, unreachable)


# --- what the destinations have -----------------------------------------------------------------------


def test_all_is_pending_for_everyone_until_it_is_confirmed(disk: MemoryDisk) -> None:
    refill = new_refill(disk)
    write(refill, 0, 1)
    assert pending_keys(refill, A) == pending_keys(refill, B) == keys(0, 1)
    refill.ack(key(0), A)
    assert (pending_keys(refill, A), pending_keys(refill, B)) == (keys(1), keys(0, 1))
    assert not refill.done()
    for each in keys(0, 1):
        refill.ack(each, A)
        refill.ack(each, B)
    assert refill.done() and pending_keys(refill, A) == []


def test_acks_are_in_memory_until_the_statuses_are_written(disk: MemoryDisk) -> None:
    refill = new_refill(disk)
    write(refill, 0, 1)
    save(refill)
    size = refill.size_bytes
    refill.ack(key(0), A)
    assert refill.size_bytes == size
    assert pending_keys(Refill.open(disk, PATH), A) == keys(0, 1)
    assert refill.write_statuses()
    assert pending_keys(Refill.open(disk, PATH), A) == keys(1)


def test_a_status_is_written_only_when_it_differs(disk: MemoryDisk) -> None:
    refill = new_refill(disk)
    write(refill, 0, 1, 2)
    assert refill.write_statuses()
    assert not refill.write_statuses()
    refill.ack(key(1), A)
    assert not refill.write_statuses(), "the last confirmed segment is where it was: 0 is missing"
    refill.ack(key(0), A)
    assert refill.write_statuses()
    (last,) = [decode_body(each.frame.body, Status) for each in frames(disk)[-1:]]
    assert last.confirmed == {A: {0: 2}, B: {}}


def test_segments_that_were_never_in_the_file_do_not_hold_a_status_back(disk: MemoryDisk) -> None:
    refill = new_refill(disk)
    write(refill, 100, 101)
    refill.ack(key(100), A)
    save(refill)
    assert pending_keys(Refill.open(disk, PATH), A) == keys(101)


def test_a_segment_written_behind_the_status_that_would_cover_it_is_sent(disk: MemoryDisk) -> None:
    refill = new_refill(disk)
    write(refill, 5)
    for segment in (5, 6, 7):
        refill.ack(key(segment), A)
    save(refill)
    write(refill, 2)
    refill.sync()  # and the process dies before it writes the statuses
    assert pending_keys(Refill.open(disk, PATH), A) == keys(2)


def test_a_segment_that_a_destination_had_before_it_was_written_is_not_sent_again(
    disk: MemoryDisk,
) -> None:
    refill = new_refill(disk)
    for segment in range(10):
        refill.ack(key(segment), A)
    write(refill, 5, 6)
    save(refill)
    write(refill, 7, 8)
    save(refill)
    again = Refill.open(disk, PATH)
    assert (pending_keys(again, A), pending_keys(again, B)) == ([], keys(5, 6, 7, 8))


def test_a_rejected_segment_is_sent_again_and_stands_open_until_it_is_covered(disk: MemoryDisk) -> None:
    refill = new_refill(disk)
    write(refill, 0, 1, 2)
    for segment in range(3):
        refill.ack(key(segment), A)
    refill.write_statuses()
    refill.reject(key(1), A)
    assert pending_keys(refill, A) == keys(1)
    save(refill)
    again = Refill.open(disk, PATH)
    assert set(keys(1)) <= set(pending_keys(again, A))
    for each in pending_keys(again, A):
        again.ack(each, A)
    again.close(None)
    assert pending_keys(Refill.open(disk, PATH), A) == []


def test_a_segment_refused_for_good_is_named_and_never_sent_again(disk: MemoryDisk) -> None:
    refill = new_refill(disk)
    write(refill, 0, 1, 2)
    refill.reject(key(1), A, "bad-segment", "no batch")
    refill.reject(key(1), A)  # too late
    refill.ack(key(1), A)
    refill.ack(key(0), A)
    save(refill)
    for each in (refill, Refill.open(disk, PATH)):
        assert pending_keys(each, A) == keys(2)
        (refusal,) = each.claims.refusals
        assert (refusal.destination, refusal.first, refusal.end) == (A, 1, 2)
        assert (refusal.code, refusal.message) == ("bad-segment", "no batch")
        assert each.tally(A) == (1, 1, 1, 0)
        assert each.tally(B) == (3, 0, 0, 0)


def test_refusals_are_written_once_and_runs_of_them_as_one(disk: MemoryDisk) -> None:
    refill = new_refill(disk)
    write(refill, *range(50))
    for segment in range(50):
        refill.reject(key(segment), A, "dropped")
        refill.reject(key(segment), B)
    save(refill)
    assert types(disk).count("REJECT") == 1
    assert len(refill.claims.refusals) == 1
    size = refill.size_bytes
    save(refill)
    assert refill.size_bytes == size


def test_a_destination_that_is_not_the_refills_is_an_error(disk: MemoryDisk) -> None:
    refill = new_refill(disk)
    for call in (refill.ack, refill.reject):
        with pytest.raises(BadRequest):
            call(key(0), "headpond://c:7411")
    with pytest.raises(BadRequest):
        pending_keys(refill, "headpond://c:7411")


def test_the_next_segments_are_one_past_all_that_was_seen(disk: MemoryDisk) -> None:
    refill = new_refill(disk, shard_power=2)
    write(refill, 4)
    refill.ack(key(6, 1), A)
    refill.reject(key(9, 2), B)
    save(refill)
    assert refill.segments_next == {0: 5, 1: 7, 2: 10}
    assert Refill.open(disk, PATH).segments_next == {0: 5, 1: 7, 2: 10}


# --- the file's life ----------------------------------------------------------------------------------


def test_only_a_delivered_file_is_removed_unless_it_is_forced(disk: MemoryDisk) -> None:
    refill = new_refill(disk)
    write(refill, 0)
    with pytest.raises(BadRequest):
        refill.remove()
    refill.ack(key(0), A)
    refill.reject(key(0), B, "bad-segment")
    refill.remove()
    assert disk.paths() == []
    disk.crash(keep="none")
    assert disk.paths() == [], "the removal is durable"
    again = new_refill(disk)
    write(again, 0)
    again.remove(force=True)
    assert disk.paths() == [] and again.size_bytes == 0


def test_a_closed_refill_is_of_no_use(disk: MemoryDisk) -> None:
    refill = new_refill(disk)
    write(refill, 0)
    refill.close(None)
    refill.close(None)
    refill.ack(key(0), A)
    for call in (lambda: refill.get(key(0)), lambda: write(refill, 1), refill.write_statuses):
        with pytest.raises(Closed):
            call()


def test_opening_changes_nothing_on_the_disk(disk: MemoryDisk) -> None:
    refill = new_refill(disk)
    write(refill, 0, 1)
    refill.close({0: 2})
    disk.open(PATH, writable=True).write_at(refill.size_bytes, [b"\1torn"])
    before, done = disk.contents(PATH), len(disk.operations)
    opened = Refill.open(disk, PATH)
    assert served(opened) and opened.torn_bytes == 5
    opened.close(None)
    assert disk.contents(PATH) == before
    assert {operation for operation, *_ in disk.operations[done:]} == {"open", "read"}


def test_a_refill_is_not_made_over_another(disk: MemoryDisk) -> None:
    write(new_refill(disk), 0)
    with pytest.raises(BadRequest):
        new_refill(disk)


def test_two_that_were_made_at_the_same_path_do_not_overwrite_one_another(disk: MemoryDisk) -> None:
    one, other = new_refill(disk), new_refill(disk)
    write(one, 0)
    with pytest.raises(BadRequest):
        write(other, 1)
    assert pending_keys(Refill.open(disk, PATH), A) == keys(0)


def test_a_file_that_is_no_refill_raises(disk: MemoryDisk) -> None:
    with pytest.raises(BadRequest):
        Refill.open(disk, PATH)
    for content in (b"", b"GIF89a" * 100, encode(FrameType.TITLE, b"short"), encode(FrameType.MARKS, b"")):
        path = f"slot/{len(content)}.refill"
        disk.create(path).write_at(0, [content])
        with pytest.raises(BadData):
            Refill.open(disk, path)


def test_destinations_are_needed_once_each(disk: MemoryDisk) -> None:
    for wrong in ([], [A, A]):
        with pytest.raises(BadRequest):
            new_refill(disk, destinations=wrong)


def test_frames_of_a_newer_version_are_skipped(disk: MemoryDisk) -> None:
    import msgspec

    refill = new_refill(disk)
    write(refill, 0, 1)
    refill.ack(key(0), A)
    save(refill)
    (status,) = [each for each in frames(disk) if each.frame.type == FrameType.STATUS][:1]
    fields = msgspec.msgpack.decode(status.frame.body, strict=False)
    newer = msgspec.msgpack.encode([*fields, "a field of tomorrow", {"more": 1}])
    file = disk.open(PATH, writable=True)
    end = file.size()
    unknown = encode(200, b"a frame of tomorrow")
    file.write_at(end, [unknown, encode(FrameType.STATUS, newer, segment=end + len(unknown))])
    again = Refill.open(disk, PATH)
    assert (pending_keys(again, A), again.damage) == (keys(1), [])


def test_the_head_names_the_destinations_in_their_order(disk: MemoryDisk) -> None:
    title, names = encode_head(BLOCK, 1, PLAIN, [B, A])
    file = disk.create(PATH)
    file.write_at(0, [title, names])
    assert Refill.open(disk, PATH).destinations == (B, A)


# --- limits -------------------------------------------------------------------------------------------


def test_more_segments_than_an_index_holds_are_refused(
    disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headpond.producer.refill.refill.SEGMENTS_MAX", 3)
    refill = new_refill(disk)
    write(refill, 0, 1, 2)
    with pytest.raises(RefillFull):
        write(refill, 3)
    monkeypatch.setattr("headpond.producer.refill.scan.SEGMENTS_MAX", 2)
    again = Refill.open(disk, PATH)
    assert again.index.count == 2 and again.damage and not again.done()


def test_a_reject_whose_status_was_never_written_counts_all_the_same(disk: MemoryDisk) -> None:
    refill = new_refill(disk)
    write(refill, 0, 1, 2)
    for segment in range(3):
        refill.ack(key(segment), A)
    save(refill)
    refill.reject(key(1), A)
    refill.write_statuses()
    reject = next(each for each in frames(disk) if each.frame.type == FrameType.REJECT)
    disk.open(PATH, writable=True).truncate(reject.end)
    assert pending_keys(Refill.open(disk, PATH), A) == keys(1)
