"""Spills: a block's segments in the refill, as its manager knows them, and what the file is to be told.

The file itself is the job thread's. Here is which segments stand in it, what is being written, which answers
it has not heard of, and when it ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from headpond.model.errors import HeadpondError
from headpond.model.identity import SegmentKey
from headpond.model.ranges import RangeSet
from headpond.model.receipt import Durability, Fate
from headpond.producer.exchange import Exchange
from headpond.producer.jobs import Finish, Note, Spill, Store

NOTE_AFTER_S: Final = 0.25
"""How long acks of spilled segments may wait before the file is told."""
SPILL_AGAIN_AFTER_S: Final = 1.0


class Spills:
    def __init__(
        self,
        store: Store | None,
        exchange: Exchange,
        durability: Durability,
        ranges: dict[int, RangeSet],
        names: frozenset[str],
    ) -> None:
        self.store = store
        self.ranges = ranges
        """By shard: the segments that stand in the file."""
        self.names = names
        """The destinations that the file is for."""
        self.count = 0
        """Segments ever written."""
        self.error: HeadpondError | None = None
        """Why the refill takes nothing at present."""
        self.lost: list[str] = []
        """Segments that cannot be sent any more, and why, in words."""
        self.refused: dict[tuple[str, str], str] = {}
        """By destination and code: why segments that stand in the file were refused for good."""
        self.left_path: str | None = None
        """The file that was left, if one was."""
        self.finishing = False
        self._exchange = exchange
        self._durability = durability
        self._next: dict[int, int] = {}
        """By shard: the segment that follows the last one written."""
        self._writing: set[SegmentKey] = set()
        self._again_at: float | None = None
        """When to try again after the refill refused."""
        self._note_at: float | None = None
        self._acked: list[tuple[SegmentKey, str]] = []
        """Answers that the file is to be told."""
        self._refused: list[tuple[SegmentKey, str, str, str]] = []

    @property
    def writing(self) -> bool:
        return bool(self._writing)

    def __contains__(self, key: SegmentKey) -> bool:
        ranges = self.ranges.get(key.shard)
        return key in self._writing or (ranges is not None and key.segment in ranges)

    def first_between(self, shard: int, start: int, end: int) -> int | None:
        """The first segment of ``[start, end)`` that stands in the file."""
        ranges = self.ranges.get(shard)
        found = ranges.overlap(start, end) if ranges is not None else []
        return found[0][0] if found else None

    # --- what the file is told ------------------------------------------------------------------------

    def answered(self, key: SegmentKey, name: str, fate: Fate, now: float) -> None:
        """A destination confirmed or refused a segment; if it stands in the file, the file is told soon."""
        if name not in self.names or key not in self:
            return
        if fate.error is not None:
            self._refused.append((key, name, fate.error.code, fate.error.message))
            self.refused.setdefault((name, fate.error.code), fate.error.message)
        else:
            self._acked.append((key, name))
        if self._note_at is None:
            self._note_at = now + NOTE_AFTER_S

    def lose(self, key: SegmentKey, error: HeadpondError) -> None:
        """It cannot be read any more."""
        self.lost.append(f"segment {key.segment} of shard {key.shard} cannot be sent: {error.message}")
        if key.shard in self.ranges:
            self.ranges[key.shard].discard(key.segment, key.segment + 1)

    @property
    def wake_at(self) -> float | None:
        return min((at for at in (self._note_at, self._again_at) if at is not None), default=None)

    def wake(self, now: float) -> Note | None:
        if self._again_at is not None and self._again_at <= now:
            self._again_at = None
        if self._note_at is None or self._note_at > now:
            return None
        self._note_at = None
        return Note(*self._take_answers()) if self.ranges and not self.finishing else None

    def _take_answers(self) -> tuple[list[tuple[SegmentKey, str]], list[tuple[SegmentKey, str, str, str]]]:
        acked, refused = self._acked, self._refused
        self._acked, self._refused = [], []
        return acked, refused

    # --- writing --------------------------------------------------------------------------------------

    def spill(self, snapshot_of: Callable[[SegmentKey], bytes | None]) -> Spill | None:
        """The job that writes what was rejected, with a snapshot before each segment that needs one."""
        if self._writing or self._again_at is not None:
            return None
        exchange = self._exchange
        keys = exchange.rejected()
        if not keys:
            self.error = None
            return None
        job = Spill([], [], [])
        for key in keys:
            frame = exchange.get(key)
            assert isinstance(frame, bytes), "what is in the refill is not rejected again"
            follows = self._next.get(key.shard) == key.segment
            self._next[key.shard] = key.segment + 1
            job.segments.append((key, frame, None if follows else snapshot_of(key)))
            rejecting, through = exchange.claims(key)
            job.rejects += [(key, exchange.destinations[index]) for index in rejecting]
            job.acked += [(key, exchange.destinations[index]) for index in through]
        self._writing = set(keys)
        return job

    def spill_ended(self, job: Spill, now: float) -> None:
        self._writing = set()
        self.error = job.error
        for key in job.written:
            self.ranges.setdefault(key.shard, RangeSet()).add(key.segment, key.segment + 1)
        self.count += len(job.written)
        self._exchange.written(job.written, self._durability)
        if job.error is not None:
            self._next.clear()
            self._again_at = now + SPILL_AGAIN_AFTER_S

    def finish(self, segments_next: dict[int, int] | None) -> Finish:
        """The job that ends the file."""
        self.finishing = True
        self.ranges.clear()
        self._next.clear()
        self._note_at = None
        return Finish(*self._take_answers(), segments_next)

    def finish_ended(self, job: Finish) -> None:
        self.finishing = False
        self.left_path = job.left_path
        if job.error is not None:
            self.error = job.error
