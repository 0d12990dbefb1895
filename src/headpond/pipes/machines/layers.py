"""The registry of pipes: which sender and which receiver a stage of a route is made of."""

from __future__ import annotations

from typing import Protocol

from headpond.model.errors import BadRequest
from headpond.pipes.calculus.route import RouteStage
from headpond.pipes.machines.bare import BareReceiver, BareSender
from headpond.pipes.machines.continuous import ContinuousReceiver, ContinuousSender
from headpond.pipes.machines.dedup import DedupReceiver
from headpond.pipes.machines.index import IndexReceiver
from headpond.pipes.machines.machine import Jitter, Machine
from headpond.pipes.machines.resend import ResendReceiver, ResendSender
from headpond.pipes.machines.sequential import SequentialReceiver
from headpond.pipes.machines.stream import StreamReceiver
from headpond.pipes.machines.timeout import TimeoutSettings


class SenderLayer(Machine, Protocol):
    """The sending side of a pipe."""

    @property
    def confirms(self) -> bool:
        """Whether its receiver confirms what arrived."""

    @property
    def unconfirmed(self) -> int:
        """Messages taken whose arrival is not known, as far as it would know."""


class ReceiverLayer(Machine, Protocol):
    """The receiving side of a pipe."""

    @property
    def settles(self) -> bool:
        """Whether it waits for ``Settle``."""


def make_sender(stage: RouteStage, *, epoch: int, jitter: Jitter) -> SenderLayer:
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
    raise _no_machine(stage)


def make_receiver(stage: RouteStage, *, epoch: int, jitter: Jitter, settles: bool) -> ReceiverLayer:
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
    raise _no_machine(stage)


def _no_machine(stage: RouteStage) -> BadRequest:
    return BadRequest(f"there is no machine for the pipe {stage.pipe!r}")
