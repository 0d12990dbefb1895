"""The commit journal puts all its commits, and nothing else, into their files after any crash."""

from __future__ import annotations

import pytest

from headpond.storage.commit_journal import (
    FOLDER,
    CommitRecord,
    ReplayReport,
    begin_generation,
    begin_round,
    commits_in,
    encode_commit,
    generation_path,
    remove_journal,
    replay,
    retire_generation,
    sync_generation,
)
from headpond.storage.disk import open_salvaged
from headpond.storage.memory_disk import Keep, MemoryDisk
from headpond.storage.seal import SealedFile

SIZE = 4096
LOG = "topics/t/00000/a.log"
OTHER = "topics/t/00001/b.log"


def with_files(disk: MemoryDisk, *paths: str) -> None:
    for path in paths:
        file = disk.create(path)
        file.write_at(0, [bytes(64)])
        file.sync()
        disk.sync_folder(path.rpartition("/")[0])


def put(
    disk: MemoryDisk, generation: int, *rounds: list[CommitRecord], spare: int | None = None
) -> list[tuple[int, int]]:
    """Rounds of a new generation, each synced; returns where each begins and ends."""
    file = begin_generation(disk, generation, SIZE, spare)
    places = []
    at = 0
    for commits in rounds:
        frames = [encode_commit(generation, path, offset, [data]) for path, offset, data in commits]
        frames.insert(0, begin_round(generation, at, [known(commit) for commit in commits], frames))
        end = at + file.write_at(at, frames)
        file.sync()
        places.append((at, end))
        at = end
    file.close()
    return places


def known(commit: CommitRecord) -> SealedFile:
    return SealedFile(commit.path, commit.offset + len(commit.data), commit.offset)


def held(disk: MemoryDisk, generation: int) -> tuple[list[CommitRecord], list[SealedFile]]:
    """What a generation holds, and what it knows to be lost."""
    found = ReplayReport()
    with open_salvaged(disk, generation_path(generation)) as file:
        return list(commits_in(file, generation, found)), found.lost


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


def test_a_spare_file_holds_nothing_of_its_earlier_use() -> None:
    disk = MemoryDisk()
    with_files(disk, LOG)
    [(_, end)] = put(disk, 1, [CommitRecord(LOG, number, b"%d" % number) for number in range(9)])
    retire_generation(disk, 1, end)
    assert replay(disk.copy()).writes == 0
    assert not any(disk.contents(f"{FOLDER}/00000001.spare"))
    put(disk, 2, [CommitRecord(LOG, 20, b"m")], spare=1)
    assert held(disk, 2) == ([CommitRecord(LOG, 20, b"m")], [])


def test_a_flipped_bit_loses_one_write_and_names_it() -> None:
    disk = MemoryDisk()
    with_files(disk, LOG, OTHER)
    first = [CommitRecord(LOG, 0, b"a" * 30), CommitRecord(OTHER, 0, b"b" * 600)]
    last = [CommitRecord(LOG, 30, b"c" * 30), CommitRecord(OTHER, 600, b"d" * 30)]
    [_, (_, end)] = put(disk, 1, first, last)
    assert held(disk, 1) == (first + last, [])
    for offset in range(end):
        rotten = disk.copy()
        rotten.flip(generation_path(1), offset, offset % 8)
        found, lost = held(rotten, 1)
        assert [commit for commit in first + last if commit in found or known(commit) in lost] == first + last
        assert len(found) + len(lost) == 4 and len(lost) <= 1, offset


def test_a_round_that_was_cut_short_is_no_damage() -> None:
    disk = MemoryDisk()
    with_files(disk, LOG, OTHER)
    first = [CommitRecord(LOG, 0, b"a" * 700), CommitRecord(OTHER, 0, b"b" * 30)]
    last = [CommitRecord(LOG, 700, b"c" * 700), CommitRecord(OTHER, 30, b"d" * 30)]
    [(_, start), (_, end)] = put(disk, 1, first, last)
    for cut in range(start, end):
        torn = disk.copy()
        torn.open(generation_path(1), writable=True).write_at(cut, [bytes(end - cut)])
        found, lost = held(torn, 1)
        assert found[:2] == first and lost == []
    for sector in range(-(-start // 512), -(-end // 512)):
        torn = disk.copy()
        torn.open(generation_path(1), writable=True).write_at(sector * 512, [bytes(512)])
        found, lost = held(torn, 1)
        assert found[:2] == first and lost == []


def test_the_journal_of_a_lost_write_stays_until_the_loss_is_recorded() -> None:
    disk = MemoryDisk()
    with_files(disk, LOG, OTHER)
    lost = CommitRecord(LOG, 0, b"rotten")
    put(disk, 1, [lost, CommitRecord(OTHER, 0, b"sound")])
    disk.flip(generation_path(1), disk.contents(generation_path(1)).index(b"rotten"))
    for _ in range(2):
        found = replay(disk)
        assert (found.writes, found.damaged, found.lost) == (1, 1, [known(lost)])
        assert "1 writes are damaged" in found.lines()[0]
        assert disk.contents(OTHER)[:5] == b"sound"
    remove_journal(disk)
    assert replay(disk) == ReplayReport()


def test_doubtful_files_are_written_again_before_a_generation_retires() -> None:
    disk = MemoryDisk()
    with_files(disk, LOG, OTHER)
    [(_, end)] = put(disk, 1, [CommitRecord(LOG, 0, b"doubt"), CommitRecord(OTHER, 0, b"plain")])
    for path, data in ((LOG, b"doubt"), (OTHER, b"plain")):
        disk.open(path, writable=True).write_at(0, [data])
    disk.fail_next("sync", 5, 1, LOG)
    with pytest.raises(OSError, match="Input"):
        disk.open(LOG).sync()
    assert sync_generation(disk, 1, {LOG, OTHER}, {LOG}) == {LOG}
    retire_generation(disk, 1, end)
    disk.crash(keep="none")
    replay(disk)
    assert (disk.contents(LOG)[:5], disk.contents(OTHER)[:5]) == (b"doubt", b"plain")


@pytest.mark.parametrize("keep", ["none", "some", "all"])
def test_a_cut_at_every_operation_leaves_all_commits(keep: Keep) -> None:
    def work(disk: MemoryDisk, done: list[bytes]) -> None:
        spare = None
        for generation in range(1, 4):
            commit = CommitRecord(LOG, 5 * generation, b"%05d" % generation)
            [(_, end)] = put(disk, generation, [commit], spare=spare)
            done.append(b"%05d" % generation)
            disk.open(LOG, writable=True).write_at(5 * generation, [b"%05d" % generation])
            sync_generation(disk, generation, {LOG}, set())
            retire_generation(disk, generation, end)
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
