"""``…/subscriptions/{subscription}/fetch``, ``ack``, ``skip``, ``nack``: read over several requests.

The door holds a consumer a token, subscription and consumer's name (``?consumer=``). What it handed out is
that name's until it is settled or nobody fetched with it for ``http_limits.consumer_idle_s``; then it goes to
the others.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, TypedDict

import msgspec
from litestar import delete, post
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter

from headpond.model.bounds import Word
from headpond.model.errors import LimitReached, NotHeld, SubscriptionNotFound
from headpond.model.message import Message
from headpond.node.http.asking import (
    Asked,
    Called,
    Count,
    TopicPath,
    Wait,
    answer_of,
    door_of,
    parse_start,
    topic_name,
    wait_of,
    while_asked,
)
from headpond.node.http.callers import CLIENT
from headpond.node.http.held import Held, message_bytes, parse_position, position_of
from headpond.node.http.routes.subscriptions import ONE
from headpond.node.http.status import PositionsNotHeld
from headpond.shapes.message import Row, message_row

ConsumerName = Annotated[
    str, QueryParameter(max_length=128, description="Fetches under one name share a consumer.")
]
Kind = Annotated[
    str | None, QueryParameter(description="Of a new subscription: unique, shared, failover, key_shared.")
]
Mode = Annotated[str | None, QueryParameter(description="Of a new subscription: non_resilient, resilient.")]
CREDIT_BYTES = 1024 * 1024
"""What the node sends ahead to a consumer that is held; there may be many, and they are slow."""
Positions = Annotated[list[Word], msgspec.Meta(min_length=1, max_length=10_000)]


class Handed(Row, gc=False, kw_only=True):
    """A message with the position that settles it."""

    position: str


class HandedMessages(msgspec.Struct):
    topic: str
    subscription: str
    consumer: str
    messages: list[Handed]


class SettleBody(msgspec.Struct, forbid_unknown_fields=True):
    positions: Positions
    """As they came with the messages."""


class NackBody(msgspec.Struct, forbid_unknown_fields=True):
    positions: Positions
    delay: Annotated[float, msgspec.Meta(ge=0, le=86400 * 7)] | None = None
    """Seconds until it comes again; null: as the policy says."""


class Settled(TypedDict):
    settled: int


class Released(TypedDict):
    released: str


def handed(message: Message) -> Handed:
    row = message_row(message)
    return Handed(**msgspec.structs.asdict(row), position=position_of(message))


async def hold(
    request: Asked,
    caller: Called,
    topic: str,
    subscription: str,
    consumer: str,
    kind: str | None = None,
    mode: str | None = None,
    start: FromQuery[str] = "earliest",
) -> Held:
    """The consumer that is held for this name, opened if there is none."""
    key = (topic, subscription, consumer)
    async with caller.opening:
        held = caller.consumers.get(key)
        if held is not None and not held.over:
            return held
        if held is not None:
            await held.close()
            del caller.consumers[key]
        callers = door_of(request).callers
        callers.check_consumers(caller)
        if kind is None or mode is None:
            known_kind, known_mode = await _known(caller, topic, subscription)
            kind, mode = kind or known_kind, mode or known_mode
        made = caller.client.consumer(
            topic,
            subscription,
            kind=kind,
            mode=mode,
            start=parse_start(start),
            name=f"{CLIENT}:{consumer}" if consumer else CLIENT,
            credit_bytes=CREDIT_BYTES,
            close_timeout=5.0,
        )
        held = caller.consumers[key] = Held(await made.open())
        return held


async def _known(caller: Called, topic: str, subscription: str) -> tuple[str, str]:
    try:
        info = await caller.client.admin.show_subscription(topic, subscription)
    except SubscriptionNotFound:
        return "unique", "non_resilient"
    return info.kind, info.mode


@post(ONE + "/fetch", status_code=200, tags=["consuming"])
async def fetch(
    request: Asked,
    caller: Called,
    topic: TopicPath,
    subscription: FromPath[str],
    count: Count = 10,
    wait: Wait = 0.0,
    consumer: ConsumerName = "",
    kind: Kind = None,
    mode: Mode = None,
    start: FromQuery[str] = "earliest",
) -> HandedMessages:
    """The next messages; waits up to `wait` seconds for the first. An empty list: there is nothing now."""
    wait_s = wait_of(request, wait)
    name = topic_name(topic)
    held = await hold(request, caller, name, subscription, consumer, kind, mode, start)
    door_of(request).callers.check_held(caller, held)
    found = await while_asked(request, held.fetch(count, max(wait_s, 0.05))) or []
    try:
        await answer_of(request).expect(sum(map(message_bytes, found)))
    except LimitReached:
        held.put_back(found)
        raise
    if not found and held.full:
        raise LimitReached(
            f"{held.bytes:,} bytes of messages are in this consumer's hands",
            hint="Settle what was fetched before, or let go of all of it (DELETE …/consumer).",
        )
    return HandedMessages(name, subscription, consumer, [handed(each) for each in found])


async def _settle(
    caller: Called,
    topic: str,
    subscription: str,
    consumer: str,
    positions: list[str],
    settle: Callable[[Held, Message], Awaitable[None]],
) -> Settled:
    for each in positions:
        parse_position(each)
    name = topic_name(topic)
    held = caller.consumers.get((name, subscription, consumer))
    if held is None:
        await caller.client.admin.show_subscription(name, subscription)  # which may not be the caller's to see
        raise PositionsNotHeld(positions)

    def one(message: Message) -> Awaitable[None]:
        return settle(held, message)

    return {"settled": await held.settle(positions, one)}


@post(ONE + "/ack", status_code=200, tags=["consuming"])
async def ack(
    caller: Called,
    topic: TopicPath,
    subscription: FromPath[str],
    data: JSONBody[SettleBody],
    consumer: ConsumerName = "",
) -> Settled:
    """Done: these messages do not come again. Answered when that is on the node's disk."""
    return await _settle(
        caller, topic, subscription, consumer, data.positions, lambda held, each: held.consumer.ack(each)
    )


