"""What a producer has sent and not yet seen confirmed: numbering, order, windows and going back. No IO.

One lane a shard. Parcels wait unnumbered until they are first sent, so one that is given up before leaves no
hole. From then on a segment keeps its number and its bytes, however often it is sent:

1. ``take`` hands out the next frames while the window has room, lanes in turn.
2. *stored*, *duplicate* and final refusals end a segment, in whatever order they come.
3. *gap* goes back to the segment that the node expects. If that one was given up, a HOLE says so first.
4. A retryable refusal goes back too, and holds its lane until ``release``, so that order is kept. Those of
   further segments say nothing new while it is held.
5. ``reconnect`` sends everything unconfirmed again from the lowest; the node answers duplicate for what it has.

Every sending is answered once, so a gap or retryable refusal counts only when no later sending of the same
segment awaits its answer: a window of stale gaps makes one step back, not one each. A lane that goes back again
and again without progress is held like a refused one. Answers to nothing known are ignored.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from penstock.model.errors import CATALOGUE
from penstock.wire.control import AckItem, Hole, encode_control
from penstock.wire.frame import FrameType, encode

Parcel = TypeVar("Parcel")

GO_BACKS_FREE = 2
"""How often a lane may go back without progress before it is held."""


@dataclass(slots=True, eq=False)
class _Segment(Generic[Parcel]):
    body: bytes
    parcel: Parcel
    deadline: float | None
    frame: bytes = b""
    sends: int = 0
    awaited: int = 0
    """Sendings on the present connection that are not answered yet."""


@dataclass(slots=True, eq=False)
class _Lane(Generic[Parcel]):
    shard: int
    waiting: deque[_Segment[Parcel]] = field(default_factory=deque)
    sent: dict[int, _Segment[Parcel]] = field(default_factory=dict)
    """Numbered and unconfirmed, in order of number."""
    number_next: int = 0
    cursor: int = 0
    """The number to send next; below ``number_next`` it is sent again."""
    hole: int | None = None
    held: bool = False
    setbacks: int = 0
    """Steps back since the last progress."""

    @property
    def lowest(self) -> int:
        return next(iter(self.sent), self.number_next)

    @property
    def has_next(self) -> bool:
        return bool(self.waiting) or self.cursor < self.number_next


@dataclass(frozen=True, slots=True)
class Finished(Generic[Parcel]):
    """A segment's fate is known."""

    parcel: Parcel
    shard: int
    answer: AckItem


@dataclass(frozen=True, slots=True)
class Held:
    """A lane waits for ``release``; ``setbacks`` is how often in a row, for the backoff."""

    shard: int
    setbacks: int
    answer: AckItem


