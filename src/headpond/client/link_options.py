"""How a link behaves: its waits, its backoff, its TLS."""

from __future__ import annotations

from dataclasses import dataclass, field

from headpond.client.backoff import Backoff
from headpond.client.tls import TlsOptions

REQUEST_TIMEOUT_S = 30.0
STEADY_AFTER_S = 5.0
"""A connection that lasted this long was a good one: the next loss is the first again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkOptions:
    connect_timeout_s: float = 5.0
    ping_after_s: float = 10.0
    dead_after_s: float = 30.0
    request_timeout_s: float = REQUEST_TIMEOUT_S
    """How long a request waits for its answer, also while the node is away."""
    backoff: Backoff = field(default_factory=Backoff)
    steady_after_s: float = STEADY_AFTER_S
    tls: TlsOptions = field(default_factory=TlsOptions)
    redirects: str = "listed"
    """Where a node that stops may send its clients (dialling.py)."""
