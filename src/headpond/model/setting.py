"""One setting of a topic: its kind, its limits, and how a value of it is read and written.

Values may be given as they are stored (numbers, booleans, text) or as a person writes them: ``90``, ``90s``,
``1.5h``, ``7d`` for seconds, ``4096``, ``512KiB``, ``10GB`` for bytes, ``yes`` and ``no`` for a choice, and
``none`` where a limit can be lifted.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import StrEnum

from headpond.model.errors import BadSetting, BadTopicName
from headpond.model.place import LEVELS
from headpond.model.topic import TopicName

Value = bool | int | float | str | None
"""None lifts a limit that would be inherited; where nothing is said there is no value at all."""

_QUANTITY = re.compile(r"([0-9]{1,30}(?:\.[0-9]{1,30})?|\.[0-9]{1,30})\s*([A-Za-z]*)")
_SECONDS = {
    "": 1.0,
    "ms": 0.001,
    "s": 1.0,
    "m": 60.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86_400.0,
    "w": 604_800.0,
}
_BYTES = {"": 1, "b": 1} | {
    f"{letter}{suffix}": base**power
    for power, letter in enumerate("kmgt", 1)
    for suffix, base in (("b", 1000), ("ib", 1024), ("", 1024))
}
_FLAGS = {
    "yes": True,
    "true": True,
    "on": True,
    "1": True,
    "no": False,
    "false": False,
    "off": False,
    "0": False,
}
_NONE = ("none", "off", "unlimited")


class Kind(StrEnum):
    SECONDS = "seconds"
    BYTES = "bytes"
    COUNT = "count"
    SHARE = "share"
    FLAG = "flag"
    WORD = "word"
    TOPIC = "topic"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    name: str
    kind: Kind
    meaning: str
    default: Value = None
    low: float = 0
    high: float = math.inf
    words: tuple[str, ...] = ()
    liftable: bool = False
    """Whether ``none`` can be said, to lift a limit that would be inherited."""
    levels: tuple[str, ...] = LEVELS
    fixed: bool = False
    """Whether it is said when a topic is created, and never changed."""

    def read(self, value: Value) -> Value:
        """A value in its stored form; one that cannot be is a ``BadSetting`` that names the setting."""
        if value is None or (isinstance(value, str) and self.liftable and value.strip().lower() in _NONE):
            if not self.liftable:
                raise self._refuse(value, "it cannot be none; `unset` goes back to what is inherited")
            return None
        if self.kind is Kind.FLAG:
            return self._read_flag(value)
        if self.kind is Kind.WORD:
            if value not in self.words:
                raise self._refuse(value, f"it is one of {', '.join(self.words)}")
            return value
        if self.kind is Kind.TOPIC:
            return self._read_topic(value)
        number = self._read_number(value)
        if not self.low <= number <= self.high:
            raise self._refuse(value, f"it lies between {self.shown(self.low)} and {self.shown(self.high)}")
        return number

    def _read_flag(self, value: Value) -> bool:
        found = _FLAGS.get(value.strip().lower()) if isinstance(value, str) else value
        if not isinstance(found, bool):
            raise self._refuse(value, "it is yes or no")
        return found

    def _read_topic(self, value: Value) -> str:
        if not isinstance(value, str):
            raise self._refuse(value, "it is a topic's name, or empty for none")
        try:
            return str(TopicName.parse(value)) if value else ""
        except BadTopicName as error:
            raise self._refuse(value, error.message) from None

    def _read_number(self, value: Value) -> float | int:
        if isinstance(value, str):
            number = self._parse(value)
        elif isinstance(value, bool) or value is None:
            raise self._refuse(value, f"it is a number of {self.kind}")
        else:
            number = value
        if not math.isfinite(number):
            raise self._refuse(value, "it is not finite")
        if self.kind in (Kind.SECONDS, Kind.SHARE):
            return float(number)
        if number != int(number):
            raise self._refuse(value, "it is a whole number")
        return int(number)

    def _parse(self, text: str) -> float | int:
        match = _QUANTITY.fullmatch(text.strip())
        units: dict[str, float] = {"": 1}
        if self.kind is Kind.SECONDS:
            units = dict(_SECONDS)
        elif self.kind is Kind.BYTES:
            units = dict(_BYTES)
        unit = units.get(match[2].lower()) if match is not None else None
        if match is None or unit is None:
            known = {
                Kind.SECONDS: "30, 30s, 5m, 1.5h or 7d",
                Kind.BYTES: "4096, 512KiB or 10GB",
                Kind.SHARE: "a part of 1, such as 0.5",
            }
            raise self._refuse(text, f"it is written as {known.get(self.kind, 'a whole number')}")
        number = float(match[1]) if "." in match[1] else int(match[1])
        return number * unit

    def _refuse(self, value: Value, why: str) -> BadSetting:
        return BadSetting(f"setting {self.name} cannot be {value!r:.80}: {why}")

    def shown(self, value: Value) -> str:
        """A value as a person reads it."""
        if value is None:
            return "none" if self.liftable else "-"
        if isinstance(value, bool):
            return "yes" if value else "no"
        if self.kind is Kind.SECONDS and isinstance(value, float | int):
            return _shown_seconds(value)
        if self.kind is Kind.BYTES and isinstance(value, float | int):
            return _shown_bytes(int(value)) if math.isfinite(value) else "any"
        if isinstance(value, float):
            return f"{value:g}" if math.isfinite(value) else "any"
        return str(value) if value != "" else "none"


def _shown_seconds(seconds: float) -> str:
    if not math.isfinite(seconds):
        return "any"
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:g}s"


def _shown_bytes(size: int) -> str:
    for unit, power in (("TiB", 4), ("GiB", 3), ("MiB", 2), ("KiB", 1)):
        if size >= 1024**power and size % 1024**power == 0:
            return f"{size // 1024**power}{unit}"
    return f"{size}"
