"""Which addresses a link tries, and in which order: those it was given, and those that nodes name.

A node that stops may name its successor. The link follows

- to an address that it was given, at once and before the others;
- to any other address only with ``redirects="any"``: who can make a node name an address would get the token;
- never from TLS to an address without TLS;
- a limited number of times in a row: nodes that name each other must not send a client in circles.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from contextlib import suppress

from headpond.client.arguments import checked
from headpond.model.address import Address, parse_addresses
from headpond.model.errors import (
    AccessRefused,
    BadURL,
    ConnectionLost,
    HeadpondError,
    NodeStopping,
    NotActive,
    Unavailable,
)

log = logging.getLogger("headpond.client")

HOPS_MAX = 5
"""Redirects that a link follows before a connection lasts."""
LEARNT_MAX = 8
"""Addresses that nodes named, and that a link tries too."""
REDIRECTS = ("listed", "any", "none")


class Dialling:
    def __init__(self, addresses: Sequence[Address], redirects: str = "listed") -> None:
        self.given = list(addresses)
        self.hops = 0
        self._redirects = redirects
        self._next: list[Address] = []
        """Where the last redirect pointed."""
        self._learnt: list[Address] = []

    @property
    def may_change(self) -> bool:
        """Whether another node may come to answer."""
        return len(self.given) > 1 or self._redirects == "any"

    def order(self) -> list[Address]:
        """The addresses to try in the next round."""
        return list(dict.fromkeys([*self._next, *self.given, *self._learnt]))

    def heed(self, at: Address, error: HeadpondError) -> None:
        """Follows the successor that the error of an ended connection names, if any."""
        if not isinstance(error, NodeStopping) or not error.successor:
            return
        if isinstance(error, NotActive):  # members of a group agree on the active one before long
            named = parse_addresses(error.successor)
            if all(address in self.given for address in named):
                self._next = named
                return
        if (refused := self.heard(at, error.successor)) is None:
            log.info("%s stops and names %s", at, error.successor)
        else:
            log.warning("%s stops and names %s; not followed: %s", at, error.successor, refused)

    def heard(self, at: Address, successor: str) -> str | None:
        """A node that stops names another. Returns why the link does not follow, or None if it does."""
        try:
            named = parse_addresses(successor)
        except BadURL as error:
            return error.message
        refused = self._refused(at, named)
        if refused is None:
            self.hops += 1
            self._next = named
            self._learn(named)
        return refused

    def _refused(self, at: Address, named: list[Address]) -> str | None:
        if self._redirects == "none":
            return "redirects are turned off"
        tls = at.tls or any(address.tls for address in self.given)
        if tls and not all(address.tls for address in named):
            return "it has no TLS, and this connection does"
        strangers = [address for address in named if address not in self.given]
        if strangers and self._redirects != "any":
            return f"{strangers[0].url} is not among the given addresses"
        if self.hops >= HOPS_MAX:
            return f"{HOPS_MAX} redirects in a row led nowhere"
        return None

    def _learn(self, named: list[Address]) -> None:
        new = [address for address in named if address not in self.given and address not in self._learnt]
        self._learnt = [*self._learnt, *new][-LEARNT_MAX:]

    def connected(self, at: Address, successor: str) -> None:
        """A node answered: the redirect is done. The node may already name a successor."""
        self._next = []
        if successor and self._redirects == "any":
            with suppress(BadURL):
                named = parse_addresses(successor)
                if self._refused(at, named) is None:
                    self._learn(named)

    def lasted(self) -> None:
        """The connection lasted long enough: redirects count from 0."""
        self.hops = 0


def none_answered(failures: list[tuple[Address, HeadpondError]]) -> HeadpondError:
    """The error of a round that found no node."""
    said_no = [error for _, error in failures if not error.retryable]
    if len(said_no) == len(failures) or (said_no and isinstance(said_no[0], AccessRefused)):
        return said_no[0]  # a node is there and refused
    tried = "; ".join(f"{address}: {error.message}" for address, error in failures)
    hints = [error.hint for _, error in failures if isinstance(error, ConnectionLost)]
    found = Unavailable(f"no node answered at {tried}", hint=hints[0] if hints else None)
    found.__cause__ = failures[-1][1] if failures else None
    return found


DELAY_MIN_S = 0.05
DELAY_MAX_S = 5.0
SEVERAL_DELAY_S_MAX = 0.5
"""With several addresses: another member of the group may be active within seconds."""


class Backoff:
    """``delay_s(0)`` is up to the minimum, each further attempt up to twice that, never over the maximum."""

    @checked
    def __init__(
        self,
        min_s: float = DELAY_MIN_S,
        max_s: float = DELAY_MAX_S,
        random: Callable[[], float] = lambda: random.random(),
    ) -> None:
        self._min_s = min_s
        self._max_s = max_s
        self._random = random

    def delay_s(self, attempt: int) -> float:
        return self._random() * min(self._max_s, self._min_s * 2.0 ** min(attempt, 30))
