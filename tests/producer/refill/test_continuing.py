"""When a block may be continued: the transport document's rules 1 to 2.2.4, one test each, and CLOSED."""

from __future__ import annotations

import pytest

from headpond.model.errors import BadRequest
from headpond.producer.refill.form import Rejection, Status, encode_rejections, encode_status
from headpond.producer.refill.refill import Refill
from headpond.storage.memory_disk import MemoryDisk
from tests.producer.refills import (
    PATH,
    TYPED,
    A,
    B,
    key,
    keys,
    new_refill,
    pending_keys,
    save,
    segment_frame,
    snapshot_frame,
    write,
)


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


def closed_file(disk: MemoryDisk) -> None:
    """Segments 0 to 9 were used; A has all, B has all before 6, and 6 to 9 are in the file."""
    refill = new_refill(disk)
    for segment in range(10):
        refill.ack(key(segment), A)
    for segment in range(6):
        refill.ack(key(segment), B)
    write(refill, 6, 7, 8, 9)
    refill.close({0: 10, 1: 0})


def test_rule_1_the_destinations_are_those_handed_over(disk: MemoryDisk) -> None:
    assert new_refill(disk, destinations=[B, A]).destinations == (B, A)


def test_rule_2_1_without_a_file_nobody_has_anything_yet(disk: MemoryDisk) -> None:
    refill = new_refill(disk)
    assert (refill.continuable, refill.closed, refill.segments_next) == (True, None, {})
    write(refill, 0)
    assert pending_keys(refill, A) == pending_keys(refill, B) == keys(0)


def test_rule_2_2_of_a_file_the_destinations_are_read(disk: MemoryDisk) -> None:
    closed_file(disk)
    assert Refill.open(disk, PATH).destinations == (A, B)
    assert Refill.open(disk, PATH, [A, B]).continuable


@pytest.mark.parametrize("others", [[A], [A, B, "headpond://c:7411"], [A, "headpond://c:7411"], []])
def test_rule_2_2_1_other_destinations_make_it_not_continuable(disk: MemoryDisk, others: list[str]) -> None:
    closed_file(disk)
    refill = Refill.open(disk, PATH, others)
    assert not refill.continuable
    assert A in refill.why_not_continuable
    with pytest.raises(BadRequest):
        refill.resume()


def test_rule_2_2_1_the_order_of_the_destinations_makes_no_difference(disk: MemoryDisk) -> None:
    closed_file(disk)
    assert Refill.open(disk, PATH, [B, A]).continuable


def test_rule_2_2_2_acknowledgements_are_those_of_the_files_destinations(disk: MemoryDisk) -> None:
    closed_file(disk)
    refill = Refill.open(disk, PATH, ["headpond://c:7411"])
    assert refill.destinations == (A, B)
    assert (pending_keys(refill, A), pending_keys(refill, B)) == ([], keys(6, 7, 8, 9))


def test_rule_2_2_3_the_last_status_counts(disk: MemoryDisk) -> None:
    refill = new_refill(disk)
    write(refill, 0, 1, 2)
    for segment in range(3):
        refill.ack(key(segment), A)
        save(refill)
    assert pending_keys(Refill.open(disk, PATH), A) == []
    refill.reject(key(1), A)
    save(refill)
    assert pending_keys(Refill.open(disk, PATH), A) == keys(1, 2), "also where it goes back"


def test_rule_2_2_4_all_that_is_not_confirmed_must_be_in_the_file(disk: MemoryDisk) -> None:
    refill = new_refill(disk)
    for segment in range(6):
        refill.ack(key(segment), A)
        refill.ack(key(segment), B)
    write(refill, 6, 7)
    refill.close({0: 10})
    again = Refill.open(disk, PATH, [A, B])
    assert not again.continuable
    assert "segments 8 to 9 of shard 0" in again.why_not_continuable


