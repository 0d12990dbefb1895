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

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import groupby
from operator import itemgetter
from typing import Generic, TypeVar

from headpond.model.errors import BadRequest
from headpond.pipes.calculus.route import Route, RouteStage, check_composition, parse_route
from headpond.pipes.machines.bare import BareReceiver, BareSender
from headpond.pipes.machines.continuous import ContinuousReceiver, ContinuousSender
from headpond.pipes.machines.dedup import DedupReceiver
from headpond.pipes.machines.index import IndexReceiver
from headpond.pipes.machines.machine import (
    ROOM_ENDLESS,
    WAKE,
    Arrive,
    Counts,
    Effects,
    Fail,
    Input,
    Jitter,
    PipeMachine,
    ReceiverMachine,
    SenderMachine,
    Settle,
    Submit,
    Token,
    Wake,
    no_jitter,
)
from headpond.pipes.machines.packet import Kind, Packet, Run, seal, unseal
from headpond.pipes.machines.resend import ResendReceiver, ResendSender
from headpond.pipes.machines.sequential import SequentialReceiver
from headpond.pipes.machines.stream import StoredStream, StreamReceiver
from headpond.pipes.machines.timeout import TimeoutSettings

Work = Callable[[Run], tuple[Run, Sequence[int]]]
BACKWARDS = frozenset((Kind.CONFIRM, Kind.GAP, Kind.PROGRESS))
"""Kinds that a sender takes; a receiver takes the others."""
Layer = TypeVar("Layer", bound=PipeMachine)


def sender_of(route: Route | str, *, epoch: int, jitter: Jitter = no_jitter) -> SenderStack:
    """The sending side of a route, in the session named by ``epoch``."""
    return SenderStack([_make_sender(stage, epoch, jitter) for stage in _checked(route).stages])


def receiver_of(
    route: Route | str, *, epoch: int, jitter: Jitter = no_jitter, stored: StoredStream | None = None
) -> ReceiverStack:
    """The receiving side of a route, in the session named by ``epoch``; ``stored`` stands for its stream."""
    layers: list[ReceiverMachine] = [] if stored is None else [stored]
    for stage in _checked(route).stages[len(layers) :]:
        settles = bool(layers) and layers[-1].settles
        layers.append(_make_receiver(stage, epoch, jitter, settles=settles))
    return ReceiverStack(layers)


def _make_sender(stage: RouteStage, epoch: int, jitter: Jitter) -> SenderMachine:
    given = stage.settings
    match stage.pipe:
        case "bare" | "index" | "dedup":
            return BareSender(epoch=epoch)
        case "resend" | "resend_many" | "sequential" | "stream":
            return ResendSender(
                epoch=epoch,
                window=int(given.get("window", 1)),
                buffer=int(given["buffer"]),
                timeout=TimeoutSettings.at_least(int(given["timeout"])),
                jitter=jitter,
                tries=int(given.get("tries", 0)),
            )
        case "continuous":
            gaps, window = bool(given["gaps"]), int(given["window"])
            return ContinuousSender(epoch=epoch, gaps=gaps, window=window, jitter=jitter)
    raise AssertionError(f"no machine for {stage.pipe}")


def _make_receiver(stage: RouteStage, epoch: int, jitter: Jitter, *, settles: bool) -> ReceiverMachine:
    """``settles``: whether the pipe beneath waits until this one is done with a message."""
    given = stage.settings
    match stage.pipe:
        case "bare":
            return BareReceiver(epoch=epoch)
        case "resend" | "resend_many":
            return ResendReceiver(epoch=epoch, confirm=str(given["confirm"]))
        case "stream":
            return StreamReceiver(epoch=epoch, commit=bool(given["commit"]), jitter=jitter)
        case "sequential":
            return SequentialReceiver(epoch=epoch, confirm=str(given["confirm"]))
        case "index":
            return IndexReceiver(epoch=epoch, strict=bool(given["strict"]))
        case "continuous":
            strict, gaps, queue = bool(given["strict"]), bool(given["gaps"]), int(given["queue"])
            return ContinuousReceiver(epoch=epoch, strict=strict, gaps=gaps, queue=queue, jitter=jitter)
        case "dedup":
            if given["by"] == "index":
                return IndexReceiver(epoch=epoch)
            window, sessions = int(given["window"]), int(given["sessions"])
            return DedupReceiver(epoch=epoch, window=window, sessions_max=sessions, settles=settles)
    raise AssertionError(f"no machine for {stage.pipe}")


def inject(route: Route | str, *, epoch: int = 1) -> tuple[SenderStack, ReceiverStack]:
    """Both ends of a route, to put around the path between two workers."""
    return sender_of(route, epoch=epoch), receiver_of(route, epoch=epoch)


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


# --- pipes over pipes -------------------------------------------------------------------------------


