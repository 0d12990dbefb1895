"""The sender of one shard to one destination: what was sent and is not confirmed, in order.

A sender with its unconfirmed segments is the pipe ``resend_many``, and that machine is what it runs on: the
payloads are frames, a confirm is the node's answer, and a node that never answers is asked again when the
pipe's timer says so. What the pipe does not know is added here, because a node admits segments in order only:

=============================  ================================================================================
the node says                  outcome
=============================  ================================================================================
stored, duplicate              confirmed, in whatever order they come
rejected, for good             confirmed too: its number is used, what follows is not stuck
gap, expecting n               go back to n; if n is gone, a HOLE says so first
snapshot                       go back to the first unconfirmed, with a snapshot (typed topics)
predecessor                    hold; if all earlier blocks are through here, what they lack is declared lost
rejected, retryable            hold, then go back to it
=============================  ================================================================================

A typed topic's node takes a SNAPSHOT k for the word that nothing before k will come. So that a node which lost
what it had confirmed is noticed, and gets it again or has it named, a new connection begins with a *probe*:
the first unconfirmed segment alone, without a snapshot. ``gap`` says what is lacking, ``snapshot`` that all is
well.

Going back, like a new connection, begins a session of the pipe at the first segment that is not confirmed.
Every sending is answered once, so a refusal counts only when no later sending of the same segment awaits its
answer: a window of stale gaps makes one step back, not one each. (An answer that did not come before the
pipe's timer ran out is not waited for any more.) A sender that goes back again and again without progress is
held. Answers to nothing known, and answers that mean nothing, are counted and ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from headpond.model.errors import CATALOGUE, HeadpondError, from_code
from headpond.model.receipt import Durability, Fate, Outcome
from headpond.pipes.machines.machine import WAKE, Arrive, Jitter, Submit
from headpond.pipes.machines.packet import Kind, Packet
from headpond.pipes.machines.resend import ResendSender
from headpond.pipes.machines.timeout import TimeoutSettings
from headpond.wire.control.producing import AckItem

SEGMENTS_MAX: Final = 4096
"""Unconfirmed segments a shard; the window in bytes is narrower for all but the smallest."""
PATIENCE: Final = TimeoutSettings(initial_s=15.0, min_s=10.0, max_s=60.0)
"""A connection neither loses nor repeats, so silence is a node that forgot to answer."""
GO_BACKS_FREE: Final = 2
"""How often a sender may go back without progress before it is held."""
HOLD_MIN_S: Final = 0.05
HOLD_MAX_S: Final = 5.0
OUTCOMES: Final = frozenset({"stored", "duplicate", "rejected"})
"""What a node may answer."""


class Step(StrEnum):
    """What an answer means for whoever runs the sender."""

    DONE = "done"
    """The segment's fate is known."""
    AGAIN = "again"
    """It went back; there is something to send."""
    HELD = "held"
    """It waits until ``held_until``."""
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class SegmentHole:
    """Segments ``start <= n < end`` that the node does not have and this producer cannot send any more."""

    shard: int
    start: int
    end: int


class Flight:
    """What is on its way to one destination and not answered, over all shards."""

    __slots__ = ("bytes", "segments")

    def __init__(self) -> None:
        self.bytes = 0
        self.segments = 0


