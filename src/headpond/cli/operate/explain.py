"""``headpond explain ROUTE``: predicts what a route of pipes, or several in a row, delivers."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headpond.cli.command import command
from headpond.cli.options import argument, flag, option, rate
from headpond.cli.output import Output, print_fields
from headpond.pipes.calculus.declarations import Declaration, Fault
from headpond.pipes.calculus.delivery import Channel
from headpond.pipes.calculus.orders import held_orders
from headpond.pipes.calculus.promise import ChainPromise, CrashRole, chain_promise_of

if TYPE_CHECKING:
    from headpond.pipes.calculus.flow import RateBounds
    from headpond.pipes.calculus.promise import Outlook, PromiseStep, RoutePromise

RATES = ("loss", "duplicate", "reorder", "confirm_loss")


class FaultName(StrEnum):
    """Failures that can happen, as the command line names them."""

    ROUTE_FAILURE = "route-failure"
    SENDER_CRASH = "sender-crash"
    RECEIVER_CRASH = "receiver-crash"
    STORAGE_CRASH = "storage-crash"
    STORAGE_LOSS = "storage-loss"
    RELAY_CRASH = "relay-crash"
    WORKER_CRASH = "worker-crash"


CRASHES = (FaultName.RELAY_CRASH, FaultName.WORKER_CRASH)


ROUTE_HELP = (
    "Pipes, the innermost first: 'resend_many(window=64) | dedup'; hops in a row: 'A -> B'. A hop can start "
    "with its own rates and end with a worker that fails: 'channel(loss=0.1) | resend | worker(fail=0.2)'."
)
LATE_HELP = "How many packets can overtake one packet, at most."


@command()
def explain(
    output: Output,
    route: Annotated[str, argument("ROUTE", ROUTE_HELP)],
    loss: Annotated[float, rate("--loss", "The share of packets that are lost.")] = 0.0,
    duplicate: Annotated[float, rate("--duplicate", "The share of packets that arrive twice.")] = 0.0,
    reorder: Annotated[float, rate("--reorder", "The share of packets that later ones overtake.")] = 0.0,
    confirm_loss: Annotated[float, rate("--confirm-loss", "The share of answers that are lost.")] = 0.0,
    late: Annotated[int, option("--late", "N", LATE_HELP, min=1, max=1 << 24)] = 4096,
    one_way: Annotated[bool, flag("--one-way", "The channel carries no answers.")] = False,
    fault: Annotated[
        list[FaultName] | None, typer.Option("--fault", help="A failure that can happen. Can be repeated.")
    ] = None,
) -> None:
    """Predict R (share that arrives), UR (share without repeats) and order of a route over a faulty channel.

    Nothing is sent. Exits with 1 if the route cannot keep its promise, and says how to repair it.
    """
    faults = fault or []
    channel = Channel(
        loss=loss,
        duplicate=duplicate,
        reorder=reorder,
        late=late,
        confirm_loss=confirm_loss,
        backtraceable=not one_way,
        faults=frozenset(Fault[each.name] for each in faults if each not in CRASHES),
    )
    crashes = frozenset(CrashRole(each.replace("-", " ")) for each in faults if each in CRASHES)
    promise = chain_promise_of(route, channel, crashes)
    found = _promise_object(promise, channel, crashes)
    output.show(found, lambda: _print(promise, crashes), ok=promise.holds)


# --- text -------------------------------------------------------------------------------------------


def _print(promise: ChainPromise, crashes: frozenset[CrashRole]) -> None:
    fields: list[tuple[str, object]] = [("route", _route_text(promise))]
    if len(promise.hops) == 1:
        fields += _channel_fields(promise.hops[0])
    print_fields([*fields, *(("may happen", each) for each in sorted(crashes))])
    for number, hop in enumerate(promise.hops, 1):
        _print_hop(hop, number if len(promise.hops) > 1 else None)
    print()
    if promise.holds:
        print_fields(
            [
                ("end to end", _outlook_text(promise.outlook)),
                ("orders", _orders_text(promise.outlook)),
                *(("note", each) for each in promise.remarks),
            ]
        )
    else:
        print("end to end  no promise, as long as this is broken:")
    for breach in promise.breaches:
        print(f"\nBROKEN: {breach.sentence}.\nmend: {breach.mend}.")


def _print_hop(hop: RoutePromise, number: int | None) -> None:
    if number is not None:
        print(f"\nhop {number}: {hop.route}")
        print_fields(_channel_fields(hop))
    for place, step in enumerate(hop.steps, 1):
        print(f"\n{place}. {step.stage}: {step.stage.declaration.summary}")
        print_fields([(f"   {name}", value) for name, value in _step_fields(step)])


def _channel_fields(hop: RoutePromise) -> list[tuple[str, object]]:
    return [("channel", _channel_text(hop.channel)), ("without pipes", _outlook_text(hop.bare))]


def _route_text(promise: ChainPromise) -> str:
    return " -> ".join(str(hop.route) for hop in promise.hops)


def _step_fields(step: PromiseStep) -> list[tuple[str, object]]:
    pipe = step.stage.declaration
    fields: list[tuple[str, object]] = [
        ("needs", _needs_text(pipe)),
        *(("keeps", f"{each.side}: {each.what}{' (optional)' * each.optional}") for each in pipe.state),
        ("gives", _gift_text(pipe)),
        ("tolerates", ", ".join(sorted(pipe.tolerates))),
        *(("does not", f"tolerate {fault}: {reason}") for fault, reason in pipe.does_not_tolerate.items()),
    ]
    if pipe.left_to_route:
        fields.append(("leaves", f"{', '.join(sorted(pipe.left_to_route))} to the route beneath"))
    fields.append(("so far", _outlook_text(step.outlook) if step.promised else "no promise, see below"))
    return fields + [("note", each) for each in step.remarks]


def _needs_text(pipe: Declaration) -> str:
    size = [] if pipe.room is None else [f"{pipe.room.parameter} ≥ how late a message may come"]
    return ", ".join([*pipe.needs, *size])


def _gift_text(pipe: Declaration) -> str:
    return f"{pipe.gives}, {pipe.order} order" if pipe.order else str(pipe.gives)


def rate_texts(faults: Any) -> list[str]:
    """The rates that are not 0, of a channel or of the faults of a lab run."""
    rates = {name.replace("_", " "): float(getattr(faults, name)) for name in RATES}
    return [f"{name} {value:g}" for name, value in rates.items() if value]


def _channel_text(channel: Channel) -> str:
    parts = rate_texts(channel)
    parts += [f"late {channel.late:,}"] if channel.reorder else []
    parts += [] if channel.backtraceable else ["one way"]
    parts += sorted(channel.faults)
    return ", ".join(parts) or "without faults"


def _outlook_text(outlook: Outlook) -> str:
    order = f"{outlook.order} order" if outlook.order else "no order"
    numbers = f"R {_bounds_text(outlook.reliability)}, UR {_bounds_text(outlook.uniqueness)}"
    return f"{numbers}: {outlook.mode}, {order}"


def _orders_text(outlook: Outlook) -> str:
    return ", ".join(held_orders(outlook.order)) or "none"


def _bounds_text(bounds: RateBounds) -> str:
    low, high = f"{float(bounds.low):.6g}", f"{float(bounds.high):.6g}"
    return low if bounds.exact else f"{low} to {high}"


# --- JSON -------------------------------------------------------------------------------------------


def _channel_object(channel: Channel) -> dict[str, Any]:
    rates = {name: float(getattr(channel, name)) for name in RATES}
    return {
        **rates,
        "late": channel.late,
        "one_way": not channel.backtraceable,
        "faults": sorted(channel.faults),
    }


def _promise_object(promise: ChainPromise, channel: Channel, crashes: frozenset[CrashRole]) -> dict[str, Any]:
    return {
        "route": _route_text(promise),
        "channel": _channel_object(channel),
        "crashes": sorted(crashes),
        "hops": [
            {
                "route": str(hop.route),
                "channel": _channel_object(hop.channel),
                "bare": _outlook_object(hop.bare),
                "promise": _outlook_object(hop.outlook) if hop.holds else None,
            }
            for hop in promise.hops
        ],
        "holds": promise.holds,
        "promise": _outlook_object(promise.outlook) if promise.holds else None,
        "broken": [
            {"hop": number, "pipe": each.position, "what": each.sentence, "mend": each.mend}
            for number, hop in enumerate(promise.hops)
            for each in hop.breaches
        ],
        "pipes": [
            {"hop": number, **_step_object(step)}
            for number, hop in enumerate(promise.hops)
            for step in hop.steps
        ],
        "notes": list(promise.remarks),
    }


def _step_object(step: PromiseStep) -> dict[str, Any]:
    pipe = step.stage.declaration
    return {
        "pipe": str(step.stage),
        "settings": dict(step.stage.settings),
        "summary": pipe.summary,
        "needs": list(pipe.needs),
        "needs_room": None if pipe.room is None else pipe.room.parameter,
        "keeps": [{"side": each.side, "what": each.what, "optional": each.optional} for each in pipe.state],
        "gives": pipe.gives,
        "order": pipe.order,
        "tolerates": sorted(pipe.tolerates),
        "does_not_tolerate": dict(pipe.does_not_tolerate),
        "left_to_route": sorted(pipe.left_to_route),
        "so_far": _outlook_object(step.outlook) if step.promised else None,
        "notes": list(step.remarks),
    }


def _outlook_object(outlook: Outlook) -> dict[str, Any]:
    return {
        "R": [float(outlook.reliability.low), float(outlook.reliability.high)],
        "UR": [float(outlook.uniqueness.low), float(outlook.uniqueness.high)],
        "mode": outlook.mode,
        "orders": list(held_orders(outlook.order)),
    }
