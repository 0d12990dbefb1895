"""The receiving end of a pipe: payloads out, confirmations in.

Three ways to read, from the simplest to the quickest::

    async for payload in receiver:              # done with when the loop asks for the next
    async for item in receiver.items():         # item.payload; then receiver.confirm(item) or .fail(item)
    async for run in receiver.runs():           # run.payloads; the same, a run at a time

Confirming matters where the route says so (``confirm=settled``, and a stream over a topic): there a message
whose program died before it was done comes again. Elsewhere the pipe confirms a message when it passes it on,
and ``confirm`` does nothing.

Unread messages are bounded: past that the receiver takes nothing more from its senders.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Generic, NamedTuple, Self, TypeVar

from headpond.model.errors import BadRequest, Closed, HeadpondError, PipeFull
from headpond.pipes.drivers.end import PipeEnd
from headpond.pipes.drivers.lane import Delivery, LaneTotals, SenderLane
from headpond.pipes.machines.machine import Counts, Token

INBOX_MAX = 4096
INBOX_BYTES_MAX = 16 * 1024 * 1024
SETTLE_MAX = 1024


class LaneSource(ABC):
    """Where a receiver's lanes come from."""

    faults = 0
    """Connections that ended because of bytes that are not a pipe's."""
    malformed = 0
    """Frames that were whole and held no packet."""
    address: tuple[str, int] | None = None
    """Where senders find it, if it is a place on the network."""
    retired = LaneTotals()
    """The counts of lanes that made room for others."""

    @property
    @abstractmethod
    def lanes(self) -> Sequence[SenderLane]: ...

    @abstractmethod
    async def open(self, receiver: PipeReceiver) -> None: ...

    @abstractmethod
    async def close(self) -> None: ...

    async def flush(self) -> None:  # noqa: B027  (most sources do nothing)
        """Returns when confirmations are as safe as this source can make them; mostly they are on their way."""

    @abstractmethod
    def set_reading(self, reading: bool) -> None:
        """Whether the program has room for more."""


@dataclass(frozen=True, slots=True)
class ReceiverStats:
    """Counts of this receiver's life, of messages unless it says otherwise."""

    transmissions: int
    """Copies that arrived."""
    delivered: int
    """Passed on to the program."""
    duplicates: int
    """Copies dropped because their message had been passed on."""
    late: int
    """Dropped because their turn had gone by."""
    stale: int
    """From a session that is over."""
    refused: int
    """No room: not confirmed, so that they come again."""
    abandoned: int
    """Given up for good, each with a notice."""
    gaps: int
    """Asked for again."""
    ignored: int
    """Packets that make no sense here."""
    malformed: int
    """Frames or envelopes without a message in them."""
    senders: int
    sender_restarts: int
    faults: int
    """Connections that ended because of bytes that are not a pipe's."""


class PipeItem(NamedTuple):
    """One payload, and its name in the pipe."""

    payload: bytes
    sender: str
    epoch: int
    number: int
    place: int
    lane: SenderLane


