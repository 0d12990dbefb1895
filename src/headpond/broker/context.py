"""What every part of the broker uses: the clocks, the settings, the counters, the alarms, the effects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from headpond.broker.effects import Effect
from headpond.broker.settings import Settings
from headpond.broker.timings import Timings


class Alarm:
    """The next time at which a part of the broker acts.

    A part arms its alarm when it gets something with a deadline. An alarm may ring for nothing: the part then
    arms it again for the deadlines that are left.
    """

    __slots__ = ("_alarms", "act", "at_us", "while_stopping")

    def __init__(self, alarms: Alarms, act: Callable[[], None], while_stopping: bool) -> None:
        self._alarms = alarms
        self.act = act
        self.while_stopping = while_stopping
        self.at_us: int | None = None

    def by(self, at_us: int | None) -> None:
        """Rings at that time or earlier; None changes nothing."""
        if at_us is None or (self.at_us is not None and self.at_us <= at_us):
            return
        self.at_us = at_us
        alarms = self._alarms
        if alarms.due_us is None or at_us < alarms.due_us:
            alarms.due_us = at_us


class Alarms:
    def __init__(self, clock_us: Callable[[], int]) -> None:
        self._clock_us = clock_us
        self._all: list[Alarm] = []
        self.due_us: int | None = None
        """When ``ring`` is to be called next."""
        self.stopping = False

    def add(self, act: Callable[[], None], *, while_stopping: bool = True) -> Alarm:
        """``act`` is called when the alarm rings."""
        alarm = Alarm(self, act, while_stopping)
        self._all.append(alarm)
        return alarm

    def ring(self) -> None:
        now_us = self._clock_us()
        for alarm in self._all:
            if alarm.at_us is not None and alarm.at_us <= now_us:
                alarm.at_us = None
                if alarm.while_stopping or not self.stopping:
                    alarm.act()
        self.due_us = min((each.at_us for each in self._all if each.at_us is not None), default=None)


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
        self.timings = Timings()
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
