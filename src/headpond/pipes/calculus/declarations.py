"""What each pipe needs, keeps, gives and tolerates: the tables of the pipes directory as data.

The calculus folds declarations into the promise of a whole route. Every fault has exactly one place in a
declaration:

- ``does_not_tolerate``: the gift of the pipe does not hold when the fault happens, with the reason;
- ``left_to_route``: the route beneath, as the pipe needs it, removes the fault;
- ``untouched_by``: the pipe has no such part (no confirms, no storage);
- ``tolerates``: all others. The gift still holds when they happen.

The directory speaks of workers and routes. Its consequences for loss, duplication and reordering follow from
how each pipe works; they are written out here. Deduplication has no table in the directory: its rows follow
from its two definitions (by id, by index).

Some pipes do more than the directory asks, and are declared so. ``sequential`` sends again until it is
confirmed and recognises a repeat by its number, so it needs no route that delivers at least once. ``index``
and ``dedup(by=index)`` recognise a restarted sender by its session and tolerate its crash, because it keeps
no message. ``continuous`` asks for missing messages, which in practice mends a route that loses; it is still
declared with the directory's need, because it asks in order to recover messages that its queue had no room
for, not to carry a lossy route.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
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
    """The sender restarts without its memory."""
    RECEIVER_CRASH = "receiver crash"
    STORAGE_CRASH = "storage crash"
    """The stream engine restarts with all its data."""
    STORAGE_LOSS = "storage loss"
    """The storage comes back without some of its data."""


class Side(StrEnum):
    """The side that keeps a piece of state."""

    SENDER = "sender"
    RECEIVER = "receiver"
    STREAM = "stream"
    INDEX_STORAGE = "index storage"


class Gift(StrEnum):
    """The effect of a pipe on delivery, when its needs are met."""

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
    """How a pipe acts on the copies of a message, for the calculus to compute with."""

    PASS = "send once, pass on every copy"
    RESEND_ONE = "send again until confirmed, one message at a time"
    RESEND_MANY = "send again until confirmed, many messages at a time"
    WAIT_FOR_CONFIRM = (
        "send again until confirmed, one message at a time, drop messages not above the last index"
    )
    DROP_SEEN = "drop known ids"
    DROP_LATE = "drop messages not above the last index"
    DROP_BELOW = "drop messages below the last index"
    HOLD_GAPS = "hold messages behind a gap, drop messages not above the last index"
    HOLD_GAPS_PASS_EQUAL = "hold messages behind a gap, drop messages below the last index"
    ASK_GAPS = "hold messages behind a gap and ask for it, drop messages not above the last index"
    ASK_GAPS_PASS_EQUAL = "hold messages behind a gap and ask for it, drop messages below the last index"


@dataclass(frozen=True, slots=True)
class PipeState:
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


@dataclass(frozen=True, slots=True)
class Parameter:
    """Something that can be set in the text of a route: ``resend_many(window=64)``.

    The type of ``default`` is the parameter's type; ``choices`` are the values that a text may take.
    """

    name: str
    default: int | bool | str
    meaning: str
    _: KW_ONLY
    minimum: int = 1
    maximum: int = 1 << 20
    choices: tuple[str, ...] = ()
    local: bool = False
    """Whether it is the business of one side alone: no promise depends on it, and the other side may differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """The needs, state, gift and tolerance of one pipe."""

    name: str
    """The pipe as a route writes it, with the parameter that makes this variant: ``index(strict=false)``."""
    summary: str
    needs: tuple[Need, ...] = (Need.BACKTRACEABLE, Need.ACCESSIBLE)
    """The directory asks for the first, and tolerates failures as long as the receiver is accessible."""
    state: tuple[PipeState, ...]
    gives: Gift
    order: Order | None = None
    """The order it gives by itself; None where it gives none."""
    tactic: Tactic
    does_not_tolerate: Mapping[Fault, str]
    """Each fault with why: a sentence without its full stop."""
    left_to_route: frozenset[Fault] = frozenset()
    variant: Mapping[str, bool | str | range] = field(default_factory=dict)
    """The parameters that choose this declaration among those of the same pipe: a value, or a range of them."""
    parameters: tuple[Parameter, ...] = ()
    room: SizeNeed | None = None
    """The room it needs for messages that come early, if it has a bound there."""

    @property
    def pipe(self) -> str:
        """The pipe without its parameters: ``index``."""
        return self.name.partition("(")[0]

    @property
    def confirms(self) -> bool:
        """Whether its receiver answers, so that a lost answer matters."""
        return Need.BACKTRACEABLE in self.needs

    @property
    def untouched_by(self) -> frozenset[Fault]:
        faults = set() if self.confirms else {Fault.CONFIRM_LOSS}
        if not any(each.side is Side.STREAM for each in self.state):
            faults |= {Fault.STORAGE_CRASH, Fault.STORAGE_LOSS}
        return frozenset(faults)

    @property
    def tolerates(self) -> frozenset[Fault]:
        return frozenset(Fault) - {*self.does_not_tolerate} - self.left_to_route - self.untouched_by

    def chosen_by(self, settings: Mapping[str, int | bool | str]) -> bool:
        """Whether these settings of its pipe mean this declaration."""
        return all(
            settings[name] in value if isinstance(value, range) else settings[name] == value
            for name, value in self.variant.items()
        )


