"""``/v1/topics/{topic}/subscriptions``: made, listed, shown, moved, paused, deleted; their unacked, skipped and
dead messages.
"""

from __future__ import annotations

from typing import Annotated, TypedDict

import msgspec
from litestar import delete, get, post
from litestar.params import FromPath, JSONBody, QueryParameter

from headpond.model.bounds import Name, Seconds, Shard, TopicText, Word
from headpond.model.errors import BadRequest
from headpond.model.policy import Attempts, DeadlineSeconds, LeaseSeconds, Policy
from headpond.node.http.asking import Asked, Called, TopicPath, answer_of, door_of, parse_start, topic_name
from headpond.node.http.held import message_bytes, parse_position
from headpond.node.http.routes.producers import DeletedOfTopic
from headpond.shapes.resources import (
    DeadShape,
    SkippedShape,
    SubscriptionShape,
    UnackedShape,
    dead_object,
    skipped_object,
    subscription_object,
    unacked_object,
)
from headpond.wire.control.consuming import PAGE_MAX

DEAD_MAX = 1000
"""Dead messages in one answer."""
PageStart = Annotated[str, QueryParameter(max_length=64, description="SHARD/ENTRY to begin with.")]
PageLimit = Annotated[int, QueryParameter(ge=1, le=PAGE_MAX, description="How many at most.")]
PATH = "/topics/{topic:str}/subscriptions"
ONE = PATH + "/{subscription:str}"


class PolicyBody(msgspec.Struct, forbid_unknown_fields=True):
    """What is left out takes its default (docs/subscriptions.md)."""

    deadline: DeadlineSeconds | None = None
    backoff: Seconds | None = None
    backoff_max: Seconds | None = None
    redelivery: Word | None = None
    """after_backlog or after_backoff."""
    max_attempts: Attempts | None = None
    dead_letter: TopicText | None = None
    failover_after: Attempts | None = None
    lease: LeaseSeconds | None = None


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
    """SHARD/ENTRY of the topic each; null: all that are dead."""


class Redriven(TypedDict):
    redriven: int


@get("/subscriptions", tags=["subscriptions"])
async def list_all_subscriptions(caller: Called) -> list[SubscriptionShape]:
    """List the subscriptions of all topics that the token reaches."""
    infos = await caller.client.admin.list_subscriptions()
    return [
        subscription_object(info) for info in sorted(infos, key=lambda each: (each.topic, each.subscription))
    ]


@get(PATH, tags=["subscriptions"])
async def list_subscriptions(caller: Called, topic: TopicPath) -> list[SubscriptionShape]:
    """List a topic's subscriptions and how far each has come."""
    infos = await caller.client.admin.list_subscriptions(topic_name(topic))
    return [subscription_object(info) for info in sorted(infos, key=lambda each: each.subscription)]


@post(PATH, tags=["subscriptions"])
async def create_subscription(
    caller: Called, topic: TopicPath, data: JSONBody[SubscriptionBody]
) -> SubscriptionShape:
    """Create a subscription that nobody reads yet: it holds what is stored from `start` on."""
    policy = None if data.policy is None else Policy(**msgspec.structs.asdict(data.policy))
    info = await caller.client.admin.create_subscription(
        topic_name(topic),
        data.subscription,
        kind=data.kind,
        mode=data.mode,
        start=parse_start(data.start),
        policy=policy,
        exist_ok=data.exist_ok,
    )
    return subscription_object(info)


@get(ONE, tags=["subscriptions"])
async def show_subscription(caller: Called, topic: TopicPath, subscription: FromPath[str]) -> SubscriptionShape:
    """Show a subscription: its policy with every value in effect, its counts and its places."""
    return subscription_object(await caller.client.admin.show_subscription(topic_name(topic), subscription))


@delete(ONE, status_code=200, tags=["subscriptions"])
async def delete_subscription(caller: Called, topic: TopicPath, subscription: FromPath[str]) -> DeletedOfTopic:
    """Delete a subscription and what it knows. Its topic keeps its messages."""
    name = topic_name(topic)
    await caller.client.admin.delete_subscription(name, subscription)
    return {"deleted": subscription, "topic": name}


