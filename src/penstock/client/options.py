"""How producers and consumers behave: their settings, with defaults that suit most."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from penstock.model.errors import BadRequest, NotSupported

CREDIT_BYTES_MAX = 1024 * 1024 * 1024
"""A node grants no more; with more asked for, each side would wait for the other."""


class LostSpan(NamedTuple):
    """Entries ``start <= n < end`` of a shard that will not come, and why."""

    shard: int
    start: int
    end: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """How a producer gathers and holds messages."""

    create: bool = True
    """Create the topic if it does not exist and the node allows it."""
    batch_rows: int = 5000
    batch_bytes: int = 512 * 1024
    linger_s: float = 0.0
    """How long rows may wait for company; 0 waits for the end of the loop's iteration only."""
    memory_max: int = 64 * 1024 * 1024
    """Bytes of unconfirmed messages in memory; then ``post`` raises ``BufferFull`` and ``send`` waits."""
    window_bytes: int = 16 * 1024 * 1024
    """Bytes sent and not answered."""
    ordered: bool = True
    """Whether a run waits for what an earlier run of the same producer left behind.

    Not in effect yet: predecessors come with the refill, so no run waits for another, whatever is said here.
    """
    timeout: float | None = None
    """Seconds after which an unconfirmed message is given up; None waits for ever."""
    close_timeout: float = 30.0
    """Seconds that closing waits for confirmations."""
    copies: Sequence[str] = ()
    """Further destinations; not offered by this version."""

    def __post_init__(self) -> None:
        if self.copies:
            raise NotSupported("copies to further destinations are not offered by this version")
        for name in ("batch_rows", "batch_bytes", "memory_max", "window_bytes"):
            if getattr(self, name) <= 0:
                raise BadRequest(f"{name} is {getattr(self, name)}; it must be above 0")
        if self.linger_s < 0 or (self.timeout is not None and self.timeout <= 0):
            raise BadRequest("linger_s must not be negative, and timeout must be above 0 or None")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """How a consumer subscribes."""

    kind: str = "unique"
    mode: str = "non_resilient"
    start: str | int | datetime = "earliest"
    """Where a subscription that does not exist yet begins: ``earliest``, ``latest``, an entry or a time."""
    credit_bytes: int = 8 * 1024 * 1024
    """Bytes that the node may send ahead of what was handed out; at most 1 GiB."""
    create: bool = True
    """Create the topic if it does not exist and the node allows it."""
    close_timeout: float = 30.0
    """Seconds that closing waits until settlements are on the node's disk."""
    on_lost: Callable[[LostSpan], None] | None = None
    """Called with entries that this subscription will not get."""

    def __post_init__(self) -> None:
        if not 0 < self.credit_bytes <= CREDIT_BYTES_MAX:
            raise BadRequest(f"credit_bytes is {self.credit_bytes}; it must be in 1 .. {CREDIT_BYTES_MAX}")
