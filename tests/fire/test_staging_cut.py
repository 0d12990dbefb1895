"""Power cuts and failing disks around staged writes: a batch is there completely and once, or not at all."""

from __future__ import annotations

import errno

import pytest

from headpond.storage.memory_disk import Keep, MemoryDisk, Operation
from tests.fire.staging_world import StagingWorld


@pytest.mark.parametrize("keep", ["none", "all", "some"])
@pytest.mark.parametrize("seed", range(8))
def test_power_cuts_leave_all_or_nothing_of_every_batch(seed: int, keep: Keep) -> None:
    world = StagingWorld(seed)
    for _ in range(4):
        for _ in range(world.random.randint(5, 60)):
            world.step()
        world.cut(keep)
        world.commit_again()
    assert world.faults == []
    assert any(batch.committed for batches in world.batches.values() for batch in batches)


def test_the_power_goes_off_at_every_change_of_the_disk() -> None:
    cuts = 0
    for changes in range(1, 400, 3):
        disk = MemoryDisk(changes)
        world = StagingWorld(7, disk)
        disk.cut_power_after(changes)
        for _ in range(30):
            if world.power_is_off:
                break
            world.step()
        else:
            break
        cuts += 1
        world.cut("some")
        world.commit_again()
        assert world.faults == [], changes
    assert cuts > 20


@pytest.mark.parametrize("operation", ["write", "sync", "create", "rename"])
@pytest.mark.parametrize("seed", range(4))
def test_a_disk_that_fails_now_and_then_loses_and_repeats_nothing(seed: int, operation: Operation) -> None:
    world = StagingWorld(seed)
    for after in range(6):
        world.disk.fail_next(operation, errno.EIO, after=after)
        for _ in range(25):
            world.step()
        world.settle()
    world.disk.fail_never()
    world.settle()
    world.check()
    world.cut("none")
    world.commit_again()
    assert world.faults == []
    assert any(batch.committed for batches in world.batches.values() for batch in batches)
