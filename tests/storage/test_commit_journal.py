"""The commit journal puts all its commits, and nothing else, into their files after any crash."""

from __future__ import annotations

import pytest

from headpond.storage.commit_journal import (
    FOLDER,
    CommitRecord,
    begin_generation,
    commits_in,
    encode_commit,
    generation_path,
    replay,
    retire_generation,
    sync_generation,
)
from headpond.storage.memory_disk import Keep, MemoryDisk

SIZE = 4096
LOG = "topics/t/00000/a.log"
OTHER = "topics/t/00001/b.log"


def with_files(disk: MemoryDisk, *paths: str) -> None:
    for path in paths:
        file = disk.create(path)
        file.write_at(0, [bytes(64)])
        file.sync()
        disk.sync_folder(path.rpartition("/")[0])


def put(disk: MemoryDisk, generation: int, commits: list[CommitRecord], spare: int | None = None) -> None:
    """One round of a new generation, synced."""
    file = begin_generation(disk, generation, SIZE, spare)
    frames = [encode_commit(generation, path, offset, [data]) for path, offset, data in commits]
    file.write_at(0, frames)
    file.sync()
    file.close()


def held(disk: MemoryDisk, generation: int) -> list[CommitRecord]:
    return list(commits_in(disk.open(generation_path(generation)), generation))


def test_committed_writes_are_in_their_files_after_a_power_cut() -> None:
    disk = MemoryDisk()
    with_files(disk, LOG, OTHER)
    put(
        disk,
        1,
        [CommitRecord(LOG, 3, b"first"), CommitRecord(OTHER, 0, b"other"), CommitRecord(LOG, 8, b"second")],
    )
    for _ in range(2):
        disk.crash(keep="none")
        replay(disk)
        assert disk.contents(LOG)[3:14] == b"firstsecond"
        assert disk.contents(OTHER)[:5] == b"other"
        assert disk.list(FOLDER) == [], "all its commits are durable"


def test_a_later_generation_wins_over_an_earlier_one() -> None:
    disk = MemoryDisk()
    with_files(disk, LOG)
    put(disk, 9, [CommitRecord(LOG, 0, b"old")])
    put(disk, 10, [CommitRecord(LOG, 0, b"new")])
    assert replay(disk).writes == 2
    assert disk.contents(LOG)[:3] == b"new"


def test_a_dropped_file_is_skipped() -> None:
    disk = MemoryDisk()
    with_files(disk, LOG)
    put(disk, 1, [CommitRecord(OTHER, 0, b"gone"), CommitRecord(LOG, 0, b"here")])
    assert replay(disk).writes == 1
    assert not disk.exists(OTHER)


def test_frames_of_an_earlier_use_of_a_spare_file_do_not_count() -> None:
    disk = MemoryDisk()
    with_files(disk, LOG)
    put(disk, 1, [CommitRecord(LOG, number, b"%d" % number) for number in range(9)])
    retire_generation(disk, 1, reuse=True)
    assert replay(disk.copy()).writes == 0, "spare room holds nothing"
    put(disk, 2, [CommitRecord(LOG, 20, b"m")], spare=1)
    assert held(disk, 2) == [CommitRecord(LOG, 20, b"m")]


def test_a_torn_frame_ends_a_generation() -> None:
    disk = MemoryDisk()
    with_files(disk, LOG)
    commits = [CommitRecord(LOG, 0, b"a" * 30), CommitRecord(LOG, 30, b"b" * 30)]
    put(disk, 1, commits)
    size = len(encode_commit(1, LOG, 0, [b"a" * 30]))
    for offset in range(size, 2 * size):
        torn = disk.copy()
        torn.flip(generation_path(1), offset, 3)
        assert held(torn, 1) == commits[:1]


def test_a_rotten_frame_is_skipped_and_counted() -> None:
    disk = MemoryDisk()
    with_files(disk, LOG, OTHER)
    put(disk, 1, [CommitRecord(LOG, 0, b"rotten"), CommitRecord(OTHER, 0, b"sound")])
    disk.flip(generation_path(1), 50)
    found = replay(disk)
    assert (found.writes, found.damaged) == (1, 1)
    assert "damaged" in found.lines()[0]
    assert disk.contents(OTHER)[:5] == b"sound"


def test_doubtful_files_are_written_again_before_a_generation_retires() -> None:
    disk = MemoryDisk()
    with_files(disk, LOG, OTHER)
    put(disk, 1, [CommitRecord(LOG, 0, b"doubt"), CommitRecord(OTHER, 0, b"plain")])
    for path, data in ((LOG, b"doubt"), (OTHER, b"plain")):
        disk.open(path, writable=True).write_at(0, [data])
    disk.fail_next("sync", 5, 1, LOG)
    with pytest.raises(OSError, match="Input"):
        disk.open(LOG).sync()
    assert sync_generation(disk, 1, {LOG, OTHER}, {LOG}) == {LOG}
    retire_generation(disk, 1, reuse=True)
    disk.crash(keep="none")
    replay(disk)
    assert (disk.contents(LOG)[:5], disk.contents(OTHER)[:5]) == (b"doubt", b"plain")


@pytest.mark.parametrize("keep", ["none", "some", "all"])
def test_a_cut_at_every_operation_leaves_all_commits(keep: Keep) -> None:
    def work(disk: MemoryDisk, done: list[bytes]) -> None:
        spare = None
        for generation in range(1, 4):
            put(disk, generation, [CommitRecord(LOG, 5 * generation, b"%05d" % generation)], spare)
            done.append(b"%05d" % generation)
            disk.open(LOG, writable=True).write_at(5 * generation, [b"%05d" % generation])
            sync_generation(disk, generation, {LOG}, set())
            retire_generation(disk, generation, reuse=True)
            spare = generation

    for changes in range(80):
        disk = MemoryDisk(changes)
        with_files(disk, LOG)
        done: list[bytes] = []
        disk.cut_power_after(changes)
        try:
            work(disk, done)
        except OSError as error:
            assert "power" in str(error)
        disk.crash(keep=keep)
        disk.cut_power_after(changes % 7)  # and once more, while it is replayed
        try:
            replay(disk)
        except OSError as error:
            assert "power" in str(error)
        disk.crash(keep=keep)
        replay(disk)
        disk.crash(keep="none")
        for number, data in enumerate(done, 1):
            assert disk.contents(LOG)[5 * number : 5 * number + 5] == data
