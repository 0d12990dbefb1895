"""A folder that one process at a time uses."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from headpond.model.errors import RefillInUse
from headpond.storage.folder_lock import LOCK_NAME, FolderLock, holder, refill_root, state_folder

HOLD = """
import sys, pathlib
from headpond.storage.folder_lock import FolderLock
lock = FolderLock.take(pathlib.Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def hold_elsewhere(folder: Path) -> subprocess.Popen[bytes]:
    """Another process that holds a folder until it is killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None and process.stdout.readline() == b"held\n"
    return process


def test_a_folder_is_made_and_taken_once(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "slot"
    with FolderLock.take(folder):
        assert holder(folder) == os.getpid()
        with pytest.raises(RefillInUse, match=str(os.getpid())):
            FolderLock.take(folder)
    assert holder(folder) is None
    FolderLock.take(folder).release()


def test_a_full_disk_keeps_nobody_from_taking_a_folder_and_letting_go(tmp_path: Path) -> None:
    (tmp_path / LOCK_NAME).symlink_to("/dev/full")
    FolderLock.take(tmp_path).release()
    FolderLock.take(tmp_path).release()


def test_releasing_twice_is_no_fault(tmp_path: Path) -> None:
    lock = FolderLock.take(tmp_path)
    lock.release()
    other = FolderLock.take(tmp_path)
    lock.release()
    assert holder(tmp_path) == os.getpid()
    other.release()


def test_a_folder_without_a_lock_is_held_by_nobody(tmp_path: Path) -> None:
    assert holder(tmp_path) is None
    assert holder(tmp_path / "nowhere") is None
    assert list(tmp_path.iterdir()) == [], "asking leaves nothing behind"


def test_a_process_that_is_refused_learns_who_holds_the_folder(tmp_path: Path) -> None:
    with hold_elsewhere(tmp_path / "slot") as other:
        try:
            assert holder(tmp_path / "slot") == other.pid
            with pytest.raises(RefillInUse, match=str(other.pid)):
                FolderLock.take(tmp_path / "slot")
        finally:
            other.kill()


def test_a_folder_left_by_a_dead_process_is_taken_over(tmp_path: Path) -> None:
    with hold_elsewhere(tmp_path / "slot") as other:
        other.kill()
        other.wait()
        assert holder(tmp_path / "slot") is None
        with FolderLock.take(tmp_path / "slot"):
            assert holder(tmp_path / "slot") == os.getpid()


def test_asking_for_the_holder_does_not_keep_a_producer_out(tmp_path: Path) -> None:
    FolderLock.take(tmp_path).release()
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            assert holder(tmp_path) in (None, os.getpid(), 0)

    asking = [threading.Thread(target=ask) for _ in range(2)]
    for thread in asking:
        thread.start()
    try:
        for _ in range(50):
            FolderLock.take(tmp_path).release()
    finally:
        stop.set()
        for thread in asking:
            thread.join()


def test_a_lock_file_that_was_removed_meanwhile_locks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_open = os.open
    removed: list[Path] = []

    def open_then_lose(path: Path, *more: int) -> int:
        handle = real_open(path, *more)
        if not removed:
            removed.append(path)
            os.unlink(path)
        return handle

    monkeypatch.setattr(os, "open", open_then_lose)
    lock = FolderLock.take(tmp_path)
    assert removed and (tmp_path / LOCK_NAME).exists()
    with pytest.raises(RefillInUse):
        FolderLock.take(tmp_path)
    lock.release()


def test_no_handle_stays_open(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    lock = FolderLock.take(tmp_path)
    for _ in range(20):
        holder(tmp_path)
        with pytest.raises(RefillInUse):
            FolderLock.take(tmp_path)
    lock.release()
    assert len(os.listdir("/proc/self/fd")) == before


# --- the state folder ---------------------------------------------------------------------------------


def test_the_state_folder_is_the_one_named_or_the_users_own(tmp_path: Path) -> None:
    both = {"HEADPOND_STATE": "/state", "XDG_STATE_HOME": "/xdg"}
    assert state_folder("/given", both) == Path("/given")
    assert state_folder(None, both) == Path("/state")
    assert state_folder(None, {"HEADPOND_STATE": "", "XDG_STATE_HOME": "/xdg"}) == Path("/xdg/headpond")
    own = Path.home() / ".local" / "state" / "headpond"
    assert state_folder(None, {"XDG_STATE_HOME": "relative"}) == own
    assert state_folder(None, {}) == own
    assert refill_root(tmp_path) == tmp_path / "refill"
