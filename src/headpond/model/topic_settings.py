"""The settings of topics, and how topics inherit them: topic, else component, product, tenant, node, default.

A place of the tree has a mapping from names to values. It inherits a setting that is not in the mapping; a
value of None lifts an inherited limit. Unknown names are stored and ignored, so that settings of a later
version survive an earlier one.

A value may be given as it is stored (number, boolean, text) or as a person writes it: ``90``, ``90s``,
``1.5h``, ``7d`` for seconds, ``4096``, ``512KiB``, ``10GB`` for bytes, ``yes`` and ``no`` for a flag, and
``none`` to lift a limit.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

import msgspec

from headpond.model.bounds import SECONDS_MAX, SEGMENT_BYTES_MAX
from headpond.model.errors import BadSetting, BadTopicName
from headpond.model.names import LEVELS, TopicName
from headpond.model.policy import (
    AFTER_BACKLOG,
    BACKOFF_S,
    BACKOFF_S_MAX,
    LEASE_S_MAX,
    LEASE_S_MIN,
    REDELIVERIES,
    Policy,
)

Value = bool | int | float | str | None
"""None lifts an inherited limit; an inherited setting has no value at all."""

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


class SettingKind(StrEnum):
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
    kind: SettingKind
    meaning: str
    low: float = 0
    high: float = math.inf
    words: tuple[str, ...] = ()
    liftable: bool = False
    """Whether ``none`` is allowed, to lift an inherited limit."""
    levels: tuple[str, ...] = LEVELS
    fixed: bool = False
    """Whether it is set when a topic is created, and never changed."""

    def read(self, value: Value) -> Value:
        """A value in its stored form; an invalid one is a ``BadSetting`` that names the setting."""
        if value is None or (isinstance(value, str) and self.liftable and value.strip().lower() in _NONE):
            if not self.liftable:
                raise self._refuse(value, "it cannot be none; `unset` goes back to what is inherited")
            return None
        if self.kind is SettingKind.FLAG:
            return self._read_flag(value)
        if self.kind is SettingKind.WORD:
            if value not in self.words:
                raise self._refuse(value, f"it is one of {', '.join(self.words)}")
            return value
        if self.kind is SettingKind.TOPIC:
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
        if self.kind in (SettingKind.SECONDS, SettingKind.SHARE):
            return float(number)
        if number != int(number):
            raise self._refuse(value, "it is a whole number")
        return int(number)

    def _parse(self, text: str) -> float | int:
        match = _QUANTITY.fullmatch(text.strip())
        units: dict[str, float] = {"": 1}
        if self.kind is SettingKind.SECONDS:
            units = dict(_SECONDS)
        elif self.kind is SettingKind.BYTES:
            units = dict(_BYTES)
        unit = units.get(match[2].lower()) if match is not None else None
        if match is None or unit is None:
            known = {
                SettingKind.SECONDS: "30, 30s, 5m, 1.5h or 7d",
                SettingKind.BYTES: "4096, 512KiB or 10GB",
                SettingKind.SHARE: "a part of 1, such as 0.5",
            }
            raise self._refuse(text, f"it is written as {known.get(self.kind, 'a whole number')}")
        number = float(match[1]) if "." in match[1] else int(match[1])
        return number * unit

    def _refuse(self, value: Value, why: str) -> BadSetting:
        return BadSetting(f"setting {self.name} cannot be {value!r:.80}: {why}")

    def shown(self, value: Value) -> str:
        """A value as text for people."""
        if value is None:
            return "none" if self.liftable else "-"
        if isinstance(value, bool):
            return "yes" if value else "no"
        if self.kind is SettingKind.SECONDS and isinstance(value, float | int):
            return _shown_seconds(value)
        if self.kind is SettingKind.BYTES and isinstance(value, float | int):
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


NODE = "node"
"""The origin of a value from the node's own settings."""
DEFAULT = "default"
"""The origin of a default."""
PRODUCER_LEASE_S = 10.0
FOREVER_S = 100 * SECONDS_MAX
TOMBSTONE_TTL_S = 7 * 86_400.0


class TopicSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A topic's effective settings, with their defaults; seconds and bytes, None for no limit."""

    soft_ttl: float | None = None
    hard_ttl: float | None = None
    max_bytes: int | None = None
    expires_after: float | None = None
    durability: str = "sync"
    message_bytes_max: int | None = None
    state: bool = False
    tombstone_ttl: float = TOMBSTONE_TTL_S
    compact_share: float | None = 0.5
    create_on_first_use: bool = True
    producer_lease: float = PRODUCER_LEASE_S
    deadline: float | None = None
    backoff: float = BACKOFF_S
    backoff_max: float = BACKOFF_S_MAX
    redelivery: str = AFTER_BACKLOG
    max_attempts: int | None = None
    dead_letter: str | None = None
    failover_after: int | None = None
    lease: float | None = None
    tenant_bytes_s: int | None = None
    tenant_messages_s: int | None = None
    connection_bytes_s: int | None = None
    connection_messages_s: int | None = None
    tenant_connections: int | None = 10_000
    tenant_stored_bytes: int | None = None
    tenant_topics: int | None = 10_000
    tenant_shards: int | None = 20_000
    tenant_places: int | None = 10_000
    tenant_subscriptions: int | None = 10_000
    tenant_producers: int | None = 100_000
    tenant_blocks: int | None = 200_000
    tenant_writers: int | None = 50_000
    tenant_stages: int | None = 100_000
    tenant_staged_bytes: int | None = 8 * 1024**3
    tenant_creates_s: int | None = 100

    def policy(self, wanted: Policy | None) -> Policy:
        """The policy of a new subscription: the consumer's values, else the topic's."""
        asked = msgspec.structs.asdict(wanted or Policy())
        return Policy(
            **{name: getattr(self, name) if value is None else value for name, value in asked.items()}
        )


