"""The contract of all disks, as tests that the tests of each disk inherit."""

from __future__ import annotations

import random

import pytest

from headpond.storage.disk import Disk
from headpond.storage.os_disk import CALL_BYTES_MAX


class DiskContract:
    """The behaviour of the Disk protocol; ``disk`` is a fixture of the class that takes this in."""

    def test_bytes_are_read_where_they_were_written(self, disk: Disk) -> None:
        file = disk.create("a/b/file")
        assert file.write_at(0, [b"one", b"", b"two"]) == 6
        assert file.write_at(10, [b"x"]) == 1
        assert file.read_at(0, 100) == b"onetwo\0\0\0\0x"
        assert file.read_at(3, 2) == b"tw"
        assert file.read_at(50, 10) == b""
        assert file.size() == 11
        file.write_at(1, [b"N"])
        assert file.read_at(0, 3) == b"oNe"
        file.close()

    @pytest.mark.parametrize("large", [0, CALL_BYTES_MAX - 1, CALL_BYTES_MAX, 2 * CALL_BYTES_MAX + 1])
    def test_more_than_one_system_call_takes_is_written_in_order(self, disk: Disk, large: int) -> None:
        parts = [bytes((number % 251,)) * (number % 7) for number in range(5_000)]
        parts.insert(700, random.randbytes(large))
        file = disk.create("many")
        assert file.write_at(3, parts) == sum(map(len, parts))
        assert file.read_at(3, 1 << 22) == b"".join(parts)

    def test_an_open_file_sees_what_another_handle_writes(self, disk: Disk) -> None:
        writer = disk.create("file")
        reader = disk.open("file")
        writer.write_at(0, [b"new"])
        assert reader.read_at(0, 10) == b"new"

    def test_a_file_is_created_once(self, disk: Disk) -> None:
        disk.create("file").close()
        with pytest.raises(FileExistsError):
            disk.create("file")

    def test_a_file_that_is_not_there_cannot_be_opened_or_removed(self, disk: Disk) -> None:
        with pytest.raises(FileNotFoundError):
            disk.open("nothing")
        with pytest.raises(FileNotFoundError):
            disk.remove("nothing")
        assert not disk.exists("nothing")
        assert disk.list("no/such/folder") == []

    def test_a_file_opened_for_reading_is_not_written(self, disk: Disk) -> None:
        disk.create("file").close()
        with pytest.raises(OSError):  # noqa: PT011
            disk.open("file").write_at(0, [b"x"])
        disk.open("file", writable=True).write_at(0, [b"x"])
        assert disk.open("file").read_at(0, 5) == b"x"

    def test_reserved_room_reads_as_zeros_and_counts_as_size(self, disk: Disk) -> None:
        file = disk.create("file")
        file.write_at(0, [b"abc"])
        file.preallocate(4_096)
        assert file.size() == 4_096
        assert file.read_at(0, 5_000) == b"abc" + bytes(4_093)
        file.preallocate(10)
        assert file.size() == 4_096, "reserving less takes nothing away"
        file.truncate(2)
        assert file.read_at(0, 10) == b"ab"
        file.write_at(4, [b"e"])
        assert file.read_at(0, 10) == b"ab\0\0e", "what was cut off does not come back"

    def test_names_are_listed_sorted_with_folders(self, disk: Disk) -> None:
        for path in ("f/b", "f/a", "f/sub/deep", "g/x"):
            disk.create(path).close()
        assert disk.list("f") == ["a", "b", "sub"]
        assert disk.list("f/sub") == ["deep"]
        assert {"f", "g"} <= set(disk.list(""))
        assert disk.exists("f/a") and disk.exists("f/sub") and not disk.exists("f/c")

    def test_renaming_replaces_an_existing_file(self, disk: Disk) -> None:
        disk.create("f/old").write_at(0, [b"old"])
        file = disk.create("f/new")
        file.write_at(0, [b"new"])
        disk.rename("f/new", "f/old")
        assert disk.list("f") == ["old"]
        assert disk.open("f/old").read_at(0, 10) == b"new"
        file.write_at(3, [b"er"])
        assert disk.open("f/old").read_at(0, 10) == b"newer", "the open file is the renamed one"

    def test_a_removed_file_is_still_read_by_who_has_it_open(self, disk: Disk) -> None:
        file = disk.create("f/file")
        file.write_at(0, [b"kept"])
        disk.remove("f/file")
        assert disk.list("f") == [] and file.read_at(0, 10) == b"kept"

    def test_a_tree_is_removed_with_all_below_it(self, disk: Disk) -> None:
        for path in ("t/a", "t/b/c", "tail"):
            disk.create(path).close()
        disk.remove_tree("t")
        disk.remove_tree("t")  # nothing to do
        assert disk.list("t") == [] and disk.exists("tail")

    def test_syncing_leaves_what_is_seen_as_it_is(self, disk: Disk) -> None:
        file = disk.create("deep/er/file")
        file.write_at(0, [b"abc"])
        file.sync()
        disk.sync_folder("deep/er")
        assert file.read_at(0, 3) == b"abc" and disk.free_bytes() > 0

    def test_a_closed_file_is_of_no_use(self, disk: Disk) -> None:
        file = disk.create("file")
        file.close()
        file.close()  # twice is no fault
        with pytest.raises(OSError):  # noqa: PT011
            file.read_at(0, 1)
