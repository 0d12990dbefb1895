"""What a node keeps: topics, tenants, products, components, producers, writers, tokens and peers.

A route asks for one operation of ``wire/control`` and returns its answer in a shape of ``shapes/resources.py``.
"""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

import msgspec
import pyarrow as pa
from litestar import delete, get, patch, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath, FromQuery, JSONBody, PathParameter, QueryParameter

from headpond.client.admin import COMPACT_TIMEOUT_S
from headpond.model.bounds import Name, Patterns, SettingValues, Shards, Text, TopicText, Word
from headpond.model.errors import BadRequest
from headpond.model.grant import SCOPES_MAX, without_secret
from headpond.model.names import Place, TopicName
from headpond.node.http.request import After, FromCaller, Limit, Match, TopicPath, page_of, topic_name
from headpond.shapes import resources as shapes
from headpond.shapes.columns import make_field
from headpond.shapes.convert import derive
from headpond.wire.control import access, catalog, links, producing, staging
from headpond.wire.control.codec import read_result
from headpond.wire.control.ledger import ShowLedger
from headpond.wire.typed.schema import encode_schema

# --- topics -----------------------------------------------------------------------------------------

TOPIC = "/topics/{topic:str}"


class ColumnBody(msgspec.Struct, forbid_unknown_fields=True):
    name: Name
    type: Text
    nullable: bool = True


Columns = Annotated[list[ColumnBody], msgspec.Meta(min_length=1, max_length=2000)]


class TopicBody(msgspec.Struct, forbid_unknown_fields=True):
    topic: TopicText
    """NAME or tenant/product/component/NAME."""
    shards: Shards = 1
    schema: Columns | None = None
    state: bool = False
    settings: SettingValues = {}
    exist_ok: bool = False


class SchemaBody(msgspec.Struct, forbid_unknown_fields=True):
    schema: Columns


class SettingsBody(msgspec.Struct, forbid_unknown_fields=True):
    """Settings to set, and settings to inherit again."""

    set: SettingValues = {}
    unset: Annotated[list[Word], msgspec.Meta(max_length=64)] = []

    def change(self, level: str, place: str) -> catalog.ChangeSettings:
        if not self.set and not self.unset:
            raise BadRequest("the body sets no setting and unsets none")
        if both := sorted(name for name in self.unset if name in self.set):
            raise BadRequest(f"{both[0]!r} is both set and unset")
        return catalog.ChangeSettings(level, place, self.set, self.unset)


class DeletedTopic(TypedDict):
    deleted: str


def _encode_columns(columns: list[ColumnBody]) -> bytes:
    return encode_schema(pa.schema([make_field(each.name, each.type, each.nullable) for each in columns]))


@get("/topics", tags=["topics"])
async def list_topics(
    caller: FromCaller, match: Match = "", after: After = "", limit: Limit = None
) -> list[shapes.TopicShape]:
    """List the topics that the token reaches; with a `limit` each has what `show` has."""
    infos = await caller.ask(catalog.ListTopics(page_of(match, after, limit)))
    return [shapes.topic_object(info) for info in sorted(infos, key=lambda info: info.topic)]


@post("/topics", tags=["topics"])
async def create_topic(caller: FromCaller, data: JSONBody[TopicBody]) -> shapes.TopicShape:
    """Create a topic; with columns it is typed."""
    schema = None if data.schema is None else _encode_columns(data.schema)
    settings = {**data.settings, **({"state": True} if data.state else {})}
    name = str(TopicName.parse(data.topic))
    return shapes.topic_object(
        await caller.ask(catalog.CreateTopic(name, data.shards, data.exist_ok, schema, settings))
    )


@get(TOPIC, tags=["topics"])
async def show_topic(caller: FromCaller, topic: TopicPath) -> shapes.TopicShape:
    """Show a topic: its settings with their origins, its columns, its shards."""
    return shapes.topic_object(await caller.ask(catalog.ShowTopic(topic_name(topic))))


@patch(TOPIC + "/schema", tags=["topics"])
async def alter_topic(caller: FromCaller, topic: TopicPath, data: JSONBody[SchemaBody]) -> shapes.TopicShape:
    """Replace the columns of a typed topic; the node takes added nullable columns and wider numbers."""
    return shapes.topic_object(
        await caller.ask(catalog.AlterTopic(topic_name(topic), _encode_columns(data.schema)))
    )


