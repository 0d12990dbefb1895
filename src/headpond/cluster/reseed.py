"""Makes the folder of one member the content of its group, after the stream lost records.

Members whose folders do not fit the stream do not become active: only an operator can say which folder counts.
A reseed removes all records, and lets the stream continue at a sequence that no folder has reached. So every
other member finds that the stream begins behind its folder, and copies the folder of this member. The steps are
in this order because a crash between any two of them leaves a group that waits for another reseed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from headpond.cluster.apply import Applier, Diverged, Position, save_position
from headpond.cluster.journal import Journal
from headpond.model.errors import BadFrame
from headpond.storage.disk import Disk

SKIPPED = 1_000_000_000
"""Sequences that a reseed passes over: more than a folder that does not answer can be ahead."""
READ_BYTES_MAX = 8 * 1024 * 1024


class ReseedJournal(Journal, Protocol):
    async def skip_to(self, seq: int) -> None:
        """Removes all records; the next one will be number ``seq + 1``. ``Unreachable`` without an answer."""


def reseeded(position: Position, seqs: Iterable[int]) -> Position:
    """The next position of a folder at ``position``; ``seqs``: the ends of the stream and of other folders."""
    end = max(position.seq, *seqs)
    return Position(seq=end + SKIPPED, epoch=position.epoch + 1, number=position.number, released=True)


async def reseed(journal: ReseedJournal, disk: Disk, position: Position, seqs: Iterable[int]) -> Position:
    """The folder's next position, which it has now. ``Unreachable`` if the stream does not answer."""
    applier = Applier(disk, position)
    try:
        await replay(journal, applier)
        applier.checkpoint()
    finally:
        applier.close()
    last_seq = (await journal.state()).last_seq
    found = reseeded(applier.position, [last_seq, *seqs])
    await journal.skip_to(found.seq)
    save_position(disk, found)
    return found


async def replay(journal: Journal, applier: Applier) -> None:
    """Applies the records that follow the folder's last checkpoint, as far as the stream has them."""
    while True:
        next_seq = applier.position.seq + 1
        records = await journal.read(next_seq, READ_BYTES_MAX)
        if not records and (raw := await journal.read_leader(next_seq)) is not None:
            records = [(next_seq, raw)]
        if not records or records[0][0] != next_seq:
            return
        for seq, raw in records:
            try:
                applier.apply(seq, raw)
            except (Diverged, BadFrame):
                return
