"""The data folder of a node: its owner, its identity, and its free room."""

from __future__ import annotations

import errno
import re
from pathlib import Path

import pytest

from headpond.broker.settings import Settings
from headpond.model.errors import BadData, DiskFull
from headpond.node.data_folder import NODE_FILE, NodeDisk, lock_folder, open_error, open_identity
from headpond.node.process import run
from headpond.storage.memory_disk import MemoryDisk
from headpond.storage.os_disk import OsDisk


def test_a_folder_of_other_files_is_refused_and_not_touched(tmp_path: Path) -> None:
    (tmp_path / "holiday.jpg").touch()
    with pytest.raises(BadData):
        lock_folder(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["holiday.jpg"]


def test_a_file_in_the_place_of_the_folder_is_named_once(tmp_path: Path) -> None:
    file = tmp_path / "data"
    file.touch()
    with pytest.raises(BadData) as raised:
        lock_folder(file)
    assert raised.value.message == f"cannot use the data folder {file}: it is not a folder"


def test_the_free_room_is_the_last_measurement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = NodeDisk(tmp_path)
    room = disk.free_bytes()
    monkeypatch.setattr(OsDisk, "free_bytes", lambda self: 7)
    disk.measure(after_s=60.0)
    assert disk.free_bytes() == room > 7
    disk.measure()
    assert disk.free_bytes() == 7


def test_a_folder_on_a_full_disk_is_refused_with_the_file_the_room_and_the_way_out(tmp_path: Path) -> None:
    full = OSError(errno.ENOSPC, "No space left on device", "catalog/00000000.journal")
    error = open_error(tmp_path / "data", full)
    assert isinstance(error, DiskFull) and "catalog/00000000.journal" in error.message
    assert re.search(r"[\d,]+ bytes and [\d,]+ files are free", error.message)
    assert "df" in error.hint and "--data" in error.hint
    assert isinstance(open_error(tmp_path, OSError(errno.EACCES, "Permission denied")), BadData)


def test_a_folder_keeps_the_identity_of_its_node_and_a_damaged_one_is_refused() -> None:
    disk = MemoryDisk()
    first = open_identity(disk, node="n", now_us=1)
    assert open_identity(disk, node="other", now_us=2) == first
    disk.flip(NODE_FILE, 20)
    with pytest.raises(BadData, match="NODE"):
        open_identity(disk, node="n", now_us=1)


def test_a_node_that_was_killed_at_its_first_start_keeps_its_identity_through_a_power_cut() -> None:
    disk = MemoryDisk()
    open_identity(disk, node="n", now_us=1)
    content = disk.contents(NODE_FILE)
    disk = MemoryDisk()
    file = disk.create(NODE_FILE)  # the name is not synced: the process was killed before that
    file.write_at(0, [content])
    file.sync()
    file.close()
    assert open_identity(disk, node="other", now_us=2).node == "n"
    disk.crash()
    assert open_identity(disk, node="other", now_us=3).node == "n"


def test_a_node_without_a_cluster_refuses_the_folder_of_a_member(tmp_path: Path) -> None:
    (tmp_path / "cluster").mkdir()
    with pytest.raises(BadData, match="a cluster's member") as caught:
        run(Settings(data=str(tmp_path)))
    assert "--cluster" in caught.value.hint
    assert [path.name for path in tmp_path.iterdir() if path.name != "LOCK"] == ["cluster"]
