"""The other end of a link lies, forgets, or never stops: it can damage nothing outside the link."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from headpond.broker.links.link_table import PLACES_MAX, LinkMade
from headpond.broker.links.status import LinkStatus, TopicStatus
from headpond.client.link.dialling import Backoff
from headpond.client.link.link import Link, LinkOptions
from headpond.model.address import parse_addresses
from headpond.model.errors import ConnectionLost, HeadpondError, PeerBarred, PeerMismatch, ProtocolError
from headpond.node.links.ends import Direction, LogRecord, OtherNode, ThisNode
from headpond.node.links.flow import PeerFlow, offer
from headpond.wire.control.catalog import DeleteTopic, ShowTopic
from headpond.wire.control.codec import Request, Response
from headpond.wire.control.ledger import ShowLedger
from headpond.wire.control.links import (
    CONFLICTING,
    AddPeer,
    AdmitRecords,
    BlockName,
    Followed,
    FollowTopics,
    ListPeers,
    OfferHeads,
    OpenFeed,
    RecordHead,
    SourcePosition,
)
from headpond.wire.control.operation import OperationOf
from headpond.wire.control.reading import FetchEntries
from headpond.wire.plain.packed import PlacedSegment, pack
from headpond.wire.record import RecordHeader, encode_stub
from headpond.wire.typed.record import encode_typed_record
from headpond.wire.typed.schema import encode_schema
from tests.broker.ingest.typed_sender import SCHEMA, messages
from tests.broker.links.peer_world import TOPIC, MemoryNode, linked, pull, until
from tests.client.peer import serving
from tests.fire.raw_client import encode_peer, segment_frame

X, Y, Z = b"x" * 16, b"y" * 16, b"z" * 16
U = b"u" * 16
SECRET = "acme/pay/vault/keys"


class Liar(ThisNode):
    """A source with scripted answers."""

    told: list[Followed] | None = None
    shown: str = ""
    hidden: int | None = None
    """The number of a segment that a fetch omits, though its head was listed."""

    async def ask(self, operation: OperationOf[Any]) -> Any:
        found = await super().ask(operation)
        if isinstance(operation, FollowTopics) and self.told is not None:
            return self.told
        if isinstance(operation, ShowTopic) and self.shown:
            return msgspec.structs.replace(found, topic=self.shown)
        return found

    async def fetch(self, ask: FetchEntries) -> tuple[list[LogRecord], int]:
        found, entry_next = await super().fetch(ask)
        return [each for each in found if each.segment != self.hidden], entry_next


def lying(a: MemoryNode, b: MemoryNode, topics: str, **lies: Any) -> tuple[PeerFlow, LinkStatus]:
    """A flow to b from a, which lies."""
    source = Liar(a.shell.core, -1, a.drain)
    for name, lie in lies.items():
        setattr(source, name, lie)
    status = LinkStatus(lambda: 0)
    made = LinkMade("link", "headpond://other", [topics], "pull", None, 0, "")
    return PeerFlow(Direction(made, "pull", source, ThisNode(b.shell.core, -2, b.drain), status)), status


async def ended(flow: PeerFlow) -> BaseException:
    with pytest.raises(BaseExceptionGroup) as caught:
        await flow.run()
    return caught.value.exceptions[0]


# --- what a source may write to -----------------------------------------------------------------------


@pytest.mark.parametrize("lies", [{"told": [Followed(SECRET, U, 1, None, [(0, 3)])]}, {"shown": SECRET}])
def test_a_source_cannot_write_to_topics_that_the_link_is_not_about(lies: dict[str, Any]) -> None:
    a, b = MemoryNode("a"), MemoryNode("b")
    a.create("shop/one/two/orders")
    a.create(SECRET)
    a.produce(X, range(3), topic=SECRET)
    flow, _ = lying(a, b, "shop/*", **lies)
    assert isinstance(asyncio.run(ended(flow)), ProtocolError)
    assert not b.has(SECRET)


# --- what it says of records --------------------------------------------------------------------------


async def test_a_record_that_is_gone_when_it_is_fetched_is_counted_as_lost() -> None:
    a, b = MemoryNode("a"), MemoryNode("b")
    a.create()
    a.produce(X, range(4))
    flow, status = lying(a, b, "*", hidden=2)
    task = asyncio.ensure_future(flow.run())
    await until(lambda: b.has(TOPIC) and len(b.stored()) == 3)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert status.counts["lost"] == 3


async def test_every_record_of_an_offer_keeps_its_producers_name_in_whatever_part_it_comes() -> None:
    a, b = MemoryNode("a"), MemoryNode("b")
    for node in (a, b):
        node.create()
    a.produce(X, range(1))
    for node in (a, b):  # what is known in the middle makes it two parts
        node.produce(Y, range(1))
    a.produce(Z, range(1))
    async with linked(pull(a, b)):
        await until(lambda: len(b.stored()) == 3)
    accounts = b.admin.request(ShowLedger(TOPIC))["producers"]
    assert [(each["producer"], each["blocks"]) for each in accounts] == [("till", 3)]


def feed(node: MemoryNode, **more: Any) -> bytes:
    uuid: bytes = node.admin.request(OpenFeed(TOPIC, "a", U, 1, **more))["uuid"]
    return uuid


def send(node: MemoryNode, uuid: bytes, segment: int, crc: int, count: int, body: bytes) -> None:
    record = RecordHeader(0, count, X, 0, crc).encode() + body
    node.admin.send(encode_peer(uuid, segment, record))


def test_other_content_that_comes_between_offer_and_record_is_a_conflict() -> None:
    b = MemoryNode("b")
    uuid, rows = feed(b), segment_frame([b"x"])[11:-4]
    for crc in (7, 7, 8):
        send(b, uuid, 0, crc, 1, rows)
    done = b.admin.request(AdmitRecords(uuid, 0, "a", SourcePosition(U, 1)))
    assert (done["records"], done["duplicates"], done["conflicts"]) == (1, 1, 1)
    assert b.shell.core.context.counters["peer_conflicts"] == 1


def test_an_offer_that_comes_in_two_requests_is_one() -> None:
    b = MemoryNode("b")
    uuid = feed(b)
    for block in (X, Y):
        b.admin.request(OfferHeads(uuid, 0, [RecordHead(0, 1, block, 0, 7, 99)], {block: BlockName("till")}))
    send(b, uuid, 0, 7, 1, segment_frame([b"x"])[11:-4])
    b.admin.request(AdmitRecords(uuid, 0, "a", SourcePosition(U, 1)))
    assert [each["producer"] for each in b.admin.request(ShowLedger(TOPIC))["producers"]] == ["till"]


def test_a_segment_that_one_node_refused_and_the_other_stored_is_a_conflict() -> None:
    b = MemoryNode("b")
    uuid = feed(b)
    send(b, uuid, 0, 7, 0, msgspec.msgpack.encode(["bad-segment", "for the test"]))
    heads = [RecordHead(0, 1, X, 0, 7, 99), RecordHead(0, 0, X, 0, 7, 99)]
    assert b.admin.request(OfferHeads(uuid, 0, heads, {X: BlockName("till")}))[0] == CONFLICTING


def test_rows_that_the_schema_does_not_allow_are_not_taken() -> None:
    b = MemoryNode("b")
    uuid = feed(b, schemas=[encode_schema(SCHEMA)])
    loose = pa.schema([field.with_nullable(True) for field in SCHEMA])
    for segment, at in enumerate((1, None)):
        body = encode_typed_record(messages([{"at": at, "value": 1, "host": "h"}], loose), 1)
        send(b, uuid, segment, 7, 1, body)
    done = b.admin.request(AdmitRecords(uuid, 0, "a", SourcePosition(U, 2)))
    assert (done["records"], done["unreadable"]) == (1, 1)


def test_a_packed_record_is_not_taken_from_a_source() -> None:
    b = MemoryNode("b")
    uuid, rows = feed(b), segment_frame([b"x"])[11:-4]
    packed = pack([PlacedSegment(RecordHeader(place, 1, X, 0, 7), place, rows, 0) for place in range(8)])
    assert packed is not None
    send(b, uuid, 0, 7, 8, packed[1])
    done = b.admin.request(AdmitRecords(uuid, 0, "a", SourcePosition(U, 8)))
    assert (done["records"], done["unreadable"]) == (0, 1)


@pytest.mark.parametrize("kind", ["packed", "stub"])
def test_a_record_is_not_taken_as_the_reason_of_a_refusal(kind: str) -> None:
    """The node would take segments from it that nobody sent, or numbers for admitted that were not."""
    b = MemoryNode("b")
    uuid, rows = feed(b), segment_frame([b"x"])[11:-4]
    packed = pack([PlacedSegment(RecordHeader(0, 1, Y, 0, 7), 0, rows, 0)])
    assert packed is not None
    send(b, uuid, 0, 7, 0, packed[1] if kind == "packed" else encode_stub([(7, 1), (7, 1)]))
    done = b.admin.request(AdmitRecords(uuid, 0, "a", SourcePosition(U, 1)))
    assert (done["records"], done["unreadable"]) == (0, 1)


def test_a_schema_that_is_named_twice_is_refused() -> None:
    b = MemoryNode("b")
    with pytest.raises(PeerMismatch):
        feed(b, schemas=[encode_schema(SCHEMA)] * 2)


# --- what is remembered of it -------------------------------------------------------------------------


def test_a_peer_with_ever_new_names_does_not_fill_the_memory() -> None:
    b = MemoryNode("b")
    uuid = feed(b)
    for number in range(PLACES_MAX + 20):
        b.admin.request(AdmitRecords(uuid, 0, f"node-{number}", SourcePosition(U, 0)))
        b.shell.now_us += 1
    places = b.shell.core.peering.links.places[uuid]
    assert len(places) == PLACES_MAX and (f"node-{PLACES_MAX + 19}", 0) in places


def test_invented_numbers_of_a_source_can_still_be_encoded() -> None:
    a = MemoryNode("a")
    a.admin.request(AddPeer("headpond://other", ["*"], name="west"))
    status = a.shell.core.peering.status("west")
    for topic in "xyz":
        status.topics["pull", topic] = TopicStatus(dict.fromkeys(range(8), 2**62))
    status.counts["lost"] = 2**70
    (listed,) = a.admin.request(ListPeers())
    assert listed["lag"] == listed["counts"]["lost"] == 2**63 - 1


def test_the_same_link_again_leaves_it_as_it_is() -> None:
    a = MemoryNode("a")
    ask = AddPeer("headpond://other", ["*"], name="west")
    a.admin.request(ask)
    a.shell.core.peering.status("west").connected("b")
    assert a.admin.request(ask)["state"] == "connected"
    changed = msgspec.structs.replace(ask, topics=["shop/*"])
    assert a.admin.request(changed)["state"] == "connecting"


async def test_a_topic_that_one_link_is_refused_another_may_carry() -> None:
    a, b = MemoryNode("a"), MemoryNode("b")
    a.create()
    released: list[str] = []

    class Claims(dict[tuple[str, str, str], int]):
        def __delitem__(self, key: tuple[str, str, str]) -> None:
            released.append(key[2])
            super().__delitem__(key)

    class Refusing(ThisNode):
        async def ask(self, operation: OperationOf[Any]) -> Any:
            if isinstance(operation, OpenFeed):
                raise HeadpondError("for the test")
            return await super().ask(operation)

    flow, _ = lying(a, b, "*")
    sink = Refusing(b.shell.core, -3, b.drain)
    flow.direction = dataclasses.replace(flow.direction, sink=sink, claims=Claims())
    task = asyncio.ensure_future(flow.run())
    await until(lambda: bool(released))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert released == [TOPIC]


def test_an_empty_topic_that_is_deleted_while_it_is_fed_does_not_come_back_either() -> None:
    b = MemoryNode("b")
    feed(b)
    b.admin.request(DeleteTopic(TOPIC))
    with pytest.raises(PeerBarred):
        feed(b)


# --- the connection -----------------------------------------------------------------------------------


async def open_link(url: str) -> Link:
    options = LinkOptions(backoff=Backoff(0.001, 0.01))
    link = Link(parse_addresses(url), client="test", token=None, options=options)
    await link.open()
    return link


async def test_a_new_connection_does_not_continue_an_earlier_one() -> None:
    async with serving() as other:
        link = await open_link(other.url)
        there = OtherNode(link)
        (await other.conversation()).abort()
        await other.conversation()  # the link came back by itself
        await link.wait_up()
        with pytest.raises(ConnectionLost):  # a stamp of the old connection would wait for ever
            await there.ask(FollowTopics(["*"], seen=1000, wait_s=20.0))
        with pytest.raises(ConnectionLost):
            await there.admit(AdmitRecords(U, 0, "a", SourcePosition(U, 0)), [LogRecord(0, b"r")])
        await link.close()


async def test_an_offer_too_long_for_one_request_is_made_in_two() -> None:
    async with serving() as other:
        link = await open_link(other.url)
        conversation = await other.conversation()
        heads = [RecordHead(at, 1, at.to_bytes(16), 0, 7, 99) for at in range(1024)]
        named = {head.block: BlockName("\U0001f600" * 256) for head in heads}
        asked = asyncio.ensure_future(offer(OtherNode(link), OfferHeads(U, 0, heads, named)))
        for _ in range(2):
            request = await conversation.next(Request)
            assert isinstance(request.operation, OfferHeads) and len(request.operation.blocks) == 512
            conversation.say(Response(request.number, [0] * len(request.operation.heads)))
        assert await asked == [0] * 1024
        await link.close()


async def test_an_answer_that_cannot_be_is_the_other_nodes_fault() -> None:
    async with serving() as other:
        link = await open_link(other.url)
        conversation = await other.conversation()
        asked = asyncio.ensure_future(OtherNode(link).ask(FollowTopics(["*"])))
        number = (await conversation.next(Request)).number
        topic = {"topic": TOPIC, "uuid": U, "stamp": 1, "schema_version": None, "shards": [[1, 0, 2**63]]}
        conversation.say(Response(number, [topic]))
        with pytest.raises(ProtocolError):
            await asked
        await link.close()
