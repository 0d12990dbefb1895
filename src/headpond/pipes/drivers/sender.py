"""The sending end of a pipe: payloads in, confirmations out.

``send`` returns when the pipe has taken the payload: from then on it is the pipe's, and the pipe's promise
holds. While there is no room it waits. Payloads sent in one turn of the loop go to the machine as one run.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType

from headpond.model.errors import BadRequest, Closed, HeadpondError, SegmentTooLarge, TimedOut
from headpond.pipes.drivers.end import PipeEnd, Prefix, Runner, check_epoch, new_epoch
from headpond.pipes.machines.compose import sender_of
from headpond.pipes.machines.machine import Arrive, Effects, Submit
from headpond.pipes.machines.packet import NUMBER_MAX, Kind, Packet
from headpond.wire.frame import SEGMENT_BYTES_MAX

PAYLOAD_BYTES_MAX = SEGMENT_BYTES_MAX - 64 * 1024
RUN_MAX = 1024
"""Payloads that may wait for the end of the loop's turn."""
RUN_BYTES_MAX = 1024 * 1024


class Way:
    """Carries a sender's packets, and calls its ``on_route`` and ``on_packets``, or ``fail``."""

    faults = 0
    """Connections that ended because of bytes that are not a pipe's."""
    malformed = 0
    """Frames that were whole and held no packet."""

    @property
    def reconnects(self) -> int:
        return 0

    async def open(self, sender: PipeSender) -> None:
        raise NotImplementedError

    def carry(self, packets: list[Packet]) -> None:
        """Takes them towards the other side, or loses them."""
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class SenderStats:
    """Counts of one session, of messages unless it says otherwise."""

    accepted: int
    confirmed: int
    """0 for a pipe whose receiver does not confirm."""
    given_up: int
    """Sent as often as the route allows (``tries``) and not confirmed; some of them may have arrived."""
    unconfirmed: int
    """Taken, and not known to have arrived; for a pipe that does not confirm, not yet given to the route."""
    transmissions: int
    """Copies given to the route."""
    retransmissions: int
    """Copies of a message after its first."""
    confirms_ignored: int
    """Confirms that were repeated, of another session, or of nothing that was sent."""
    malformed: int
    """Frames without a packet in them."""
    receiver_restarts: int
    reconnects: int
    faults: int
    """Connections that ended because of bytes that are not a pipe's."""