WINDOW_DEFAULT = 1024
BUFFER = Parameter("buffer", 1024, "messages that may wait at the sender", minimum=0, local=True)
SPARE = Parameter("buffer", 0, "messages that may wait behind the window", minimum=0, local=True)
WINDOW = Parameter("window", WINDOW_DEFAULT, "messages that may be unconfirmed at a time")
TIMEOUT = Parameter(
    "timeout",
    20,
    "milliseconds that a sender waits for a confirm at the least before it sends again",
    maximum=60_000,
    local=True,
)
SPAN_PER_WINDOW = 16
"""The newest number of a window may be so many windows past the oldest unconfirmed one."""
ROOM_MAX = SPAN_PER_WINDOW << 20
"""Enough for the widest window."""


def span_of(window: int) -> int:
    """How far apart the numbers may be that a sender with such a window has on their way."""
    return window * SPAN_PER_WINDOW if window > 1 else 1


TRIES_MAX = 1000
TRIES = Parameter(
    "tries",
    0,
    "how often a message is sent before it is given up; 0: until it is confirmed",
    minimum=0,
    maximum=TRIES_MAX,
)
UNTIL_CONFIRMED = range(1)
SO_MANY_TRIES = range(1, TRIES_MAX + 1)
CONFIRM = Parameter(
    "confirm",
    "delivered",
    "whether a message is confirmed when it was passed on, or when the worker after is done with it",
    choices=("delivered", "settled"),
)

# --- reliable delivery ------------------------------------------------------------------------------

_LOST_BUFFER = "the messages that were not confirmed are lost with it"

RESEND = Declaration(
    name="resend",
    summary="The sender sends a message again until its id is confirmed; others wait in a buffer behind it.",
    state=(
        PipeState(Side.SENDER, "a route to the receiver"),
        PipeState(Side.SENDER, "the unconfirmed message and its id"),
        PipeState(Side.SENDER, "a buffer of messages that wait for the confirm"),
    ),
    gives=Gift.AT_LEAST_ONCE,
    tactic=Tactic.RESEND_ONE,
    does_not_tolerate={Fault.SENDER_CRASH: _LOST_BUFFER},
    variant={"tries": UNTIL_CONFIRMED},
    parameters=(BUFFER, CONFIRM, TIMEOUT, TRIES),
)

OUTLASTED = "one that outlasts all tries of a message loses it"

RESEND_MANY = replace(
    RESEND,
    name="resend_many",
    summary="As resend, but many messages may be unconfirmed at a time.",
    state=(
        PipeState(Side.SENDER, "a route to the receiver"),
        PipeState(Side.SENDER, "the unconfirmed messages and their ids"),
    ),
    tactic=Tactic.RESEND_MANY,
    parameters=(WINDOW, SPARE, CONFIRM, TIMEOUT, TRIES),
)


def _with_tries(pipe: Declaration) -> Declaration:
    return replace(
        pipe,
        name=f"{pipe.name}(tries=2)",
        summary=f"As {pipe.name}, but a message is given up after so many tries, and the sender reports it.",
        gives=Gift.FEWER_LOST,
        does_not_tolerate={
            Fault.SENDER_CRASH: _LOST_BUFFER,
            Fault.RECEIVER_CRASH: OUTLASTED,
            Fault.ROUTE_FAILURE: OUTLASTED,
        },
        variant={"tries": SO_MANY_TRIES},
    )


