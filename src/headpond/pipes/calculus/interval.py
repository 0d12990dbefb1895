"""R and UR of a measured run, with intervals, and whether they agree with a prediction.

A run is a sample: 1,000 messages over a route whose R is 0.9 do not deliver 900 on the nose. An interval holds
the true value with the confidence asked for, so "measured agrees with predicted" is something computed, not
judged.

- **R** is a share of messages, each lost or not on its own: Wilson's score interval, which is right near 0 and
  1 and for small runs.
- **UR** is unique / received, the ratio of two sums over messages, because the copies of one message come
  together. The delta method gives its variance, Var(I − UR·K) / (n · mean²), where K is a message's copies and
  I whether it has any. The interval is Wilson's again, on the number of independent copies that would have that
  variance (never more than were received), so that a run without a single repeat does not claim certainty.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import NormalDist

import msgspec

from headpond.pipes.calculus.delivery import Number, exact

CONFIDENCE = 0.999
"""High, because a run is compared on several numbers and a test suite makes many runs."""


class Interval(msgspec.Struct, frozen=True):
    """A measured value and where the true one lies, with the confidence named."""

    value: float
    low: float
    high: float
    confidence: float

    def holds(self, value: Number) -> bool:
        return self.agrees(value, value)

    def agrees(self, low: Number, high: Number) -> bool:
        """Whether a prediction from ``low`` to ``high`` can be true, as far as this run tells."""
        return exact(low) <= exact(self.high) and exact(high) >= exact(self.low)

    def compare(self, name: str, low: Number, high: Number) -> tuple[bool, str]:
        """The same, and the sentence that says so about a number of that name."""
        agrees = self.agrees(low, high)
        predicted = f"{float(low):.6g}" if low == high else f"{float(low):.6g} to {float(high):.6g}"
        verb = "agrees" if agrees else "DISAGREES"
        return agrees, f"measured {name} {self} {verb} with predicted {predicted}"

    def __str__(self) -> str:
        return f"{self.value:.6g} ({self.low:.6g} to {self.high:.6g} at {self.confidence:.6g})"


@dataclass(frozen=True, slots=True)
class CopyTally:
    """The counts of a run: enough for both intervals."""

    sent: int = 0
    unique: int = 0
    """Messages of which a copy arrived."""
    received: int = 0
    """Copies that arrived."""
    squares: int = 0
    """The sum over messages of copies squared."""

    def reliability(self) -> Interval:
        """Measured R, with its interval."""
        return wilson(self.unique, self.sent)

    def uniqueness(self, confidence: float = CONFIDENCE) -> Interval:
        """Measured UR, with its interval."""
        if not self.received:
            return Interval(1.0, 0.0, 1.0, confidence)
        return wilson(self.unique, self.received, confidence, trials_effective=self._copies_effective())

    def _copies_effective(self) -> float:
        ratio = self.unique / self.received
        # Σ (I − UR·K)² over all messages; I·K = K and I² = I. Its mean is 0 by what UR is.
        spread = self.unique - 2 * ratio * self.received + ratio * ratio * self.squares
        variance = spread / (self.received * self.received)
        binomial = ratio * (1 - ratio)
        if variance * self.received <= binomial:
            return self.received
        return binomial / variance


def tally(copies: Iterable[int]) -> CopyTally:
    """The tally of the number of copies of each message."""
    counts = Counter(copies)
    return CopyTally(
        sent=counts.total(),
        unique=counts.total() - counts[0],
        received=sum(count * messages for count, messages in counts.items()),
        squares=sum(count * count * messages for count, messages in counts.items()),
    )


def wilson(
    successes: int, trials: int, confidence: float = CONFIDENCE, *, trials_effective: float | None = None
) -> Interval:
    """Wilson's score interval for a share; without trials nothing is known, and it is all of 0 to 1."""
    deviations = -NormalDist().inv_cdf((1 - confidence) / 2)
    if not trials:
        return Interval(1.0, 0.0, 1.0, confidence)
    share, size = successes / trials, trials_effective or trials
    square = deviations * deviations / size
    middle = (share + square / 2) / (1 + square)
    half = deviations * math.sqrt(share * (1 - share) / size + square / size / 4) / (1 + square)
    # The ends are exact where all or none succeeded; rounding must not move them inside.
    low = 0.0 if successes == 0 else max(0.0, middle - half)
    high = 1.0 if successes == trials else min(1.0, middle + half)
    return Interval(share, low, high, confidence)