class Sender:
    def __init__(self, shard: int, first: int, flight: Flight, jitter: Jitter, *, typed: bool = False) -> None:
        self.shard = shard
        self.cursor = first
        """The segment to send next."""
        self.up = False
        self.held_until: float | None = None
        self.fresh = True
        """Nothing was sent since the session began: a typed topic's node needs a snapshot first."""
        self.lacking: int | None = None
        """The segment that the node said it expects: if the next one is behind it, a hole is declared first."""
        self.holes: list[SegmentHole] = []
        """All that were declared."""
        self.waits_for_predecessor = False
        self.resent = 0
        self.unknown = 0
        """Answers to nothing that was sent."""
        self._flight = flight
        self._jitter = jitter
        self._session = 0
        self._numbers: dict[int, int] = {}
        """Unconfirmed segments in order, by the number that the pipe gave them."""
        self._segments: dict[int, int] = {}
        """The other way round."""
        self._awaited: dict[int, list[int]] = {}
        """By segment: sendings on this connection that are not answered, and the frame's size."""
        self._highest = first - 1
        self._setbacks = 0
        self._typed = typed
        self._verified = first == 0
        """Whether the node has said on this connection that it has all it confirmed, if that is anything."""
        self._probe: int | None = None
        """The segment that it is asked with."""
        self._begin()

    def _begin(self) -> None:
        """A new session of the pipe, at the first segment that is not confirmed."""
        self.cursor = self.floor
        self._session += 1
        self._pipe = ResendSender(
            epoch=self._session, window=SEGMENTS_MAX, timeout=PATIENCE, jitter=self._jitter
        )
        self._numbers.clear()
        self._segments.clear()
        self.fresh = True

    @property
    def floor(self) -> int:
        """The first segment that is not confirmed; all before it are."""
        return next(iter(self._numbers), self.cursor)

    @property
    def wanted(self) -> int | None:
        """The segment to hand to ``send`` next, if it can be sent now."""
        if not self.up or self.held_until is not None or self._probe is not None or self._pipe.room <= 0:
            return None
        return self.cursor

    @property
    def probes(self) -> bool:
        """Whether the next segment is sent alone and without a snapshot."""
        return self._typed and not self._verified

    @property
    def wake_at(self) -> float | None:
        if not self.up:
            return None
        return self.held_until if self.held_until is not None else self._pipe.wake_at

    # --- the connection -----------------------------------------------------------------------------

    def connected(self) -> None:
        """A new connection: nothing sent before is answered any more, so it begins at the first unconfirmed."""
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

    def send(self, frame: bytes, now: float) -> bytes:
        """Counts ``frame``, which is segment ``cursor``, as sent; it is to be written."""
        segment = self.cursor
        if self.probes:
            self._probe = segment
        (number,) = self._pipe.step(Submit([frame]), now).accepted
        self._numbers[segment] = number
        self._segments[number] = segment
        if segment <= self._highest:
            self.resent += 1
        self._highest = max(self._highest, segment)
        self.cursor = segment + 1
        self.fresh = False
        self._await(segment, len(frame))
        return frame

    def skip_to(self, segment: int) -> None:
        """What lies between is gone, or was never this destination's to get."""
        self.cursor = max(self.cursor, segment)

    def rewind_to(self, segment: int) -> None:
        """Begins earlier, at the segment of a snapshot: what is confirmed is sent for the decoder's sake."""
        self.cursor = min(self.cursor, segment)

    def begin_at(self, segment: int) -> None:
        """Begins anew, and earlier: the node lost what it had confirmed."""
        self._begin()
        self.cursor = min(self.cursor, segment)

    def wake(self, now: float) -> list[bytes]:
        """What is to be written again because nobody answered it; a hold that is over ends."""
        if self.held_until is not None:
            if self.held_until > now:
                return []
            self.held_until = None
        if not self.up:
            return []
        again: list[bytes] = []
        for packet in self._pipe.step(WAKE, now).packets:
            for number, frame in zip(packet.numbers, packet.payloads or (), strict=True):
                self.resent += 1
                segment = self._segments[number]
                self._leave_flight(segment)  # the sendings before this one are answered late, if ever
                self._await(segment, len(frame))
                again.append(frame)
        return again

    def _await(self, segment: int, size: int) -> None:
        awaited = self._awaited.get(segment)
        if awaited is None:
            self._awaited[segment] = [1, size]
            self._flight.segments += 1
            self._flight.bytes += size
        else:
            awaited[0] += 1

    # --- answers ------------------------------------------------------------------------------------

    def answer(self, item: AckItem, now: float) -> Step:
        if not 0 <= item.segment <= self._highest or item.outcome not in OUTCOMES:
            self.unknown += 1
            return Step.NOTHING
        if item.outcome != "rejected" or not is_retryable(item.code):
            self._confirm(item.segment, now)
            if item.segment == self._probe:
                self._verified, self._probe = True, None
                self._begin()  # what follows needs a snapshot
            return Step.DONE
        return self._refused(item, now)

    def _confirm(self, segment: int, now: float) -> None:
        self._setbacks = 0
        self.waits_for_predecessor = False
        self._leave_flight(segment)
        number = self._numbers.get(segment)
        if number is None:
            return  # confirmed before, or by a sending of an earlier session
        confirm = Packet(int(Kind.CONFIRM), self._session, 1, (number,))
        self._pipe.step(Arrive([confirm]), now)
        del self._numbers[segment]
        del self._segments[number]

    def _refused(self, item: AckItem, now: float) -> Step:
        awaited = self._awaited.get(item.segment)
        if awaited is None:
            self.unknown += 1
            return Step.NOTHING
        awaited[0] -= 1
        if awaited[0]:
            return Step.NOTHING
        self._leave_flight(item.segment)
        if item.segment not in self._numbers:
            return Step.NOTHING  # from before a step back: it waits, is about to be sent again, or is done
        return self._set_back(item, now)

    def _set_back(self, item: AckItem, now: float) -> Step:
        if item.code == "gap" and item.expected is not None:
            self.lacking = max(item.expected, 0)
        self.waits_for_predecessor = item.code == "predecessor"
        probed, self._probe = self._probe is not None, None
        self._verified = self._verified or item.code in ("gap", "snapshot")
        self._begin()
        if probed and item.code == "snapshot":
            return Step.AGAIN  # as was to be expected
        self._setbacks += 1
        goes_back = item.code in ("gap", "snapshot")
        if goes_back and self._setbacks <= GO_BACKS_FREE:
            return Step.AGAIN
        self.hold(now)
        return Step.HELD

    def hold(self, now: float) -> None:
        """Waits, longer each time, until something is confirmed."""
        delay_s = min(HOLD_MAX_S, HOLD_MIN_S * 2.0 ** min(self._setbacks, 16))
        self.held_until = now + delay_s * (0.5 + 0.5 * self._jitter())

    def declare(self, upto: int) -> bool:
        """Whether what the node lacks before ``upto`` is to be declared lost now; then it counts as such."""
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


_DURABILITIES: Final = frozenset(Durability)


def fate_of(destination: str, item: AckItem, durability: str) -> Fate:
    """Of an answer that ends a segment: stored, duplicate or refused for good."""
    if item.outcome == "rejected":
        return refusal(destination, from_code(item.code, item.message or item.code))
    given = Durability(durability) if durability in _DURABILITIES else None
    return Fate(Outcome(item.outcome), destination, item.first_entry, given)


def refusal(destination: str, error: HeadpondError) -> Fate:
    return Fate(Outcome.REJECTED, destination, error=error)