STREAM = Declaration(
    name="stream",
    summary="The sender sends again until the stream has stored the message; the receiver reads it by index.",
    state=(
        PipeState(Side.SENDER, "a route to the stream"),
        PipeState(Side.SENDER, "the messages that the stream has not confirmed"),
        PipeState(Side.STREAM, "the messages, each under a monotonic index, in persistent storage"),
        PipeState(Side.RECEIVER, "a route to the stream"),
        PipeState(Side.RECEIVER, "the index it reads at"),
        PipeState(Side.RECEIVER, "a route to the index storage", optional=True),
        PipeState(Side.INDEX_STORAGE, "the index of the last message sent on", optional=True),
    ),
    gives=Gift.AT_LEAST_ONCE,
    tactic=Tactic.RESEND_MANY,
    does_not_tolerate={
        Fault.SENDER_CRASH: "the messages that the stream has not confirmed are lost with it",
        Fault.STORAGE_LOSS: "the sender has dropped the messages that the stream confirmed, so nobody has them",
    },
    parameters=(
        WINDOW,
        SPARE,
        Parameter("commit", True, "whether the receiver commits its index to an index storage"),
        TIMEOUT,
    ),
)

# --- ordering ---------------------------------------------------------------------------------------

SEQUENTIAL = Declaration(
    name="sequential",
    summary="The sender sends a message again until it is confirmed, then the next; repeats are dropped.",
    state=(
        PipeState(Side.SENDER, "a route to the receiver"),
        PipeState(Side.SENDER, "the unconfirmed message and a buffer of unsent ones"),
        PipeState(Side.RECEIVER, "the last index it sent on"),
    ),
    gives=Gift.EXACTLY_ONCE,
    order=Order.ABSOLUTE,
    tactic=Tactic.WAIT_FOR_CONFIRM,
    does_not_tolerate={
        Fault.SENDER_CRASH: "its buffer of unsent messages is lost with it",
        Fault.RECEIVER_CRASH: "it forgets the last index, and a copy of the last message passes again",
    },
    parameters=(BUFFER, CONFIRM, TIMEOUT),
)

_INDEX_STATE = (
    PipeState(Side.SENDER, "the last index it gave"),
    PipeState(Side.RECEIVER, "the last index it sent on"),
)
_STRICT = Parameter("strict", True, "whether an index equal to the current one is dropped")
_INDEX_FORGOTTEN = "it forgets the last index, and late and repeated messages pass"

INDEX = Declaration(
    name="index",
    summary="The receiver sends a message on only if its index is above the last one.",
    needs=(Need.ACCESSIBLE,),
    state=_INDEX_STATE,
    gives=Gift.UNIQUE,
    order=Order.STRICT,
    tactic=Tactic.DROP_LATE,
    does_not_tolerate={Fault.RECEIVER_CRASH: _INDEX_FORGOTTEN},
    variant={"strict": True},
    parameters=(_STRICT,),
)

INDEX_RELAXED = replace(
    INDEX,
    name="index(strict=false)",
    summary="The receiver sends a message on only if its index is not below the last one.",
    gives=Gift.AS_BENEATH,
    order=Order.MONOTONIC,
    tactic=Tactic.DROP_BELOW,
    variant={"strict": False},
)

_CONTINUOUS_STATE = (
    PipeState(Side.SENDER, "the last index it gave"),
    PipeState(Side.RECEIVER, "the current index"),
    PipeState(Side.RECEIVER, "a send queue of messages that came before their turn"),
)
_QUEUE_LOST = "its send queue and its current index are lost with it"
CONTINUOUS = Declaration(
    name="continuous",
    summary="The receiver sends on the next index only; it asks for missing messages, and early ones wait.",
    needs=(Need.AT_LEAST_ONCE, Need.BACKTRACEABLE),
    state=(
        PipeState(Side.SENDER, "the last index it gave, and the messages that the receiver may still ask for"),
        *_CONTINUOUS_STATE[1:],
    ),
    gives=Gift.EXACTLY_ONCE,
    order=Order.ABSOLUTE,
    tactic=Tactic.ASK_GAPS,
    does_not_tolerate={
        Fault.SENDER_CRASH: "the messages that its receiver may still ask for are lost with it",
        Fault.RECEIVER_CRASH: _QUEUE_LOST,
    },
    # "At least once" beneath takes these away.
    left_to_route=frozenset({Fault.LOSS, Fault.ROUTE_FAILURE}),
    variant={"gaps": True, "strict": True},
    parameters=(
        _STRICT,
        Parameter("queue", span_of(WINDOW_DEFAULT), "messages that may wait for their turn", maximum=ROOM_MAX),
        Parameter("gaps", True, "whether the receiver asks for missing messages"),
        Parameter("window", 4096, "messages that the sender keeps for that", local=True),
    ),
)

