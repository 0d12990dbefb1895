"""Times as JSON has them: ISO 8601 in UTC, ending in ``Z``."""

from __future__ import annotations

from datetime import datetime


def iso_time(micros: int) -> str:
    """A time in UTC, to the millisecond."""
    from headpond.model.message import from_micros

    return from_micros(micros).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def iso_exact(at: datetime) -> str:
    """A time in UTC, to the microsecond."""
    return at.isoformat().replace("+00:00", "Z")