@post(ONE + "/skip", status_code=200, tags=["consuming"])
async def skip(
    caller: Called,
    topic: TopicPath,
    subscription: FromPath[str],
    data: JSONBody[SettleBody],
    consumer: ConsumerName = "",
) -> Settled:
    """Not wanted: settled like an acknowledgement, and counted apart."""
    return await _settle(
        caller, topic, subscription, consumer, data.positions, lambda held, each: held.consumer.skip(each)
    )


@post(ONE + "/nack", status_code=200, tags=["consuming"])
async def nack(
    caller: Called,
    topic: TopicPath,
    subscription: FromPath[str],
    data: JSONBody[NackBody],
    consumer: ConsumerName = "",
) -> Settled:
    """Failed: these messages come again, after `delay` seconds or as the policy says."""
    return await _settle(
        caller,
        topic,
        subscription,
        consumer,
        data.positions,
        lambda held, each: held.consumer.nack(each, data.delay),
    )


@post(ONE + "/extend", status_code=200, tags=["consuming"])
async def extend(
    caller: Called,
    topic: TopicPath,
    subscription: FromPath[str],
    data: JSONBody[NackBody],
    consumer: ConsumerName = "",
) -> Settled:
    """More time: the deadline of these messages is `delay` seconds from now (null: as the policy says)."""
    name = topic_name(topic)
    held = caller.consumers.get((name, subscription, consumer))
    messages = [None if held is None else held.in_hand(each) for each in data.positions]
    missing = [text for text, each in zip(data.positions, messages, strict=True) if each is None]
    if held is None or missing:
        await caller.client.admin.show_subscription(name, subscription)
        raise PositionsNotHeld(missing)
    for message in messages:
        assert message is not None
        await held.consumer.extend(message, data.delay)
    return {"settled": 0}


@delete(ONE + "/consumer", status_code=200, tags=["consuming"])
async def release(
    caller: Called, topic: TopicPath, subscription: FromPath[str], consumer: ConsumerName = ""
) -> Released:
    """Let go of everything that this consumer holds: others get it at once."""
    name = topic_name(topic)
    held = caller.consumers.pop((name, subscription, consumer), None)
    if held is None:
        await caller.client.admin.show_subscription(name, subscription)
        raise NotHeld("no consumer of that name is held")
    await held.close()
    return {"released": consumer}


ROUTES = [fetch, ack, skip, nack, extend, release]
