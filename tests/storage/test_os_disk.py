"""The real disk keeps the contract of all disks, and lets one process have a folder."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headpond.model.errors import DataLocked
from headpond.storage.os_disk import CALL_BYTES_MAX, OsDisk
from tests.storage.disks import DiskContract

HOLDER = """
import pathlib, sys
from headpond.storage.os_disk import OsDisk
OsDisk(pathlib.Path(sys.argv[1])).lock()
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def disk(tmp_path: Path) -> OsDisk:
    return OsDisk(tmp_path / "made" / "for" / "this")


class TestOsDisk(DiskContract):
    pass


def test_the_folders_above_are_synced_until_the_folder_itself_is_durable(
    disk: OsDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    fsync = os.fsync

    def recorded(handle: int) -> None:
        synced.append(str(Path(os.readlink(f"/proc/self/fd/{handle}")).relative_to(disk.root)))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", recorded)

    def syncs() -> list[str]:
        synced.clear()
        disk.sync_folder("deep/er")
        return synced[:]

    disk.create("deep/er/one").close()
    assert syncs() == ["deep/er", "deep", "."]
    disk.create("deep/er/two").close()
    assert syncs() == ["deep/er"]
    disk.remove_tree("deep/er")
    disk.create("deep/er/three").close()
    assert syncs() == ["deep/er", "deep"], "it is another folder of the same name"
    shutil.rmtree(disk.root / "deep")
    disk.create("deep/er/four").close()
    assert syncs() == ["deep/er", "deep", "."], "whoever removed it"


def test_a_folder_that_is_taken_names_the_process_that_has_it(disk: OsDisk) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(disk.root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout is not None and holder.stdout.readline() == b"locked\n"
        with pytest.raises(DataLocked, match=f"process {holder.pid}"):
            disk.lock()
    finally:
        holder.kill()
        holder.communicate()
    disk.lock()  # a process that died holds nothing
    assert (disk.root / "LOCK").read_text() == f"{os.getpid()}\n"


def test_a_folder_that_was_given_back_can_be_taken(disk: OsDisk) -> None:
    disk.lock()
    with pytest.raises(DataLocked):
        OsDisk(disk.root).lock()
    disk.unlock()
    other = OsDisk(disk.root)
    other.lock()
    other.unlock()


def test_a_short_write_continues(disk: OsDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    whole_write = os.pwritev
    monkeypatch.setattr(
        os, "pwritev", lambda handle, parts, offset: whole_write(handle, [b"".join(parts)[:5]], offset)
    )
    file = disk.create("file")
    assert file.write_at(2, [b"abc", b"defg", b"hi"]) == 9
    assert file.read_at(0, 20) == b"\0\0abcdefghi"


def test_no_call_writes_more_than_linux_takes_at_once_without_a_search(
    disk: OsDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    whole_write = os.pwritev

    def write(handle: int, parts: list[bytes], offset: int) -> int:
        sizes.append(sum(map(len, parts)))
        return whole_write(handle, parts, offset)

    monkeypatch.setattr(os, "pwritev", write)
    disk.create("file").write_at(0, [b"head", bytes(5 * CALL_BYTES_MAX // 2), b"end"])
    assert sizes == [CALL_BYTES_MAX, CALL_BYTES_MAX, CALL_BYTES_MAX // 2 + 7]


@pytest.mark.parametrize(("error", "raised"), [(errno.EOPNOTSUPP, False), (errno.ENOSPC, True)])
def test_a_disk_that_cannot_reserve_does_nothing_and_a_full_one_says_so(
    disk: OsDisk, monkeypatch: pytest.MonkeyPatch, error: int, raised: bool
) -> None:
    def refuse(*_: int) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    file = disk.create("file")
    if raised:
        with pytest.raises(OSError, match="space"):
            file.preallocate(100)
    else:
        file.preallocate(100)
    assert file.size() == 0


def test_paths_stay_below_the_root(disk: OsDisk) -> None:
    for path in ("/etc/passwd", "../outside", "a/../../b"):
        with pytest.raises(AssertionError, match="below the root"):
            disk.open(path)


def test_a_disk_that_is_full_names_the_file_and_keeps_nobody_from_the_lock(tmp_path: Path) -> None:
    file = OsDisk(Path("/dev")).open("full", writable=True)
    with pytest.raises(OSError, match="full") as caught:
        file.write_at(0, [b"x"])
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, "full")
    file.close()
    (tmp_path / "LOCK").symlink_to("/dev/full")
    disk = OsDisk(tmp_path)
    disk.lock()
    disk.unlock()