class PipeReceiver(PipeEnd):
    """The end of one pipe, or of several: each sender has its lane."""

    def __init__(self, route: str, source: LaneSource) -> None:
        super().__init__(route, "receiver")
        self._source = source
        self._inbox: deque[Delivery] = deque()
        self._inbox_count = 0
        self._inbox_bytes = 0
        self._reading = True
        self._arrived = asyncio.Event()
        self._current: deque[PipeItem] = deque()
        self._last: PipeItem | None = None
        self._settled: list[tuple[SenderLane, int, Sequence[int], Sequence[int]]] = []
        self._settled_count = 0
        self._settling = False

    # --- life ---------------------------------------------------------------------------------------

    async def _start(self) -> None:
        await self._source.open(self)

    async def close(self) -> None:
        """Sends the confirms that wait, and takes nothing more. Unread messages are dropped."""
        if not self._opened:
            return
        failed, self._error = self._error, Closed("the receiver was closed")
        self._inbox.clear()
        self._current.clear()
        self._arrived.set()
        if not isinstance(failed, Closed):
            self._send_settled()
        await self._source.close()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def address(self) -> tuple[str, int]:
        """Host and port, where it listens on the network."""
        address = self._source.address
        if address is None:
            raise BadRequest("this receiver has no address: it does not listen on the network, or not yet")
        return address

    # --- reading ------------------------------------------------------------------------------------

    def __aiter__(self) -> AsyncIterator[bytes]:
        return _AsyncReader(self._next_payload)

    def items(self) -> AsyncIterator[PipeItem]:
        """One item after the other, for the program to confirm."""
        return _AsyncReader(self._next_item)

    def runs(self) -> AsyncIterator[Delivery]:
        """Runs as they came, for the program to confirm."""
        return _AsyncReader(self._next_run)

    async def receive(self, timeout: float | None = None) -> PipeItem | None:
        """The next item; None if none comes within ``timeout`` seconds, or the receiver was closed."""
        try:
            async with asyncio.timeout(timeout):
                return await self._next_item()
        except TimeoutError:
            return None

    async def _next_payload(self) -> bytes | None:
        if self._last is not None:
            self.confirm()
        item = await self._next_item()
        self._last = item
        return None if item is None else item.payload

    async def _next_item(self) -> PipeItem | None:
        while not self._current:
            run = await self._next_run()
            if run is None:
                return None
            payloads, sender, epoch, numbers, place, lane = run
            self._current.extend(
                PipeItem(payload, sender, epoch, number, place + at, lane)
                for at, (payload, number) in enumerate(zip(payloads, numbers, strict=True))
            )
        return self._current.popleft()

    async def _next_run(self) -> Delivery | None:
        while not self._inbox:
            if self._error is not None:
                if isinstance(self._error, Closed):
                    return None
                raise self._error.again()
            self._send_settled()
            if self._inbox:
                break  # the confirms let more come
            self._arrived.clear()
            await self._arrived.wait()
        run = self._inbox.popleft()
        self._inbox_count -= len(run.payloads)
        self._inbox_bytes -= sum(map(len, run.payloads))
        if (
            not self._reading
            and self._inbox_count * 2 <= INBOX_MAX
            and self._inbox_bytes * 2 <= INBOX_BYTES_MAX
        ):
            self._reading = True
            self._source.set_reading(True)
        return run

    # --- confirming ---------------------------------------------------------------------------------

    def confirm(self, what: PipeItem | Delivery | None = None) -> None:
        """The program is done with ``what``; without it, with what ``async for`` gave out last."""
        if what is None:
            what, self._last = self._last, None
            if what is None:
                return
        if not what.lane.settles:
            return
        epoch, numbers, places = _named(what)
        self._settled.append((what.lane, epoch, numbers, places))
        self._settled_count += len(numbers)
        if self._settled_count >= SETTLE_MAX:
            self._send_settled()
        elif not self._settling:
            self._settling = True
            self._loop.call_soon(self._end_of_turn)

    def fail(self, what: PipeItem | Delivery) -> None:
        """The program failed on it: the receiver passes on the next copy.

        Over a topic there are no further copies in this session: it comes again to the next receiver.
        """
        if what.lane.settles:
            what.lane.fail(*_named(what))

    async def flush(self) -> None:
        """Returns when confirmations are on their way; over a topic, when they are on the node's disk."""
        self._send_settled()
        await self._source.flush()

    def _end_of_turn(self) -> None:
        self._settling = False
        self._send_settled()

    def _send_settled(self) -> None:
        """Confirms as runs: neighbours of one lane and session become one."""
        settled, self._settled, self._settled_count = self._settled, [], 0
        at = 0
        while at < len(settled):
            lane, epoch, numbers, places = settled[at]
            at += 1
            if at < len(settled):
                numbers, places = list(numbers), list(places)
                while at < len(settled) and settled[at][0] is lane and settled[at][1] == epoch:
                    numbers += settled[at][2]
                    places += settled[at][3]
                    at += 1
            lane.settle(epoch, numbers, places)

    # --- called by lanes and sources ----------------------------------------------------------------

    def deliver(self, deliveries: list[Delivery]) -> None:
        if self._error is not None:
            return
        self._inbox.extend(deliveries)
        for each in deliveries:
            self._inbox_count += len(each.payloads)
            self._inbox_bytes += sum(map(len, each.payloads))
        if self._reading and (self._inbox_count >= INBOX_MAX or self._inbox_bytes >= INBOX_BYTES_MAX):
            self._reading = False
            self._source.set_reading(False)
        self._arrived.set()

    def refuse(self, lane: SenderLane, tokens: list[Token]) -> None:
        """Stops where a storage still has the message: to read on would be to lose it."""
        if lane.stored:
            epoch, numbers = tokens[0]
            self.stop(
                PipeFull(
                    f"{self.route} has no room for message {numbers[0]:,} of session {epoch}; it and all "
                    "behind it stay stored"
                )
            )

    def stop(self, error: HeadpondError) -> None:
        """Nothing more will come: a reader gets the messages that have arrived, then ``error``."""
        self._error = self._error or error
        self._arrived.set()

    @property
    def stats(self) -> ReceiverStats:
        """Counts as they stand now."""
        lanes, retired = self._source.lanes, self._source.retired
        total = Counts.sum((retired.counts, *(lane.counts for lane in lanes)))
        return ReceiverStats(
            transmissions=retired.arrived + sum(lane.arrived for lane in lanes),
            delivered=retired.delivered + sum(lane.delivered for lane in lanes),
            duplicates=total.duplicate,
            late=total.late,
            stale=total.stale,
            refused=total.refused,
            abandoned=total.abandoned,
            gaps=total.gaps,
            ignored=total.unknown,
            malformed=total.malformed + self._source.malformed,
            senders=retired.senders + len(lanes),
            sender_restarts=total.restarts,
            faults=self._source.faults,
        )


def _named(what: PipeItem | Delivery) -> tuple[int, Sequence[int], Sequence[int]]:
    if isinstance(what, PipeItem):
        return what.epoch, (what.number,), (what.place,)
    return what.epoch, what.numbers, range(what.place, what.place + len(what.numbers))


Read = TypeVar("Read", covariant=True)


class _AsyncReader(Generic[Read]):
    """Not an async generator: a caller may cancel a wait, and the next wait still gets the message."""

    def __init__(self, read: Callable[[], Awaitable[Read | None]]) -> None:
        self._read = read

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Read:
        if (found := await self._read()) is None:
            raise StopAsyncIteration
        return found
