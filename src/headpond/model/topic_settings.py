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
from typing import Annotated, NamedTuple, get_type_hints

import msgspec

from headpond.model.bounds import SECONDS_MAX, SEGMENT_BYTES_MAX
from headpond.model.errors import BadSetting, BadTopicName
from headpond.model.names import LEVELS, TopicName
from headpond.model.policy import (
    AFTER_BACKLOG,
    ATTEMPTS_MAX,
    BACKOFF_S,
    BACKOFF_S_MAX,
    DEADLINE_S_MIN,
    LEASE_S_MAX,
    LEASE_S_MIN,
    REDELIVERIES,
    Policy,
)

Value = bool | int | float | str | None
"""None lifts an inherited limit; an inherited setting has no value at all."""

_QUANTITY = re.compile(r"([0-9]{1,30}(?:\.[0-9]{1,30})?|\.[0-9]{1,30})\s*([A-Za-z]*)")
_FLAGS = dict.fromkeys(("yes", "true", "on", "1"), True) | dict.fromkeys(("no", "false", "off", "0"), False)
_NONE = ("none", "off", "unlimited")


class SettingKind(StrEnum):
    SECONDS = "seconds"
    BYTES = "bytes"
    COUNT = "count"
    SHARE = "share"
    FLAG = "flag"
    WORD = "word"
    TOPIC = "topic"


