"""Subscriptions: create, list, show, seek, pause, promote, delete; their unacked, skipped and dead messages."""

from __future__ import annotations

from typing import Annotated, TypedDict

import msgspec
from litestar import delete, get, post
from litestar.params import FromPath, JSONBody, QueryParameter

from headpond.client.admin import Admin
from headpond.client.consume.intake import STATE_TIMEOUT_S
from headpond.model.bounds import Name, Shard, Word
from headpond.model.errors import BadRequest
from headpond.model.policy import Policy
from headpond.node.http.held import message_bytes, parse_position, start_word
from headpond.node.http.request import (
    After,
    FromCaller,
    HttpRequest,
    Limit,
    Match,
    TopicPath,
    answer_of,
    page_of,
    state_of,
    topic_name,
)
from headpond.node.http.routes.resources import TOPIC, DeletedOfTopic
from headpond.shapes import resources as shapes
from headpond.wire.control import consuming
from headpond.wire.control.links import PromoteSubscription

DEAD_MAX = 1000
"""Dead messages in one answer."""
PageStart = Annotated[str, QueryParameter(max_length=64, description="SHARD/ENTRY to begin with.")]
PageLimit = Annotated[int, QueryParameter(ge=1, le=consuming.PAGE_MAX, description="How many at most.")]
SUBSCRIPTIONS = TOPIC + "/subscriptions"
SUBSCRIPTION = SUBSCRIPTIONS + "/{subscription:str}"


class PolicyBody(Policy, frozen=True, forbid_unknown_fields=True):
    """A field that is left out takes its default (docs/subscriptions.md)."""


class SubscriptionBody(msgspec.Struct, forbid_unknown_fields=True):
    subscription: Name
    kind: Word = "unique"
    mode: Word = "non_resilient"
    start: Word = "earliest"
    """earliest, latest, state, an entry or a time."""
    policy: PolicyBody | None = None
    exist_ok: bool = False


class SeekBody(msgspec.Struct, forbid_unknown_fields=True):
    to: Word
    """earliest, latest, an entry or a time."""
    shard: Shard | None = None


class RedriveBody(msgspec.Struct, forbid_unknown_fields=True):
    positions: Annotated[list[Word], msgspec.Meta(max_length=10_000)] | None = None
    """SHARD/ENTRY of the topic each; null: all dead messages."""


class Redriven(TypedDict):
    redriven: int


@get("/subscriptions", tags=["subscriptions"])
async def list_all_subscriptions(
    caller: FromCaller,
    match: Match = "",
    after: After = "",
    limit: Limit = None,
    dead: Annotated[bool, QueryParameter(description="Only those that have dead messages.")] = False,
    advanced: Annotated[
        bool, QueryParameter(description="Only those that a reader moves by position, as a source of Spark.")
    ] = False,
) -> list[shapes.SubscriptionShape]:
    """List the subscriptions of all topics that the token reaches. A full name is `TOPIC/SUBSCRIPTION`."""
    infos = await caller.ask(consuming.ListSubscriptions("", page_of(match, after, limit), dead, advanced))
    return [
        shapes.subscription_object(info)
        for info in sorted(infos, key=lambda each: (each.topic, each.subscription))
    ]


@get(SUBSCRIPTIONS, tags=["subscriptions"])
async def list_subscriptions(caller: FromCaller, topic: TopicPath) -> list[shapes.SubscriptionShape]:
    """List a topic's subscriptions and how far each has come."""
    infos = await caller.ask(consuming.ListSubscriptions(topic_name(topic)))
    return [shapes.subscription_object(info) for info in sorted(infos, key=lambda each: each.subscription)]


@post(SUBSCRIPTIONS, tags=["subscriptions"])
async def create_subscription(
    caller: FromCaller, topic: TopicPath, data: JSONBody[SubscriptionBody]
) -> shapes.SubscriptionShape:
    """Create a subscription without a consumer: the node keeps messages for it from `start` on."""
    policy = None if data.policy is None else Policy(**msgspec.structs.asdict(data.policy)).checked()
    place, start = (topic_name(topic), data.subscription), start_word(data.start)
    create = consuming.CreateSubscription(*place, data.kind, data.mode, start, policy, data.exist_ok)
    timeout_s = STATE_TIMEOUT_S if start == "state" else None
    return shapes.subscription_object(await caller.ask(create, timeout_s=timeout_s))


@get(SUBSCRIPTION, tags=["subscriptions"])
async def show_subscription(
    caller: FromCaller, topic: TopicPath, subscription: FromPath[str]
) -> shapes.SubscriptionShape:
    """Show a subscription: its policy, its counts, its dead entries."""
    return shapes.subscription_object(
        await caller.ask(consuming.ShowSubscription(topic_name(topic), subscription))
    )