@patch(TOPIC + "/settings", tags=["topics"])
async def change_topic(caller: FromCaller, topic: TopicPath, data: JSONBody[SettingsBody]) -> shapes.TopicShape:
    """Set a topic's own settings, or inherit them again."""
    return shapes.topic_object(
        read_result(await caller.ask(data.change("topic", topic_name(topic))), catalog.TopicInfo)
    )


@post(TOPIC + "/compact", status_code=200, tags=["topics"])
async def compact_topic(caller: FromCaller, topic: TopicPath) -> shapes.CompactionShape:
    """Remove superseded messages from a state topic's files now; the answer comes when that is done."""
    return shapes.compaction_object(
        await caller.ask(catalog.CompactTopic(topic_name(topic)), timeout_s=COMPACT_TIMEOUT_S)
    )


@delete(TOPIC, status_code=200, tags=["topics"])
async def delete_topic(caller: FromCaller, topic: TopicPath) -> DeletedTopic:
    """Delete a topic with its messages and subscriptions. It cannot be undone."""
    await caller.ask(catalog.DeleteTopic(topic_name(topic)))
    return {"deleted": topic_name(topic)}


@get(TOPIC + "/ledger", tags=["topics"])
async def show_ledger(
    caller: FromCaller,
    topic: TopicPath,
    producer: FromQuery[str | None] = None,
    subscription: FromQuery[str | None] = None,
    blocks: FromQuery[bool] = False,
) -> dict[str, Any]:
    """The account of messages: announced, stored, settled; whether it balances; R and UR (docs/ledger.md)."""
    return shapes.ledger_object(await caller.ask(ShowLedger(topic_name(topic), producer, subscription, blocks)))


# --- tenants, products, components ------------------------------------------------------------------

PlacePath = Annotated[
    str, PathParameter(description="`tenant`, `tenant:product` or `tenant:product:component`.")
]


class PlaceBody(msgspec.Struct, forbid_unknown_fields=True):
    name: TopicText
    """With all its parts: acme, acme/shop, acme/shop/till."""
    settings: SettingValues = {}
    exist_ok: bool = False


def place_routes(level: str) -> list[HTTPRouteHandler]:
    """The routes of one level of the tree; the three levels differ in their names only."""
    many = f"/{level}s"
    one = many + "/{place:str}"

    def name_of(place: str) -> str:
        return str(Place.parse(place.replace(":", "/"), level))

    @get(many, tags=["places"], operation_id=f"list_{level}s", summary=f"List {level}s")
    async def list_places(caller: FromCaller) -> list[shapes.PlaceShape]:
        return [shapes.place_object(info) for info in await caller.ask(catalog.ListPlaces(level))]

    @post(many, tags=["places"], operation_id=f"create_{level}", summary=f"Create a {level}")
    async def create_place(caller: FromCaller, data: JSONBody[PlaceBody]) -> shapes.PlaceShape:
        name = str(Place.parse(data.name, level))
        return shapes.place_object(
            await caller.ask(catalog.CreatePlace(level, name, data.settings, data.exist_ok))
        )

    @get(one, tags=["places"], operation_id=f"show_{level}", summary=f"Show a {level}")
    async def show_place(caller: FromCaller, place: PlacePath) -> shapes.PlaceShape:
        return shapes.place_object(await caller.ask(catalog.ShowPlace(level, name_of(place))), whole=True)

    @patch(
        one + "/settings",
        tags=["places"],
        operation_id=f"change_{level}",
        summary=f"Set settings of a {level}, or inherit them again",
    )
    async def change_place(
        caller: FromCaller, place: PlacePath, data: JSONBody[SettingsBody]
    ) -> shapes.PlaceShape:
        return shapes.place_object(
            read_result(await caller.ask(data.change(level, name_of(place))), catalog.PlaceInfo)
        )

    @delete(
        one,
        status_code=200,
        tags=["places"],
        operation_id=f"delete_{level}",
        summary=f"Delete a {level}; with `recursive` everything below it too",
    )
    async def delete_place(
        caller: FromCaller, place: PlacePath, recursive: FromQuery[bool] = False
    ) -> shapes.PlaceDeletedShape:
        return shapes.place_deleted_object(
            await caller.ask(catalog.DeletePlace(level, name_of(place), recursive))
        )

    return [list_places, create_place, show_place, change_place, delete_place]


