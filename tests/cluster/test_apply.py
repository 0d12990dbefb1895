"""A folder becomes a prefix of the stream again, whatever a kill or a power cut has left of it."""

from __future__ import annotations

from random import Random

import pytest

from headpond.cluster.apply import Applier, Diverged, Position, load_position
from headpond.cluster.records import Kind, encode_record, extend_chain
from headpond.model.errors import BadFrame
from headpond.storage.memory_disk import Keep
from tests.cluster.folders import FolderDisk, Rig, change, contents


def history(seed: int, count: int = 80) -> tuple[list[bytes], dict[str, bytes]]:
    """Records of random changes, and the files that they lead to."""
    chance, rig = Random(seed), Rig()
    for _ in range(count):
        change(rig.disk, chance)
        if chance.random() < 0.3:
            rig.send()
        if chance.random() < 0.5:
            rig.confirm()
    rig.send()
    rig.confirm()
    return rig.stream, contents(rig.base)


@pytest.mark.parametrize("keep", ["none", "some", "all"])
@pytest.mark.parametrize("seed", range(80))
def test_replaying_from_the_checkpoint_gives_the_same_files(seed: int, keep: Keep) -> None:
    stream, expected = history(seed)
    chance, disk = Random(f"{seed} {keep}"), FolderDisk(seed)
    position = Position()
    for _ in range(6):
        applier = Applier(disk, position)
        end = chance.randint(position.seq, len(stream))
        if chance.random() < 0.5:
            disk.cut_power_after(chance.randrange(60))
        try:
            for seq in range(position.seq + 1, end + 1):
                applier.apply(seq, stream[seq - 1])
                if chance.random() < 0.1:
                    applier.checkpoint()
        except OSError:
            pass
        if chance.random() < 0.7:
            disk.crash(keep=keep)
        else:
            disk._power_left = None  # the process was killed; the disk has everything
        position = load_position(disk) or Position()
        assert position.seq <= end
    applier = Applier(disk, position)
    for seq in range(position.seq + 1, len(stream) + 1):
        applier.apply(seq, stream[seq - 1])
    assert contents(disk) == expected


def test_records_of_a_replaced_member_are_passed_over() -> None:
    disk = FolderDisk()
    applier = Applier(disk, Position())
    first = encode_record(Kind.EPOCH, 0, 1, 0, b"\x82\xa6member\xa1a\xa3url\xa0")
    second = encode_record(Kind.EPOCH, extend_chain(0, first), 2, 0, b"\x82\xa6member\xa1b\xa3url\xa0")
    late = encode_record(Kind.BEAT, extend_chain(0, first), 1, 0, b"")
    for seq, raw in enumerate((first, second), 1):
        assert applier.apply(seq, raw) is not None
    assert applier.apply(3, late) is None
    beat = encode_record(Kind.BEAT, extend_chain(extend_chain(0, first), second), 2, 0, b"")
    assert applier.apply(4, beat) is not None
    assert applier.void == 1


def test_a_record_that_does_not_follow_is_refused() -> None:
    stream, _ = history(1)
    applier = Applier(FolderDisk(), Position())
    with pytest.raises(Diverged, match="record 2 came when record 1 was due"):
        applier.apply(2, stream[1])
    applier.apply(1, stream[0])
    with pytest.raises(BadFrame):
        applier.apply(2, bytes([*stream[1][:-1], stream[1][-1] ^ 1]))


def test_records_behind_a_lost_one_are_passed_over_until_it_is_sent_again() -> None:
    stream, expected = history(1)
    disk = FolderDisk()
    applier = Applier(disk, Position())
    for seq, raw in enumerate([stream[0], stream[2], *stream[1:]], 1):
        assert (applier.apply(seq, raw) is None) == (seq == 2)
    assert contents(disk) == expected


def test_a_stream_that_lost_a_record_is_noticed() -> None:
    stream, _ = history(1)
    applier = Applier(FolderDisk(), Position())
    applier.apply(1, stream[0])
    beat = encode_record(Kind.BEAT, 12345, 0, applier.position.number, b"")
    with pytest.raises(Diverged, match="of chain 00003039"):
        for seq in range(2, 200):
            applier.apply(seq, beat)
