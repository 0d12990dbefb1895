"""Every pipe by its name: how a stage of a route becomes machines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from headpond.model.errors import BadRequest
from headpond.pipes.calculus.route import Stage
from headpond.pipes.machines import bare, continuous, dedup, index, resend, resend_many, sequential, stream
from headpond.pipes.machines.machine import Jitter, Machine
from headpond.pipes.machines.timeout import TimeoutSettings


class SenderLayer(Machine, Protocol):
    """The sending side of a pipe."""

    @property
    def confirms(self) -> bool:
        """Whether its own receiver tells it what arrived."""

    @property
    def unconfirmed(self) -> int:
        """Messages taken whose arrival is not known, as far as it would know."""


class ReceiverLayer(Machine, Protocol):
    """The receiving side of a pipe."""

    @property
    def settles(self) -> bool:
        """Whether it waits for ``Settle``."""


def make_sender(stage: Stage, *, epoch: int, jitter: Jitter) -> SenderLayer:
    given = stage.settings
    match stage.pipe:
        case "bare":
            return bare.Sender(epoch=epoch)
        case "resend":
            buffer, timeout = _int(given, "buffer"), _timeout(given)
            return resend.Sender(
                epoch=epoch, buffer=buffer, timeout=timeout, jitter=jitter, tries=_int(given, "tries")
            )
        case "resend_many":
            window, buffer, timeout = _int(given, "window"), _int(given, "buffer"), _timeout(given)
            return resend_many.Sender(
                epoch=epoch,
                window=window,
                buffer=buffer,
                timeout=timeout,
                jitter=jitter,
                tries=_int(given, "tries"),
            )
        case "stream":
            window, buffer, timeout = _int(given, "window"), _int(given, "buffer"), _timeout(given)
            return stream.Sender(epoch=epoch, window=window, buffer=buffer, timeout=timeout, jitter=jitter)
        case "sequential":
            buffer, timeout = _int(given, "buffer"), _timeout(given)
            return sequential.Sender(epoch=epoch, buffer=buffer, timeout=timeout, jitter=jitter)
        case "index":
            return index.Sender(epoch=epoch)
        case "continuous":
            gaps, window = _is(given, "gaps"), _int(given, "window")
            return continuous.Sender(epoch=epoch, gaps=gaps, window=window, jitter=jitter)
        case "dedup":
            return dedup.Sender(epoch=epoch)
    raise _no_machine(stage)


def make_receiver(stage: Stage, *, epoch: int, jitter: Jitter, settles: bool) -> ReceiverLayer:
    """``settles``: whether the pipe beneath waits for what this one lets go of."""
    given = stage.settings
    match stage.pipe:
        case "bare":
            return bare.Receiver(epoch=epoch)
        case "resend":
            return resend.Receiver(epoch=epoch, confirm=str(given["confirm"]))
        case "resend_many":
            return resend_many.Receiver(epoch=epoch, confirm=str(given["confirm"]))
        case "stream":
            return stream.Receiver(epoch=epoch, commit=_is(given, "commit"), jitter=jitter)
        case "sequential":
            return sequential.Receiver(epoch=epoch, confirm=str(given["confirm"]))
        case "index":
            return index.Receiver(epoch=epoch, strict=_is(given, "strict"))
        case "continuous":
            return continuous.Receiver(
                epoch=epoch,
                strict=_is(given, "strict"),
                gaps=_is(given, "gaps"),
                queue=_int(given, "queue"),
                jitter=jitter,
            )
        case "dedup":
            if given["by"] == "index":
                return dedup.IndexReceiver(epoch=epoch)
            window, sessions = _int(given, "window"), _int(given, "sessions")
            return dedup.Receiver(epoch=epoch, window=window, sessions_max=sessions, settles=settles)
    raise _no_machine(stage)


def _int(settings: Mapping[str, Any], name: str) -> int:
    return int(settings[name])


def _timeout(settings: Mapping[str, Any]) -> TimeoutSettings:
    return TimeoutSettings.at_least(_int(settings, "timeout"))


def _is(settings: Mapping[str, Any], name: str) -> bool:
    return bool(settings[name])


def _no_machine(stage: Stage) -> BadRequest:
    return BadRequest(f"there is no machine for the pipe {stage.pipe!r}")
