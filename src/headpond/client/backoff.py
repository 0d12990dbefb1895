"""How long to wait before trying again: exponential, with full jitter so that many clients spread out."""

from __future__ import annotations

import random
from collections.abc import Callable

from headpond.client.arguments import checked

DELAY_MIN_S = 0.05
DELAY_MAX_S = 5.0


class Backoff:
    """``delay_s(0)`` is up to the minimum, each further attempt up to twice that, never over the maximum."""

    @checked
    def __init__(
        self,
        min_s: float = DELAY_MIN_S,
        max_s: float = DELAY_MAX_S,
        random: Callable[[], float] = random.random,
    ) -> None:
        self._min_s = min_s
        self._max_s = max_s
        self._random = random

    def delay_s(self, attempt: int) -> float:
        return self._random() * min(self._max_s, self._min_s * 2.0 ** min(attempt, 30))
