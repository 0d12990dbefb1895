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

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from itertools import pairwise


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


# --- the predicates ---------------------------------------------------------------------------------


def is_monotonic(indices: Sequence[int]) -> bool:
    return all(before <= after for before, after in pairwise(indices))


def is_strict(indices: Sequence[int]) -> bool:
    return all(before < after for before, after in pairwise(indices))


def is_continuous(indices: Sequence[int], first: int = 0) -> bool:
    return not indices or (indices[0] == first and all(b - a in (0, 1) for a, b in pairwise(indices)))


def is_absolute(indices: Sequence[int], first: int = 0) -> bool:
    return all(index == expected for expected, index in enumerate(indices, first))


def holds(order: Order, indices: Sequence[int], first: int = 0) -> bool:
    """Whether the received indices have the order; an empty sequence has all of them."""
    if order is Order.MONOTONIC:
        return is_monotonic(indices)
    if order is Order.STRICT:
        return is_strict(indices)
    return is_continuous(indices, first) if order is Order.CONTINUOUS else is_absolute(indices, first)


class OrderCheck:
    """Watches a stream of received indices; its state is a few numbers however long the stream is."""

    __slots__ = ("_last", "falls", "first", "gaps", "received", "repeats")

    def __init__(self, first: int = 0) -> None:
        self.first = first
        self.received = 0
        """How many indices came."""
        self.falls = 0
        """How often an index was below the one before it."""
        self.repeats = 0
        """How often an index was the one before it again."""
        self.gaps = 0
        """How often an index was more than one above the one before it, or the first was not the first."""
        self._last = first - 1

    def take(self, indices: Iterable[int]) -> None:
        """The next indices received, in the order they came."""
        last, count, falls, repeats, gaps = self._last, 0, 0, 0, 0
        starting = self.received == 0
        for index in indices:
            if index != last + 1:
                if starting:
                    # Nothing came before, so there is nothing to fall from and nothing to repeat.
                    gaps += 1
                elif index < last:
                    falls += 1
                elif index == last:
                    repeats += 1
                else:
                    gaps += 1
            last = index
            count += 1
            starting = False
        self._last = last
        self.received += count
        self.falls += falls
        self.repeats += repeats
        self.gaps += gaps

    @property
    def order(self) -> Order | None:
        """The strongest order that held so far."""
        return order_of(falls=bool(self.falls), repeats=bool(self.repeats), gaps=bool(self.gaps))

    def held(self, order: Order) -> bool:
        return implies(self.order, order)


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
    """The strongest order that both imply: it holds when either of the two does."""
    return _combine(one, other, lambda mine, theirs: mine or theirs)


def join(one: Order | None, other: Order | None) -> Order | None:
    """The weakest order that implies both: what holds when both hold."""
    if one is None or other is None:
        return other if one is None else one
    return _combine(one, other, lambda mine, theirs: mine and theirs)


def held_orders(order: Order | None) -> tuple[Order, ...]:
    """All the orders that hold when this one does, the weakest first."""
    return tuple(each for each in Order if order is not None and implies(order, each))


def _combine(one: Order | None, other: Order | None, choose: Callable[[bool, bool], bool]) -> Order | None:
    if one is None or other is None:
        return None
    repeats, gaps = choose(one.repeats, other.repeats), choose(one.gaps, other.gaps)
    return order_of(falls=False, repeats=repeats, gaps=gaps)


# --- the order after a change -----------------------------------------------------------------------


def then(first: Order | None, second: Order | None) -> Order | None:
    """The order end to end of two hops in a row, the second counting what the first one delivered.

    It is the meet: a second hop can repeat, skip or reorder messages that came in order, and never repairs
    the order, because it counts from there.
    """
    return meet(first, second)


def after_loss(order: Order | None) -> Order | None:
    """The order when some messages are dropped: gaps come in, nothing else changes."""
    return order and order_of(falls=False, repeats=order.repeats, gaps=True)


def after_repeats(order: Order | None) -> Order | None:
    """The order when some messages are repeated on the spot."""
    return order and order_of(falls=False, repeats=True, gaps=order.gaps)


def after_dedup(order: Order | None) -> Order | None:
    """The order when only the first of equal indices passes."""
    return order and order_of(falls=False, repeats=False, gaps=order.gaps)