# --- producers and writers --------------------------------------------------------------------------


class ProducerBody(msgspec.Struct, forbid_unknown_fields=True):
    producer: Name
    access: Word = "multiple"
    exist_ok: bool = False


class DeletedOfTopic(TypedDict):
    deleted: str
    topic: str


@get("/producers", tags=["producers"])
async def list_all_producers(
    caller: FromCaller, match: Match = "", after: After = "", limit: Limit = None
) -> list[shapes.ProducerShape]:
    """List the producers registered at all topics that the token reaches. A full name is `TOPIC/PRODUCER`."""
    ask = producing.ListProducers("", page_of(match, after, limit))
    return [shapes.producer_object(info) for info in await caller.ask(ask)]


@get(TOPIC + "/producers", tags=["producers"])
async def list_producers(caller: FromCaller, topic: TopicPath) -> list[shapes.ProducerShape]:
    """List the producers registered at a topic."""
    return [
        shapes.producer_object(info) for info in await caller.ask(producing.ListProducers(topic_name(topic)))
    ]


@post(TOPIC + "/producers", tags=["producers"])
async def create_producer(
    caller: FromCaller, topic: TopicPath, data: JSONBody[ProducerBody]
) -> shapes.ProducerShape:
    """Register a producer's name: `single` lets one instance at a time send under it."""
    create = producing.CreateProducer(topic_name(topic), data.producer, data.access, data.exist_ok)
    return shapes.producer_object(await caller.ask(create))


@get(TOPIC + "/producers/{producer:str}", tags=["producers"])
async def show_producer(caller: FromCaller, topic: TopicPath, producer: FromPath[str]) -> shapes.ProducerShape:
    """Show a producer: its access, when it was last seen, the client that holds its lease."""
    return shapes.producer_object(await caller.ask(producing.ShowProducer(topic_name(topic), producer)))


@delete(TOPIC + "/producers/{producer:str}", status_code=200, tags=["producers"])
async def delete_producer(caller: FromCaller, topic: TopicPath, producer: FromPath[str]) -> DeletedOfTopic:
    """Delete a registration that no producer uses. Its messages stay."""
    await caller.ask(producing.DeleteProducer(topic_name(topic), producer))
    return {"deleted": producer, "topic": topic_name(topic)}


@get("/writers", tags=["writers"])
async def list_writers(caller: FromCaller) -> list[shapes.WriterShape]:
    """List writers, their newest batch and what they have staged."""
    return [shapes.writer_object(info) for info in await caller.ask(staging.ListWriters())]


@get("/writers/{writer:path}", tags=["writers"])
async def show_writer(caller: FromCaller, writer: FromPath[str]) -> shapes.WriterShape:
    """Show a writer: its newest batch, its counts, its topics and its stages."""
    return shapes.writer_object(await caller.ask(staging.ShowWriter(writer.removeprefix("/"))), whole=True)


@delete("/writers/{writer:path}", status_code=200, tags=["writers"])
async def delete_writer(caller: FromCaller, writer: FromPath[str]) -> shapes.WriterDeletedShape:
    """Forget a writer's batches and drop its stages. Its messages stay; a batch sent again is new."""
    name = writer.removeprefix("/")
    return {"deleted": name, "stages": (await caller.ask(staging.DeleteWriter(name)))["stages"]}


# --- tokens and the log of administration -----------------------------------------------------------


class TokenBody(msgspec.Struct, forbid_unknown_fields=True):
    name: Name
    rights: Annotated[list[Word], msgspec.Meta(max_length=8)]
    """Of produce, consume and admin."""
    scopes: Annotated[list[TopicText], msgspec.Meta(max_length=SCOPES_MAX)]
    """From the tenant down: acme/shop; * is everything."""
    producer: Name = ""
    subscription: Name = ""
    lasts: Annotated[float, msgspec.Meta(ge=1, le=access.LASTS_S_MAX)] | None = None
    """Seconds until it expires; null: it is good until it is revoked."""


