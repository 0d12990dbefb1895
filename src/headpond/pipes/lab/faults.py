"""The faults of a run: on the links between workers, and of the workers themselves.

Faults strike every message of a packet independently: it is lost, or else doubled, or else delivered once,
and each copy may arrive late. So the run matches what the calculus computes for a channel.
"""

from __future__ import annotations

import math
import re
from random import Random
from typing import Literal

import msgspec

from headpond.model.errors import BadRequest
from headpond.pipes.calculus.route import CHANNEL_RATES

DelayKind = Literal["fixed", "uniform", "exponential", "lognormal"]

_SECONDS = re.compile(r"[0-9]*\.?[0-9]+(?:[eE]-?[0-9]+)?")
_CRASH = re.compile(r"([a-z-]+[0-9]*)@([0-9]+)(?:\+([0-9]+(?:\.[0-9]*)?|\.[0-9]+))?")
SIGMA_MAX = 5.0
DELAY_MIN_S = 1e-9
DELAY_MAX_S = 3600.0
TIME_MAX_S = 1e9
"""Any other time: about thirty years."""
RATE_MIN, RATE_MAX = 1e-9, 1e12
BURST_MAX = 1024
"""Messages that the source submits in a tick, at most: a pipe that always has room still has a rate."""


class Delay(msgspec.Struct, frozen=True):
    """How long a message is on its way, drawn for each message.

    ``fixed:S``, ``uniform:LOW,HIGH``, ``exponential:MEAN``, ``lognormal:MEDIAN,SIGMA`` (a heavy tail; sigma 1
    is a lot).
    """

    kind: DelayKind = "fixed"
    first: float = 0.01
    second: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Delay:
        kind, _, rest = text.partition(":")
        parts = rest.split(",") if rest else []
        shaped = len(parts) == _PARAMETERS.get(kind) and all(_SECONDS.fullmatch(part) for part in parts)
        first, second = (float(part) for part in (*parts, "0")[:2]) if shaped else (0.0, 0.0)
        possible = DELAY_MIN_S <= first <= DELAY_MAX_S and second <= DELAY_MAX_S
        if not possible or (kind == "uniform" and second < first):
            hint = "Write fixed:0.01, uniform:0.005,0.02, exponential:0.01 or lognormal:0.01,1 (seconds)."
            raise BadRequest(f"{text!r} is not a delay", hint=hint)
        if kind == "lognormal" and second > SIGMA_MAX:
            raise BadRequest(f"{text!r}: sigma is at most {SIGMA_MAX:g}; beyond it a delay has no useful mean")
        return msgspec.convert({"kind": kind, "first": first, "second": second}, cls)

    @property
    def is_fixed(self) -> bool:
        return self.kind == "fixed"

    @property
    def mean_s(self) -> float:
        if self.kind == "uniform":
            return (self.first + self.second) / 2
        if self.kind == "lognormal":
            return self.first * math.exp(self.second * self.second / 2)
        return self.first

    def draw(self, rng: Random) -> float:
        if self.kind == "fixed":
            return self.first
        if self.kind == "uniform":
            return rng.uniform(self.first, self.second)
        if self.kind == "exponential":
            return min(rng.expovariate(1 / self.first), DELAY_MAX_S)
        return min(rng.lognormvariate(math.log(self.first), self.second), DELAY_MAX_S)

    def __str__(self) -> str:
        numbers = (self.first, self.second)[: _PARAMETERS[self.kind]]
        return f"{self.kind}:{','.join(f'{number:g}' for number in numbers)}"


_PARAMETERS: dict[str, int] = {"fixed": 1, "uniform": 2, "exponential": 1, "lognormal": 2}


class Crash(msgspec.Struct, frozen=True):
    """A worker loses its memory, or the route its packets, and comes back after ``down_s``.

    It happens when ``at`` different messages have arrived at the end of the route.
    """

    role: str
    at: int
    down_s: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Crash:
        found = _CRASH.fullmatch(text)
        if found is None:
            raise BadRequest(f"{text!r} is not a crash", hint="Write ROLE@MESSAGES or ROLE@MESSAGES+SECONDS.")
        role, at, down = found.groups()
        return cls(role, int(at), float(down or 0))

    def __str__(self) -> str:
        return f"{self.role}@{self.at}" + (f"+{self.down_s:g}" if self.down_s else "")


class Faults(msgspec.Struct, frozen=True, kw_only=True):
    loss: float = 0.0
    """The probability that a message of a packet is lost on a link."""
    duplicate: float = 0.0
    """The probability that one that is not lost arrives twice."""
    reorder: float = 0.0
    """The probability that a copy arrives late, by up to ``reorder_s``."""
    confirm_loss: float = 0.0
    """The probability that an answer (confirm, gap request, fetch) is lost."""
    delay: Delay = Delay()
    reorder_s: float | None = None
    """How late at most; None for as long as the mean delay."""
    crashes: tuple[Crash, ...] = ()
    rate: float = 0.0
    """Messages per second that the source submits; 0 for as fast as the route takes them."""
    work_s: float = 0.0
    """How long the worker at the end works on a run."""

    @property
    def rates(self) -> dict[str, float]:
        return {name: getattr(self, name) for name in CHANNEL_RATES}

    def check(self) -> None:
        for name, rate in self.rates.items():
            if not 0 <= rate <= 1:
                raise BadRequest(f"{name.replace('_', ' ')} must be from 0 to 1, not {rate}")
        if self.rate and not RATE_MIN <= self.rate <= RATE_MAX:
            raise BadRequest(
                f"the rate must be 0, or from {RATE_MIN:g} to {RATE_MAX:g} per second, not {self.rate:g}"
            )
        times = (self.work_s, self.reorder_s or 0.0, *(crash.down_s for crash in self.crashes))
        if not all(0 <= seconds <= TIME_MAX_S for seconds in times):
            raise BadRequest(f"every time must be from 0 to {TIME_MAX_S:,.0f} seconds")

    @property
    def tick_s(self) -> float:
        """The step of simulated time: all events within one step happen together, which makes a run fast.

        Finer where each message draws its own delay, so that the distribution keeps its shape.
        """
        return self.delay.mean_s / (4 if self.delay.is_fixed else 16)

    @property
    def late_s(self) -> float:
        """How late a copy arrives at most."""
        return self.delay.mean_s if self.reorder_s is None else self.reorder_s