_DEFAULTS = TopicSettings()
_ALL: tuple[Setting, ...] = (
    Setting(
        name="soft_ttl",
        kind=SettingKind.SECONDS,
        high=FOREVER_S,
        liftable=True,
        meaning="Age from which messages are deleted that every subscription has settled.",
    ),
    Setting(
        name="hard_ttl",
        kind=SettingKind.SECONDS,
        low=0.001,
        high=FOREVER_S,
        liftable=True,
        meaning="Age from which messages are deleted, settled or not.",
    ),
    Setting(
        name="max_bytes",
        kind=SettingKind.BYTES,
        low=1,
        high=2**60,
        liftable=True,
        meaning="Bytes a shard may take; past it the oldest messages are deleted, settled or not.",
    ),
    Setting(
        name="expires_after",
        kind=SettingKind.SECONDS,
        low=0.001,
        high=FOREVER_S,
        liftable=True,
        meaning="Time without a consumer after which a subscription is removed.",
    ),
    Setting(
        name="durability",
        kind=SettingKind.WORD,
        words=("sync", "os"),
        meaning="What stored means: sync is on the disk, os is handed to the operating system.",
    ),
    Setting(
        name="message_bytes_max",
        kind=SettingKind.BYTES,
        low=1,
        high=SEGMENT_BYTES_MAX,
        liftable=True,
        meaning="Bytes that one message of a plain topic may take; anything longer is refused for good.",
    ),
    Setting(
        name="state",
        kind=SettingKind.FLAG,
        levels=LEVELS[3:],
        fixed=True,
        meaning="Whether it is a state topic: the latest value a key. Said when the topic is created.",
    ),
    Setting(
        name="tombstone_ttl",
        kind=SettingKind.SECONDS,
        high=FOREVER_S,
        meaning="State topics: time for which a delete is kept before compaction may take it away.",
    ),
    Setting(
        name="compact_share",
        kind=SettingKind.SHARE,
        low=0.01,
        high=1.0,
        liftable=True,
        meaning="State topics: share of new bytes in closed files from which they are compacted by themselves.",
    ),
    Setting(
        name="create_on_first_use",
        kind=SettingKind.FLAG,
        levels=LEVELS[:3],
        meaning="Whether topics, and places for them, come into being when they are first used.",
    ),
    Setting(
        name="producer_lease",
        kind=SettingKind.SECONDS,
        low=LEASE_S_MIN,
        high=LEASE_S_MAX,
        meaning="Time after it was last heard of in which a single-access producer keeps its lease.",
    ),
    Setting(
        name="deadline",
        kind=SettingKind.SECONDS,
        low=0.05,
        high=SECONDS_MAX,
        liftable=True,
        meaning="Redelivery: time within which a message must be settled.",
    ),
    Setting(
        name="backoff",
        kind=SettingKind.SECONDS,
        high=SECONDS_MAX,
        meaning="Redelivery: time that a refused message waits, doubled with each attempt.",
    ),
    Setting(
        name="backoff_max",
        kind=SettingKind.SECONDS,
        high=SECONDS_MAX,
        meaning="Redelivery: the longest such time.",
    ),
    Setting(
        name="redelivery",
        kind=SettingKind.WORD,
        words=REDELIVERIES,
        meaning="Redelivery: whether a refused message also waits for the backlog, or for its backoff alone.",
    ),
    Setting(
        name="max_attempts",
        kind=SettingKind.COUNT,
        high=2**31,
        meaning="Redelivery: attempts before a message is put aside; 0 is without end.",
    ),
    Setting(
        name="dead_letter",
        kind=SettingKind.TOPIC,
        meaning="Redelivery: the topic that takes what was put aside; empty for none. Else TOPIC.dead.",
    ),
    Setting(
        name="failover_after",
        kind=SettingKind.COUNT,
        low=1,
        high=2**31,
        meaning="Redelivery: failures of one message after which a failover consumer steps back.",
    ),
    Setting(
        name="lease",
        kind=SettingKind.SECONDS,
        low=LEASE_S_MIN,
        high=LEASE_S_MAX,
        meaning="Redelivery: time for which a resilient consumer goes on without hearing from the node.",
    ),
)
_QUOTAS = (
    Setting(
        name="tenant_bytes_s",
        kind=SettingKind.BYTES,
        meaning="Quota: bytes a second that all producers of the tenant may send; past it they slow down.",
    ),
    Setting(
        name="tenant_messages_s",
        kind=SettingKind.COUNT,
        meaning="Quota: messages a second that all producers of the tenant may send; likewise.",
    ),
    Setting(
        name="connection_bytes_s",
        kind=SettingKind.BYTES,
        meaning="Quota: bytes a second that one connection may send to the tenant's topics; likewise.",
    ),
    Setting(
        name="connection_messages_s",
        kind=SettingKind.COUNT,
        meaning="Quota: messages a second that one connection may send to the tenant's topics; likewise.",
    ),
    Setting(
        name="tenant_connections",
        kind=SettingKind.COUNT,
        meaning="Quota: connections that use the tenant's topics; one more is refused, to be tried again.",
    ),
    Setting(
        name="tenant_stored_bytes",
        kind=SettingKind.BYTES,
        meaning="Quota: bytes that the tenant's topics may take; past it sends are refused, to be tried again.",
    ),
    Setting(name="tenant_topics", kind=SettingKind.COUNT, meaning="Quota: the tenant's topics."),
    Setting(name="tenant_shards", kind=SettingKind.COUNT, meaning="Quota: shards in all its topics."),
    Setting(
        name="tenant_places",
        kind=SettingKind.COUNT,
        meaning="Quota: the tenant's products and components that are made by command.",
    ),
    Setting(
        name="tenant_subscriptions",
        kind=SettingKind.COUNT,
        meaning="Quota: subscriptions of all its topics.",
    ),
    Setting(
        name="tenant_producers",
        kind=SettingKind.COUNT,
        meaning="Quota: producers that are registered by name in all its topics.",
    ),
    Setting(
        name="tenant_blocks",
        kind=SettingKind.COUNT,
        meaning="Quota: runs of producers that its shards remember; one more is refused, to be tried again.",
    ),
    Setting(
        name="tenant_writers",
        kind=SettingKind.COUNT,
        meaning="Quota: writers whose name begins with the tenant's and a slash.",
    ),
    Setting(
        name="tenant_stages",
        kind=SettingKind.COUNT,
        meaning="Quota: stages for its topics that are in no batch.",
    ),
    Setting(
        name="tenant_staged_bytes",
        kind=SettingKind.BYTES,
        meaning="Quota: bytes in stages for its topics; past it staging is refused, to be tried again.",
    ),
    Setting(
        name="tenant_creates_s",
        kind=SettingKind.COUNT,
        meaning="Quota: topics, places, subscriptions, producers and writers made a second, 1,000 at once; "
        "past it who makes them slows down.",
    ),
)
QUOTAS = frozenset(setting.name for setting in _QUOTAS)
"""Set at a tenant by an admin of the whole node, or in the node's settings for all tenants."""
_ALL += tuple(replace(setting, low=1, high=2**60, liftable=True, levels=LEVELS[:1]) for setting in _QUOTAS)
SETTINGS: dict[str, Setting] = {setting.name: setting for setting in _ALL}


