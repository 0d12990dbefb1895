"""What every part of the broker uses: the clocks, the settings, the counters, the alarms, the effects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from headpond.broker.alarms import Alarms
from headpond.broker.effects import Effect
from headpond.broker.settings import Settings


class Context:
    def __init__(
        self,
        settings: Settings,
        *,
        node: str,
        software: str,
        now_us: Callable[[], int],
        clock_us: Callable[[], int],
        new_uuid: Callable[[], bytes],
    ) -> None:
        """``now_us`` is the time of day; ``clock_us`` is never set back."""
        self.settings = settings
        self.node = node
        """The node's name."""
        self.software = software
        self.now_us = now_us
        self.clock_us = clock_us
        self.new_uuid = new_uuid
        self.counters: Counter[str] = Counter()
        self.alarms = Alarms(clock_us)
        self.effects: list[Effect] = []
        """The effects that the shell carries out next."""
        self.unacked_bytes = 0
        """Bytes of segments that the node has received and not yet answered."""

    def add_effect(self, effect: Effect) -> None:
        self.effects.append(effect)

    @property
    def stopping(self) -> bool:
        return self.alarms.stopping