CONTINUOUS_SILENT = replace(
    CONTINUOUS,
    name="continuous(gaps=false)",
    summary="The receiver sends on the next index only; messages behind a gap wait in a send queue.",
    needs=(Need.AT_LEAST_ONCE,),
    state=_CONTINUOUS_STATE,
    tactic=Tactic.HOLD_GAPS,
    does_not_tolerate={
        Fault.SENDER_CRASH: "the messages behind a gap of its earlier session are dropped with that session",
        Fault.RECEIVER_CRASH: _QUEUE_LOST,
    },
    variant={"gaps": False, "strict": True},
    room=SizeNeed(
        "queue",
        "a message without room there is dropped, the route beneath may have confirmed it, and all that follow "
        "would wait for it for ever",
    ),
)


def _relaxed(pipe: Declaration, name: str, tactic: Tactic) -> Declaration:
    return replace(
        pipe,
        name=name,
        summary=f"As {pipe.name}, but a repeat of the current index is sent on too.",
        gives=Gift.AT_LEAST_ONCE,
        order=Order.CONTINUOUS,
        tactic=tactic,
        variant={**pipe.variant, "strict": False},
    )


# --- deduplication ----------------------------------------------------------------------------------

_DEDUP_PARAMETERS = (
    Parameter("by", "id", "what is compared", choices=("id", "index")),
    Parameter(
        "window",
        65536,
        "messages that may overtake one that is still recognised as new (by=id)",
        maximum=ROOM_MAX,
    ),
    Parameter("sessions", 65536, "sender sessions that the receiver distinguishes (by=id)", local=True),
)

DEDUP_BY_ID = Declaration(
    name="dedup",
    summary="The sender gives each message a unique id; the receiver drops ids that it knows.",
    needs=(Need.ACCESSIBLE,),
    state=(
        PipeState(Side.SENDER, "a source of unique ids"),
        PipeState(Side.RECEIVER, "the ids it has passed on, a bounded set"),
    ),
    gives=Gift.UNIQUE,
    tactic=Tactic.DROP_SEEN,
    # It tolerates a crash of the sender: that one keeps nothing that it could repeat, and its ids stay unique.
    does_not_tolerate={
        Fault.RECEIVER_CRASH: "it forgets the ids it has passed on, and their copies pass again"
    },
    variant={"by": "id"},
    parameters=_DEDUP_PARAMETERS,
    room=SizeNeed(
        "window",
        "it cannot distinguish a message that is later than that from a repeat, and drops it, though the route "
        "beneath may have confirmed it",
    ),
)

DEDUP_BY_INDEX = replace(
    INDEX,
    name="dedup(by=index)",
    summary="The sender gives each message the next index; the receiver drops it unless it is above the last.",
    variant={"by": "index"},
    parameters=_DEDUP_PARAMETERS,
)

# --- no pipe at all ---------------------------------------------------------------------------------

BARE = Declaration(
    name="bare",
    summary="The sender sends each message once; the receiver passes on every copy that arrives.",
    needs=(Need.ACCESSIBLE,),
    state=(PipeState(Side.SENDER, "a route to the receiver"),),
    gives=Gift.AS_BENEATH,
    tactic=Tactic.PASS,
    does_not_tolerate={},
)

DECLARATIONS: tuple[Declaration, ...] = (
    RESEND,
    _with_tries(RESEND),
    RESEND_MANY,
    _with_tries(RESEND_MANY),
    STREAM,
    SEQUENTIAL,
    INDEX,
    INDEX_RELAXED,
    CONTINUOUS,
    _relaxed(CONTINUOUS, "continuous(strict=false)", Tactic.ASK_GAPS_PASS_EQUAL),
    CONTINUOUS_SILENT,
    _relaxed(CONTINUOUS_SILENT, "continuous(strict=false, gaps=false)", Tactic.HOLD_GAPS_PASS_EQUAL),
    DEDUP_BY_ID,
    DEDUP_BY_INDEX,
    BARE,
)