def test_rule_2_2_4_every_shard_is_asked(disk: MemoryDisk) -> None:
    refill = new_refill(disk)
    write(refill, 0)
    refill.close({0: 1, 1: 4})
    again = Refill.open(disk, PATH, [A, B])
    assert not again.continuable
    assert "segments 0 to 3 of shard 1" in again.why_not_continuable


def test_rule_2_2_4_a_refused_segment_need_not_be_there(disk: MemoryDisk) -> None:
    refill = new_refill(disk)
    write(refill, 0)
    for name in (A, B):
        refill.reject(key(1), name, "timeout")
    refill.close({0: 2})
    assert Refill.open(disk, PATH, [A, B]).continuable


def test_rule_2_2_4_a_damaged_segment_is_not_there(disk: MemoryDisk) -> None:
    closed_file(disk)
    at = disk.contents(PATH).index(segment_frame(8))
    disk.flip(PATH, at + 20)
    again = Refill.open(disk, PATH, [A, B])
    assert not again.continuable
    assert "segments 8 to 8 of shard 0" in again.why_not_continuable
    assert again.segments_next == {0: 10, 1: 0}, "the numbers are known all the same"


def test_rule_2_2_4_damage_to_confirmed_segments_does_not_matter(disk: MemoryDisk) -> None:
    refill = new_refill(disk)
    write(refill, 0, 1)
    for name in (A, B):
        refill.ack(key(0), name)
    refill.close({0: 2})
    disk.flip(PATH, disk.contents(PATH).index(segment_frame(0)) + 20)
    again = Refill.open(disk, PATH, [A, B])
    assert again.damage and again.continuable


def test_rule_2_2_4_a_typed_segment_that_cannot_be_decoded_is_not_there(disk: MemoryDisk) -> None:
    refill = new_refill(disk, TYPED)
    refill.write_snapshot(0, snapshot_frame(0))
    write(refill, 0, 1)
    refill.close({0: 2})
    assert Refill.open(disk, PATH, [A, B]).continuable
    disk.flip(PATH, disk.contents(PATH).index(snapshot_frame(0)) + 12)
    assert not Refill.open(disk, PATH, [A, B]).continuable


# --- CLOSED -------------------------------------------------------------------------------------------


def test_a_file_that_was_not_closed_is_not_continuable(disk: MemoryDisk) -> None:
    refill = new_refill(disk)
    write(refill, 0)
    save(refill)
    again = Refill.open(disk, PATH, [A, B])
    assert (again.continuable, again.closed) == (False, None)
    refill.close(None)
    assert not Refill.open(disk, PATH, [A, B]).continuable


def test_closed_is_synced_and_the_last_thing_in_the_file(disk: MemoryDisk) -> None:
    closed_file(disk)
    disk.crash(keep="none")
    refill = Refill.open(disk, PATH, [A, B])
    assert refill.closed == refill.segments_next == {0: 10, 1: 0}
    assert refill.continuable and refill.why_not_continuable == ""


def test_everything_before_closed_is_synced_before_closed_is_written(disk: MemoryDisk) -> None:
    closed_file(disk)
    changes = [each for each in disk.operations if not str(each[1]).endswith(".note")]
    path_operations = [each[0] for each in changes if each[0] in ("write", "sync")]
    assert path_operations[-4:] == ["write", "sync", "write", "sync"]


def test_closing_without_anything_spilled_makes_a_file_that_can_be_continued(disk: MemoryDisk) -> None:
    refill = new_refill(disk)
    for segment in range(3):
        refill.ack(key(segment), A)
        refill.ack(key(segment), B)
    refill.close({0: 3})
    again = Refill.open(disk, PATH, [A, B])
    assert again.continuable and again.done() and again.closed == {0: 3}


def test_closed_cannot_name_a_number_that_was_used(disk: MemoryDisk) -> None:
    refill = new_refill(disk)
    write(refill, 4)
    with pytest.raises(BadRequest):
        refill.close({0: 4})
    assert not Refill.open(disk, PATH, [A, B]).continuable


