"""Quotas of tenants: rates slow a connection down, connections and stored bytes refuse for a while.

A rate is kept by a clock of its own that runs ahead of the time with everything that is sent (a message costs
1 / rate seconds). Where it is ahead, the node does not read from the connection until the time has caught up;
the sender notices only that its window stays full. A tenth of a second may be sent at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.model.errors import QuotaReached
from penstock.model.place import Place
from penstock.node.core.session import Session
from penstock.node.core.stages import Stages
from penstock.node.core.topics import Catalog, Topic

BURST_US = 100_000
LOOK_US = 1_000_000
"""How long what a tenant stores is taken from the last look and what came since."""


@dataclass(slots=True)
class Usage:
    """What a tenant uses now."""

    connections: set[int] = field(default_factory=set)
    slowed: int = 0
    """How often a connection was slowed down, since the node was started."""
    refused: int = 0
    """Connections and segments refused, since the node was started."""
    stored_bytes: int = 0
    looked_us: int | None = None
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
        """A connection uses a tenant's topic; one too many is told so."""
        tenant = topic.tenant
        if tenant in session.tenants or session.gone:  # nobody would take back what it is counted for
            return None
        usage, limit = self.usage(tenant), topic.settings().tenant_connections
        if limit is not None and len(usage.connections) >= limit:
            self._refused(usage, "connections")
            return QuotaReached(f"tenant {tenant} may use {limit:,} connections at a time (tenant_connections)")
        usage.connections.add(session.connection)
        session.tenants.add(tenant)
        return None

    def leave(self, session: Session) -> None:
        for tenant in session.tenants:
            self.usage(tenant).connections.discard(session.connection)

    # --- stored bytes -------------------------------------------------------------------------------

    def refusal(self, topic: Topic, size: int) -> QuotaReached | None:
        """Why a segment cannot be stored now, if it cannot."""
        limit = topic.settings().tenant_stored_bytes
        if limit is None:
            return None
        usage, now_us = self.usage(topic.tenant), self._clock_us()
        if usage.looked_us is None or not 0 <= now_us - usage.looked_us < LOOK_US:
            usage.stored_bytes, usage.looked_us = self._look(topic.tenant), now_us
        if usage.stored_bytes + size > limit:
            self._refused(usage, "stored_bytes")
            return QuotaReached(f"tenant {topic.tenant} may store {limit:,} bytes (tenant_stored_bytes)")
        usage.stored_bytes += size
        return None

    def _look(self, tenant: str) -> int:
        """What the tenant has in logs, and in stages that are not yet there."""
        logs = (shard.log for topic in self._catalog.below(Place((tenant,))) for shard in topic.shards)
        staged = ((self._catalog.by_uuid(stage.topic), stage.bytes) for stage in self._stages.all())
        return sum(log.bytes for log in logs) + sum(
            size for topic, size in staged if topic is not None and topic.tenant == tenant
        )

    # --- rates --------------------------------------------------------------------------------------

    def charge(self, session: Session, topic: Topic, *, size: int = 0, messages: int = 0) -> None:
        """Counts what was sent, and says until when nothing more is to be read if that was too much."""
        settings = topic.settings()
        now_us = self._clock_us()
        until_us = now_us
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
            if session.resume_us <= now_us:
                self.usage(topic.tenant).slowed += 1
                self._counters["quota_slowed"] += 1
            session.resume_us = max(session.resume_us, until_us)

    def _refused(self, usage: Usage, what: str) -> None:
        usage.refused += 1
        self._counters[f"quota_refused_{what}"] += 1
