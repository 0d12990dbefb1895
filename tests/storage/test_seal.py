"""The seal of a clean stop: damage to a file that it covers is never taken for a torn write."""

from __future__ import annotations

import random

from headpond.storage.journal import FileJournal
from headpond.storage.memory_disk import MemoryDisk
from headpond.storage.seal import SEAL_FILE, Seal, SealedFile, read_seal, remove_seal, write_seal

FOLDER = "tokens"
PATH = f"{FOLDER}/00000001.journal"
FILES = [SealedFile(PATH, 1_234, 7), SealedFile("topics/ab/00000/00000000000000000000.log", 99, 5, 2)]


def test_a_seal_returns_its_files_until_it_is_removed() -> None:
    disk = MemoryDisk()
    assert not read_seal(disk).found
    write_seal(disk, FILES)
    disk.crash(keep="none")
    seal = read_seal(disk)
    assert seal.found and list(seal) == FILES and seal.faults == []
    assert seal.last_in(FOLDER) == seal.get(PATH) == FILES[0]
    assert seal.last_in("settlements") is None
    remove_seal(disk)
    disk.crash(keep="none")
    assert not read_seal(disk).found


def test_a_rotten_seal_vouches_for_what_it_can_and_says_what_it_cannot() -> None:
    whole = MemoryDisk()
    write_seal(whole, FILES)
    for offset in range(len(whole.contents(SEAL_FILE))):
        disk = whole.copy()
        disk.flip(SEAL_FILE, offset)
        seal = read_seal(disk)
        assert seal.found and all(file in FILES for file in seal)
        assert "SEAL" in seal.faults[0]


def test_a_seal_that_lost_its_end_says_so() -> None:
    disk = MemoryDisk()
    write_seal(disk, FILES)
    file = disk.open(SEAL_FILE, writable=True)
    file.truncate(len(disk.contents(SEAL_FILE)) - 50)
    assert any("1 of 2" in fault for fault in read_seal(disk).faults)


# --- a sealed journal -----------------------------------------------------------------------------------

BODIES = [b"%d " % number + random.Random(number).randbytes(30) for number in range(12)]


def closed_journal() -> tuple[MemoryDisk, Seal]:
    """A journal of four writes, closed in good order, and its seal."""
    disk = MemoryDisk()
    journal = FileJournal.open(disk, FOLDER)
    for number, body in enumerate(BODIES):
        journal.append(body)
        if number % 3 == 2:
            write = journal.take()
            assert write is not None
            write.run(disk)
            journal.committed(write)
    sealed = journal.close()
    assert sealed is not None
    return disk, Seal([sealed], found=True)


def test_a_journal_that_is_gone_is_reported_with_all_that_it_held() -> None:
    disk, seal = closed_journal()
    disk.remove(PATH)
    journal = FileJournal.open(disk, FOLDER, seal)
    (line,) = journal.report.lines()
    assert "00000001.journal" in line and "is missing" in line and "records 0 to 11 are lost" in line


def test_the_records_that_are_left_begin_a_sound_generation_which_the_seal_does_not_condemn() -> None:
    disk, seal = closed_journal()
    disk.open(PATH, writable=True).truncate(200)
    journal = FileJournal.open(disk, FOLDER, seal)
    left = list(journal.records)
    assert journal.close() is not None
    for again in (FileJournal.open(disk, FOLDER, seal), FileJournal.open(disk, FOLDER)):
        assert list(again.records) == left and again.report.lines() == []


def test_the_successor_of_a_missing_generation_agrees_with_the_seal() -> None:
    disk, _ = closed_journal()
    older = disk.contents(PATH)
    journal = FileJournal.open(disk, FOLDER)
    journal.compact([b"a long snapshot" * 100])
    sealed = journal.close()
    assert sealed is not None
    seal = Seal([sealed], found=True)
    disk.remove(sealed.path)
    file = disk.create(PATH)
    file.write_at(0, [older])
    repaired = FileJournal.open(disk, FOLDER, seal)
    assert list(repaired.records) == BODIES and repaired.report.lost
    repaired.close()
    again = FileJournal.open(disk, FOLDER, seal)
    assert list(again.records) == BODIES and again.report.lines() == []


def test_records_appended_after_the_seal_are_sound() -> None:
    disk, seal = closed_journal()
    journal = FileJournal.open(disk, FOLDER, seal)
    journal.append(b"since")
    journal.close()
    again = FileJournal.open(disk, FOLDER, seal)
    assert list(again.records) == [*BODIES, b"since"] and again.report.lines() == []


# --- without a seal ---------------------------------------------------------------------------------------


def test_after_a_crash_rot_at_the_end_is_damage_and_a_torn_write_is_not() -> None:
    whole, _ = closed_journal()
    size = len(whole.contents(PATH))
    for lost_bytes in range(1, 400, 3):
        disk = whole.copy()
        file = disk.open(PATH, writable=True)
        file.write_at(size - lost_bytes, [random.Random(lost_bytes).randbytes(lost_bytes)])
        file.preallocate(1 << 16)
        journal = FileJournal.open(disk, FOLDER)
        (damage,) = journal.report.damaged
        assert damage.offset <= size - lost_bytes and size - 1 <= damage.end <= size
        assert journal.report.lost == (damage.end - damage.offset > 31)
        assert list(journal.records) == BODIES[: len(list(journal.records))]
        torn = whole.copy()
        torn.open(PATH, writable=True).truncate(size - lost_bytes)
        assert FileJournal.open(torn, FOLDER).report.damaged == []


def test_a_record_that_follows_at_once_begins_the_first_generation() -> None:
    disk = MemoryDisk()
    for number in range(3):
        journal = FileJournal.open(disk, FOLDER)
        journal.ensure_file()
        journal.append(b"%d" % number)
        journal.close()
    assert list(FileJournal.open(disk, FOLDER).records) == [b"0", b"1", b"2"]
    assert disk.list(FOLDER) == ["00000001.journal"]


def test_a_journal_of_a_folder_in_use_always_has_a_file_so_a_missing_one_is_noticed() -> None:
    disk = MemoryDisk()
    seal = Seal()
    journal = FileJournal.open(disk, FOLDER, seal)
    journal.ensure_file()
    journal.close()
    assert disk.list(FOLDER) == ["00000000.journal"]
    seal.in_use = True
    journal = FileJournal.open(disk, FOLDER, seal)
    assert journal.report.lines() == [] and list(journal.records) == []
    journal.append(b"first")
    journal.close()
    assert disk.list(FOLDER) == ["00000001.journal"]
    assert list(FileJournal.open(disk, FOLDER, seal).records) == [b"first"]
    disk.remove_tree(FOLDER)
    gone = FileJournal.open(disk, FOLDER, seal)
    assert gone.report.lost and "missing" in gone.report.lines()[0]
