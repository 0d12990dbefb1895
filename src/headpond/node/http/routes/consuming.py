"""A subscription read over several requests: ``fetch``, ``ack``, ``skip``, ``nack``, ``extend``.

Between requests the caller holds a consumer for each topic, subscription and consumer's name (``?consumer=``).
The messages that it delivered belong to that name until they are settled, or until no request used the name for
``http_limits.consumer_idle_s``; then other consumers get them.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, TypedDict

import msgspec
from litestar import delete, post
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter

from headpond.model.bounds import Text, Word
from headpond.model.errors import LimitReached, NotHeld
from headpond.model.message import Message
from headpond.node.http.callers import Caller
from headpond.node.http.held import HeldConsumer, message_bytes, parse_position, position_of
from headpond.node.http.request import (
    Count,
    FromCaller,
    HttpRequest,
    TopicPath,
    Wait,
    answer_of,
    state_of,
    topic_name,
    wait_of,
    while_connected,
)
from headpond.node.http.routes.subscriptions import SUBSCRIPTION
from headpond.node.http.status import PositionsNotHeld
from headpond.shapes.message import Row, message_row
from headpond.wire.control.consuming import ShowSubscription

ConsumerName = Annotated[
    str, QueryParameter(max_length=128, description="Fetches under one name share a consumer.")
]
Kind = Annotated[
    str | None, QueryParameter(description="Of a new subscription: unique, shared, failover, key_shared.")
]
Mode = Annotated[str | None, QueryParameter(description="Of a new subscription: non_resilient, resilient.")]
Positions = Annotated[list[Word], msgspec.Meta(min_length=1, max_length=10_000)]


class DeliveredMessage(Row, gc=False, kw_only=True):
    """A message with the position that settles it."""

    position: str


class DeliveredMessages(msgspec.Struct):
    topic: str
    subscription: str
    consumer: str
    messages: list[DeliveredMessage]


class SettleBody(msgspec.Struct, forbid_unknown_fields=True):
    positions: Positions
    """As they came with the messages."""

    @property
    def options(self) -> dict[str, Any]:
        """Further arguments of the consumer's method."""
        return {}


class ExtendBody(SettleBody, forbid_unknown_fields=True):
    delay: Annotated[float, msgspec.Meta(ge=0, le=86400 * 7)] | None = None
    """Seconds from now; null: as the policy says."""


class NackBody(ExtendBody, forbid_unknown_fields=True):
    reason: Text = ""
    """Listed with the messages, and put into their dead letters; the node keeps the first 512 characters."""

    @property
    def options(self) -> dict[str, Any]:
        return {"delay": self.delay, "reason": self.reason}


class Settled(TypedDict):
    settled: int


class Released(TypedDict):
    released: str


def delivered_message(message: Message) -> DeliveredMessage:
    row = message_row(message)
    return DeliveredMessage(**msgspec.structs.asdict(row), position=position_of(message))


@post(SUBSCRIPTION + "/fetch", status_code=200, tags=["consuming"])
async def fetch(
    request: HttpRequest,
    caller: FromCaller,
    topic: TopicPath,
    subscription: FromPath[str],
    count: Count = 10,
    wait: Wait = 0.0,
    consumer: ConsumerName = "",
    kind: Kind = None,
    mode: Mode = None,
    start: FromQuery[str] = "earliest",
) -> DeliveredMessages:
    """The next messages; waits up to `wait` seconds for the first. An empty list: there is nothing now."""
    wait_s = wait_of(request, wait)
    name = topic_name(topic)
    callers = state_of(request).callers
    held = await callers.hold(caller, (name, subscription, consumer), kind, mode, start)
    callers.check_held(caller, held)
    found = await while_connected(request, held.fetch(count, max(wait_s, 0.05))) or []
    try:
        await answer_of(request).expect(sum(map(message_bytes, found)))
    except LimitReached:
        held.put_back(found)
        raise
    if not found and held.full:
        raise LimitReached(
            f"this consumer holds {held.bytes:,} bytes of unsettled messages",
            hint="Settle messages that were fetched before, or release all of them (DELETE …/consumer).",
        )
    return DeliveredMessages(name, subscription, consumer, [delivered_message(each) for each in found])


async def _held(
    caller: Caller, topic: str, subscription: str, consumer: str, positions: list[str]
) -> HeldConsumer:
    """The consumer that holds these positions."""
    for each in positions:
        parse_position(each)
    name = topic_name(topic)
    held = caller.consumers.get((name, subscription, consumer))
    if held is None:
        await caller.ask(ShowSubscription(name, subscription))  # the caller may not see it
        raise PositionsNotHeld(positions)
    return held


async def _settle(
    verb: str, caller: Caller, topic: str, subscription: str, data: SettleBody, consumer: str
) -> Settled:
    """Settles messages by the method ``verb`` of the consumer that holds them."""
    held = await _held(caller, topic, subscription, consumer, data.positions)
    method = partial(getattr(held.consumer, verb), **data.options)
    return {"settled": await held.settle(data.positions, method)}


@post(SUBSCRIPTION + "/ack", status_code=200, tags=["consuming"])
async def ack(
    caller: FromCaller,
    topic: TopicPath,
    subscription: FromPath[str],
    data: JSONBody[SettleBody],
    consumer: ConsumerName = "",
) -> Settled:
    """Done: these messages do not come again. Answered when that is on the node's disk."""
    return await _settle("ack", caller, topic, subscription, data, consumer)


@post(SUBSCRIPTION + "/skip", status_code=200, tags=["consuming"])
async def skip(
    caller: FromCaller,
    topic: TopicPath,
    subscription: FromPath[str],
    data: JSONBody[SettleBody],
    consumer: ConsumerName = "",
) -> Settled:
    """Not wanted: settled like an acknowledgement, and counted apart."""
    return await _settle("skip", caller, topic, subscription, data, consumer)


@post(SUBSCRIPTION + "/nack", status_code=200, tags=["consuming"])
async def nack(
    caller: FromCaller,
    topic: TopicPath,
    subscription: FromPath[str],
    data: JSONBody[NackBody],
    consumer: ConsumerName = "",
) -> Settled:
    """Failed, for a `reason`: these messages come again, after `delay` seconds or as the policy says."""
    return await _settle("nack", caller, topic, subscription, data, consumer)


@post(SUBSCRIPTION + "/extend", status_code=200, tags=["consuming"])
async def extend(
    caller: FromCaller,
    topic: TopicPath,
    subscription: FromPath[str],
    data: JSONBody[ExtendBody],
    consumer: ConsumerName = "",
) -> Settled:
    """More time: the deadline of these messages is `delay` seconds from now (null: as the policy says)."""
    held = await _held(caller, topic, subscription, consumer, data.positions)
    messages = {position: held.in_hand(position) for position in data.positions}
    if missing := [position for position, message in messages.items() if message is None]:
        raise PositionsNotHeld(missing)
    for message in messages.values():
        assert message is not None
        await held.consumer.extend(message, data.delay)
    return {"settled": 0}


@delete(SUBSCRIPTION + "/consumer", status_code=200, tags=["consuming"])
async def release(
    caller: FromCaller, topic: TopicPath, subscription: FromPath[str], consumer: ConsumerName = ""
) -> Released:
    """Release everything that this consumer holds: others get it at once."""
    name = topic_name(topic)
    held = caller.consumers.pop((name, subscription, consumer), None)
    if held is None:
        await caller.ask(ShowSubscription(name, subscription))
        raise NotHeld("the caller holds no consumer of that name")
    await held.close()
    return {"released": consumer}