class Outbox(Generic[Parcel]):
    def __init__(self, block: bytes, *, window_bytes: int) -> None:
        self.window_bytes = window_bytes
        self.in_flight_bytes = 0
        self.in_flight_segments = 0
        self.resent = 0
        self.unfinished = 0
        """Parcels whose fate is not known."""
        self._block = block
        self._lanes: dict[int, _Lane[Parcel]] = {}
        self._ready: dict[int, None] = {}
        """Lanes that can send, in the order of their turns."""

    @property
    def segments_next(self) -> dict[int, int]:
        """One past the last number used, by shard."""
        return {lane.shard: lane.number_next for lane in self._lanes.values() if lane.number_next}

    def add(self, shard: int, body: bytes, parcel: Parcel, deadline: float | None = None) -> None:
        lane = self._lanes.get(shard)
        if lane is None:
            lane = self._lanes[shard] = _Lane(shard)
        lane.waiting.append(_Segment(body, parcel, deadline))
        self.unfinished += 1
        self._ready_if_able(lane)

    def take(self, bytes_max: int) -> list[tuple[bytes, Parcel | None, int]]:
        """What to write now, in order: (frame, the parcel in it, its number). A HOLE has no parcel."""
        out: list[tuple[bytes, Parcel | None, int]] = []
        while self._ready and bytes_max > 0 and self.in_flight_bytes < self.window_bytes:
            shard = next(iter(self._ready))
            del self._ready[shard]
            lane = self._lanes[shard]
            if lane.hole is not None:
                out.append((encode_control(Hole(self._block, shard, lane.hole)), None, lane.hole))
                lane.hole = None
            if (picked := self._pick(lane)) is not None:
                segment, number = picked
                out.append((segment.frame, segment.parcel, number))
                bytes_max -= len(segment.frame)
            self._ready_if_able(lane)
        return out

    def answer(self, shard: int, answer: AckItem) -> Finished[Parcel] | Held | None:
        """What an answer means: an end, a lane to release later, or nothing to do but ``take``."""
        lane = self._lanes.get(shard)
        segment = None if lane is None else lane.sent.get(answer.segment)
        if lane is None or segment is None:
            return None
        if answer.outcome != "rejected" or not _is_retryable(answer.code):
            self._forget(lane, answer.segment)
            lane.setbacks = 0
            return Finished(segment.parcel, shard, answer)
        if segment.awaited:
            segment.awaited -= 1
            if segment.awaited:
                return None
            self._leave_flight(segment)
        elif answer.segment >= lane.cursor:
            return None  # it is about to be sent again anyway
        return self._set_back(lane, answer)

    def release(self, shard: int) -> None:
        """Lets a held lane send again."""
        lane = self._lanes[shard]
        lane.held = False
        self._ready_if_able(lane)

    def reconnect(self) -> None:
        """A new connection: nothing sent before is answered any more, so all of it is to be sent again."""
        self.in_flight_bytes = self.in_flight_segments = 0
        for lane in self._lanes.values():
            lane.cursor = lane.lowest
            for segment in lane.sent.values():
                segment.awaited = 0
            self._ready_if_able(lane)

    def expire(self, now: float) -> list[Parcel]:
        """Gives up what is past its deadline: the front of each lane."""
        given_up: list[Parcel] = []
        for lane in self._lanes.values():
            for number, segment in list(lane.sent.items()):
                if segment.deadline is None or segment.deadline > now:
                    break
                self._forget(lane, number)
                given_up.append(segment.parcel)
            while lane.waiting and (deadline := lane.waiting[0].deadline) is not None and deadline <= now:
                given_up.append(lane.waiting.popleft().parcel)
                self.unfinished -= 1
        return given_up

    def clear(self) -> list[Parcel]:
        """Gives up everything."""
        parcels = [s.parcel for lane in self._lanes.values() for s in (*lane.sent.values(), *lane.waiting)]
        for lane in self._lanes.values():
            lane.sent.clear()
            lane.waiting.clear()
            lane.cursor = lane.number_next
        self._ready.clear()
        self.in_flight_bytes = self.in_flight_segments = self.unfinished = 0
        return parcels

    def _pick(self, lane: _Lane[Parcel]) -> tuple[_Segment[Parcel], int] | None:
        """The lane's next segment, sent again or for the first time."""
        while lane.cursor < lane.number_next:
            number = lane.cursor
            lane.cursor += 1
            if (segment := lane.sent.get(number)) is not None:
                return self._send(segment), number
        if not lane.waiting:
            return None
        segment = lane.waiting.popleft()
        number = lane.number_next
        segment.frame = encode(FrameType.SEGMENT, segment.body, shard=lane.shard, segment=number)
        segment.body = b""
        lane.sent[number] = segment
        lane.number_next = lane.cursor = number + 1
        return self._send(segment), number

    def _send(self, segment: _Segment[Parcel]) -> _Segment[Parcel]:
        if segment.sends:
            self.resent += 1
        if not segment.awaited:
            self.in_flight_bytes += len(segment.frame)
            self.in_flight_segments += 1
        segment.sends += 1
        segment.awaited += 1
        return segment

    def _set_back(self, lane: _Lane[Parcel], answer: AckItem) -> Held | None:
        lowest = lane.lowest
        target = answer.segment
        if answer.code == "gap":
            target = lowest if answer.expected is None else answer.expected
            if target < lowest:
                lane.hole = lowest
        lane.cursor = min(lane.cursor, max(target, lowest))
        if lane.held:  # one refusal of many: the lane waits already, and goes back once
            return None
        lane.setbacks += 1
        if answer.code != "gap" or lane.setbacks > GO_BACKS_FREE:
            lane.held = True
            self._ready.pop(lane.shard, None)
            return Held(lane.shard, lane.setbacks, answer)
        self._ready_if_able(lane)
        return None

    def _forget(self, lane: _Lane[Parcel], number: int) -> None:
        segment = lane.sent.pop(number)
        if segment.awaited:
            self._leave_flight(segment)
        self.unfinished -= 1

    def _leave_flight(self, segment: _Segment[Parcel]) -> None:
        self.in_flight_bytes -= len(segment.frame)
        self.in_flight_segments -= 1

    def _ready_if_able(self, lane: _Lane[Parcel]) -> None:
        if lane.has_next and not lane.held:
            self._ready.setdefault(lane.shard)


def _is_retryable(code: str) -> bool:
    kind = CATALOGUE.get(code)
    return kind is not None and kind.retryable
