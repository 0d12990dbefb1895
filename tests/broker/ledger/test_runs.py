"""Runs of the node: which one it is, and whether the one before ended in good order."""

from __future__ import annotations

import errno

from headpond.broker.ledger.runs import COMPACT_BYTES, Runs
from headpond.storage.memory_disk import MemoryDisk


def begun(disk: MemoryDisk) -> Runs:
    runs = Runs(disk)
    runs.begin()
    return runs


def test_a_new_folder_begins_with_run_one_and_nothing_cut_short() -> None:
    runs = begun(MemoryDisk())
    assert (runs.number, runs.crashed) == (1, 0)
    assert runs.exact(1) and not runs.exact(0)


def test_a_run_that_closes_well_leaves_counts_exact() -> None:
    disk = MemoryDisk()
    begun(disk).close()
    runs = begun(disk)
    assert (runs.number, runs.crashed, runs.exact(1)) == (2, 0, True)


def test_a_run_that_is_cut_short_is_remembered_over_clean_ones() -> None:
    disk = MemoryDisk()
    begun(disk)
    disk.crash()
    runs = begun(disk)
    assert (runs.number, runs.crashed) == (2, 1)
    runs.close()
    runs = begun(disk)
    assert (runs.number, runs.crashed) == (3, 1)
    assert not runs.exact(1) and runs.exact(2)


def test_a_node_starts_when_the_note_of_its_run_fails_and_claims_nothing() -> None:
    disk = MemoryDisk()
    begun(disk).close()
    disk.fail_next("write", errno.ENOSPC, count=10, path_prefix="runs")
    runs = begun(disk)
    assert not runs.exact(runs.number)
    runs.close()


def test_the_journal_of_many_runs_stays_short() -> None:
    disk = MemoryDisk()
    for _ in range(400):
        begun(disk).close()
    sizes = [disk.open(f"runs/{name}").size() for name in disk.list("runs")]
    assert len(sizes) == 1 and sizes[0] < 2 * COMPACT_BYTES
    assert begun(disk).number == 401
