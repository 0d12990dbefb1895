"""Quotas of tenants: the node slows down a connection that sends too fast, and refuses things beyond a limit.

Each rate has a clock that everything sent moves forward (a message by 1 / rate seconds). While the clock is
ahead of the time, the node does not read from the connection; the sender notices only that its window stays
full. A tenth of a second may be sent at once.

Making things (topics, subscriptions, …) has a rate too. A thousand may be made at once, so that a script does
not notice; a client that continues over many connections is refused in the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from headpond.broker.catalog.topics import Catalog, Shard, Topic
from headpond.broker.session import Session
from headpond.broker.staging.stages import Stages
from headpond.model.errors import QuotaReached
from headpond.model.grant import Grant
from headpond.model.names import ANY
from headpond.model.topic_settings import TopicSettings

BURST_US = 100_000
CREATES_BURST_US = 10_000_000
CREATES_AHEAD_US = 5_000_000
"""How far making things may run ahead of its rate before it is refused."""
LOOK_US = 1_000_000
"""How long a count of what a tenant stores is kept up by adding, before it is counted again."""


_SHOWN = {
    "connections": "connections at a time",
    "stored_bytes": "bytes stored",
    "blocks": "runs of producers remembered",
    "places": "products and components",
    "stages": "stages in no batch",
    "staged_bytes": "bytes in stages",
    "creates_s": "things made a second",
}


@dataclass(slots=True)
class Usage:
    """The use that a tenant makes of the node."""

    connections: set[int] = field(default_factory=set)
    slowed: int = 0
    """How often a connection was slowed down, since the node was started."""
    refused: int = 0
    """Connections and segments refused, since the node was started."""
    figures: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Counts that take a while, and when each was made; until the next one it is added to."""
    rates: dict[str, int] = field(default_factory=dict)
    """By setting: the clock of all its connections, in µs."""