class _Stack(Generic[Layer]):
    """Both sides: packets find their layer, time reaches every layer. The first layer is next to the route."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        self.layers = layers

    @property
    def counts(self) -> Counts:
        """The sum over its layers."""
        return Counts.sum(layer.counts for layer in self.layers)

    @property
    def state(self) -> StrEnum:
        return self.layers[-1].state

    @property
    def wake_at(self) -> float | None:
        layers = self.layers
        return layers[0].wake_at if len(layers) == 1 else _earliest(layer.wake_at for layer in layers)

    def step(self, input: Input, now: float) -> Effects:
        layers = self.layers
        packets = input.packets if isinstance(input, Arrive) else ()
        if len(layers) == 1 and not any(packet.layer for packet in packets):
            return layers[0].step(input, now)  # there is nothing to compose
        out = Effects()
        if isinstance(input, Arrive):
            for at, own in self._by_layer(packets):
                self._pass(at, layers[at].step(Arrive(own), now), now, out)
        elif isinstance(input, Wake):
            for at, layer in enumerate(layers):
                if (wake_at := layer.wake_at) is not None and wake_at <= now:
                    self._pass(at, layer.step(WAKE, now), now, out)
        else:
            self._step_worker(input, now, out)
        return out

    def _step_worker(self, input: Input, now: float, out: Effects) -> None:
        """A step that comes from the worker beside the stack."""
        raise NotImplementedError

    def _pass(self, at: int, effects: Effects, now: float, out: Effects) -> None:
        """Passes the effects of a layer to its neighbours, and the rest to ``out``."""
        raise NotImplementedError

    def _by_layer(self, packets: Sequence[Packet]) -> list[tuple[int, list[Packet]]]:
        found: dict[int, list[Packet]] = {}
        for packet in packets:
            if packet.layer < len(self.layers):
                found.setdefault(packet.layer, []).append(packet)
            else:
                self.layers[0].counts.unknown += 1
        return sorted(found.items())


class SenderStack(_Stack[SenderMachine]):
    """The sending side."""

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

    def _step_worker(self, input: Input, now: float, out: Effects) -> None:
        outermost = self.layers[-1]
        if not isinstance(input, Submit):
            outermost.counts.unknown += 1
            return
        payloads = input.payloads[: max(self.room, 0)]
        outermost.counts.refused += len(input.payloads) - len(payloads)
        effects = outermost.step(Submit(payloads), now)
        out.accepted = effects.accepted
        self._pass(len(self.layers) - 1, effects, now, out)

    def _pass(self, at: int, effects: Effects, now: float, out: Effects) -> None:
        out.notices += effects.notices
        # A confirm means the same to a layer that only numbers; one above that confirms has its own answers.
        if not any(layer.confirms for layer in self.layers[at + 1 :]):
            out.confirmed += effects.confirmed
            out.abandoned += effects.abandoned
        for packet in effects.packets:
            if at and packet.kind == Kind.DATA:
                self._submit_beneath(at, packet, now, out)
            else:
                out.packets.append(packet._replace(layer=at) if at else packet)

    def _submit_beneath(self, at: int, packet: Packet, now: float, out: Effects) -> None:
        beneath = self.layers[at - 1]
        fits = max(min(layer.room for layer in self.layers[:at]), 0)
        numbers, payloads = packet.numbers[:fits], (packet.payloads or ())[:fits]
        beneath.counts.refused += len(packet.numbers) - len(numbers)
        if numbers:
            sealed = seal(packet.epoch, numbers, payloads)
            self._pass(at - 1, beneath.step(Submit(sealed), now), now, out)


class ReceiverStack(_Stack[ReceiverMachine]):
    """The receiving side."""

    _refused = False
    """Whether a layer refused a message that nobody can bring again: then no index past it is committed."""

    @property
    def room(self) -> int:
        return ROOM_ENDLESS

    @property
    def settles(self) -> bool:
        """Whether the worker after it has to answer a delivery with ``Settle`` or ``Fail``."""
        return self.layers[-1].settles

    def step(self, input: Input, now: float) -> Effects:
        out = super().step(input, now)
        if len(self.layers) > 1:
            self._refused = self._refused or bool(out.refused)
            if self._refused:
                out.packets = [packet for packet in out.packets if packet.kind != Kind.COMMIT]
        return out

    def _step_worker(self, input: Input, now: float, out: Effects) -> None:
        if isinstance(input, Settle):
            self._pass(len(self.layers) - 1, self.layers[-1].step(input, now), now, out)
        elif isinstance(input, Fail):
            # Every layer forgets it: one alone that remembers would stop the next copy.
            for at, layer in enumerate(self.layers):
                self._pass(at, layer.step(input, now), now, out)
        else:
            self.layers[0].counts.unknown += 1

    def _pass(self, at: int, effects: Effects, now: float, out: Effects) -> None:
        out.notices += effects.notices
        out.packets += [packet._replace(layer=at) for packet in effects.packets] if at else effects.packets
        for token in effects.settled if at else ():
            done = self.layers[at - 1].step(Settle(token.epoch, token.numbers), now)
            self._pass(at - 1, done, now, out)
        for token in effects.refused:
            if at and self.layers[at - 1].settles:  # the pipe beneath brings it again
                failed = self.layers[at - 1].step(Fail(token.epoch, token.numbers), now)
                self._pass(at - 1, failed, now, out)
            else:
                out.refused.append(token)
        if at == len(self.layers) - 1:
            out.delivered += effects.delivered
        elif effects.delivered:
            above = self.layers[at + 1]
            packets: list[Packet] = []
            for delivered in effects.delivered:
                runs, malformed = unseal(delivered.payloads)
                above.counts.malformed += malformed
                packets += [Packet(Kind.DATA, run.epoch, 0, run.numbers, run.payloads, at + 1) for run in runs]
            self._pass(at + 1, above.step(Arrive(packets), now), now, out)


def _earliest(times: Iterable[float | None]) -> float | None:
    return min((at for at in times if at is not None), default=None)


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
        return Counts.sum((self.receiver.counts, self.sender.counts, Counts(abandoned=self._overflowed)))

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
        return _earliest((self.receiver.wake_at, self.sender.wake_at))

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
