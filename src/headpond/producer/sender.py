"""The sender of one shard to one destination: the segments it sent and the node has not confirmed, in order.

=============================  ================================================================================
the node says                  outcome
=============================  ================================================================================
stored, duplicate              confirmed, in whatever order the answers come
rejected, for good             confirmed too: its number is used, and later segments are not stuck
gap, expecting n               go back to n; if n is gone, a HOLE declares that first
snapshot                       go back to the first unconfirmed segment, with a snapshot (typed topics)
predecessor                    hold; if the destination has all earlier blocks, what they lack is declared lost
rejected, retryable            hold, then go back to it
=============================  ================================================================================

For the node of a typed topic a SNAPSHOT k means that nothing before k will come. To notice a node that lost
confirmed segments, and to send them again or name them, a new connection begins with a *probe*: the first
unconfirmed segment alone, without a snapshot. ``gap`` names the missing segments, ``snapshot`` means that all
is well.

Going back, like a new connection, begins a session at the first unconfirmed segment. The node answers every
sending once, so a refusal counts only when no later sending of the same segment awaits its answer: a window of
stale gaps makes one step back, not one each. A segment without an answer for ``PATIENCE_S`` is sent again, and
its earlier sendings no longer await an answer. A sender that goes back repeatedly without progress is held. The
sender counts and ignores answers to segments that it never sent, and answers without a meaning.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import Final

from headpond.model.errors import CATALOGUE, HeadpondError, from_code
from headpond.model.receipt import Durability, Fate, Outcome
from headpond.wire.control.producing import AckItem

Jitter = Callable[[], float]
"""A random number of ``[0, 1)``."""

SEGMENTS_MAX: Final = 4096
"""Unconfirmed segments per shard; the window in bytes is narrower for all but the smallest."""
PATIENCE_S: Final = 15.0
"""How long a segment waits for an answer; twice as long after each sending. A connection neither loses nor
repeats frames, so silence means a node that forgot to answer."""
PATIENCE_MAX_S: Final = 60.0
GO_BACKS_FREE: Final = 2
"""How often a sender may go back without progress before it is held."""
HOLD_MIN_S: Final = 0.05
HOLD_MAX_S: Final = 5.0
OUTCOMES: Final = frozenset({"stored", "duplicate", "rejected"})
"""The answers of a node."""


class Step(StrEnum):
    """The result of an answer for the caller of the sender."""

    DONE = "done"
    """The fate of the segment is known."""
    AGAIN = "again"
    """The sender went back and has something to send."""
    HELD = "held"
    """The sender waits until ``held_until``."""
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class SegmentHole:
    """Segments ``start <= n < end`` that the node does not have and this producer can no longer send."""

    shard: int
    start: int
    end: int


class InFlight:
    """The segments of all shards that one destination was sent and has not answered."""

    __slots__ = ("bytes", "segments")

    def __init__(self) -> None:
        self.bytes = 0
        self.segments = 0


class Sender:
    def __init__(
        self, shard: int, first: int, flight: InFlight, jitter: Jitter, *, typed: bool = False
    ) -> None:
        self.shard = shard
        self.cursor = first
        """The segment to send next."""
        self.up = False
        self.held_until: float | None = None
        self.fresh = True
        """Nothing was sent since the session began: the node of a typed topic needs a snapshot first."""
        self.lacking: int | None = None
        """The segment that the node expects, by its answer: before a later one a hole is declared."""
        self.holes: list[SegmentHole] = []
        """All that were declared."""
        self.waits_for_predecessor = False
        self.resent = 0
        self.unknown = 0
        """Answers to segments that were not sent."""
        self._flight = flight
        self._jitter = jitter
        self._unconfirmed: dict[int, tuple[bytes, float, float]] = {}
        """Segments of this session, in order: the frame, when it is due again, and the patience until then."""
        self._resend_at = inf
        """No segment is due before."""
        self._awaited: dict[int, list[int]] = {}
        """By segment: unanswered sendings on this connection, and the size of the frame."""
        self._highest = first - 1
        self._setbacks = 0
        self._typed = typed
        self._verified = first == 0
        """Whether the node has shown on this connection that it has the confirmed segments, if any."""
        self._probe: int | None = None
        """The segment of the probe that awaits its answer."""

    def _begin(self) -> None:
        """Begins a session at the first unconfirmed segment."""
        self.cursor = self.floor
        self._unconfirmed.clear()
        self._resend_at = inf
        self.fresh = True

    @property
    def floor(self) -> int:
        """The first unconfirmed segment."""
        return next(iter(self._unconfirmed), self.cursor)

    @property
    def wanted(self) -> int | None:
        """The segment for the next ``send``; None while nothing can be sent."""
        if (
            not self.up
            or self.held_until is not None
            or self._probe is not None
            or len(self._unconfirmed) >= SEGMENTS_MAX
        ):
            return None
        return self.cursor

    @property
    def probes(self) -> bool:
        """Whether the next segment is sent alone and without a snapshot."""
        return self._typed and not self._verified

    @property
    def wake_at(self) -> float:
        if not self.up:
            return inf
        return self._resend_at if self.held_until is None else self.held_until

    # --- the connection -----------------------------------------------------------------------------

    def connected(self) -> None:
        """A new connection: the node answers no earlier sending, so the first unconfirmed one comes next."""
        self.disconnected()
        self.up = True
        self.held_until = None
        self._setbacks = 0
        self._begin()
        self._verified = self.floor == 0

    def disconnected(self) -> None:
        self.up = False
        self.lacking = None
        self._probe = None
        for segment in list(self._awaited):
            self._leave_flight(segment)

    # --- sending ------------------------------------------------------------------------------------

    def send(self, frame: bytes, now: float) -> None:
        """Counts ``frame``, which is segment ``cursor``, as sent."""
        segment = self.cursor
        if self._typed and not self._verified:
            self._probe = segment
        self._unconfirmed[segment] = (frame, now + PATIENCE_S, PATIENCE_S)
        if self._resend_at == inf:
            self._resend_at = now + PATIENCE_S
        if segment <= self._highest:
            self.resent += 1
        else:
            self._highest = segment
        self.cursor = segment + 1
        self.fresh = False
        awaited = self._awaited.get(segment)
        if awaited is None:
            self._awaited[segment] = [1, len(frame)]
            self._flight.segments += 1
            self._flight.bytes += len(frame)
        else:
            awaited[0] += 1

    def rewind_to(self, segment: int) -> None:
        """Begins earlier, at the segment of a snapshot: the decoder needs confirmed segments once more."""
        self.cursor = min(self.cursor, segment)

    def begin_at(self, segment: int) -> None:
        """Begins a session earlier: the node lost confirmed segments."""
        self._begin()
        self.cursor = min(self.cursor, segment)

    def wake(self, now: float) -> list[bytes]:
        """Ends a hold that is over; the frames that nobody answered in time, to be written again."""
        if self.held_until is not None:
            if self.held_until > now:
                return []
            self.held_until = None
        if not self.up or self._resend_at > now:
            return []
        again: list[bytes] = []
        for segment, (frame, due_at, patience_s) in list(self._unconfirmed.items()):
            if due_at <= now:
                self.resent += 1
                patience_s = min(2 * patience_s, PATIENCE_MAX_S)
                self._unconfirmed[segment] = (frame, now + patience_s, patience_s)
                if segment in self._awaited:
                    self._awaited[segment][0] = 1  # answers to earlier sendings come late, if at all
                again.append(frame)
        self._resend_at = min((due_at for _, due_at, _ in self._unconfirmed.values()), default=inf)
        return again

    # --- answers ------------------------------------------------------------------------------------

    def answer(self, item: AckItem, now: float) -> Step:
        segment = item.segment
        if not 0 <= segment <= self._highest or item.outcome not in OUTCOMES:
            self.unknown += 1
            return Step.NOTHING
        if item.outcome == "rejected" and is_retryable(item.code):
            return self._refused(item, now)
        self._setbacks = 0
        self.waits_for_predecessor = False
        self._leave_flight(segment)
        # A segment that is missing here was confirmed before, or by a sending of an earlier session.
        self._unconfirmed.pop(segment, None)
        if not self._unconfirmed:
            self._resend_at = inf
        if segment == self._probe:
            self._verified, self._probe = True, None
            self._begin()  # the next segment needs a snapshot
        return Step.DONE

    def _refused(self, item: AckItem, now: float) -> Step:
        awaited = self._awaited.get(item.segment)
        if awaited is None:
            self.unknown += 1
            return Step.NOTHING
        awaited[0] -= 1
        if awaited[0]:
            return Step.NOTHING
        self._leave_flight(item.segment)
        if item.segment not in self._unconfirmed:
            return Step.NOTHING  # from before a step back: it waits, is about to be sent again, or is done
        return self._set_back(item, now)

    def _set_back(self, item: AckItem, now: float) -> Step:
        if item.code == "gap" and item.expected is not None:
            self.lacking = max(item.expected, 0)
        self.waits_for_predecessor = item.code == "predecessor"
        probed, self._probe = self._probe is not None, None
        goes_back = item.code in ("gap", "snapshot")
        self._verified = self._verified or goes_back
        self._begin()
        if probed and item.code == "snapshot":
            return Step.AGAIN  # the expected answer
        self._setbacks += 1
        if goes_back and self._setbacks <= GO_BACKS_FREE:
            return Step.AGAIN
        # Each hold is longer, until the node confirms something.
        delay_s = min(HOLD_MAX_S, HOLD_MIN_S * 2.0 ** min(self._setbacks, 16))
        self.held_until = now + delay_s * (0.5 + 0.5 * self._jitter())
        return Step.HELD

    def declare(self, upto: int) -> bool:
        """Whether the segments that the node lacks before ``upto`` are to be declared lost now."""
        start, self.lacking = self.lacking, None
        if start is None or start >= upto:
            return False
        hole = SegmentHole(self.shard, start, upto)
        if hole not in self.holes:
            self.holes.append(hole)
        return True

    def _leave_flight(self, segment: int) -> None:
        awaited = self._awaited.pop(segment, None)
        if awaited is not None:
            self._flight.segments -= 1
            self._flight.bytes -= awaited[1]


def is_retryable(code: str) -> bool:
    kind = CATALOGUE.get(code)
    return kind is not None and kind.retryable


_DURABILITIES: Final = {str(each): each for each in Durability}
_OUTCOMES: Final = {str(each): each for each in Outcome}


def fate_of(destination: str, item: AckItem, durability: str) -> Fate:
    """The fate by an answer that ends a segment: stored, duplicate or refused for good."""
    if item.outcome == "rejected":
        return refusal(destination, from_code(item.code, item.message or item.code))
    return Fate(_OUTCOMES[item.outcome], destination, item.first_entry, _DURABILITIES.get(durability))


def refusal(destination: str, error: HeadpondError) -> Fate:
    return Fate(Outcome.REJECTED, destination, error=error)