class AccessShape(TypedDict):
    """What the caller may do."""

    guarded: bool
    token: str | None
    name: str | None
    rights: list[str]
    scopes: list[str]
    producer: str | None
    subscription: str | None
    expires_at: str | None
    now: str
    """The node's time of day."""
    free_bytes: int | None
    """On the node's disk, for an admin of everything."""


@get("/tokens", tags=["tokens"])
async def list_tokens(caller: FromCaller) -> list[shapes.TokenShape]:
    """List the tokens within the scope of the caller's, revoked ones too."""
    return [shapes.token_object(info) for info in await caller.ask(access.ListTokens())]


@post("/tokens", tags=["tokens"])
async def create_token(caller: FromCaller, data: JSONBody[TokenBody]) -> shapes.TokenShape:
    """Create a token. Only this answer has its `secret`."""
    bound = (data.producer, data.subscription, data.lasts)
    created = await caller.ask(access.CreateToken(data.name, data.rights, data.scopes, *bound))
    return {**shapes.token_object(created.info), "secret": created.secret}


@get("/tokens/{token:str}", tags=["tokens"])
async def show_token(caller: FromCaller, token: FromPath[str]) -> shapes.TokenShape:
    """Show a token, by its id or its name."""
    return shapes.token_object(await caller.ask(access.ShowToken(without_secret(token))))


@delete("/tokens/{token:str}", status_code=200, tags=["tokens"])
async def revoke_token(caller: FromCaller, token: FromPath[str]) -> shapes.RevokedShape:
    """Revoke a token: the node refuses it from now on, and ends everything that the token opened."""
    await caller.ask(access.RevokeToken(without_secret(token)))
    return {"token": without_secret(token), "revoked": True}


@get("/access", tags=["tokens"])
async def show_access(caller: FromCaller) -> AccessShape:
    """What the caller may do, and the node's clock."""
    info = await caller.ask(access.ShowAccess())
    return derive(AccessShape, info)


@get("/log", tags=["tokens"])
async def admin_log(
    caller: FromCaller, count: Annotated[int, QueryParameter(ge=1, le=10_000)] = 100
) -> list[shapes.AdministeredShape]:
    """The latest administrative operations, oldest first."""
    return [shapes.administered_object(each) for each in await caller.ask(access.ListAdminLog(count))]


# --- peers ------------------------------------------------------------------------------------------


class PeerBody(msgspec.Struct, forbid_unknown_fields=True):
    url: TopicText
    """The other node: headpond://HOST:PORT."""
    topics: Patterns
    direction: Word = "pull"
    """pull, push or both."""
    name: Word = ""
    token: Name | None = None
    """A token of the other node."""
    subscriptions: Patterns = []
    """Subscriptions that follow too: names, beginnings with a star, or * for all."""


@get("/peers", tags=["peers"])
async def list_peers(caller: FromCaller) -> list[shapes.PeerShape]:
    """List the links of the node, and the state of each."""
    return [shapes.peer_object(info) for info in await caller.ask(links.ListPeers())]


@post("/peers", tags=["peers"])
async def add_peer(caller: FromCaller, data: JSONBody[PeerBody]) -> shapes.PeerShape:
    """Link the node to another; the same name and URL again changes topics, direction and token."""
    add = links.AddPeer(data.url, data.topics, data.direction, data.name, data.token, data.subscriptions)
    return shapes.peer_object(await caller.ask(add))


@get("/peers/{peer:str}", tags=["peers"])
async def show_peer(caller: FromCaller, peer: FromPath[str]) -> shapes.PeerShape:
    """Show a link: its state, its counts, and every topic that it copies."""
    return shapes.peer_object(await caller.ask(links.ShowPeer(peer)), whole=True)


@delete("/peers/{peer:str}", status_code=200, tags=["peers"])
async def remove_peer(caller: FromCaller, peer: FromPath[str]) -> shapes.RemovedPeerShape:
    """Remove a link. The messages that it copied stay."""
    await caller.ask(links.RemovePeer(peer))
    return {"peer": peer, "removed": True}
