"""The active member's disk shows every change at once, and changes the folder only when the stream has it."""

from __future__ import annotations

from random import Random

import pytest

from headpond.storage.memory_disk import MemoryDisk
from tests.cluster.folders import FolderDisk, Rig, change, contents


@pytest.mark.parametrize("seed", range(300))
def test_readers_see_every_change_whatever_the_stream_has_confirmed(seed: int) -> None:
    chance, plain, rig = Random(seed), MemoryDisk(), Rig()
    for _ in range(60):
        state = chance.getstate()
        change(plain, chance)
        chance.setstate(state)
        change(rig.disk, chance)
        if chance.random() < 0.4:
            rig.send()
        if chance.random() < 0.4:
            rig.confirm(chance.randrange(4))
        assert contents(rig.disk) == contents(plain)
        assert rig.disk.paths() == plain.paths()
        assert set(rig.disk.list("f")) - {"g"} == set(plain.list("f")) - {"g"}  # empty folders may be there
    rig.send()
    rig.confirm()
    assert contents(rig.base) == contents(plain) == contents(rig.disk)


def test_the_folder_has_nothing_that_the_stream_has_not_confirmed() -> None:
    rig = Rig()
    rig.disk.create("a").write_at(0, [b"text"])
    rig.send()
    assert contents(rig.disk) == {"a": b"text"}
    assert contents(rig.base) == {}
    rig.confirm()
    assert contents(rig.base) == {"a": b"text"}


def test_a_job_ends_when_the_stream_has_confirmed_all_that_it_changed() -> None:
    rig, ended = Rig(), list[object]()
    rig.disk.when_durable(ended.append)
    assert ended == [None]
    file = rig.disk.create("a")
    file.write_at(0, [b"text"])
    file.sync()
    rig.disk.when_durable(ended.append)
    rig.send()
    assert len(ended) == 1
    rig.confirm()
    assert ended == [None, None]


def test_a_file_that_is_removed_stays_readable_for_those_that_have_it_open() -> None:
    for confirmed in (False, True):
        rig = Rig()
        file = rig.disk.create("a")
        file.write_at(0, [b"text"])
        if confirmed:
            rig.send()
            rig.confirm()
        rig.disk.remove("a")
        rig.disk.create("a").close()
        rig.send()
        rig.confirm()
        assert file.read_at(0, 10) == b"text"
        file.close()


def test_a_change_larger_than_a_record_is_spread_over_several() -> None:
    rig = Rig()
    data = Random(1).randbytes(3_000_000)
    rig.disk.create("a").write_at(0, [data])
    rig.send()
    rig.confirm()
    assert len(rig.stream) == 6
    assert contents(rig.base) == {"a": data}


def test_nothing_is_answered_once_the_member_is_replaced() -> None:
    rig, ended = Rig(), list[object]()
    file = rig.disk.create("a")
    rig.disk.when_durable(ended.append)
    rig.disk.fail(OSError("replaced"))
    rig.send()
    rig.confirm()
    assert ended == []
    with pytest.raises(OSError, match="replaced"):
        file.write_at(0, [b"text"])


def test_a_record_that_the_folder_has_no_room_for_is_applied_later() -> None:
    rig = Rig(FolderDisk(capacity_bytes=20))
    rig.disk.create("a").write_at(0, [b"x" * 10])
    rig.disk.create("b").write_at(0, [b"y" * 100])
    (sent,) = rig.disk.outbox.take()
    (confirmed,) = rig.disk.outbox.confirm(sent, 1)
    for _ in range(3):
        with pytest.raises(OSError, match="No space"):
            rig.disk.apply(confirmed)
        assert contents(rig.disk) == {"a": b"x" * 10, "b": b"y" * 100}
    rig.base.capacity_bytes = None
    rig.disk.apply(confirmed)
    assert contents(rig.base) == contents(rig.disk) == {"a": b"x" * 10, "b": b"y" * 100}


def test_the_free_room_shrinks_with_every_change_since_the_stream_was_measured() -> None:
    rig = Rig()
    file = rig.disk.create("a")
    file.write_at(0, [b"x" * 1000])
    rig.disk.note_room(100_000)  # of which the change above takes a part: it has not landed
    before = rig.disk.free_bytes()
    assert 98_000 < before < 99_000
    rig.send()
    rig.confirm()
    assert rig.disk.free_bytes() == before
    file.write_at(1000, [b"y" * 50_000])
    assert 48_000 < rig.disk.free_bytes() < 49_000
    file.write_at(51_000, [b"z" * 60_000])
    assert rig.disk.free_bytes() == 0
    rig.send()
    rig.confirm()
    rig.disk.note_room(7)
    assert rig.disk.free_bytes() == 7
