"""What a subscription is beside those of other nodes: active, or the passive copy of one that lives elsewhere.

``epoch`` counts promotions: of two nodes that both hold it as active, the higher one is right. ``generation``
counts what took settlements back (a place that was set, dead entries that were offered again): all else only
ever adds to what is settled, so that telling it twice does no harm.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from headpond.model.errors import SubscriptionPassive
from headpond.node.core.settlement_records import Copied


@dataclass(slots=True)
class Copy:
    record: Copied | None = None
    """As the journal has it; None of one that was never copied here."""
    generation: int = 0
    floors: dict[int, int] = field(default_factory=dict)
    """By shard: everything before this entry of the source's log is settled here."""
    left: dict[int, int] = field(default_factory=dict)
    """By shard: what the source had still to tell when it last told something; since the node was started."""
    told_us: int = 0
    """When that was."""
    consumers: int | None = None
    """How many there were then."""
    elsewhere: str = ""
    """A node on which a copy of this was promoted, while it is active here too."""
    ignored: int = 0
    """Settlements that came from a source after it was promoted."""

    @property
    def passive(self) -> bool:
        return self.record is not None and not self.record.active

    @property
    def epoch(self) -> int:
        return self.record.epoch if self.record is not None else 0


def passive_error(name: str, record: Copied, topic: str) -> SubscriptionPassive:
    """Why nobody may use it here, with where it lives."""
    where = f" at {record.url}" if record.url else ""
    return SubscriptionPassive(
        f"subscription {name!r} is a passive copy: it lives on node {record.node}{where}, link {record.link!r}",
        hint=f"Consume there. To go on here instead: `headpond sub promote {topic} {name}`.",
    )


def check_active(name: str, copy: Copy, topic: str) -> None:
    """Refuses what only an active subscription can be asked for."""
    if copy.passive and copy.record is not None:
        raise passive_error(name, copy.record, topic)


def copy_fields(copy: Copy) -> dict[str, Any]:
    """What ``SubscriptionInfo`` tells of it."""
    record = copy.record
    return {
        "passive": copy.passive,
        "node": record.node if record is not None else "",
        "link": record.link if record is not None else "",
        "epoch": copy.epoch,
        "behind": sum(copy.left.values()) if copy.passive and copy.told_us else None,
        "told_at_us": copy.told_us,
        "ignored": copy.ignored,
        "elsewhere": copy.elsewhere,
    }