_UNITS: Mapping[SettingKind, Mapping[str, float]] = {
    SettingKind.SECONDS: {"": 1, "ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800},
    SettingKind.BYTES: {"": 1, "b": 1}
    | {
        f"{letter}{suffix}": base**power
        for power, letter in enumerate("kmgt", 1)
        for suffix, base in (("b", 1000), ("ib", 1024), ("", 1024))
    },
}
_EXAMPLES = {
    SettingKind.SECONDS: "30, 30s, 5m, 1.5h or 7d",
    SettingKind.BYTES: "4096, 512KiB or 10GB",
    SettingKind.SHARE: "a part of 1, such as 0.5",
}
_SHOWN_UNITS = {
    SettingKind.SECONDS: (("d", 86_400), ("h", 3600), ("m", 60)),
    SettingKind.BYTES: (("TiB", 1024**4), ("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The rule of one setting."""

    name: str = ""
    kind: SettingKind
    low: float = 0
    high: float = math.inf
    words: tuple[str, ...] = ()
    liftable: bool = False
    """Whether ``none`` is allowed, to lift an inherited limit."""
    levels: tuple[str, ...] = LEVELS
    fixed: bool = False
    """Whether it is set when a topic is created, and never changed."""
    quota: bool = False
    """Whether only an admin of the whole node may set it."""

    def read(self, value: Value) -> Value:
        """A value in its stored form; an invalid one is a ``BadSetting`` that names the setting."""
        if value is None or (isinstance(value, str) and self.liftable and value.strip().lower() in _NONE):
            if not self.liftable:
                raise self._refuse(value, "it cannot be none; `unset` goes back to what is inherited")
            return None
        if self.kind is SettingKind.FLAG:
            flag = _FLAGS.get(value.strip().lower()) if isinstance(value, str) else value
            if not isinstance(flag, bool):
                raise self._refuse(value, "it is yes or no")
            return flag
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

    def _read_topic(self, value: Value) -> str:
        if not isinstance(value, str):
            raise self._refuse(value, "it is a topic's name, or empty for none")
        try:
            return str(TopicName.parse(value)) if value else ""
        except BadTopicName as error:
            raise self._refuse(value, error.message) from None

    def _read_number(self, value: Value) -> float | int:
        if isinstance(value, bool) or value is None:
            raise self._refuse(value, f"it is a number of {self.kind}")
        number = self._parse(value) if isinstance(value, str) else value
        if not math.isfinite(number):
            raise self._refuse(value, "it is not finite")
        if self.kind in (SettingKind.SECONDS, SettingKind.SHARE):
            return float(number)
        if number != int(number):
            raise self._refuse(value, "it is a whole number")
        return int(number)

    def _parse(self, text: str) -> float | int:
        match = _QUANTITY.fullmatch(text.strip())
        unit = _UNITS.get(self.kind, {"": 1}).get(match[2].lower()) if match is not None else None
        if match is None or unit is None:
            raise self._refuse(text, f"it is written as {_EXAMPLES.get(self.kind, 'a whole number')}")
        return (float(match[1]) if "." in match[1] else int(match[1])) * unit

    def _refuse(self, value: Value, why: str) -> BadSetting:
        return BadSetting(f"setting {self.name} cannot be {value!r:.80}: {why}")

    def shown(self, value: Value) -> str:
        """A value as text for people."""
        if value is None:
            return "none" if self.liftable else "-"
        if isinstance(value, bool):
            return "yes" if value else "no"
        if isinstance(value, str):
            return value or "none"
        if not math.isfinite(value):
            return "any"
        for unit, size in _SHOWN_UNITS.get(self.kind, ()):
            if value >= size and value % size == 0:
                return f"{value / size:.0f}{unit}"
        if self.kind is SettingKind.SECONDS:
            return f"{value:g}s"
        return f"{value:g}" if isinstance(value, float) else str(value)


NODE = "node"
"""The origin of a value from the node's own settings."""
DEFAULT = "default"
"""The origin of a default."""
_FOREVER_S = 100 * SECONDS_MAX
_SECONDS, _BYTES, _COUNT = SettingKind.SECONDS, SettingKind.BYTES, SettingKind.COUNT

_Ttl = Annotated[float | None, Setting(kind=_SECONDS, low=0.001, high=_FOREVER_S, liftable=True)]
_Lease = Setting(kind=_SECONDS, low=LEASE_S_MIN, high=LEASE_S_MAX)
_Backoff = Annotated[float, Setting(kind=_SECONDS, high=SECONDS_MAX)]
_QUOTA = Setting(kind=_COUNT, low=1, high=2**60, liftable=True, levels=LEVELS[:1], quota=True)
_Quota = Annotated[int | None, _QUOTA]
_ByteQuota = Annotated[int | None, replace(_QUOTA, kind=_BYTES)]


class TopicSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A topic's effective settings, with their defaults; seconds and bytes, None for no limit."""

    soft_ttl: Annotated[float | None, Setting(kind=_SECONDS, high=_FOREVER_S, liftable=True)] = None
    """The age at which the node deletes messages that every subscription has settled."""
    hard_ttl: _Ttl = None
    """The age at which the node deletes messages, settled or not."""
    max_bytes: Annotated[int | None, Setting(kind=_BYTES, low=1, high=2**60, liftable=True)] = None
    """Bytes that a shard may take; beyond them the node deletes the oldest messages, settled or not."""
    expires_after: _Ttl = None
    """The time without a consumer after which the node removes a subscription."""
    durability: Annotated[str, Setting(kind=SettingKind.WORD, words=("sync", "os"))] = "sync"
    """Where a stored message is: ``sync`` on the disk, ``os`` in the operating system."""
    message_bytes_max: Annotated[
        int | None, Setting(kind=_BYTES, low=1, high=SEGMENT_BYTES_MAX, liftable=True)
    ] = None
    """Bytes that one message of a plain topic may take; the node refuses a longer one for good."""
    state: Annotated[bool, Setting(kind=SettingKind.FLAG, levels=LEVELS[3:], fixed=True)] = False
    """Whether it is a state topic, which keeps the latest value of every key."""
    tombstone_ttl: Annotated[float, Setting(kind=_SECONDS, high=_FOREVER_S)] = 7 * 86_400.0
    """State topics: how long a delete stays before compaction may remove it."""
    compact_share: Annotated[
        float | None, Setting(kind=SettingKind.SHARE, low=0.01, high=1.0, liftable=True)
    ] = 0.5
    """State topics: the share of new bytes in closed files at which the node compacts them by itself."""
    create_on_first_use: Annotated[bool, Setting(kind=SettingKind.FLAG, levels=LEVELS[:3])] = True
    """Whether the node creates topics, and places for them, when they are first used."""
    producer_lease: Annotated[float, _Lease] = 10.0
    """How long a single-access producer keeps its lease after its last contact."""
    deadline: Annotated[
        float | None, Setting(kind=_SECONDS, low=DEADLINE_S_MIN, high=SECONDS_MAX, liftable=True)
    ] = None
    """This and the next seven are the redelivery policy of a new subscription (policy.py)."""
    backoff: _Backoff = BACKOFF_S
    backoff_max: _Backoff = BACKOFF_S_MAX
    redelivery: Annotated[str, Setting(kind=SettingKind.WORD, words=REDELIVERIES)] = AFTER_BACKLOG
    max_attempts: Annotated[int | None, Setting(kind=_COUNT, high=ATTEMPTS_MAX)] = None
    dead_letter: Annotated[str | None, Setting(kind=SettingKind.TOPIC)] = None
    failover_after: Annotated[int | None, Setting(kind=_COUNT, low=1, high=ATTEMPTS_MAX)] = None
    lease: Annotated[float | None, _Lease] = None
    tenant_bytes_s: _ByteQuota = None
    """Bytes per second that all producers of the tenant may send; beyond them the node slows them down."""
    tenant_messages_s: _Quota = None
    """Messages per second that all producers of the tenant may send; likewise."""
    connection_bytes_s: _ByteQuota = None
    """Bytes per second that one connection may send to the tenant's topics; likewise."""
    connection_messages_s: _Quota = None
    """Messages per second that one connection may send to the tenant's topics; likewise."""
    tenant_connections: _Quota = 10_000
    """Connections that use the tenant's topics."""
    tenant_stored_bytes: _ByteQuota = None
    """Bytes that the tenant's topics may take."""
    tenant_topics: _Quota = 10_000
    tenant_shards: _Quota = 20_000
    tenant_places: _Quota = 10_000
    """Products and components that were created by command."""
    tenant_subscriptions: _Quota = 10_000
    tenant_producers: _Quota = 100_000
    """Registered producers."""
    tenant_blocks: _Quota = 200_000
    """Blocks of producers that the tenant's shards remember."""
    tenant_writers: _Quota = 50_000
    """Writers whose name begins with the tenant's and a slash."""
    tenant_stages: _Quota = 100_000
    """Stages for the tenant's topics that are in no batch."""
    tenant_staged_bytes: _ByteQuota = 8 * 1024**3
    """Bytes in stages for the tenant's topics."""
    tenant_creates_s: _Quota = 100
    """Topics, places, subscriptions, producers and writers created per second, 1,000 at once."""

    def policy(self, wanted: Policy | None) -> Policy:
        """The policy of a new subscription: the consumer's values, else the topic's."""
        asked = msgspec.structs.asdict(wanted or Policy())
        return Policy(
            **{name: getattr(self, name) if value is None else value for name, value in asked.items()}
        )


_DEFAULTS = TopicSettings()
SETTINGS: dict[str, Setting] = {
    name: replace(hint.__metadata__[0], name=name)
    for name, hint in get_type_hints(TopicSettings, include_extras=True).items()
}
QUOTAS = frozenset(name for name, setting in SETTINGS.items() if setting.quota)
"""Set at a tenant by an admin of the whole node, or in the node's settings for all tenants."""


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