class SettingOrigin(NamedTuple):
    """A value and the place that sets it."""

    value: Value
    level: str
    """``topic``, ``component``, ``product``, ``tenant``, ``node`` or ``default``."""
    place: str
    """The full name of the place; empty for the last two."""


class Level(NamedTuple):
    """The settings of one place."""

    level: str
    place: str
    values: Mapping[str, Value]


def resolve(chain: Iterable[Level]) -> dict[str, SettingOrigin]:
    """Every setting with its effective value and origin; ``chain`` begins with the nearest place."""
    levels = list(chain)
    found: dict[str, SettingOrigin] = {}
    for name in SETTINGS:
        nearest = next((level for level in levels if name in level.values), None)
        if nearest is None:
            found[name] = SettingOrigin(getattr(_DEFAULTS, name), DEFAULT, "")
        else:
            found[name] = SettingOrigin(nearest.values[name], nearest.level, nearest.place)
    return found


def effective(chain: Iterable[Level]) -> TopicSettings:
    return TopicSettings(**{name: origin.value for name, origin in resolve(chain).items()})  # type: ignore[arg-type]


def read_values(values: Mapping[str, Value], level: str) -> dict[str, Value]:
    """Values for a place of a level, in their stored form; an invalid one is a ``BadSetting``."""
    return {name: _setting(name, level).read(value) for name, value in values.items()}


def check_changeable(names: Iterable[str]) -> None:
    """Refuses settings that are fixed when their topic is created."""
    for name in names:
        if name in SETTINGS and SETTINGS[name].fixed:
            raise BadSetting(
                f"setting {name} is fixed when a topic is created",
                hint="Create another topic with it, and send the messages there.",
            )


def check_names(names: Iterable[str], level: str) -> None:
    """Refuses names that cannot be unset at a place of a level."""
    for name in names:
        _setting(name, level)


def _setting(name: str, level: str) -> Setting:
    setting = SETTINGS.get(name)
    if setting is None:
        near = difflib.get_close_matches(name, SETTINGS, n=3, cutoff=0.5)
        hint = f"Near to it: {', '.join(near)}." if near else f"There are {', '.join(SETTINGS)}."
        raise BadSetting(f"there is no setting {name[:80]!r}", hint=hint)
    if level not in setting.levels and (level != NODE or setting.fixed):
        raise BadSetting(
            f"setting {name} cannot be set at a {level}",
            hint=f"It can be set at a {', '.join(setting.levels)}.",
        )
    return setting
