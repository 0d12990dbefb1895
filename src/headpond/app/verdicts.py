"""Exceptions by which a handler decides about its message. Their text is the recorded reason."""

from __future__ import annotations


class Verdict(Exception):
    """The base of the three."""

    def __init_subclass__(cls) -> None:
        cls.__module__ = "headpond"  # where programs find it, in tracebacks too

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class Retry(Verdict):
    """The node redelivers the message after ``delay`` seconds, or after the subscription's backoff."""

    def __init__(self, reason: str = "", *, delay: float | None = None) -> None:
        super().__init__(reason)
        self.delay = delay


class Skip(Verdict):
    """The message is not wanted: settled, and counted apart."""


class DeadLetter(Verdict):
    """No attempt can succeed: the message goes to the dead-letter topic at once."""
