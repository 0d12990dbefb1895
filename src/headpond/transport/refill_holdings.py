"""What a refill holds, and what each destination has of it. Nothing here writes to the file."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from headpond.model.errors import BadRequest, UnknownSegment, UnknownShard
from headpond.model.identity import SegmentKey
from headpond.model.ranges import RangeSet
from headpond.transport.refill_claims import CODE_DAMAGED, Claims
from headpond.transport.refill_damage import Damage
from headpond.transport.refill_file import RefillFile
from headpond.transport.refill_form import Rejection
from headpond.transport.refill_index import Place, RefillIndex
from headpond.transport.refill_losses import CHECKSUM, UNDECODABLE
from headpond.wire.frame import FrameType
from headpond.wire.title import Title

_NOTHING = RangeSet()
_ALL_BYTES = 2**62


class Tally(NamedTuple):
    """Segments of one destination."""

    pending: int
    acked: int
    refused: int
    lost: int
    """Neither confirmed nor refused, and not readable any more."""


class Holdings:
    def __init__(self, file: RefillFile, title: Title, claims: Claims, index: RefillIndex) -> None:
        self.title = title
        self.claims = claims
        self.index = index
        self.damage: list[Damage] = []
        """What cannot be read, and which segments that cost."""
        self.lost: dict[int, RangeSet] = {}
        """By shard: segments that stood in the file and cannot be delivered any more."""
        self.unnamed = 0
        """Segments that are lost besides, of which it is not known which."""
        self._file = file

    @property
    def path(self) -> str:
        return self._file.path

    @property
    def destinations(self) -> tuple[str, ...]:
        return self.claims.destinations

    @property
    def typed(self) -> bool:
        return self.title.schema is not None

    # --- reading ------------------------------------------------------------------------------------

    def get(self, key: SegmentKey) -> bytes:
        """The whole SEGMENT frame, as it was given; ``UnknownSegment`` where it is not, or not any more."""
        return self.read(key, 0)[0]

    def read(self, key: SegmentKey, bytes_max: int) -> list[bytes]:
        """Frames that follow one another from ``key`` on, up to so many bytes, at least one."""
        wanted = list(self.index.run(key, bytes_max))
        if not wanted:
            gone = " any more" if key.segment in self.lost.get(key.shard, _NOTHING) else ""
            raise UnknownSegment(
                f"{self.path} does not have segment {key.segment:,} of shard {key.shard}{gone}"
            )
        frames = self._file.read_frames([(FrameType.SEGMENT, *each) for each in wanted])
        if len(frames) < len(wanted):
            self._lose(*wanted[len(frames)])
        if not frames:
            raise UnknownSegment(f"segment {key.segment:,} of shard {key.shard} in {self.path} is damaged")
        return frames

    def restore(self, key: SegmentKey) -> tuple[bytes | None, list[bytes]]:
        """What makes a decoder ready for ``key``: a SNAPSHOT frame, and SEGMENT frames from it up to ``key``.

        A plain topic needs neither. ``UnknownShard`` if the file cannot.
        """
        snapshot, first = self.restore_from(key)
        frames: list[bytes] = []
        while (at := first + len(frames)) < key.segment:
            frames += self.read(SegmentKey(key.shard, at), _ALL_BYTES)[: key.segment - at]
        return snapshot, frames

    def restore_from(self, key: SegmentKey) -> tuple[bytes | None, int]:
        """As ``restore``, but only the number of the first segment, to be read in pieces up to ``key``."""
        if not self.typed:
            return None, key.segment
        gaps = self.index.held(key.shard).missing(0, key.segment)
        lowest = gaps[-1][1] if gaps else 0
        while (found := self.index.snapshot_before(key)) is not None and found[0] >= lowest:
            segment, place = found
            at = SegmentKey(key.shard, segment)
            frames = self._file.read_frames([(FrameType.SNAPSHOT, at, place)])
            if frames:
                return frames[0], segment
            self.index.remove_snapshot(at)
            self.damage.append(Damage(place.offset, place.end, f"{CHECKSUM} (a snapshot)"))
            self._lose_undecodable(key.shard)
        raise UnknownShard(
            f"{self.path} has no snapshot that leads to segment {key.segment:,} of shard {key.shard}"
        )

    def _lose(self, key: SegmentKey, place: Place) -> None:
        """It was well when it was written or when the file was opened, and is not any more."""
        self.index.remove(key)
        run = (key.shard, key.segment, key.segment + 1)
        self.lost.setdefault(key.shard, RangeSet()).add(*run[1:])
        self.damage.append(Damage(place.offset, place.end, CHECKSUM, *run))
        if self.typed:
            self._lose_undecodable(key.shard)

    def _lose_undecodable(self, shard: int) -> None:
        lost = self.lost.setdefault(shard, RangeSet())
        for first, end in self.index.undecodable(shard):
            for run in lost.missing(first, end):
                place = self.index.place(SegmentKey(shard, run[0]))
                assert place is not None, "what is undecodable is held"
                self.damage.append(Damage(place.offset, place.end, UNDECODABLE, shard, *run))
                lost.add(*run)

    # --- what the destinations have -----------------------------------------------------------------

    def ack(self, key: SegmentKey, destination: str) -> None:
        """A destination has it. The next ``write_statuses`` tells the file."""
        self._check_destination(destination)
        self.claims.ack(key, destination)

    def reject(self, key: SegmentKey, destination: str, code: str = "", message: str = "") -> None:
        """A destination did not take it: without a code it is to be sent again, with one never."""
        self._check_destination(destination)
        if code:
            run = (key.shard, key.segment, key.segment + 1)
            self.claims.refuse(Rejection(destination, *run, code, message))
        else:
            self.claims.reject(key, destination)

    def refuse_pending(self, destination: str, code: str, message: str = "") -> None:
        """Refuses for good, in a destination's name, all that it has not got, also what is lost."""
        self._check_destination(destination)
        self._refuse(destination, self._standing, code, message)

    def _pass_over_lost(self) -> None:
        """Refuses what cannot be read any more in the name of all that did not get it: code ``damaged``."""
        for destination in self.destinations:
            self._refuse(destination, self._lost_of, CODE_DAMAGED, "it cannot be read any more")

    def _refuse(self, destination: str, which: Callable[[int], RangeSet], code: str, message: str) -> None:
        for shard in self._shards():
            for first, end in which(shard):
                claim = self.claims.of(destination, shard)
                for run in (*claim.settled.missing(first, end), *claim.damaged.overlap(first, end)):
                    self.claims.refuse(Rejection(destination, shard, *run, code, message))

    def pending(self, destination: str) -> list[SegmentKey]:
        """What a destination is to be sent: rejected or not confirmed, and readable. By shard and segment."""
        return [
            SegmentKey(shard, segment)
            for shard, first, end in self.pending_runs(destination)
            for segment in range(first, end)
        ]

    def pending_runs(self, destination: str) -> list[tuple[int, int, int]]:
        """The same as runs (shard, first, end)."""
        self._check_destination(destination)
        return [
            (shard, *run)
            for shard in self.index.shards
            for first, end in self._sendable(shard)
            for run in self.claims.of(destination, shard).settled.missing(first, end)
        ]

    def tally(self, destination: str) -> Tally:
        """How many segments of the file a destination lacks, has, refused, and cannot get any more."""
        self._check_destination(destination)
        acked = refused = lost = 0
        for shard in self._shards():
            claim = self.claims.of(destination, shard)
            for first, end in self._standing(shard):
                gone = _length(claim.refused.overlap(first, end))
                damaged = _length(claim.damaged.overlap(first, end))
                acked += _length(claim.settled.overlap(first, end)) - gone
                refused, lost = refused + gone - damaged, lost + damaged
            lost += sum(_length(claim.settled.missing(*run)) for run in self._lost_of(shard))
        pending = sum(end - first for _, first, end in self.pending_runs(destination))
        return Tally(pending, acked, refused, lost)

    @property
    def undelivered(self) -> int:
        """Segments that some destination has neither confirmed nor refused for good, readable or not."""
        count = self.unnamed
        for shard in self._shards():
            claims = [self.claims.of(destination, shard) for destination in self.destinations]
            owed = RangeSet(
                run
                for claim in claims
                for standing in self._standing(shard)
                for run in (*claim.settled.missing(*standing), *claim.damaged.overlap(*standing))
            )
            count += owed.count
        return count

    def done(self) -> bool:
        """Whether every destination confirmed or finally refused all that ever stood in the file.

        A file that lost something which a destination did not get is never done.
        """
        return self.undelivered == 0

    def _shards(self) -> list[int]:
        return sorted({*self.index.shards, *self.lost})

    def _lost_of(self, shard: int) -> RangeSet:
        return self.lost.get(shard, _NOTHING)

    def _standing(self, shard: int) -> RangeSet:
        """All that was written to the file, whether it can be read or not."""
        held, lost = self.index.held(shard), self._lost_of(shard)
        if not lost:
            return held
        both = held.copy()
        for run in lost:
            both.add(*run)
        return both

    def _sendable(self, shard: int) -> RangeSet:
        held, lost = self.index.held(shard), self._lost_of(shard)
        if not lost:
            return held
        left = held.copy()
        for run in lost:
            left.discard(*run)
        return left

    def _check_destination(self, destination: str) -> None:
        if destination not in self.claims:
            known = ", ".join(self.destinations)
            raise BadRequest(f"{destination} is no destination of {self.path}", hint=f"It has {known}.")


def _length(runs: Iterable[tuple[int, int]]) -> int:
    return sum(end - first for first, end in runs)
