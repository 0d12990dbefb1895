"""The folders of refill files: slots by topic and producer, files that sort by age."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headpond.model.errors import BadTopicName
from headpond.producer.refill.folder import (
    FileName,
    files,
    remove_unfinished,
    size_bytes,
    slot_name,
    slot_names,
    slots,
    slots_of,
)
from headpond.storage.disk import Disk
from headpond.storage.memory_disk import MemoryDisk
from headpond.storage.os_disk import OsDisk
from tests.producer.refills import BLOCK, new_refill, write

PART = st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9_-]{0,127}\Z")


@pytest.fixture(params=["memory", "os"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    return MemoryDisk() if request.param == "memory" else OsDisk(tmp_path)


def test_a_slot_can_be_read_and_is_the_same_for_a_bare_and_a_whole_name() -> None:
    slot = slot_name("orders", "till-1")
    assert slot.startswith("orders.till-1-")
    assert slot == slot_name("default/default/default/orders", "till-1")
    assert slot_name("a/b/c/d", "").startswith("a.b.c.d-")


def test_different_producers_and_topics_have_different_slots() -> None:
    pairs = [
        ("orders", "a.b"),
        ("orders", "a/b"),
        ("orders", "a b"),
        ("orders.a", "b"),
        ("orders", ""),
        ("x", ""),
    ]
    assert len({slot_name(*pair) for pair in pairs}) == len(pairs)
    assert slot_name("orders", "A").lower() != slot_name("orders", "a"), "also where the disk ignores case"


@settings(max_examples=100)
@given(topic=st.lists(PART, min_size=4, max_size=4), producer=st.text(max_size=300))
def test_any_producer_name_makes_a_slot_that_a_disk_takes_and_that_is_found(
    topic: list[str], producer: str
) -> None:
    slot = slot_name("/".join(topic), producer)
    assert len(slot) < 200 and "/" not in slot and not slot.startswith(".")
    disk = MemoryDisk()
    disk.create(f"{slot}/lock").close()
    assert slots(disk) == [slot]


def test_a_topic_that_has_no_name_has_no_slot() -> None:
    with pytest.raises(BadTopicName):
        slot_name("a/b", "p")


def test_more_processes_have_numbered_slots(disk: Disk) -> None:
    slot = slot_name("orders", "p")
    assert list(islice(slot_names(slot), 3)) == [slot, f"{slot}~2", f"{slot}~3"]
    for name in (f"{slot}~10", f"{slot}~2", slot, slot_name("orders", "q")):
        disk.create(f"{name}/lock").close()
    assert slots_of(disk, slot) == [slot, f"{slot}~2", f"{slot}~10"]
    assert len(slots(disk)) == 4


def test_files_come_oldest_first_and_other_things_are_left_alone(disk: Disk) -> None:
    names = [str(FileName(2_000, BLOCK)), str(FileName(10**16, bytes(16))), str(FileName(1_000, b"\xff" * 16))]
    for name in (*names, "lock", "topic", names[0] + ".new", "1-2.refill", names[0].upper(), "notes.txt"):
        disk.create(f"slot/{name}").close()
    assert files(disk, "slot") == [f"slot/{name}" for name in (names[2], names[0], names[1])]
    assert files(disk, "nowhere") == []


def test_files_of_a_disks_root_have_no_folder_in_their_path(disk: Disk) -> None:
    name = str(FileName(5, BLOCK))
    disk.create(name).close()
    assert files(disk, "") == [name]


def test_a_name_says_when_and_which_block() -> None:
    name = str(FileName(1_794_718_800_000_000, BLOCK))
    assert name == f"1794718800000000-{BLOCK.hex()}.refill"
    assert FileName.parse(name) == (1_794_718_800_000_000, BLOCK)
    for other in ("", "lock", name[1:], name + "x", name.replace(".refill", ".log"), "x" + name[1:]):
        assert FileName.parse(other) is None


def test_a_slots_size_is_that_of_its_refill_files(disk: Disk) -> None:
    total = 0
    for number in range(3):
        refill = new_refill(disk, path=f"slot/{FileName(number, BLOCK)}")
        write(refill, *range(number + 1))
        refill.close(None)
        total += refill.size_bytes
    disk.create("slot/topic").write_at(0, [b"x" * 1000])
    assert size_bytes(disk, "slot") == total > 0
    assert size_bytes(disk, "nowhere") == 0


def test_files_that_a_crash_left_unfinished_are_removed(disk: Disk) -> None:
    name = str(FileName(1, BLOCK))
    for each in (name, name + ".new", "topic.new", "other.refill.new"):
        disk.create(f"slot/{each}").close()
    remove_unfinished(disk, "slot")
    assert disk.list("slot") == sorted([name, "topic.new", "other.refill.new"])


def test_a_file_that_is_named_like_a_slot_is_no_slot(disk: Disk) -> None:
    slot = slot_name("orders", "p")
    disk.create(slot).close()
    assert [each for path in slots(disk) for each in files(disk, path)] == []
