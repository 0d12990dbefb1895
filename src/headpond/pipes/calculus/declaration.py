"""What a pipe says about itself: the tables of the pipes directory as data.

A declaration is the border between the calculus, which folds declarations into the promise of a whole route,
and the pipes, each of which refers to its own. Every fault has exactly one place in a declaration:

- ``tolerates``: what the pipe gives still holds when it happens;
- ``does_not_tolerate``: it does not hold any more, with the reason;
- ``left_to_route``: what the pipe needs of the route beneath takes the fault away before it gets here;
- ``untouched_by``: the pipe has no such part (no confirms, no storage).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from headpond.pipes.calculus.orders import Order


class Need(StrEnum):
    """A property that a pipe asks of the route beneath it."""

    BACKTRACEABLE = "backtraceable"
    """An answer finds its way back to the sender; some answers may be lost, not all."""
    ACCESSIBLE = "accessible"
    """The other side can be reached: some messages may be lost, not all."""
    AT_LEAST_ONCE = "at least once"
    """Every message arrives, and so does every confirm, perhaps more than once."""


class Fault(StrEnum):
    """What may go wrong under a pipe."""

    LOSS = "loss"
    DUPLICATION = "duplication"
    REORDER = "reorder"
    CONFIRM_LOSS = "confirm loss"
    ROUTE_FAILURE = "route failure"
    """The route goes away for a while, with all that was on it, and comes back."""
    SENDER_CRASH = "sender crash"
    """The sender starts again without what it held in memory."""
    RECEIVER_CRASH = "receiver crash"
    STORAGE_CRASH = "storage crash"
    """The stream engine starts again, with all its data."""
    STORAGE_LOSS = "storage loss"
    """The storage comes back without some of its data."""


class Side(StrEnum):
    """Who keeps a piece of state."""

    SENDER = "sender"
    RECEIVER = "receiver"
    STREAM = "stream"
    INDEX_STORAGE = "index storage"


class Gift(StrEnum):
    """What a pipe does for delivery, when its needs are met."""

    AT_LEAST_ONCE = "at least once"
    """Nothing is lost; there may be repeats."""
    UNIQUE = "unique"
    """Nothing is repeated; what the route beneath loses stays lost."""
    EXACTLY_ONCE = "exactly once"
    """Nothing is lost and nothing is repeated."""
    FEWER_LOST = "fewer lost"
    """A message is lost only where all its tries are; there may be repeats."""
    AS_BENEATH = "as beneath"
    """Copies pass as the route beneath brings them."""


class Tactic(StrEnum):
    """How a pipe acts on the copies of a message: what the calculus needs to know to compute with it."""

    PASS = "send once, pass on what arrives"
    RESEND_ONE = "send again until confirmed, one message at a time"
    RESEND_MANY = "send again until confirmed, many messages at a time"
    WAIT_FOR_CONFIRM = (
        "send again until confirmed, one message at a time, drop what is not above the last index"
    )
    DROP_SEEN = "drop ids already seen"
    DROP_LATE = "drop what is not above the last index"
    DROP_BELOW = "drop what is below the last index"
    HOLD_GAPS = "hold what is ahead of a gap, drop what is not above the last index"
    HOLD_GAPS_PASS_EQUAL = "hold what is ahead of a gap, drop what is below the last index"
    ASK_GAPS = "hold what is ahead of a gap and ask for it, drop what is not above the last index"
    ASK_GAPS_PASS_EQUAL = "hold what is ahead of a gap and ask for it, drop what is below the last index"


@dataclass(frozen=True, slots=True)
class State:
    """One thing that a side keeps."""

    side: Side
    what: str
    optional: bool = False


@dataclass(frozen=True, slots=True)
class SizeNeed:
    """Room that a pipe needs: a setting that must not be smaller than the span of the route beneath.

    The span is how far a message that is still to come may be behind the newest one that came.
    """

    parameter: str
    otherwise: str
    """What happens where it is smaller: a clause without its full stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """Something that can be set in the text of a route: ``resend_many(window=64)``.

    The type of ``default`` is the parameter's type; ``choices`` are the values that a text may take.
    """

    name: str
    default: int | bool | str
    meaning: str
    minimum: int = 1
    maximum: int = 1 << 20
    choices: tuple[str, ...] = ()
    local: bool = False
    """Whether it is the business of one side alone: no promise depends on it, and the other side may differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """What one pipe needs, keeps, gives and stands."""

    name: str
    """The pipe as a route writes it, with the parameter that makes this variant: ``index(strict=false)``."""
    pipe: str
    """The pipe without its parameters: ``index``."""
    summary: str
    needs: tuple[Need, ...]
    state: tuple[State, ...]
    gives: Gift
    order: Order | None
    """The order it gives by itself; None where it gives none."""
    tactic: Tactic
    tolerates: frozenset[Fault]
    does_not_tolerate: Mapping[Fault, str]
    """Each fault with why: a sentence without its full stop."""
    left_to_route: frozenset[Fault] = frozenset()
    untouched_by: frozenset[Fault] = frozenset()
    variant: Mapping[str, bool | str | range]
    """The parameters that choose this declaration among those of the same pipe: a value, or a range of them."""
    parameters: tuple[Parameter, ...] = ()
    room: SizeNeed | None = None
    """The room it needs for what comes before its turn, if it has a bound there."""

    @property
    def confirms(self) -> bool:
        """Whether its receiver answers, so that a lost answer matters."""
        return Fault.CONFIRM_LOSS not in self.untouched_by

    def chosen_by(self, settings: Mapping[str, int | bool | str]) -> bool:
        """Whether these settings of its pipe mean this declaration."""
        return all(
            settings[name] in value if isinstance(value, range) else settings[name] == value
            for name, value in self.variant.items()
        )

    def state_of(self, side: Side) -> tuple[State, ...]:
        return tuple(each for each in self.state if each.side is side)