@delete(SUBSCRIPTION, status_code=200, tags=["subscriptions"])
async def delete_subscription(
    caller: FromCaller, topic: TopicPath, subscription: FromPath[str]
) -> DeletedOfTopic:
    """Delete a subscription and its settlements. Its topic keeps its messages."""
    await caller.ask(consuming.DeleteSubscription(topic_name(topic), subscription))
    return {"deleted": subscription, "topic": topic_name(topic)}


@post(SUBSCRIPTION + "/seek", status_code=200, tags=["subscriptions"])
async def seek(
    caller: FromCaller, topic: TopicPath, subscription: FromPath[str], data: JSONBody[SeekBody]
) -> shapes.SubscriptionShape:
    """Set its position: messages before it count as settled, messages after it come (again)."""
    to = start_word(data.to, new=False)
    return shapes.subscription_object(
        await caller.ask(consuming.SeekSubscription(topic_name(topic), subscription, to, data.shard))
    )


@post(SUBSCRIPTION + "/pause", status_code=200, tags=["subscriptions"])
async def pause(caller: FromCaller, topic: TopicPath, subscription: FromPath[str]) -> shapes.SubscriptionShape:
    """Stop delivery to all consumers until it is resumed."""
    return shapes.subscription_object(
        await caller.ask(consuming.PauseSubscription(topic_name(topic), subscription, True))
    )


@post(SUBSCRIPTION + "/resume", status_code=200, tags=["subscriptions"])
async def resume(caller: FromCaller, topic: TopicPath, subscription: FromPath[str]) -> shapes.SubscriptionShape:
    """End a pause."""
    return shapes.subscription_object(
        await caller.ask(consuming.PauseSubscription(topic_name(topic), subscription, False))
    )


@post(SUBSCRIPTION + "/promote", status_code=200, tags=["subscriptions"])
async def promote(
    caller: FromCaller, topic: TopicPath, subscription: FromPath[str]
) -> shapes.SubscriptionShape:
    """Make the passive copy of another node's subscription active here."""
    return shapes.subscription_object(await caller.ask(PromoteSubscription(topic_name(topic), subscription)))


@get(SUBSCRIPTION + "/dead", tags=["subscriptions"])
async def list_dead(
    request: HttpRequest, caller: FromCaller, topic: TopicPath, subscription: FromPath[str]
) -> list[shapes.DeadShape]:
    """The messages that are dead now, and why; at most 1,000 and `answer_bytes`."""
    answer, bytes_max = answer_of(request), state_of(request).callers.limits.answer_bytes
    found: list[shapes.DeadShape] = []
    size = 0
    async for message in Admin(caller.link).dead_letters(topic_name(topic), subscription):
        size += message_bytes(message)
        if found and (size > bytes_max or len(found) >= DEAD_MAX):
            break
        await answer.expect(size)
        found.append(shapes.dead_object(message))
    return found


@get(SUBSCRIPTION + "/unacked", tags=["subscriptions"])
async def list_unacked(
    caller: FromCaller,
    topic: TopicPath,
    subscription: FromPath[str],
    start: PageStart = "0/0",
    limit: PageLimit = consuming.PAGE_MAX,
) -> list[shapes.UnackedShape]:
    """The messages that a consumer got and did not settle, from `start` (SHARD/ENTRY) on: their attempts."""
    page = (topic_name(topic), subscription)
    found = Admin(caller.link).unacked(*page, start=parse_position(start), limit=limit)
    return [shapes.unacked_object(entry) async for entry in found]


@get(SUBSCRIPTION + "/skipped", tags=["subscriptions"])
async def list_skipped(
    caller: FromCaller,
    topic: TopicPath,
    subscription: FromPath[str],
    start: PageStart = "0/0",
    limit: PageLimit = consuming.PAGE_MAX,
) -> list[shapes.SkippedShape]:
    """The ranges of entries that consumers skipped, from `start` (SHARD/ENTRY) on."""
    page = (topic_name(topic), subscription)
    found = Admin(caller.link).skipped(*page, start=parse_position(start), limit=limit)
    return [shapes.skipped_object(each) async for each in found]


@post(SUBSCRIPTION + "/redrive", status_code=200, tags=["subscriptions"])
async def redrive(
    caller: FromCaller, topic: TopicPath, subscription: FromPath[str], data: JSONBody[RedriveBody]
) -> Redriven:
    """Deliver dead messages again, to their own subscription alone, as first attempts."""
    if data.positions is not None and not data.positions:
        raise BadRequest("the list of positions is empty", hint="Leave it out to redrive all dead messages.")
    places = None if data.positions is None else map(parse_position, data.positions)
    return {"redriven": await Admin(caller.link).redrive(topic_name(topic), subscription, places)}