def test_resuming_consumes_closed_before_anything_else(disk: MemoryDisk) -> None:
    closed_file(disk)
    refill = Refill.open(disk, PATH, [A, B])
    with pytest.raises(BadRequest):
        write(refill, 10)  # not before it is resumed
    refill.resume()
    assert refill.closed is None and refill.segments_next == {0: 10}
    disk.crash(keep="none")
    again = Refill.open(disk, PATH, [A, B])
    assert not again.continuable and again.closed is None
    assert pending_keys(again, B) == keys(6, 7, 8, 9)
    with pytest.raises(BadRequest):
        again.resume()


def test_a_resumed_block_continues_and_can_be_closed_again(disk: MemoryDisk) -> None:
    closed_file(disk)
    refill = Refill.open(disk, PATH, [A, B])
    refill.resume()
    write(refill, 10, 11)
    refill.ack(key(10), A)
    refill.ack(key(11), A)
    refill.close({0: 12, 1: 0})
    again = Refill.open(disk, PATH, [A, B])
    assert again.continuable and again.segments_next == {0: 12, 1: 0}
    assert (pending_keys(again, A), pending_keys(again, B)) == ([], keys(*range(6, 12)))


def test_delivering_a_closed_file_without_resuming_consumes_closed(disk: MemoryDisk) -> None:
    closed_file(disk)
    refill = Refill.open(disk, PATH)
    refill.ack(key(6), B)
    save(refill)
    again = Refill.open(disk, PATH, [A, B])
    assert not again.continuable and pending_keys(again, B) == keys(7, 8, 9)


def test_closing_it_again_as_it_was_keeps_it_continuable(disk: MemoryDisk) -> None:
    closed_file(disk)
    refill = Refill.open(disk, PATH)
    refill.refuse_pending(B, "dropped")
    refill.close(refill.closed)
    again = Refill.open(disk, PATH, [A, B])
    assert again.continuable and again.done() and again.closed == {0: 10, 1: 0}


def test_closing_untouched_writes_nothing(disk: MemoryDisk) -> None:
    closed_file(disk)
    before = disk.contents(PATH)
    for ending in (None, {0: 10, 1: 0}):
        Refill.open(disk, PATH).close(ending)
        assert disk.contents(PATH) == before


def test_a_file_opened_to_be_delivered_takes_no_segments(disk: MemoryDisk) -> None:
    refill = new_refill(disk, TYPED)
    refill.write_snapshot(0, snapshot_frame(0))
    write(refill, 0)
    save(refill)
    again = Refill.open(disk, PATH)
    with pytest.raises(BadRequest):
        write(again, 1)
    with pytest.raises(BadRequest):
        again.write_snapshot(0, snapshot_frame(1))


def test_anything_behind_closed_undoes_it(disk: MemoryDisk) -> None:
    closed_file(disk)
    (reject,) = encode_rejections([Rejection(B, 0, 6, 7, "dropped")])
    for more in (segment_frame(10), snapshot_frame(10), reject):
        twin = disk.copy()
        file = twin.open(PATH, writable=True)
        file.write_at(file.size(), [more])  # and the process died before it wrote a STATUS
        again = Refill.open(twin, PATH, [A, B])
        assert again.closed is None and not again.continuable


def test_a_closed_that_names_a_used_number_is_not_believed(disk: MemoryDisk) -> None:
    refill = new_refill(disk)
    write(refill, 0, 1)
    save(refill)
    file = disk.open(PATH, writable=True)
    end = file.size()
    file.write_at(end, [encode_status(Status(end, segments_total=2, closed={0: 1}), end)])
    again = Refill.open(disk, PATH, [A, B])
    assert again.closed == {0: 1} and not again.continuable
    assert "continues shard 0 before segment 2" in again.why_not_continuable


def test_resuming_is_synced_whatever_the_durability(disk: MemoryDisk) -> None:
    closed_file(disk)
    Refill.open(disk, PATH, [A, B], durability="os").resume()
    disk.crash(keep="none")
    assert Refill.open(disk, PATH).closed is None