class PipeSender(PipeEnd):
    """The sending end of a pipe: ``send`` takes payloads, ``flush`` waits until they are confirmed."""

    def __init__(self, route: str, way: Way, *, name: str = "", epoch: int | None = None) -> None:
        super().__init__(route, "sender")
        self.name = name
        self._may_rise = epoch is None
        self.epoch = new_epoch() if epoch is None else check_epoch(epoch)
        """The number of this session; it is larger each time a sender starts."""
        self._machine = sender_of(route, epoch=self.epoch, jitter=random.random)
        self._way = way
        self._runner: Runner
        self._writable = False
        self._waiting: list[bytes] = []
        """Taken, and not yet submitted to the machine."""
        self._waiting_bytes = 0
        self._submitting = False
        self._accepted = 0
        self._submitted = 0
        self._transmissions = 0
        self._done = Prefix()
        self._confirmed = 0
        self._given_up = 0
        self.on_done: Callable[[Sequence[int], bool], None] = lambda numbers, confirmed: None
        """Called with the numbers of payloads, from 0 in the order they were taken, confirmed or given up."""
        self._turn = asyncio.Lock()
        """Held by the caller that sends now, so that others follow in the order they came."""
        self._news = asyncio.Event()
        """Set when there may be room, or something was confirmed, or the sender ended."""

    # --- life ---------------------------------------------------------------------------------------

    async def _start(self) -> None:
        self._runner = Runner(self._machine, self._on_effects)
        try:
            await self._way.open(self)
        except BaseException:
            self._runner.close()
            raise

    def start_above(self, epoch: int) -> bool:
        """Makes this the later session, unless its number was chosen or something was sent in it."""
        if not self._may_rise or self._accepted or not self.epoch <= epoch < NUMBER_MAX:
            return False
        self.epoch = epoch + 1
        self._machine = sender_of(self.route, epoch=self.epoch, jitter=random.random)
        self._runner.close()
        self._runner = Runner(self._machine, self._on_effects)
        return True

    async def close(self, timeout: float | None = 30.0) -> None:
        """Waits for confirmations, at most ``timeout`` seconds (then ``TimedOut``), and ends the session."""
        if self._error is not None:
            await self._end(self._error)
            return
        try:
            async with asyncio.timeout(timeout):
                await self.flush()
        except TimeoutError:
            left = self._accepted - self._done.floor
            raise TimedOut(
                f"{left:,} messages were not confirmed within {timeout:g} s",
                hint="They may or may not have arrived; the other side may be away.",
            ) from None
        finally:
            await self._end(Closed("the sender was closed"))

    async def abort(self) -> None:
        """Ends the session at once: unconfirmed messages may be lost."""
        await self._end(Closed("the sender was closed"))

    async def _end(self, error: HeadpondError) -> None:
        self.fail(error)
        if self._opened:
            self._runner.close()
            await self._way.close()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await (self.close() if error is None else self.abort())

    # --- sending ------------------------------------------------------------------------------------

    async def send(self, payload: bytes) -> None:
        """Returns when the pipe has taken the payload; waits while it has no room."""
        await self.send_many((payload,))

    async def send_many(self, payloads: Sequence[bytes]) -> None:
        """The same for several, in order; some may be taken before this waits."""
        _check(payloads)
        at = 0
        async with self._turn:
            while at < len(payloads):
                self._raise()
                room = self._room()
                if room <= 0:
                    await self._wait_for_news()
                    continue
                taken = payloads[at : at + min(room, RUN_MAX)]
                at += len(taken)
                if self._take(taken):
                    await asyncio.sleep(0)  # a caller that never waits would keep the loop from the rest

    async def flush(self) -> None:
        """Returns when everything taken before is confirmed; where nothing confirms, when it is on its way.

        It does not wait for messages that were given up after their last try; ``stats.given_up`` counts them.
        """
        upto = self._accepted
        self._raise()
        while (self._done.floor if self._machine.confirms else self._submitted) < upto:
            await self._wait_for_news()
            self._raise()

    async def _wait_for_news(self) -> None:
        self._news.clear()
        await self._news.wait()

    @property
    def connected(self) -> bool:
        """Whether the route takes packets now; if not, it is away or full."""
        return self._writable

    @property
    def stats(self) -> SenderStats:
        """Counts as they stand now."""
        counts = self._machine.counts
        return SenderStats(
            accepted=self._accepted,
            confirmed=self._confirmed,
            given_up=self._given_up,
            unconfirmed=self._accepted
            - (self._confirmed + self._given_up if self._machine.confirms else self._submitted),
            transmissions=self._transmissions,
            retransmissions=counts.resent,
            confirms_ignored=counts.duplicate + counts.stale + counts.unknown,
            malformed=counts.malformed + self._way.malformed,
            receiver_restarts=counts.restarts,
            reconnects=self._way.reconnects,
            faults=self._way.faults,
        )

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error.again()

    def _room(self) -> int:
        # A pipe that keeps nothing would lose messages in a route that is away.
        if not (self._writable or self._machine.confirms) or self._waiting_bytes >= RUN_BYTES_MAX:
            return 0
        return min(self._machine.room, RUN_MAX) - len(self._waiting)

    def _take(self, payloads: Sequence[bytes]) -> bool:
        """Whether the payloads were submitted at once, being enough for a run."""
        self._waiting += payloads
        self._waiting_bytes += sum(map(len, payloads))
        self._accepted += len(payloads)
        if len(self._waiting) >= RUN_MAX or self._waiting_bytes >= RUN_BYTES_MAX:
            self._submit()
            return True
        if not self._submitting:
            self._submitting = True
            self._loop.call_soon(self._end_of_turn)
        return False

    def _end_of_turn(self) -> None:
        self._submitting = False
        self._submit()

    def _submit(self) -> None:
        if not self._writable or self._error is not None or not self._waiting or self._machine.room <= 0:
            return
        # Taken out first: the effects of this very step may free room and lead here again.
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        taken = len(self._runner.step(Submit(waiting)).accepted)
        self._submitted += taken
        if taken < len(waiting):
            self._waiting = waiting[taken:] + self._waiting
            self._waiting_bytes = sum(map(len, self._waiting))
        self._news.set()

    # --- called by the way --------------------------------------------------------------------------

    def on_route(self, writable: bool, *, lost: bool = False, clock: bool = True) -> None:
        """Whether the route takes packets now; ``lost``: everything on its way is gone.

        ``clock`` is False where the way itself repairs losses, so that no timer is needed.
        """
        self._writable = writable
        if not writable:
            self._runner.pause()
        elif self._error is None:
            if clock:
                self._runner.resume(lost=lost)
            self._submit()
            self._news.set()

    def on_packets(self, packets: list[Packet]) -> None:
        if self._error is None:
            self._runner.step(Arrive(packets))

    def fail(self, error: HeadpondError) -> None:
        """Ends the sender: every call that waits raises ``error``."""
        self._error = self._error or error
        self._news.set()

    def _on_effects(self, effects: Effects) -> None:
        if effects.packets:
            self._transmissions += sum(
                len(packet.numbers)
                for packet in effects.packets
                if packet.kind == Kind.DATA and not packet.layer
            )
            self._way.carry(effects.packets)
        if effects.notices:
            self.notice(effects.notices)
        if effects.confirmed or effects.abandoned:
            self._confirmed += sum(len(token.numbers) for token in effects.confirmed)
            self._given_up += sum(len(token.numbers) for token in effects.abandoned)
            for tokens, confirmed in ((effects.confirmed, True), (effects.abandoned, False)):
                for token in tokens:
                    self._done.add(token.numbers)
                    self.on_done(token.numbers, confirmed)
            self._submit()
            self._news.set()


def _check(payloads: Sequence[bytes]) -> None:
    for payload in payloads:
        if not isinstance(payload, bytes):
            raise BadRequest(f"a payload is bytes, not {type(payload).__name__}")
        if len(payload) > PAYLOAD_BYTES_MAX:
            raise SegmentTooLarge(
                f"a payload of {len(payload):,} bytes; a pipe takes at most {PAYLOAD_BYTES_MAX:,}",
                hint="Send it in pieces, or keep it elsewhere and send a reference.",
            )
