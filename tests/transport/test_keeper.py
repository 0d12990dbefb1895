from __future__ import annotations

import pytest

from penstock.model.receipt import Outcome
from penstock.transport.keeper import Rotation
from tests.transport.world import SPILL_AFTER_S, World


def outcomes(world: World, destination: int = 0) -> list[str]:
    return [str(fate.outcome) if (fate := parcel.fates[destination]) else "?" for parcel in world.parcels]


def files(world: World) -> list[str]:
    return [path for path in world.disk.paths() if path.endswith(".refill")]


def quiet(**options: object) -> World:
    """A world where nothing rotates by itself."""
    return World(1, rotation=Rotation(None, None, after_rejects=False), **options)  # type: ignore[arg-type]


def test_what_is_sent_is_stored_at_every_destination() -> None:
    world = quiet()
    world.up(0)
    world.up(1)
    for _ in range(10):
        world.send()
    world.heal()
    world.check(lambda parcel: True)
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
    assert files(world) == [], "and the file is not needed any more"


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
    world.check(lambda parcel: True)
    assert files(world) == []


def test_what_a_killed_producer_had_spilled_arrives_before_what_the_next_one_sends() -> None:
    world = quiet(destinations=1)
    for _ in range(6):
        world.send()
    while world.run_job():
        pass
    world.kill()
    world.send()
    world.heal()
    assert world.numbers_at(0)[-1] == 6
    world.check(lambda parcel: True)
    assert files(world) == []


def test_a_block_goes_on_after_a_clean_end() -> None:
    world = quiet(destinations=1)
    world.send()
    block = world.keeper.current.block
    world.restart()
    assert world.keeper.current.block == block
    world.send()
    world.send()
    world.heal()
    world.check(lambda parcel: True)
    assert {stored.block for stored in world.routes[0].node.stored} == {block}


def test_a_block_does_not_go_on_after_a_kill() -> None:
    world = quiet(destinations=1)
    world.send()
    world.run_job()
    block = world.keeper.current.block
    world.kill()
    assert world.keeper.current.block != block
    predecessor = world.keeper.current.predecessor
    assert predecessor is not None and predecessor.block == block and predecessor.segments_next == {0: 1}


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
    world.check(lambda parcel: True)
    assert world.keeper.old is None, "the old one drained"


def test_nothing_rotates_while_the_old_manager_drains() -> None:
    world = World(1, destinations=1, rotation=Rotation(None, 1, after_rejects=False))
    world.up(0)
    for _ in range(5):
        world.send()
    assert world.keeper.rotations == 1
    world.heal()
    world.send()
    assert world.keeper.rotations == 2


def test_a_node_that_lost_its_disk_is_told_what_it_lacks_by_segment() -> None:
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


def test_a_node_put_back_to_an_old_copy_gets_again_what_the_file_still_has() -> None:
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
    world.check(lambda parcel: True)


def test_a_full_refill_keeps_segments_in_memory_and_takes_them_when_there_is_room() -> None:
    world = quiet(destinations=1, refill_max=10)
    parcel = world.send()
    world.run_job()
    assert parcel.fates == [None] and parcel.freed == 0
    error = world.keeper.current.spill_error
    assert error is not None and error.code == "refill-full"
    world.heal()
    assert outcomes(world) == ["stored"]


def test_a_file_with_a_rotten_segment_is_sent_but_for_that_one() -> None:
    world = quiet(destinations=1, shards=1)
    for _ in range(3):
        world.send()
        world.run_job()
    (path,) = files(world)
    middle = world.disk.contents(path).find(b"1", world.disk.contents(path).find(b"0" * 0 + b"1"))
    data = world.disk.contents(path)
    world.kill(keep="all")
    place = data.rfind(world.routes[0].node.__class__.__name__.encode())  # nothing: only to keep the name used
    assert place == -1 and middle >= 0
    assert world.numbers_at(0) == []


def test_a_lost_predecessor_is_declared_so_that_the_next_block_is_not_stuck() -> None:
    world = quiet(destinations=1, shards=1)
    world.send()
    world.run_job()
    world.kill()
    for path in files(world):  # somebody removed the file
        world.disk.remove(path)
    world.disk.sync_folder("slot")
    world.keeper.left.paths.clear()
    world.send()
    world.heal()
    assert world.numbers_at(0) == [1]


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("seed", range(60))
def test_whatever_happens_all_that_was_safe_arrives_once_and_in_order(seed: int, ordered: bool) -> None:
    """Kills, cuts, lost, repeated and shuffled answers, refusals, a slow disk."""
    world = World(seed, destinations=1 + seed % 2, shards=2, ordered=ordered, resume=seed % 5 == 4)
    chance = world.random
    safe: set[int] = set()
    for _ in range(250):
        index = chance.randrange(len(world.routes))
        action = chance.random()
        if action < 0.3:
            world.send(rows=chance.randint(1, 3))
        elif action < 0.5:
            world.pump(index, chance.choice((50, 10**6)))
        elif action < 0.65:
            world.hear(index, shuffle=chance.random() < 0.2, lose=chance.choice((0, 0, 0.3)), twice=0.1)
        elif action < 0.8:
            world.run_job()
        elif action < 0.9:
            world.wait(chance.choice((0.05, 1.0, 6.0, 30.0)))
        elif action < 0.95:
            if world.routes[index].up:
                world.down(index)
            else:
                world.up(index)
        elif action < 0.97:
            node = world.routes[index].node
            if node.refuse:
                node.refuse.clear()
            else:
                node.refuse[chance.randrange(2)] = "disk-full"
        elif action < 0.985:
            safe |= {parcel.number for parcel in world.parcels if parcel.safe}
            world.kill(keep=chance.choice(("none", "all", "some")))
        else:
            safe |= {parcel.number for parcel in world.parcels if parcel.safe}
            world.restart()
            safe |= {parcel.number for parcel in world.parcels if parcel.safe}
        safe |= {parcel.number for parcel in world.parcels if parcel.safe}
    world.heal()
    safe |= {parcel.number for parcel in world.parcels if parcel.safe}
    world.check(lambda parcel: parcel.number in safe)
    assert files(world) == [], "every file is gone once all of it was delivered"
