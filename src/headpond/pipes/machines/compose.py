"""Pipes over pipes, and pipes in a row.

**Wrapping.** ``resend_many | dedup`` is dedup over resend_many. On the sending side a message passes dedup
first, which puts it in an envelope with its number, then resend_many, for which the envelope is a payload; on
the receiving side the other way round. A stack has the shape of a machine, so it can be driven like one.

- The pipe beneath takes data that an outer pipe sends, also again, as a submission. Other packets of an outer
  pipe (gap, progress, floor, probe) go over the bare route, marked with its layer: they are small, and any of
  them may be lost.
- The sender's room is that of its narrowest layer, so a submission that was taken fits all the way down. A
  repetition that does not fit is dropped, as a route might, and counted; its timer brings it again. It is
  dropped before any layer has numbered it, because a layer that sends each number once would wait for it for
  ever.
- A pipe beneath that waits (``confirm=settled``) takes back a message that an outer pipe has no room for, and
  brings it again. Where none waits, nobody can: there is a notice, and the side commits no index past that
  message.
- All layers of a side live and die together and share an epoch. Layers that send each message once keep the
  numbers of the layer beneath, so *confirmed* goes up and *settled* goes down through them unchanged.

**Injection.** To make A → X → B reliable, put the sender between A and X and the receiver between X and B:
``inject``. X only forwards, and may lose, repeat and reorder.

**Cascade.** A ``Relay`` is the receiver of one pipe and the sender of the next. With ``confirm=settled`` it
confirms to the pipe before what the pipe after has confirmed, over any number of stages; so it may crash and
nothing is lost. The last receiver does the same with the worker that processes the messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from itertools import groupby
from operator import itemgetter

from headpond.model.errors import BadRequest
from headpond.pipes.calculus.route import Route, check_composition, parse_route
from headpond.pipes.machines.layers import ReceiverLayer, SenderLayer, make_receiver, make_sender
from headpond.pipes.machines.machine import (
    ROOM_ENDLESS,
    WAKE,
    Arrive,
    Counts,
    Effects,
    Fail,
    Input,
    Jitter,
    Settle,
    Submit,
    Token,
    Wake,
    no_jitter,
)
from headpond.pipes.machines.packet import Kind, Packet, Run, seal, unseal

Work = Callable[[Run], tuple[Run, Sequence[int]]]
_DATA = int(Kind.DATA)
BACKWARDS = frozenset((Kind.CONFIRM, Kind.GAP, Kind.PROGRESS))
"""Kinds that a sender takes; a receiver takes the others."""


def sender_of(route: Route | str, *, epoch: int, jitter: Jitter = no_jitter) -> SenderStack:
    """The sending side of a route, in the session named by ``epoch``."""
    stages = _checked(route).stages
    return SenderStack([make_sender(stage, epoch=epoch, jitter=jitter) for stage in stages])


def receiver_of(route: Route | str, *, epoch: int, jitter: Jitter = no_jitter) -> ReceiverStack:
    """The receiving side of a route, in the session named by ``epoch``."""
    layers: list[ReceiverLayer] = []
    for stage in _checked(route).stages:
        settles = bool(layers) and layers[-1].settles
        layers.append(make_receiver(stage, epoch=epoch, jitter=jitter, settles=settles))
    return ReceiverStack(layers)


def inject(
    route: Route | str, *, epoch: int = 1, jitter: Jitter = no_jitter
) -> tuple[SenderStack, ReceiverStack]:
    """Both ends of a route, to put around the path between two workers."""
    sender = sender_of(route, epoch=epoch, jitter=jitter)
    return sender, receiver_of(route, epoch=epoch, jitter=jitter)


def _checked(route: Route | str) -> Route:
    route = parse_route(route) if isinstance(route, str) else route
    check_composition(route)
    return route


def parse_drivable(text: str) -> Route:
    """The route of a text, for ends in real programs, which cannot simulate a channel or a worker."""
    route = parse_route(text)
    if route.rates or route.worker_fails:
        raise BadRequest(
            f"{route} describes its channel or its worker, which only explain and the lab simulate",
            hint="Leave channel(…) and worker(…) out.",
        )
    return route


class _Stack:
    """Shared by both sides of a stack: packets find their layer, time reaches every layer."""

    def __init__(self, layers: Sequence[SenderLayer] | Sequence[ReceiverLayer]) -> None:
        self._all = layers

    @property
    def counts(self) -> Counts:
        """The sum over its layers."""
        total = Counts()
        for layer in self._all:
            total.add(layer.counts)
        return total

    @property
    def state(self) -> StrEnum:
        return self._all[-1].state

    @property
    def wake_at(self) -> float | None:
        if len(self._all) == 1:
            return self._all[0].wake_at
        return min((at for layer in self._all if (at := layer.wake_at) is not None), default=None)

    def _is_plain(self, input: Input) -> bool:
        """Whether there is nothing to compose: one layer, and no packet for another."""
        if len(self._all) > 1:
            return False
        return not isinstance(input, Arrive) or all(packet.layer == 0 for packet in input.packets)

    def _by_layer(self, packets: Sequence[Packet]) -> list[tuple[int, Sequence[Packet]]]:
        found: dict[int, list[Packet]] = {}
        for packet in packets:
            if packet.layer < len(self._all):
                found.setdefault(packet.layer, []).append(packet)
            else:
                self._all[0].counts.unknown += 1
        return sorted(found.items())


class SenderStack(_Stack):
    """The sending side; the first layer is next to the route."""

    def __init__(self, layers: Sequence[SenderLayer]) -> None:
        super().__init__(layers)
        self.layers = layers

    @property
    def room(self) -> int:
        return self.layers[0].room if len(self.layers) == 1 else min(layer.room for layer in self.layers)

    @property
    def confirms(self) -> bool:
        """Whether ``confirmed`` will name the messages that arrived."""
        return any(layer.confirms for layer in self.layers)

    @property
    def unconfirmed(self) -> int:
        return sum(layer.unconfirmed for layer in self.layers)

    def step(self, input: Input, now: float) -> Effects:
        if self._is_plain(input):
            return self.layers[0].step(input, now)
        out = Effects()
        if isinstance(input, Submit):
            room = self.room
            payloads = input.payloads if len(input.payloads) <= room else input.payloads[: max(room, 0)]
            self.layers[-1].counts.refused += len(input.payloads) - len(payloads)
            effects = self.layers[-1].step(Submit(payloads), now)
            out.accepted = effects.accepted
            self._pass_down(len(self.layers) - 1, effects, now, out)
        elif isinstance(input, Arrive):
            for at, packets in self._by_layer(input.packets):
                self._pass_down(at, self.layers[at].step(Arrive(packets), now), now, out)
        elif isinstance(input, Wake):
            for at, layer in enumerate(self.layers):
                if (wake_at := layer.wake_at) is not None and wake_at <= now:
                    self._pass_down(at, layer.step(WAKE, now), now, out)
        else:
            self.layers[-1].counts.unknown += 1
        return out

    def _pass_down(self, at: int, effects: Effects, now: float, out: Effects) -> None:
        out.notices += effects.notices
        # A confirm means the same to a layer that only numbers; one above that confirms has its own answers.
        if effects.confirmed and not any(layer.confirms for layer in self.layers[at + 1 :]):
            out.confirmed += effects.confirmed
        if effects.abandoned and not any(layer.confirms for layer in self.layers[at + 1 :]):
            out.abandoned += effects.abandoned
        if at == 0:
            out.packets += effects.packets
            return
        for packet in effects.packets:
            if packet.kind == _DATA:
                self._submit_beneath(at, packet, now, out)
            else:
                out.packets.append(packet._replace(layer=at))

    def _submit_beneath(self, at: int, packet: Packet, now: float, out: Effects) -> None:
        beneath = self.layers[at - 1]
        fits = max(min(layer.room for layer in self.layers[:at]), 0)
        numbers, payloads = packet.numbers[:fits], (packet.payloads or ())[:fits]
        beneath.counts.refused += len(packet.numbers) - len(numbers)
        if numbers:
            sealed = seal(packet.epoch, numbers, payloads)
            self._pass_down(at - 1, beneath.step(Submit(sealed), now), now, out)


class ReceiverStack(_Stack):
    """The receiving side; the first layer is next to the route."""

    def __init__(self, layers: Sequence[ReceiverLayer]) -> None:
        super().__init__(layers)
        self.layers = layers
        self._refused = False
        """Whether a layer refused a message that nobody can bring again: then no index past it is committed."""

    @property
    def room(self) -> int:
        return ROOM_ENDLESS

    @property
    def settles(self) -> bool:
        """Whether the worker after it has to answer a delivery with ``Settle`` or ``Fail``."""
        return self.layers[-1].settles

    def step(self, input: Input, now: float) -> Effects:
        if self._is_plain(input):
            return self.layers[0].step(input, now)
        out = Effects()
        self._step(input, now, out)
        self._refused = self._refused or bool(out.refused)
        if self._refused:
            out.packets = [packet for packet in out.packets if packet.kind != Kind.COMMIT]
        return out

    def _step(self, input: Input, now: float, out: Effects) -> None:
        if isinstance(input, Arrive):
            for at, packets in self._by_layer(input.packets):
                self._pass_up(at, self.layers[at].step(Arrive(packets), now), now, out)
        elif isinstance(input, Wake):
            for at, layer in enumerate(self.layers):
                if (wake_at := layer.wake_at) is not None and wake_at <= now:
                    self._pass_up(at, layer.step(WAKE, now), now, out)
        elif isinstance(input, Settle):
            self._pass_up(len(self.layers) - 1, self.layers[-1].step(input, now), now, out)
        elif isinstance(input, Fail):
            # Every layer forgets it: one alone that remembers would stop the next copy.
            for at, layer in enumerate(self.layers):
                self._pass_up(at, layer.step(input, now), now, out)
        else:
            self.layers[0].counts.unknown += 1

    def _pass_up(self, at: int, effects: Effects, now: float, out: Effects) -> None:
        out.notices += effects.notices
        out.packets += [packet._replace(layer=at) for packet in effects.packets] if at else effects.packets
        for token in effects.settled if at else ():
            done = self.layers[at - 1].step(Settle(token.epoch, token.numbers), now)
            self._pass_up(at - 1, done, now, out)
        for token in effects.refused:
            self._take_back(at, token, now, out)
        if at == len(self.layers) - 1:
            out.delivered += effects.delivered
        elif effects.delivered:
            self._pass_up(at + 1, self.layers[at + 1].step(self._opened(at, effects), now), now, out)

    def _take_back(self, at: int, token: Token, now: float, out: Effects) -> None:
        """A pipe beneath that waits brings again the messages that a layer refused; otherwise nobody can."""
        if at and self.layers[at - 1].settles:
            self._pass_up(at - 1, self.layers[at - 1].step(Fail(token.epoch, token.numbers), now), now, out)
        else:
            out.refused.append(token)

    def _opened(self, at: int, effects: Effects) -> Arrive:
        packets: list[Packet] = []
        for delivered in effects.delivered:
            runs, malformed = unseal(delivered.payloads)
            self.layers[at + 1].counts.malformed += malformed
            packets += [Packet(_DATA, run.epoch, 0, run.numbers, run.payloads, at + 1) for run in runs]
        return Arrive(packets)


# --- pipes in a row ---------------------------------------------------------------------------------


class Relay:
    """A receiver and the sender of the next pipe, in one worker.

    Packets of a kind in ``BACKWARDS`` come from the pipe after it, the others from the pipe before. ``work``,
    if there is any, is done on each run between the two: it returns the run to send on and the numbers on
    which it failed. A message that failed, or that the pipe after gave up, comes again if the pipe before
    waits for it (``confirm=settled``).
    """

    def __init__(self, receiver: ReceiverStack, sender: SenderStack, work: Work | None = None) -> None:
        self.receiver = receiver
        self.sender = sender
        self._work = work
        self._names: dict[int, tuple[int, int]] = {}
        """By the sender's number: what the receiver called the message. Only while it is unconfirmed."""
        self._overflowed = 0

    @property
    def counts(self) -> Counts:
        total = self.receiver.counts
        total.add(self.sender.counts)
        total.abandoned += self._overflowed
        return total

    @property
    def state(self) -> StrEnum:
        return self.sender.state

    @property
    def room(self) -> int:
        return ROOM_ENDLESS

    @property
    def unconfirmed(self) -> int:
        return self.sender.unconfirmed

    @property
    def wake_at(self) -> float | None:
        times = (self.receiver.wake_at, self.sender.wake_at)
        return min((at for at in times if at is not None), default=None)

    def step(self, input: Input, now: float) -> Effects:
        out = Effects()
        if isinstance(input, Arrive):
            before = [packet for packet in input.packets if packet.kind not in BACKWARDS]
            after = [packet for packet in input.packets if packet.kind in BACKWARDS]
            if after:
                self._confirmed(self.sender.step(Arrive(after), now), now, out)
            if before:
                self._forward(self.receiver.step(Arrive(before), now), now, out)
        elif isinstance(input, Wake):
            self._confirmed(self.sender.step(WAKE, now), now, out)
            self._forward(self.receiver.step(WAKE, now), now, out)
        else:
            self.sender.layers[-1].counts.unknown += 1
        return out

    def _forward(self, effects: Effects, now: float, out: Effects) -> None:
        out.packets += effects.packets
        out.notices += effects.notices
        out.refused += effects.refused
        for delivered in effects.delivered:
            run = self._done(delivered, now)
            sent = self.sender.step(Submit(run.payloads), now)
            taken = len(sent.accepted)
            if self.receiver.settles:
                names = zip([run.epoch] * taken, run.numbers, strict=False)
                self._names.update(zip(sent.accepted, names, strict=True))
                if taken < len(run.numbers):
                    # Not confirmed, so it comes again.
                    self.receiver.step(Fail(run.epoch, run.numbers[taken:]), now)
            elif taken < len(run.numbers):
                self._overflowed += len(run.numbers) - taken
                out.notify("given up", run.epoch, run.numbers[taken:])
            self._confirmed(sent, now, out)

    def _done(self, run: Run, now: float) -> Run:
        """The run that the work leaves."""
        if self._work is None:
            return run
        done, failed = self._work(run)
        if failed and self.receiver.settles:
            self.receiver.step(Fail(run.epoch, failed), now)
        return done

    def _confirmed(self, effects: Effects, now: float, out: Effects) -> None:
        out.packets += effects.packets
        out.notices += effects.notices
        out.confirmed += effects.confirmed
        out.abandoned += effects.abandoned
        if not self.receiver.settles:
            return
        for answer, tokens in ((Settle, effects.confirmed), (Fail, effects.abandoned)):
            for epoch, numbers in self._named(tokens):
                done = self.receiver.step(answer(epoch, numbers), now)
                out.packets += done.packets
                out.notices += done.notices

    def _named(self, tokens: list[Token]) -> Iterator[tuple[int, list[int]]]:
        """What the receiver called these messages of the sender, by epoch."""
        pop = self._names.pop
        for token in tokens:
            names = [name for number in token.numbers if (name := pop(number, None)) is not None]
            for epoch, group in groupby(names, key=itemgetter(0)):
                yield epoch, [number for _, number in group]
