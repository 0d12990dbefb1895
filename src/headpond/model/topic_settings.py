"""The settings of topics, and how they are inherited: topic, else component, product, tenant, node, default.

What stands at a place of the tree is a mapping from names to values. A setting that is not in it is inherited;
one that is None there lifts a limit that would be. Names that this version does not know are kept and passed
over, so that what a later version wrote survives an earlier one.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

import msgspec

from headpond.model.errors import BadSetting
from headpond.model.place import LEVELS
from headpond.model.policy import (
    AFTER_BACKLOG,
    BACKOFF_S,
    BACKOFF_S_MAX,
    LEASE_S_MAX,
    LEASE_S_MIN,
    REDELIVERIES,
    SECONDS_MAX,
    Policy,
)
from headpond.model.setting import Kind, Setting, Value

NODE = "node"
"""Where a value comes from that the node's own settings give."""
DEFAULT = "default"
"""Where a value comes from that nobody gave."""
SEGMENT_BYTES_MAX = 8 * 1024 * 1024
PRODUCER_LEASE_S = 10.0
FOREVER_S = 100 * SECONDS_MAX
TOMBSTONE_TTL_S = 7 * 86_400.0

_ALL: tuple[Setting, ...] = (
    Setting(
        name="soft_ttl",
        kind=Kind.SECONDS,
        high=FOREVER_S,
        liftable=True,
        meaning="Age from which messages are deleted that every subscription has settled.",
    ),
    Setting(
        name="hard_ttl",
        kind=Kind.SECONDS,
        low=0.001,
        high=FOREVER_S,
        liftable=True,
        meaning="Age from which messages are deleted, settled or not.",
    ),
    Setting(
        name="max_bytes",
        kind=Kind.BYTES,
        low=1,
        high=2**60,
        liftable=True,
        meaning="Bytes a shard may take; past it the oldest messages are deleted, settled or not.",
    ),
    Setting(
        name="expires_after",
        kind=Kind.SECONDS,
        low=0.001,
        high=FOREVER_S,
        liftable=True,
        meaning="Time without a consumer after which a subscription is removed.",
    ),
    Setting(
        name="durability",
        kind=Kind.WORD,
        default="sync",
        words=("sync", "os"),
        meaning="What stored means: sync is on the disk, os is handed to the operating system.",
    ),
    Setting(
        name="message_bytes_max",
        kind=Kind.BYTES,
        low=1,
        high=SEGMENT_BYTES_MAX,
        liftable=True,
        meaning="Bytes that one message of a plain topic may take; anything longer is refused for good.",
    ),
    Setting(
        name="state",
        kind=Kind.FLAG,
        default=False,
        levels=LEVELS[3:],
        fixed=True,
        meaning="Whether it is a state topic: the latest value a key. Said when the topic is created.",
    ),
    Setting(
        name="tombstone_ttl",
        kind=Kind.SECONDS,
        default=TOMBSTONE_TTL_S,
        high=FOREVER_S,
        meaning="State topics: time for which a delete is kept before compaction may take it away.",
    ),
    Setting(
        name="compact_share",
        kind=Kind.SHARE,
        default=0.5,
        low=0.01,
        high=1.0,
        liftable=True,
        meaning="State topics: share of new bytes in closed files from which they are compacted by themselves.",
    ),
    Setting(
        name="create_on_first_use",
        kind=Kind.FLAG,
        default=True,
        levels=LEVELS[:3],
        meaning="Whether topics, and places for them, come into being when they are first used.",
    ),
    Setting(
        name="producer_lease",
        kind=Kind.SECONDS,
        default=PRODUCER_LEASE_S,
        low=LEASE_S_MIN,
        high=LEASE_S_MAX,
        meaning="Time after it was last heard of in which a single-access producer keeps its lease.",
    ),
    Setting(
        name="deadline",
        kind=Kind.SECONDS,
        low=0.05,
        high=SECONDS_MAX,
        liftable=True,
        meaning="Redelivery: time within which a message must be settled.",
    ),
    Setting(
        name="backoff",
        kind=Kind.SECONDS,
        default=BACKOFF_S,
        high=SECONDS_MAX,
        meaning="Redelivery: time that a refused message waits, doubled with each attempt.",
    ),
    Setting(
        name="backoff_max",
        kind=Kind.SECONDS,
        default=BACKOFF_S_MAX,
        high=SECONDS_MAX,
        meaning="Redelivery: the longest such time.",
    ),
    Setting(
        name="redelivery",
        kind=Kind.WORD,
        default=AFTER_BACKLOG,
        words=REDELIVERIES,
        meaning="Redelivery: whether a refused message also waits for the backlog, or for its backoff alone.",
    ),
    Setting(
        name="max_attempts",
        kind=Kind.COUNT,
        high=2**31,
        meaning="Redelivery: attempts before a message is put aside; 0 is without end.",
    ),
    Setting(
        name="dead_letter",
        kind=Kind.TOPIC,
        meaning="Redelivery: the topic that takes what was put aside; empty for none. Else TOPIC.dead.",
    ),
    Setting(
        name="failover_after",
        kind=Kind.COUNT,
        low=1,
        high=2**31,
        meaning="Redelivery: failures of one message after which a failover consumer steps back.",
    ),
    Setting(
        name="lease",
        kind=Kind.SECONDS,
        low=LEASE_S_MIN,
        high=LEASE_S_MAX,
        meaning="Redelivery: time for which a resilient consumer goes on without hearing from the node.",
    ),
)
_QUOTAS = (
    Setting(
        name="tenant_bytes_s",
        kind=Kind.BYTES,
        meaning="Quota: bytes a second that all producers of the tenant may send; past it they slow down.",
    ),
    Setting(
        name="tenant_messages_s",
        kind=Kind.COUNT,
        meaning="Quota: messages a second that all producers of the tenant may send; likewise.",
    ),
    Setting(
        name="connection_bytes_s",
        kind=Kind.BYTES,
        meaning="Quota: bytes a second that one connection may send to the tenant's topics; likewise.",
    ),
    Setting(
        name="connection_messages_s",
        kind=Kind.COUNT,
        meaning="Quota: messages a second that one connection may send to the tenant's topics; likewise.",
    ),
    Setting(
        name="tenant_connections",
        kind=Kind.COUNT,
        default=10_000,
        meaning="Quota: connections that use the tenant's topics; one more is refused, to be tried again.",
    ),
    Setting(
        name="tenant_stored_bytes",
        kind=Kind.BYTES,
        meaning="Quota: bytes that the tenant's topics may take; past it sends are refused, to be tried again.",
    ),
    Setting(name="tenant_topics", kind=Kind.COUNT, default=10_000, meaning="Quota: the tenant's topics."),
    Setting(name="tenant_shards", kind=Kind.COUNT, default=20_000, meaning="Quota: shards in all its topics."),
    Setting(
        name="tenant_places",
        kind=Kind.COUNT,
        default=10_000,
        meaning="Quota: the tenant's products and components that are made by command.",
    ),
    Setting(
        name="tenant_subscriptions",
        kind=Kind.COUNT,
        default=10_000,
        meaning="Quota: subscriptions of all its topics.",
    ),
    Setting(
        name="tenant_producers",
        kind=Kind.COUNT,
        default=100_000,
        meaning="Quota: producers that are registered by name in all its topics.",
    ),
    Setting(
        name="tenant_blocks",
        kind=Kind.COUNT,
        default=200_000,
        meaning="Quota: runs of producers that its shards remember; one more is refused, to be tried again.",
    ),
    Setting(
        name="tenant_writers",
        kind=Kind.COUNT,
        default=50_000,
        meaning="Quota: writers whose name begins with the tenant's and a slash.",
    ),
    Setting(
        name="tenant_stages",
        kind=Kind.COUNT,
        default=100_000,
        meaning="Quota: stages for its topics that are in no batch.",
    ),
    Setting(
        name="tenant_staged_bytes",
        kind=Kind.BYTES,
        default=8 * 1024**3,
        meaning="Quota: bytes in stages for its topics; past it staging is refused, to be tried again.",
    ),
    Setting(
        name="tenant_creates_s",
        kind=Kind.COUNT,
        default=100,
        meaning="Quota: topics, places, subscriptions, producers and writers made a second, 1,000 at once; "
        "past it who makes them slows down.",
    ),
)
QUOTAS = frozenset(setting.name for setting in _QUOTAS)
"""Said at a tenant, by an admin of the whole node, or by the node for every tenant alike."""
_ALL += tuple(replace(setting, low=1, high=2**60, liftable=True, levels=LEVELS[:1]) for setting in _QUOTAS)
SETTINGS: dict[str, Setting] = {setting.name: setting for setting in _ALL}


class TopicSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A topic's effective settings; seconds and bytes, None for no limit."""

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

    @property
    def soft_ttl_s(self) -> float | None:
        return self.soft_ttl

    @property
    def hard_ttl_s(self) -> float | None:
        return self.hard_ttl

    @property
    def expires_after_s(self) -> float | None:
        return self.expires_after

    def policy(self, wanted: Policy | None) -> Policy:
        """What a new subscription gets: what its consumer wants, else what the topic says."""
        asked = msgspec.structs.asdict(wanted or Policy())
        return Policy(
            **{name: getattr(self, name) if value is None else value for name, value in asked.items()}
        )


class Origin(NamedTuple):
    """A value and where it was said."""

    value: Value
    level: str
    """``topic``, ``component``, ``product``, ``tenant``, ``node`` or ``default``."""
    place: str
    """The whole name of the place; empty for the last two."""


class Level(NamedTuple):
    """What one place says."""

    level: str
    place: str
    values: Mapping[str, Value]


def resolve(chain: Iterable[Level]) -> dict[str, Origin]:
    """Every setting with its effective value and its origin; ``chain`` begins with the nearest place."""
    levels = list(chain)
    found: dict[str, Origin] = {}
    for name, setting in SETTINGS.items():
        said = next((level for level in levels if name in level.values), None)
        if said is None:
            found[name] = Origin(setting.default, DEFAULT, "")
        else:
            found[name] = Origin(said.values[name], said.level, said.place)
    return found


def effective(chain: Iterable[Level]) -> TopicSettings:
    return TopicSettings(**{name: origin.value for name, origin in resolve(chain).items()})  # type: ignore[arg-type]


def read_values(values: Mapping[str, Value], level: str) -> dict[str, Value]:
    """Values for a place of a level, in their stored form; what cannot be is a ``BadSetting``."""
    return {name: _setting(name, level).read(value) for name, value in values.items()}


def check_changeable(names: Iterable[str]) -> None:
    """Refuses settings that are said once, when their topic is created."""
    for name in names:
        if name in SETTINGS and SETTINGS[name].fixed:
            raise BadSetting(
                f"setting {name} is fixed when a topic is created",
                hint="Create another topic with it, and send the messages there.",
            )


def check_names(names: Iterable[str], level: str) -> None:
    """Names that are to be unset at a place of a level."""
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