@post(ONE + "/seek", status_code=200, tags=["subscriptions"])
async def seek(
    caller: Called, topic: TopicPath, subscription: FromPath[str], data: JSONBody[SeekBody]
) -> SubscriptionShape:
    """Set its place: what lies before counts as settled, what lies behind comes (again)."""
    place = parse_start(data.to, new=False)
    admin = caller.client.admin
    return subscription_object(await admin.seek(topic_name(topic), subscription, place, shard=data.shard))


@post(ONE + "/pause", status_code=200, tags=["subscriptions"])
async def pause(caller: Called, topic: TopicPath, subscription: FromPath[str]) -> SubscriptionShape:
    """Hand out nothing until it is resumed, whoever is connected."""
    return subscription_object(await caller.client.admin.pause(topic_name(topic), subscription))


@post(ONE + "/resume", status_code=200, tags=["subscriptions"])
async def resume(caller: Called, topic: TopicPath, subscription: FromPath[str]) -> SubscriptionShape:
    """End a pause."""
    return subscription_object(await caller.client.admin.resume(topic_name(topic), subscription))


@post(ONE + "/promote", status_code=200, tags=["subscriptions"])
async def promote(caller: Called, topic: TopicPath, subscription: FromPath[str]) -> SubscriptionShape:
    """Go on here with a subscription that followed another node's."""
    return subscription_object(await caller.client.admin.promote(topic_name(topic), subscription))


@get(ONE + "/dead", tags=["subscriptions"])
async def list_dead(
    request: Asked, caller: Called, topic: TopicPath, subscription: FromPath[str]
) -> list[DeadShape]:
    """The messages that are dead now, with what is known of why; at most 1,000 and `answer_bytes`."""
    answer, bytes_max = answer_of(request), door_of(request).callers.limits.answer_bytes
    found: list[DeadShape] = []
    size = 0
    async for message in caller.client.admin.dead_letters(topic_name(topic), subscription):
        size += message_bytes(message)
        if found and (size > bytes_max or len(found) >= DEAD_MAX):
            break
        await answer.expect(size)
        found.append(dead_object(message))
    return found


@get(ONE + "/unacked", tags=["subscriptions"])
async def list_unacked(
    caller: Called,
    topic: TopicPath,
    subscription: FromPath[str],
    start: PageStart = "0/0",
    limit: PageLimit = PAGE_MAX,
) -> list[UnackedShape]:
    """What a consumer had and did not settle, from `start` (SHARD/ENTRY) on: attempts, what each waits for."""
    found = caller.client.admin.unacked(
        topic_name(topic), subscription, start=parse_position(start), limit=limit
    )
    return [unacked_object(entry) async for entry in found]


@get(ONE + "/skipped", tags=["subscriptions"])
async def list_skipped(
    caller: Called,
    topic: TopicPath,
    subscription: FromPath[str],
    start: PageStart = "0/0",
    limit: PageLimit = PAGE_MAX,
) -> list[SkippedShape]:
    """The ranges of entries that consumers skipped, from `start` (SHARD/ENTRY) on."""
    found = caller.client.admin.skipped(
        topic_name(topic), subscription, start=parse_position(start), limit=limit
    )
    return [skipped_object(each) async for each in found]


@post(ONE + "/redrive", status_code=200, tags=["subscriptions"])
async def redrive(
    caller: Called, topic: TopicPath, subscription: FromPath[str], data: JSONBody[RedriveBody]
) -> Redriven:
    """Offer dead messages again, to their own subscription alone, with attempts counted anew."""
    if data.positions is not None and not data.positions:
        raise BadRequest("no position is named", hint="Leave positions out to take all that are dead.")
    places = None if data.positions is None else [parse_position(each) for each in data.positions]
    return {"redriven": await caller.client.admin.redrive(topic_name(topic), subscription, places)}


ROUTES = [
    list_all_subscriptions,
    list_subscriptions,
    create_subscription,
    show_subscription,
    delete_subscription,
    seek,
    pause,
    resume,
    promote,
    list_unacked,
    list_skipped,
    list_dead,
    redrive,
]
