"""``/v1/topics``: made, listed, shown, altered, set, compacted, deleted; and the ledger of one."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

import msgspec
import pyarrow as pa
from litestar import delete, get, patch, post
from litestar.params import FromQuery, JSONBody

from headpond.model.bounds import Name, SettingValues, Shards, Text, TopicText, Word
from headpond.model.errors import BadRequest
from headpond.model.names import TopicName
from headpond.node.http.asking import Called, TopicPath, topic_name
from headpond.shapes.columns import make_field
from headpond.shapes.resources import (
    CompactionShape,
    TopicShape,
    compaction_object,
    ledger_object,
    topic_object,
)
from headpond.wire.control.catalog import ChangeSettings, TopicInfo
from headpond.wire.control.codec import read_result


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
    """What is to be set, and what goes back to what is inherited."""

    set: SettingValues = {}
    unset: Annotated[list[Word], msgspec.Meta(max_length=64)] = []

    async def change(self, caller: Called, level: str, place: str) -> Any:
        """Both in one step."""
        if not self.set and not self.unset:
            raise BadRequest("nothing is set and nothing is unset")
        if both := sorted(name for name in self.unset if name in self.set):
            raise BadRequest(f"{both[0]!r} is both set and unset")
        ask = ChangeSettings(level, place, self.set, self.unset)
        return await caller.client.link.request(ask, retry=True)


class DeletedTopic(TypedDict):
    deleted: str


def read_columns(columns: list[ColumnBody] | None) -> pa.Schema | None:
    if columns is None:
        return None
    return pa.schema([make_field(each.name, each.type, each.nullable) for each in columns])


@get("/topics", tags=["topics"])
async def list_topics(caller: Called) -> list[TopicShape]:
    """List the topics that the token reaches."""
    infos = await caller.client.admin.list_topics()
    return [topic_object(info) for info in sorted(infos, key=lambda info: info.topic)]


@post("/topics", tags=["topics"])
async def create_topic(caller: Called, data: JSONBody[TopicBody]) -> TopicShape:
    """Create a topic; with columns it is typed."""
    info = await caller.client.admin.create_topic(
        str(TopicName.parse(data.topic)),
        data.shards,
        schema=read_columns(data.schema),
        state=data.state,
        settings=data.settings,
        exist_ok=data.exist_ok,
    )
    return topic_object(info)


@get("/topics/{topic:str}", tags=["topics"])
async def show_topic(caller: Called, topic: TopicPath) -> TopicShape:
    """Show a topic: its settings with their origins, its columns, its shards."""
    return topic_object(await caller.client.admin.show_topic(topic_name(topic)))


@patch("/topics/{topic:str}/schema", tags=["topics"])
async def alter_topic(caller: Called, topic: TopicPath, data: JSONBody[SchemaBody]) -> TopicShape:
    """Give a typed topic all its columns anew: added nullable ones and wider numbers are taken."""
    schema = read_columns(data.schema)
    assert schema is not None
    return topic_object(await caller.client.admin.alter_topic(topic_name(topic), schema=schema))


@patch("/topics/{topic:str}/settings", tags=["topics"])
async def change_topic(caller: Called, topic: TopicPath, data: JSONBody[SettingsBody]) -> TopicShape:
    """Set what a topic says itself, or go back to what it inherits."""
    return topic_object(read_result(await data.change(caller, "topic", topic_name(topic)), TopicInfo))


@post("/topics/{topic:str}/compact", status_code=200, tags=["topics"])
async def compact_topic(caller: Called, topic: TopicPath) -> CompactionShape:
    """Take superseded messages out of a state topic's files now; answered when it is done."""
    return compaction_object(await caller.client.admin.compact_topic(topic_name(topic)))


@delete("/topics/{topic:str}", status_code=200, tags=["topics"])
async def delete_topic(caller: Called, topic: TopicPath) -> DeletedTopic:
    """Delete a topic with its messages and subscriptions. There is no way back."""
    name = topic_name(topic)
    await caller.client.admin.delete_topic(name)
    return {"deleted": name}


@get("/topics/{topic:str}/ledger", tags=["topics"])
async def show_ledger(
    caller: Called,
    topic: TopicPath,
    producer: FromQuery[str | None] = None,
    subscription: FromQuery[str | None] = None,
    blocks: FromQuery[bool] = False,
) -> dict[str, Any]:
    """What became of everything: announced, stored, settled; whether it balances; R and UR (docs/ledger.md)."""
    info = await caller.client.admin.ledger(
        topic_name(topic), producer=producer, subscription=subscription, blocks=blocks
    )
    return ledger_object(info)


ROUTES = [
    list_topics,
    create_topic,
    show_topic,
    alter_topic,
    change_topic,
    compact_topic,
    delete_topic,
    show_ledger,
]
