"""The keeper with its managers, refill and destinations: a whole run of a producer."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest

from headpond.model.errors import TopicMismatch
from headpond.model.receipt import Outcome
from headpond.producer.keeper import Rotation
from headpond.producer.numbers import RESERVE
from headpond.producer.refill.refill import Refill
from headpond.producer.sender import SegmentHole
from headpond.wire.frame import FILE_BODY_BYTES_MAX, OVERHEAD_BYTES, Frame, FrameType, decode_at
from tests.producer.refills import keys, pending_keys
from tests.producer.world import SPILL_AFTER_S, World


def outcomes(world: World, destination: int = 0) -> list[str]:
    return [str(fate.outcome) if (fate := parcel.fates[destination]) else "?" for parcel in world.parcels]


def files(world: World) -> list[str]:
    return [path for path in world.disk.paths() if path.endswith(".refill")]


def frames_in(data: bytes) -> Iterator[tuple[int, Frame]]:
    """The frames of a file, and where they stand."""
    at = 0
    while (frame := decode_at(data, at, FILE_BODY_BYTES_MAX)) is not None:
        yield at, frame
        at += OVERHEAD_BYTES + len(frame.body)


def deliver(world: World) -> None:
    """Delivers everything that can be delivered, passes on all answers, and runs all disk jobs."""
    for _ in range(10):
        for index in range(len(world.routes)):
            world.pump(index)
            world.hear(index)
        while world.run_job():
            pass


def quiet(**options: object) -> World:
    """A world in which no block ends by time or size."""
    return World(1, rotation=Rotation(None, None, after_rejects=False), **options)  # type: ignore[arg-type]


def test_a_sent_segment_is_stored_at_every_destination() -> None:
    world = quiet()
    world.up(0)
    world.up(1)
    for _ in range(10):
        world.send()
    world.heal()
    world.check()
    assert outcomes(world, 0) == outcomes(world, 1) == ["stored"] * 10
    assert files(world) == []


def test_while_a_destination_was_never_there_segments_are_spilled_at_once() -> None:
    world = quiet(destinations=1)
    world.send()
    assert world.run_job()
    assert outcomes(world) == ["spilled"]
    assert len(files(world)) == 1


def test_a_destination_that_went_away_is_waited_for_before_segments_are_spilled() -> None:
    world = quiet(destinations=1)
    world.up(0)
    world.down(0)
    parcel = world.send()
    world.wait(SPILL_AFTER_S - 0.1)
    assert not world.run_job() and parcel.fates == [None]
    world.wait(0.2)
    assert world.run_job()
    assert outcomes(world) == ["spilled"] and parcel.freed == 1


def test_a_destination_that_comes_back_in_time_is_sent_from_memory() -> None:
    world = quiet(destinations=1)
    world.up(0)
    world.down(0)
    world.send()
    world.wait(1.0)
    world.heal()
    assert outcomes(world) == ["stored"] and files(world) == []


def test_a_node_that_never_answers_is_spilled_for_too() -> None:
    world = quiet(destinations=1)
    world.up(0)
    world.send()
    world.pump(0)
    world.wait(SPILL_AFTER_S)
    world.run_job()
    assert outcomes(world) == ["spilled"]
    world.hear(0)
    assert outcomes(world) == ["stored"], "the answer that came after all is heard"
    while world.run_job() or world.now < 1010:
        world.wait(1.0)
    assert files(world) == [], "and the file is no longer needed"


def test_one_destination_away_does_not_keep_the_other_from_its_answer() -> None:
    world = quiet()
    world.up(0)
    parcel = world.send()
    world.pump(0)
    world.run_job()
    assert parcel.fates[0] is None
    assert (fate := parcel.fates[1]) is not None and fate.outcome is Outcome.SPILLED
    world.hear(0)
    assert outcomes(world, 0) == ["stored"]
    world.heal()
    world.check()
    assert files(world) == []


def test_the_file_says_which_destination_had_a_segment_before_it_was_spilled() -> None:
    world = quiet(shards=1)
    world.up(0)
    world.up(1)
    world.down(1)
    world.send()
    deliver(world)
    world.wait(SPILL_AFTER_S)
    deliver(world)
    assert outcomes(world, 0) == ["stored"] and outcomes(world, 1) == ["spilled"]
    (path,) = files(world)
    assert [pending_keys(Refill.open(world.disk, path), name) for name in world.names] == [[], keys(0)]


def test_spilled_segments_of_a_killed_producer_arrive_before_those_of_the_next_one() -> None:
    world = quiet(destinations=1)
    for _ in range(6):
        world.send()
    while world.run_job():
        pass
    world.kill()
    world.send()
    world.heal()
    assert world.numbers_at(0)[-1] == 6
    world.check()
    assert files(world) == []


def test_a_block_continues_after_a_clean_end() -> None:
    world = quiet(destinations=1)
    world.send()
    block = world.keeper.current.block
    world.restart()
    assert world.keeper.current.block == block
    world.send()
    world.send()
    world.heal()
    world.check()
    assert {stored.block for stored in world.routes[0].node.stored} == {block}


def test_a_shutdown_rejects_all_that_is_open_and_takes_nothing_more() -> None:
    world = quiet(destinations=2, shards=1)
    world.up(0)
    world.up(1)
    parcel = world.send()
    world.pump(0)
    world.hear(0)
    world.close()
    assert [str(fate.outcome) for fate in parcel.fates if fate is not None] == ["stored", "spilled"]
    with pytest.raises(AssertionError):
        world.send()


def test_a_producer_that_closes_while_a_delivered_file_is_removed_leaves_another_one_in_good_order() -> None:
    world = quiet(destinations=1, shards=1)
    world.send()
    world.run_job()
    world.up(0)
    world.pump(0)
    world.run_job()  # reads the segment from the file
    world.pump(0)
    world.hear(0)  # all of the file is delivered: the job that removes it waits
    parcel, block = world.send(), world.keeper.current.block
    world.restart()
    assert parcel.safe and world.keeper.current.block == block


def test_a_block_does_not_continue_after_a_kill() -> None:
    world = quiet(destinations=1)
    world.send()
    world.run_job()
    block = world.keeper.current.block
    world.kill()
    assert world.keeper.current.block != block
    predecessor = world.keeper.current.predecessor
    assert predecessor is not None and predecessor.block == block and predecessor.segments_next == {0: 1}
    assert world.notices == [], "that is as it should be"


def test_a_block_is_not_continued_twice_when_the_second_run_is_killed() -> None:
    world = quiet(destinations=1)
    world.send()
    world.restart()
    block = world.keeper.current.block
    world.kill(keep="all")
    assert world.keeper.current.block != block, "CLOSED was consumed before anything was sent"


@pytest.mark.parametrize("rule", ["time", "size", "rejects"])
def test_a_block_ends_by_time_by_size_and_after_rejects(rule: str) -> None:
    rotation = Rotation(
        10.0 if rule == "time" else None, 60 if rule == "size" else None, after_rejects=rule == "rejects"
    )
    world = World(1, destinations=1, rotation=rotation)
    if rule != "rejects":
        world.up(0)
    first = world.keeper.current.block
    world.send()
    world.send()
    world.run_job()
    if rule == "rejects":
        world.up(0)
    world.wait(11.0 if rule == "time" else 0.1)
    world.send()
    assert world.keeper.current.block != first and world.keeper.rotations == 1
    world.heal()
    world.check()
    assert not world.keeper.draining, "the old one drained"


def test_nothing_rotates_while_the_old_manager_drains() -> None:
    world = World(1, destinations=1, rotation=Rotation(None, 1, after_rejects=False))
    world.up(0)
    for _ in range(5):
        world.send()
    assert world.keeper.rotations == 1
    world.heal()
    world.send()
    assert world.keeper.rotations == 2


@pytest.mark.parametrize(("ordered", "stored"), [(True, []), (False, [1])])
def test_a_block_waits_for_the_one_before_it_if_the_producer_keeps_the_order(
    ordered: bool, stored: list[int]
) -> None:
    world = World(1, destinations=1, rotation=Rotation(None, 1, after_rejects=False), ordered=ordered)
    world.up(0)
    world.routes[0].node.refuse[0] = "disk-full"
    world.send()
    world.send()
    assert world.keeper.rotations == 1
    deliver(world)
    assert world.numbers_at(0) == stored
    world.heal()
    world.check()


def test_the_segments_that_a_node_lost_with_its_disk_are_declared_and_named() -> None:
    world = quiet(destinations=1, shards=1)
    world.up(0)
    for _ in range(3):
        world.send()
    world.heal()
    world.down(0)
    world.routes[0].node = type(world.routes[0].node)()
    world.send()
    world.heal()
    block = world.keeper.current.block
    assert world.routes[0].node.holes == [(block, 0, 0, 3)]
    assert [(name, hole.start, hole.end) for name, _, hole in world.keeper.holes] == [(world.names[0], 0, 3)]
    assert world.numbers_at(0) == [3]


def test_a_node_put_back_to_an_old_copy_gets_the_segments_of_the_file_again() -> None:
    world = quiet(destinations=2, shards=1)
    world.up(0)
    for _ in range(3):
        world.send()
    while world.run_job():  # the other destination is away: all three stand in the file
        pass
    old = world.routes[0].node.copy()
    world.pump(0)
    world.hear(0)
    world.down(0)
    world.routes[0].node = old
    world.heal()
    assert world.numbers_at(0) == [0, 1, 2] and world.routes[0].node.holes == []


def test_refused_for_now_is_sent_again_in_order() -> None:
    world = quiet(destinations=1, shards=1)
    world.up(0)
    world.routes[0].node.refuse[0] = "disk-full"
    for _ in range(5):
        world.send()
    for _ in range(3):
        world.pump(0)
        world.hear(0)
        world.wait(0.5)
    assert world.numbers_at(0) == []
    world.heal()
    world.check()


def test_a_full_refill_keeps_segments_in_memory_and_takes_them_when_there_is_room() -> None:
    world = quiet(destinations=1, refill_max=10)
    parcel = world.send()
    world.run_job()
    assert parcel.fates == [None] and parcel.freed == 0
    error = world.keeper.current.spills.error
    assert error is not None and error.code == "refill-full"
    world.heal()
    assert outcomes(world) == ["stored"]


def test_a_file_with_a_rotten_segment_is_sent_but_for_that_one_which_is_named() -> None:
    world = quiet(destinations=1, shards=1)
    for _ in range(3):
        world.send()
        world.run_job()
    (path,) = files(world)
    world.kill(keep="all")
    data = world.disk.contents(path)
    frames = [frame.segment for _, frame in frames_in(data) if frame.type == FrameType.SEGMENT]
    assert frames == [0, 1, 2], "what is in the file before it rots"
    offset = next(at for at, frame in frames_in(data) if (frame.type, frame.segment) == (FrameType.SEGMENT, 1))
    world.disk.flip(path, offset + 20)
    world.heal()
    assert world.numbers_at(0) == [0, 2]
    (lost,) = world.keeper.lost
    assert "segment 1 of shard 0" in lost and f"{1:032x}" in lost
    assert [hole.end for _, _, hole in world.keeper.holes] == [2], "the node knows of it too"
    world.close()
    assert files(world) == [path], "the file stays until somebody drops it"


def test_a_segment_that_rots_while_the_producer_runs_is_named_and_the_others_are_sent() -> None:
    world = quiet(destinations=1, shards=1)
    for _ in range(3):
        world.send()
        world.run_job()
    (path,) = files(world)
    data = world.disk.contents(path)
    offset = next(at for at, frame in frames_in(data) if (frame.type, frame.segment) == (FrameType.SEGMENT, 1))
    world.disk.flip(path, offset + 20)
    world.heal()
    assert world.numbers_at(0) == [0, 2]
    assert any("segment 1 of shard 0 cannot be sent" in lost for lost in world.keeper.lost)


def test_a_predecessor_that_is_gone_is_declared_and_named_so_that_the_next_block_is_not_stuck() -> None:
    world = quiet(destinations=1, shards=1)
    for _ in range(2):
        world.send()
    world.run_job()
    world.kill()
    before = world.keeper.current.predecessor
    (path,) = files(world)  # it is removed behind the producer's back
    world.disk.remove(path)
    world.disk.sync_folder("slot")
    world.send()
    world.heal()
    assert world.numbers_at(0) == [2]
    assert before is not None
    assert world.keeper.holes == [(world.names[0], before.block, SegmentHole(0, 0, 2))]
    assert world.keeper.left.unreadable[0][0] == path


def test_a_new_destination_does_not_lack_segments_that_were_never_for_it() -> None:
    world = quiet(destinations=1, shards=1)
    world.send()
    world.run_job()
    world.kill()
    world.names = ("headpond://node-0", "headpond://node-1")
    world.everywhere["headpond://node-1"] = type(world.everywhere["headpond://node-0"])()
    world.kill()
    world.send()
    world.heal()
    assert (world.numbers_at(0), world.numbers_at(1)) == ([0, 1], [1])
    assert world.keeper.holes == []


def test_a_node_that_lost_its_disk_gets_an_earlier_block_again_as_far_as_a_file_has_it() -> None:
    """The other destination is unreachable, so the file of the old block still exists."""
    world = quiet(destinations=2, shards=1)
    world.up(0)
    for _ in range(3):
        world.send()
    deliver(world)
    world.kill()
    world.send()
    deliver(world)
    assert world.numbers_at(0) == [0, 1, 2, 3]
    world.lose_disk(0)
    world.send()
    world.heal()
    assert world.numbers_at(0) == [0, 1, 2, 3, 4] and world.keeper.holes == []
    world.check()


def test_segments_of_the_refill_that_a_destination_refuses_for_good_are_kept_and_named() -> None:
    world = quiet(destinations=1, shards=1)
    world.send()
    world.run_job()
    world.routes[0].node.refuse[0] = "conflict"
    world.up(0)
    deliver(world)
    assert outcomes(world) == ["rejected"]
    assert list(world.keeper.current.spills.refused) == [(world.names[0], "conflict")]
    world.restart()
    (path,) = files(world)
    world.routes[0].node.refuse.clear()
    world.heal()
    assert world.numbers_at(0) == [], "it is not sent again"
    assert files(world) == [path], "and stays until somebody drops it"


def test_a_destination_that_refuses_does_so_after_a_rotation_too_and_until_it_is_back() -> None:
    world = World(1, destinations=1, rotation=Rotation(None, 1, after_rejects=False))
    world.up(0)
    world.send()
    deliver(world)
    world.keeper.refuse(0, TopicMismatch("another topic"))
    world.send()
    assert world.keeper.rotations == 1 and outcomes(world) == ["stored", "rejected"]
    world.keeper.connected(0, world.now)
    world.send()
    world.heal()
    world.send()
    world.heal()
    assert world.keeper.rotations > 1, "a block that began since does not have the refusal"
    assert outcomes(world) == ["stored", "rejected", "stored", "stored"]


def test_files_go_by_the_order_of_their_blocks_whichever_was_written_first() -> None:
    world = World(1, destinations=2, shards=1, rotation=Rotation(None, 1, after_rejects=False))
    world.up(0)
    world.up(1)
    world.send()
    world.pump(0)
    world.hear(0)
    world.down(1)
    world.send()  # the first block drains, as one destination has not confirmed it
    assert world.keeper.rotations == 1 and world.keeper.draining
    for manager in (world.keeper.current, *world.keeper.draining):
        manager.hurry()
        while world.run_job():
            pass
    names = [path.rpartition("-")[2] for path in sorted(files(world))]
    assert names == [f"{1:032x}.refill", f"{2:032x}.refill"]
    world.kill()
    world.heal()
    assert world.numbers_at(1) == [0, 1]


def test_a_promise_learns_of_a_delivery_by_another_manager() -> None:
    world = World(1, destinations=1, shards=1, rotation=Rotation(10.0, None, after_rejects=False))
    parcel = world.send()
    world.run_job()
    assert outcomes(world) == ["spilled"]
    world.wait(11.0)
    while world.run_job():
        pass
    world.send()
    assert world.keeper.rotations == 1 and not world.keeper.draining, "its file was left to the refill sender"
    world.heal()
    assert outcomes(world) == ["stored", "stored"] and not parcel.forgotten


def test_promises_of_segments_that_are_still_spilled_in_the_end_are_forgotten() -> None:
    world = quiet(destinations=1)
    parcel = world.send()
    world.close()
    world.keeper.forget()
    assert outcomes(world) == ["spilled"] and parcel.forgotten


def test_segments_that_the_refill_has_no_room_for_stay_in_memory() -> None:
    world = quiet(destinations=1, shards=1, refill_max=400)
    parcels = [world.send(rows=3) for _ in range(5)]
    world.run_job()
    assert outcomes(world) == ["spilled"] * 3 + ["?"] * 2
    assert [parcel.freed for parcel in parcels] == [1, 1, 1, 0, 0]
    world.heal()
    world.check()
    assert world.keeper.current.spills.error is None, "it is no longer full"


def test_files_of_a_destination_that_was_taken_off_the_list_are_kept_and_named() -> None:
    world = quiet(destinations=2, shards=1)
    world.send()
    world.restart(world.names[:1])
    world.heal()
    (path,) = files(world)
    assert world.keeper.left.foreign == {"headpond://node-1": 1}
    assert world.numbers_at(0) == [0]
    world.restart(("headpond://node-0", "headpond://node-1"))
    world.heal()
    world.check()
    assert path not in files(world)


def test_a_block_that_cannot_be_resumed_because_of_the_disk_is_followed_by_a_new_one() -> None:
    world = quiet(destinations=1, shards=1)
    world.send()
    world.close()
    block = world.keeper.current.block
    world.disk.fail_next("write", errno.ENOSPC)
    world.start()
    assert world.keeper.current.block != block
    (notice,) = world.notices
    assert "is not continued" in notice
    world.send()
    world.heal()
    assert world.numbers_at(0) == [0, 1]


def test_a_kept_block_declares_the_numbers_that_a_kill_skipped() -> None:
    world = World(1, destinations=1, shards=1, resume=True)
    world.up(0)
    world.send()
    deliver(world)
    world.kill()
    world.send()
    world.heal()
    assert [(each.block, each.segment) for each in world.routes[0].node.stored] == [
        (b"f" * 16, 0),
        (b"f" * 16, RESERVE),
    ]
    assert world.keeper.holes == [(world.names[0], b"f" * 16, SegmentHole(0, 1, RESERVE))]


def test_a_kept_block_that_ended_in_good_order_skips_nothing() -> None:
    world = World(1, destinations=1, shards=1, resume=True)
    world.up(0)
    world.send()
    deliver(world)
    world.restart()
    world.send()
    world.heal()
    assert [each.segment for each in world.routes[0].node.stored] == [0, 1] and world.keeper.holes == []


# --- typed topics -------------------------------------------------------------------------------------


@pytest.mark.parametrize("spilled", [False, True])
def test_a_typed_topic_is_restored_over_a_reconnect(spilled: bool) -> None:
    world = quiet(destinations=1, shards=1, typed=True)
    if not spilled:
        world.up(0)
    for _ in range(3):
        world.send()
    deliver(world)
    world.up(0)
    world.pump(0, 1)
    world.hear(0)
    world.up(0)  # a new connection: the node's decoder is gone
    world.send()
    world.heal()
    assert world.numbers_at(0) == [0, 1, 2, 3] and world.keeper.holes == []


def test_a_typed_node_that_lost_its_disk_has_that_named_though_a_snapshot_would_hide_it() -> None:
    world = quiet(destinations=1, shards=1, typed=True)
    world.up(0)
    for _ in range(3):
        world.send()
    deliver(world)
    world.lose_disk(0)
    world.send()
    world.heal()
    block = world.keeper.current.block
    assert world.keeper.holes == [(world.names[0], block, SegmentHole(0, 0, 3))]
    assert world.numbers_at(0) == [3]


def test_a_typed_node_put_back_to_an_old_copy_gets_the_segments_of_the_file_again() -> None:
    world = quiet(destinations=2, shards=1, typed=True)
    world.up(0)
    world.send()
    deliver(world)
    world.back_up(0)
    for _ in range(3):
        world.send()
    deliver(world)
    assert world.numbers_at(0) == [0, 1, 2, 3]
    world.lose_disk(0)
    world.send()
    world.heal()
    assert world.numbers_at(0) == [0, 1, 2, 3, 4] and world.keeper.holes == []
    world.check()


def test_a_continued_typed_block_begins_a_new_dictionary_after_the_segments_of_its_file() -> None:
    world = quiet(destinations=1, shards=1, typed=True)
    for _ in range(3):
        world.send()
    world.restart()
    block = world.keeper.current.block
    for _ in range(3):
        world.send()
    world.run_job()
    world.heal()
    assert world.numbers_at(0) == list(range(6))
    assert {each.block for each in world.routes[0].node.stored} == {block}


@pytest.mark.parametrize("window_bytes", [150, 2000, 10**6])
def test_a_typed_snapshot_is_not_sent_ahead_of_earlier_segments(window_bytes: int) -> None:
    """Three runs with separate dictionaries in one file, and a fourth from memory."""
    world = quiet(destinations=1, shards=1, typed=True, window_bytes=window_bytes)
    for _ in range(3):
        for _ in range(4):
            world.send()
        world.restart()
    world.up(0)
    for _ in range(4):
        world.send()
    world.heal()
    assert world.numbers_at(0) == list(range(16))
    assert {each.block for each in world.routes[0].node.stored} == {world.keeper.current.block}
    assert world.routes[0].node.holes == [] and world.keeper.resent == 0


def test_a_typed_snapshot_does_not_overtake_segments_that_a_node_refused_for_a_while() -> None:
    world = quiet(destinations=1, shards=1, typed=True, window_bytes=10**6)
    for _ in range(4):
        world.send()
    world.restart()
    world.up(0)
    for _ in range(4):
        world.send()
    world.routes[0].node.refuse[0] = "disk-full"
    for _ in range(3):  # nothing is heard yet, so that all that may go does
        world.pump(0)
        world.run_job()
    world.routes[0].node.refuse.clear()
    world.pump(0)
    world.heal()
    assert world.numbers_at(0) == list(range(8)) and world.routes[0].node.holes == []


def test_a_typed_file_without_its_snapshot_is_named_and_not_sent() -> None:
    world = quiet(destinations=1, shards=1, typed=True)
    for _ in range(3):
        world.send()
        world.run_job()
    (path,) = files(world)
    world.kill(keep="all")
    data = world.disk.contents(path)
    offset = next(at for at, frame in frames_in(data) if frame.type == FrameType.SNAPSHOT)
    world.disk.flip(path, offset + 20)
    world.send()
    world.heal()
    assert world.numbers_at(0) == [3]
    assert any("segments 0–2 of shard 0" in lost for lost in world.keeper.lost)


def test_a_block_ends_while_its_file_has_room_for_the_segments_in_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headpond.producer.keeper.BLOCK_SEGMENTS_MAX", 3)
    world = World(1, destinations=1, rotation=Rotation(None, 10**9, after_rejects=False))
    for _ in range(10):
        world.send()
        while world.run_job():
            pass
    assert world.keeper.rotations >= 2 and outcomes(world) == ["spilled"] * 10
    world.heal()
    world.check()


# --- rows without a shard -----------------------------------------------------------------------------


def unknown(**options: object) -> World:
    """A world in which the first reachable destination names the number of shards."""
    return quiet(known=False, **options)


def blocks_at(world: World, destination: int = 0) -> list[bytes]:
    return list(dict.fromkeys(stored.block for stored in world.routes[destination].node.stored))


def test_rows_without_a_shard_in_the_file_and_in_memory_arrive_in_order_once_their_number_is_known() -> None:
    world = unknown(destinations=1, shards=4)
    for _ in range(8):
        world.send()
    world.run_job()
    assert outcomes(world) == ["spilled"] * 8
    in_memory = [world.send() for _ in range(8)]
    world.up(0)
    later = [world.send() for _ in range(4)]
    assert all(parcel.shard is None and parcel.parts for parcel in in_memory), "they are in the new block"
    assert all(parcel.shard is not None for parcel in later)
    world.heal()
    world.check()
    assert files(world) == [] and len(blocks_at(world)) == 2
    assert {part.shard for parcel in world.parcels[:8] for part in parcel.parts} == {0, 1, 2, 3}
    assert [
        part.fates[0] is not None and part.fates[0].outcome for p in world.parcels[:8] for part in p.parts
    ] == [Outcome.STORED] * 8, "a promise hears that its rows were delivered, though they got their shard later"


def test_rows_without_a_shard_have_no_number_and_never_reach_a_destination_without_one() -> None:
    world = unknown(destinations=2)
    parcel = world.send()
    world.run_job()
    assert (parcel.block, parcel.segment, outcomes(world)) == (b"", -1, ["spilled"])
    without_shards = world.keeper.current.block
    world.heal()
    world.check()
    assert without_shards not in blocks_at(world, 0) + blocks_at(world, 1)
    assert [(part.shard, part.segment) for part in parcel.parts] == [(0, 0)]


@pytest.mark.parametrize("steps", range(8))
@pytest.mark.parametrize("keep", ["none", "all"])
def test_a_producer_killed_while_its_rows_get_their_shards_sends_them_exactly_once(
    steps: int, keep: str
) -> None:
    world = unknown(destinations=1)
    for _ in range(6):
        world.send()
    world.run_job()
    world.up(0)
    for _ in range(steps):
        world.pump(0)
        world.run_job()
    world.kill(keep)
    world.send()
    world.heal()
    world.check()
    assert sorted(world.numbers_at(0)) == list(range(7)) and files(world) == []


@pytest.mark.parametrize("after", range(6))
def test_a_spill_that_failed_before_the_number_was_known_repeats_no_row(after: int) -> None:
    """The disk may have rows that count as unwritten; they get their number from memory."""
    world = unknown(destinations=1)
    for _ in range(3):
        world.send()
    world.disk.fail_next("write", errno.ENOSPC, after=after)
    world.run_job()
    world.up(0)
    world.send()
    world.heal()
    world.check()


def test_rows_for_which_the_refill_is_full_get_their_shards_from_memory() -> None:
    world = unknown(destinations=1, refill_max=300)
    for _ in range(10):
        world.send()
    world.run_job()
    assert "spilled" in outcomes(world) and "?" in outcomes(world)
    world.heal()
    world.check()


def test_rows_without_a_shard_use_and_give_back_no_number_of_a_block_that_all_runs_share() -> None:
    world = World(1, destinations=1, shards=1, resume=True, known=False)
    world.up(0)
    world.send()
    world.send()
    deliver(world)
    world.down(0)
    world.restart()
    world.send()
    world.restart()
    world.up(0)
    world.send()
    world.heal()
    world.check()
    shared = [each.segment for each in world.routes[0].node.stored if each.block == b"f" * 16]
    assert shared == [0, 1, 2], "the rows of the second run are in another block"


def test_files_of_earlier_runs_are_not_opened_before_the_number_of_shards_is_known() -> None:
    world = unknown(destinations=1)
    world.send()
    world.restart()
    while world.run_job():
        pass
    assert world.keeper.left.paths and not world.keeper.left.managers
    world.heal()
    world.check()


def test_a_disk_that_fails_while_rows_get_their_shards_delays_them_and_keeps_their_order() -> None:
    world = unknown(destinations=1, shards=1)
    for _ in range(3):
        world.send()
    world.run_job()
    world.up(0)
    world.disk.fail_next("rename", errno.EIO, count=2)
    world.send()
    deliver(world)
    assert world.numbers_at(0) == []
    world.disk.fail_never()
    world.heal()
    assert world.numbers_at(0) == [0, 1, 2, 3]
