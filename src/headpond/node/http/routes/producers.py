"""``/v1/producers`` and ``/v1/topics/{topic}/producers``: names registered at a topic, and who holds them."""

from __future__ import annotations

from typing import TypedDict

import msgspec
from litestar import delete, get, post
from litestar.params import FromPath, JSONBody

from headpond.model.bounds import Name, Word
from headpond.node.http.asking import Called, TopicPath, topic_name
from headpond.shapes.resources import ProducerShape, producer_object


class ProducerBody(msgspec.Struct, forbid_unknown_fields=True):
    producer: Name
    access: Word = "multiple"
    exist_ok: bool = False


class DeletedOfTopic(TypedDict):
    deleted: str
    topic: str


@get("/producers", tags=["producers"])
async def list_all_producers(caller: Called) -> list[ProducerShape]:
    """List the producers registered at all topics that the token reaches."""
    return [producer_object(info) for info in await caller.client.admin.list_producers()]


@get("/topics/{topic:str}/producers", tags=["producers"])
async def list_producers(caller: Called, topic: TopicPath) -> list[ProducerShape]:
    """List the producers registered at a topic."""
    return [producer_object(info) for info in await caller.client.admin.list_producers(topic_name(topic))]


@post("/topics/{topic:str}/producers", tags=["producers"])
async def create_producer(caller: Called, topic: TopicPath, data: JSONBody[ProducerBody]) -> ProducerShape:
    """Register a producer's name: `single` lets one instance at a time send under it."""
    admin = caller.client.admin
    made = admin.create_producer(topic_name(topic), data.producer, access=data.access, exist_ok=data.exist_ok)
    return producer_object(await made)


@get("/topics/{topic:str}/producers/{producer:str}", tags=["producers"])
async def show_producer(caller: Called, topic: TopicPath, producer: FromPath[str]) -> ProducerShape:
    """Show a producer: its access, when it was last seen, who holds its lease."""
    return producer_object(await caller.client.admin.show_producer(topic_name(topic), producer))


@delete("/topics/{topic:str}/producers/{producer:str}", status_code=200, tags=["producers"])
async def delete_producer(caller: Called, topic: TopicPath, producer: FromPath[str]) -> DeletedOfTopic:
    """Delete a registration that nobody uses. Its messages stay."""
    name = topic_name(topic)
    await caller.client.admin.delete_producer(name, producer)
    return {"deleted": producer, "topic": name}


ROUTES = [list_all_producers, list_producers, create_producer, show_producer, delete_producer]
