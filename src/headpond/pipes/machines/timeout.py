"""How long to wait for a confirm before sending again.

The estimate of RFC 6298, with a wider margin, since a needless copy costs the receiver more than a late one:

1. A round trip is measured only on messages that were sent once (Karn's rule): the confirm of a message sent
   twice does not say which sending it answers.
2. ``timeout = mean + max(4 × deviation, mean)``, within the limits, plus up to a tenth of jitter, so that
   senders that started together do not stay together.
3. Without a measurement since the sending that ran out was made, the timeout doubles, and stays doubled for new
   sendings. So a round trip longer than the first timeout is learned, and a peer that is away is not hammered;
   while random loss, with confirms flowing, does not slow the pipe.
4. A confirm that measures nothing still says that the peer is there: of many doublings three are left. If eight
   such confirms come in a row it is one more, and so on: then it is not loss, but a round trip that has grown.
"""

from __future__ import annotations

from dataclasses import dataclass

from headpond.pipes.machines.machine import Jitter, no_jitter

JITTER_SHARE = 0.1
INITIAL_S = 1.0
MAX_S = 30.0
DOUBLINGS_KEPT = 3
PATIENCE = 8


@dataclass(frozen=True, slots=True)
class TimeoutSettings:
    initial_s: float = INITIAL_S
    """Before anything was measured."""
    min_s: float = 0.02
    """A Python program may be busy with something else for that long."""
    max_s: float = MAX_S

    @classmethod
    def at_least(cls, milliseconds: int) -> TimeoutSettings:
        """The usual ones, with this floor."""
        min_s = milliseconds / 1000
        return cls(max(INITIAL_S, min_s), min_s, max(MAX_S, min_s))


class Timeout:
    def __init__(self, settings: TimeoutSettings | None = None, jitter: Jitter = no_jitter) -> None:
        self._settings = found = settings or TimeoutSettings()
        self._jitter = jitter
        self._mean_s = 0.0
        self._deviation_s = 0.0
        self._estimate_s = min(max(found.initial_s, found.min_s), found.max_s)
        self._doublings = 0
        self._unclear = 0
        """Confirms since the last measurement."""
        self._fresh_at = float("-inf")
        """When the timeout last changed, by a measurement or by doubling."""
        self.base_s = self._estimate_s
        """The timeout now, without jitter."""

    def measured(self, round_trip_s: float, now: float) -> None:
        """A message sent once was confirmed after so long."""
        if self._mean_s == 0.0:
            self._mean_s, self._deviation_s = round_trip_s, round_trip_s / 2
        else:
            self._deviation_s += (abs(round_trip_s - self._mean_s) - self._deviation_s) / 4
            self._mean_s += (round_trip_s - self._mean_s) / 8
        estimate_s = self._mean_s + max(4 * self._deviation_s, self._mean_s)
        self._estimate_s = self.base_s = min(max(estimate_s, self._settings.min_s), self._settings.max_s)
        self._doublings = self._unclear = 0
        self._fresh_at = now

    def confirmed(self) -> None:
        """A message sent more than once was confirmed: nobody can say how long that took."""
        self._unclear += 1
        self._double(min(self._doublings, DOUBLINGS_KEPT + self._unclear // PATIENCE))

    def heard(self, now: float) -> None:
        """The other side answered, and nothing is open: the timeout is no longer doubled."""
        self._double(0)
        self._fresh_at = now

    def ran_out(self, sent_at: float, now: float) -> None:
        """A sending was not confirmed in time."""
        # All the sendings of one silence double it once.
        if sent_at >= self._fresh_at and self.base_s < self._settings.max_s:
            self._double(self._doublings + 1)
            self._fresh_at = now

    def deadline(self, now: float) -> float:
        return now + self.base_s * (1 + JITTER_SHARE * self._jitter())

    def _double(self, times: int) -> None:
        self._doublings = times
        self.base_s = min(self._estimate_s * 2**times, self._settings.max_s)