class Quotas:
    def __init__(
        self, catalog: Catalog, stages: Stages, counters: Counter[str], clock_us: Callable[[], int]
    ) -> None:
        self._catalog = catalog
        self._stages = stages
        self._counters = counters
        self._clock_us = clock_us
        self._tenants: dict[str, Usage] = {}

    def usage(self, tenant: str) -> Usage:
        return self._tenants.setdefault(tenant, Usage())

    # --- connections --------------------------------------------------------------------------------

    def enter(self, session: Session, topic: Topic) -> QuotaReached | None:
        """Counts a connection that uses a tenant's topic; returns the refusal of one too many."""
        if topic.tenant in session.tenants:
            return None
        return self._enter(session, topic.tenant, topic.settings)

    def greet(self, session: Session, grant: Grant) -> None:
        """A connection whose token reaches one tenant alone is that tenant's before it uses anything."""
        tenants = {scope.parts[0] for scope in grant.scopes}
        if len(tenants) == 1 and not (tenant := tenants.pop()).endswith(ANY):
            crowded = self._enter(session, tenant, self._catalog.tenant_settings(tenant))
            if crowded is not None:
                raise crowded

    def _enter(self, session: Session, tenant: str, settings: TopicSettings) -> QuotaReached | None:
        if session.gone:  # nothing would take its count back
            return None
        usage, limit = self.usage(tenant), settings.tenant_connections
        if limit is not None and len(usage.connections) >= limit:
            return self._refused(tenant, "connections", limit)
        usage.connections.add(session.connection)
        session.tenants.add(tenant)
        return None

    def leave(self, session: Session) -> None:
        for tenant in session.tenants:
            self.usage(tenant).connections.discard(session.connection)

    # --- stored bytes -------------------------------------------------------------------------------

    def refusal(self, topic: Topic, size: int) -> QuotaReached | None:
        """Why a segment cannot be stored now, if it cannot."""
        return self._take(topic, "stored_bytes", size, self._stored_bytes)

    def refuse_block(self, topic: Topic) -> QuotaReached | None:
        """Why a shard cannot remember one block more, if it cannot."""
        return self._take(topic, "blocks", 1, self._blocks)

    def refuse_stage(self, topic: Topic) -> QuotaReached | None:
        return self._take(topic, "stages", 1, lambda tenant: sum(1 for _ in self._staged(tenant)))

    def refuse_staged(self, topic: Topic, size: int) -> QuotaReached | None:
        return self._take(topic, "staged_bytes", size, lambda tenant: sum(self._staged(tenant)))

    def _take(self, topic: Topic, what: str, more: int, look: Callable[[str], int]) -> QuotaReached | None:
        """Adds ``more`` to a count of the topic's tenant, which is repeated now and then; or refuses it."""
        limit: int | None = getattr(topic.settings, f"tenant_{what}")
        if limit is None:
            return None
        figures, now_us = self.usage(topic.tenant).figures, self._clock_us()
        have, looked_us = figures.get(what, (0, now_us - LOOK_US))
        if not 0 <= now_us - looked_us < LOOK_US:
            have, looked_us = look(topic.tenant), now_us
        if have + more > limit:
            figures[what] = (have, looked_us)
            return self._refused(topic.tenant, what, limit)
        figures[what] = (have + more, looked_us)
        return None

    def _stored_bytes(self, tenant: str) -> int:
        """The tenant's bytes in logs, and in stages that are not published yet."""
        return sum(shard.log.bytes for shard in self._shards(tenant)) + sum(self._staged(tenant))

    def _blocks(self, tenant: str) -> int:
        return sum(len(shard.log.marks) for shard in self._shards(tenant))

    def _shards(self, tenant: str) -> Iterator[Shard]:
        return (shard for topic in self._catalog.of_tenant(tenant) for shard in topic.shards)

    def _staged(self, tenant: str) -> Iterator[int]:
        """The bytes of each stage."""
        found = ((self._catalog.by_uuid(stage.topic), stage.bytes) for stage in self._stages.all())
        return (size for topic, size in found if topic is not None and topic.tenant == tenant)

    # --- making things ------------------------------------------------------------------------------

    def check(self, tenant: str, what: str, have: int, more: int = 1) -> TopicSettings:
        """Raises if a tenant that has ``have`` cannot have ``more``; returns its settings."""
        settings = self._catalog.tenant_settings(tenant)
        limit: int | None = getattr(settings, f"tenant_{what}")
        if limit is not None and have + more > limit:
            raise self._refused(tenant, what, limit)
        return settings

    def create(self, session: Session | None, tenant: str, what: str, have: int) -> None:
        """A client creates one more: raises if it is one too many; slows a client down that is too fast."""
        rate = self.check(tenant, what, have).tenant_creates_s
        if rate is None:
            return
        rates, now_us = self.usage(tenant).rates, self._clock_us()
        rested_us = now_us - CREATES_BURST_US
        begun_us = max(rates.get("tenant_creates_s", rested_us), rested_us)
        if begun_us - now_us > CREATES_AHEAD_US:
            raise self._refused(tenant, "creates_s", rate)
        rates["tenant_creates_s"] = until_us = begun_us + 1_000_000 // rate
        if session is not None and until_us > now_us:
            self._slow_down(session, tenant, until_us, now_us)

    # --- rates --------------------------------------------------------------------------------------

    def charge(self, session: Session, topic: Topic, *, size: int = 0, messages: int = 0) -> None:
        """Counts the bytes and messages of a connection; beyond its rate the node pauses reading from it."""
        if not topic.has_rates:
            return
        settings = topic.settings
        until_us = now_us = self._clock_us()
        for name, rate, amount, clocks in (
            ("tenant_bytes_s", settings.tenant_bytes_s, size, None),
            ("tenant_messages_s", settings.tenant_messages_s, messages, None),
            ("connection_bytes_s", settings.connection_bytes_s, size, session.rates),
            ("connection_messages_s", settings.connection_messages_s, messages, session.rates),
        ):
            if rate is None or not amount:
                continue
            clocks = self.usage(topic.tenant).rates if clocks is None else clocks
            begun_us = max(clocks.get(name, 0), now_us - BURST_US)
            clocks[name] = begun_us + amount * 1_000_000 // rate
            until_us = max(until_us, clocks[name])
        if until_us > now_us:
            self._slow_down(session, topic.tenant, until_us, now_us)

    def _slow_down(self, session: Session, tenant: str, until_us: int, now_us: int) -> None:
        if session.resume_us <= now_us:
            self.usage(tenant).slowed += 1
            self._counters["quota_slowed"] += 1
        session.resume_us = max(session.resume_us, until_us)

    def _refused(self, tenant: str, what: str, limit: int) -> QuotaReached:
        self.usage(tenant).refused += 1
        self._counters[f"quota_refused_{what}"] += 1
        return QuotaReached(f"tenant {tenant} may have {limit:,} {_SHOWN.get(what, what)} (tenant_{what})")
