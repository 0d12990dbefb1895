"""The four orders of received indices, and how they relate.

Indices count the messages of a sender: 0, 1, 2, …. Over the indices as a receiver got them:

- **monotonic**: never falls; repeats and gaps are allowed;
- **strict**: always rises; gaps are allowed, repeats are not;
- **continuous**: starts at the first and steps by 0 or 1; repeats are allowed, gaps are not;
- **absolute**: exactly the first n, each once.

An order is three facts: nothing falls, nothing repeats, nothing is skipped. So a sequence always has *one*
strongest order with all that it implies, or none (``None``), and the orders are a lattice::

              absolute
             /        \\
        strict      continuous
             \\        /
             monotonic
                 |
               None
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Order(StrEnum):
    MONOTONIC = "monotonic"
    STRICT = "strict"
    CONTINUOUS = "continuous"
    ABSOLUTE = "absolute"

    @property
    def repeats(self) -> bool:
        """Whether it allows a repeat."""
        return self in (Order.MONOTONIC, Order.CONTINUOUS)

    @property
    def gaps(self) -> bool:
        """Whether it allows a gap."""
        return self in (Order.MONOTONIC, Order.STRICT)


@dataclass(slots=True)
class OrderCheck:
    """Watches a stream of received indices; its state is a few numbers however long the stream is."""

    falls: int = 0
    """How often an index was below the one before it."""
    repeats: int = 0
    """How often an index was the one before it again."""
    gaps: int = 0
    """How often an index was more than one above the one before it, or the first was not 0."""
    _last: int = -1

    def take(self, indices: Iterable[int]) -> None:
        """The next indices received, in the order they came."""
        last, falls, repeats, gaps = self._last, 0, 0, 0
        for index in indices:
            if index != last + 1:
                if index < last:
                    falls += 1
                elif index == last:
                    repeats += 1
                else:
                    gaps += 1
            last = index
        self._last = last
        self.falls += falls
        self.repeats += repeats
        self.gaps += gaps

    @property
    def order(self) -> Order | None:
        """The strongest order that held so far."""
        return order_of(falls=bool(self.falls), repeats=bool(self.repeats), gaps=bool(self.gaps))


# --- the lattice ------------------------------------------------------------------------------------


def order_of(*, falls: bool, repeats: bool, gaps: bool) -> Order | None:
    """The strongest order of a stream in which these may happen."""
    if falls:
        return None
    if repeats:
        return Order.MONOTONIC if gaps else Order.CONTINUOUS
    return Order.STRICT if gaps else Order.ABSOLUTE


def implies(stronger: Order | None, weaker: Order | None) -> bool:
    """Whether whatever has the one order has the other too."""
    if stronger is None or weaker is None:
        return weaker is None
    return (not stronger.repeats or weaker.repeats) and (not stronger.gaps or weaker.gaps)


def meet(one: Order | None, other: Order | None) -> Order | None:
    """The strongest order that both imply: it holds when either of the two does.

    It is also the order of two hops in a row, the second counting what the first one delivered: a second hop
    can repeat, skip or reorder messages that came in order, and never repairs the order.
    """
    if one is None or other is None:
        return None
    return order_of(falls=False, repeats=one.repeats or other.repeats, gaps=one.gaps or other.gaps)


def held_orders(order: Order | None) -> tuple[Order, ...]:
    """All the orders that hold when this one does, the weakest first."""
    return tuple(each for each in Order if order is not None and implies(order, each))
