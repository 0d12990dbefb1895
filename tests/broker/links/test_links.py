"""Links between nodes: the other node has every stored message once, under the same identity."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pyarrow as pa
import pytest

from headpond.broker.links.requests import LINKS_MAX
from headpond.model.errors import BadRequest, SchemaMismatch
from headpond.model.names import TopicPatterns
from headpond.node.links import flow as peer_flow
from headpond.storage.log.marks import DAY_US
from headpond.storage.memory_disk import MemoryDisk
from headpond.wire.control.access import ListAdminLog
from headpond.wire.control.catalog import AlterTopic, CreateTopic, DeletePlace, DeleteTopic
from headpond.wire.control.codec import Request, Response
from headpond.wire.control.greeting import Error
from headpond.wire.control.ledger import ShowLedger
from headpond.wire.control.links import (
    AddPeer,
    AdmitRecords,
    ListPeers,
    OfferHeads,
    OpenFeed,
    RemovePeer,
    SourcePosition,
)
from headpond.wire.control.producing import BlockEnd, Hole
from headpond.wire.control.status import ShowTop
from headpond.wire.record import RecordHeader
from headpond.wire.typed.schema import encode_schema
from tests.broker.ingest.typed_sender import SCHEMA, TypedSender
from tests.broker.links.peer_world import TOPIC, MemoryNode, Way, linked, pull, push, rest, until
from tests.fire.raw_client import encode_peer, segment_frame, title_frame

X, Y, Z = b"x" * 16, b"y" * 16, b"z" * 16


def same(*nodes: MemoryNode, topic: str = TOPIC) -> bool:
    """All have the same records, each once."""
    stored = [node.stored(topic) for node in nodes]
    assert all(len(each) == len(set(each)) for each in stored), "a record is there twice"
    return all(set(each) == set(stored[0]) for each in stored)


# --- one way ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", [pull, push])
async def test_present_and_later_records_arrive_byte_for_byte(way: Callable[..., Way]) -> None:
    a, b = MemoryNode("a"), MemoryNode("b")
    a.create(shards=2, settings={"hard_ttl": "1d"})
    a.produce(X, range(40))
    a.produce(X, range(7), shard=1)
    link = way(a, b)
    async with linked(link):
        await until(lambda: b.has(TOPIC) and len(b.stored()) == 47)
        a.produce(Y, range(5), shard=1)
        await until(lambda: same(a, b))
    carried = "in" if way is pull else "out"
    assert link.counts[f"records_{carried}"] == 52
    assert link.counts[f"messages_{carried}"] == 156
    assert link.counts["duplicates"] == link.counts["holes"] == link.counts["rewinds"] == 0
    assert a.values() == b.values()
    assert len(b.topic().shards) == 2
    assert b.topic().settings.hard_ttl == 86400, "it was made like the first"
    ledger = b.admin.request(ShowLedger(TOPIC))
    assert [(each["producer"], each["stored"]) for each in ledger["producers"]] == [("till", 52)]


async def test_a_topic_made_later_follows_and_others_do_not() -> None:
    a, b = MemoryNode("a"), MemoryNode("b")
    async with linked(pull(a, b, "shop/*")):
        await rest()
        for topic in ("shop/p/c/new", "mart/p/c/other", "shop/p/c/new.dead"):
            a.create(topic)
            a.produce(X, range(2), topic=topic)
        await until(lambda: b.has("shop/p/c/new") and same(a, b, topic="shop/p/c/new"))
        await rest()
    assert [topic.name for topic in b.shell.core.stores.catalog] == ["shop/p/c/new"]


def test_dead_letters_follow_where_they_are_named() -> None:
    assert TopicPatterns.parse(["orders.dead"]).match(f"{TOPIC}.dead")
    assert not TopicPatterns.parse(["*"]).match(f"{TOPIC}.dead")
    assert TopicPatterns.parse(["shop/*"]).match("shop/a/b/c")
    assert not TopicPatterns.parse(["shop"]).match("shop/a/b/c"), "a bare name is a topic of default"


async def test_a_refused_segment_and_a_hole_are_the_same_on_the_other_side() -> None:
    a, b = MemoryNode("a"), MemoryNode("b")
    a.create(settings={"message_bytes_max": 12})
    a.produce(X, range(2))
    assert a.produce(X, range(2, 3), text="far too long for it")[0].code == "segment-too-large"
    a.admin.send(Hole(X, 0, 5))
    a.produce(X, range(5, 7))
    link = pull(a, b)
    async with linked(link):
        await until(lambda: b.has(TOPIC) and same(a, b))
    assert link.counts["holes"] == 2
    assert b.produce(X, range(2, 3), text="far too long for it")[0].outcome == "rejected"
    late = b.produce(X, range(3, 4))
    assert late[0].outcome == "stored", "what comes for a hole later is not lost"
    accounts = [node.admin.request(ShowLedger(TOPIC))["producers"][0] for node in (a, b)]
    assert [each["refused"] for each in accounts] == [{"segment-too-large": 1}] * 2
    assert (accounts[1]["holes"], accounts[1]["late"]) == (1, 1)


# --- many ways ----------------------------------------------------------------------------------------


async def test_rings_and_doubled_paths_bring_each_record_once_and_its_body_once() -> None:
    a, b, c = nodes = [MemoryNode(name) for name in "abc"]
    a.create(shards=2)
    # A ring in one direction, another one back, and one path twice over.
    ways = [pull(a, b), pull(b, c), pull(c, a), push(b, a), push(a, c), pull(a, b)]
    async with linked(*ways):
        await until(lambda: all(node.has(TOPIC) for node in nodes))
        for turn in range(0, 60, 10):
            a.produce(X, range(turn, turn + 10))
            c.produce(Y, range(turn, turn + 10), shard=1)
            await asyncio.sleep(0)
            b.produce(Z, range(turn, turn + 10))
        await until(lambda: same(*nodes) and len(a.stored()) == 180)
        await rest()
    brought = sum(way.counts["records_in"] + way.counts["records_out"] for way in ways)
    assert brought == 2 * 180, "each of three nodes took what it had not, once"
    assert not any(way.counts["conflicts"] or way.counts["lost"] for way in ways)
    for node in nodes:  # the order of each producer is kept on every node
        for block in (X, Y, Z):
            segments = [each[2] for each in node.stored() if each[1] == block]
            assert segments == sorted(segments)


async def test_another_content_under_the_same_number_is_a_conflict_and_is_not_stored() -> None:
    a, b = MemoryNode("a"), MemoryNode("b")
    for node in (a, b):
        node.create()
    a.produce(X, range(3))
    b.produce(X, range(2), text="!")
    link = pull(a, b)
    async with linked(link):
        await until(lambda: len(b.stored()) == 3)
    assert (link.counts["conflicts"], link.counts["records_in"]) == (2, 1)
    assert b.stored()[:2] != a.stored()[:2]


# --- ends and beginnings ------------------------------------------------------------------------------


async def test_after_a_crash_of_either_side_nothing_is_missing_and_nothing_twice() -> None:
    a, b = MemoryNode("a"), MemoryNode("b")
    a.create()
    for turn in range(4):
        a.produce(X, range(turn * 10, turn * 10 + 10))
        async with linked(pull(a, b)):
            await until(lambda turn=turn: b.has(TOPIC) and len(b.stored()) >= turn * 10 + 5)  # type: ignore[misc]
        (b if turn % 2 else a).crash()
    link = pull(a, b)
    async with linked(link):
        await until(lambda: same(a, b))


async def test_known_records_are_not_copied_again_after_a_restart() -> None:
    a, b = MemoryNode("a"), MemoryNode("b")
    a.create()
    a.produce(X, range(20))
    async with linked(pull(a, b)):
        await until(lambda: b.has(TOPIC) and same(a, b))
    b.shell.wait(2_000_000)  # places are written down by then
    b.shell.work_all()
    b.crash()
    a.produce(X, range(20, 21))
    link = pull(a, b)
    async with linked(link):
        await until(lambda: same(a, b))
    assert (link.counts["records_in"], link.counts["duplicates"], link.counts["rewinds"]) == (1, 0, 0)


async def test_a_sink_restored_from_an_old_copy_gets_back_what_it_lost() -> None:
    a, b = MemoryNode("a"), MemoryNode("b")
    a.create()
    a.produce(X, range(10))
    old = MemoryDisk()
    async with linked(pull(a, b), push(b, a)):
        await until(lambda: b.has(TOPIC) and same(a, b))
        b.shell.wait(2_000_000)
        b.shell.work_all()
        old = b.disk.copy()
        b.produce(Y, range(10))  # its own producer's, which only the other node will have
        a.produce(X, range(10, 20))
        await until(lambda: same(a, b) and len(a.stored()) == 30)
    b.crash(old)
    assert len(b.stored()) == 10
    b.produce(Z, range(15))  # so that its log is as long as it was, with other content
    assert len(b.stored()) == 25
    pulls, pushes = pull(a, b), push(b, a)
    async with linked(pulls, pushes):
        await until(lambda: same(a, b) and len(a.stored()) == 45)
    assert pushes.counts["rewinds"] == 1, "the log that was read is another one now"
    assert pulls.counts["records_in"] == 20
    assert pushes.counts["records_out"] == 15


async def test_the_same_record_in_the_same_place_behind_others_is_not_taken_for_the_same_log() -> None:
    a, b = MemoryNode("a"), MemoryNode("b")
    a.create()
    a.produce(X, range(2))
    old = a.disk.copy()
    a.produce(Y, range(3))
    async with linked(pull(a, b)):
        await until(lambda: b.has(TOPIC) and same(a, b))
    a.crash(old)
    a.shell.now_us += 5_000_000
    a.produce(Z, range(2))
    a.admin.send(title_frame(Y, a.topic().uuid, topic=TOPIC, producer="till"), Hole(Y, 0, 2))
    a.produce(Y, range(2, 3))
    assert a.stored()[-1] == b.stored()[-1] and a.stored() != b.stored()
    async with linked(pull(a, b)):
        await until(lambda: len(b.stored()) == 7)
    assert set(a.stored()) < set(b.stored())


async def test_a_log_that_is_shorter_than_its_position_is_compared_again() -> None:
    a, b = MemoryNode("a"), MemoryNode("b")
    a.create()
    a.produce(X, range(5))
    async with linked(pull(a, b)):
        await until(lambda: b.has(TOPIC) and same(a, b))
        half = b.disk.copy()
        a.produce(X, range(5, 12))
        await until(lambda: same(a, b))
    b.shell.wait(2_000_000)
    b.shell.work_all()
    log = next(path for path in b.disk.paths() if path.startswith("topics/") and path.endswith(".log"))
    size = len(half.contents(log).rstrip(b"\0"))
    file = b.disk.open(log, writable=True)  # the log alone is the old one; the place is the new one
    file.truncate(size)
    file.sync()
    file.close()
    b.open()
    assert len(b.stored()) < 12
    async with linked(pull(a, b)):
        await until(lambda: same(a, b))


async def test_entries_that_the_source_dropped_count_as_lost_and_the_rest_arrives() -> None:
    a, b = MemoryNode("a"), MemoryNode("b")
    a.create()
    for segment in range(0, 100, 10):
        a.produce(X, range(segment, segment + 10))
    shard = a.topic().shards[0]
    first = shard.log.drop_before(200)
    assert 0 < first <= 200
    shard.lane.mark()
    a.drain()
    link = pull(a, b)
    async with linked(link):
        await until(lambda: b.has(TOPIC) and same(a, b))
    assert link.counts["lost"] == first
    assert link.counts["holes"] == first // 3, "their numbers are holes"


async def test_a_topic_deleted_and_created_again_at_the_source_continues_under_its_name() -> None:
    a, b = MemoryNode("a"), MemoryNode("b")
    a.create()
    a.produce(X, range(5))
    async with linked(pull(a, b)):
        await until(lambda: b.has(TOPIC) and same(a, b))
        a.admin.request(DeleteTopic(TOPIC))
        await rest()
        assert len(b.stored()) == 5, "a deletion does not travel"
        a.create()
        a.produce(Y, range(3))
        await until(lambda: len(b.stored()) == 8)


@pytest.mark.parametrize("delete", [DeleteTopic(TOPIC), DeletePlace("tenant", "default", True)])
async def test_a_topic_deleted_here_comes_back_only_when_a_client_creates_it(
    delete: DeleteTopic | DeletePlace,
) -> None:
    a, b = MemoryNode("a"), MemoryNode("b")
    a.create()
    a.produce(X, range(5))
    b.admin.request(AddPeer("headpond://other", ["*"]))
    async with linked(pull(a, b), pull(b, a)):
        await until(lambda: b.has(TOPIC) and same(a, b))
        b.admin.request(delete)
        a.produce(X, range(5, 6))
        await rest()
    b.crash()
    link = pull(a, b)
    async with linked(link):
        await until(lambda: any(each.code == "peer-barred" for each in link.status.topics.values()))
        assert not b.has(TOPIC)
    b.create()
    async with linked(pull(a, b)):
        await until(lambda: same(a, b))


@pytest.mark.parametrize("way", [pull, push])
async def test_a_topic_deleted_and_made_again_at_the_sink_is_filled_though_nothing_new_comes(
    way: Callable[..., Way], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_flow, "AGAIN_SOON_S", 0.0)
    a, b = MemoryNode("a"), MemoryNode("b")
    a.create()
    a.produce(X, range(5))
    link = way(a, b)
    async with linked(link):
        await until(lambda: b.has(TOPIC) and same(a, b))
        b.admin.request(DeleteTopic(TOPIC))
        await until(lambda: [each.code for each in link.status.topics.values()] == ["peer-barred"])
        b.create()
        await until(lambda: same(a, b))


# --- what does not fit --------------------------------------------------------------------------------


async def test_a_topic_that_differs_is_refused_and_the_others_continue() -> None:
    a, b = MemoryNode("a"), MemoryNode("b")
    names = [f"shop/p/c/{name}" for name in ("shards", "typed", "schema", "state", "good")]
    shards, typed, schema, state, good = names
    other = pa.schema([("other", pa.int64())])
    for node, more in ((a, {}), (b, {"shards": 4})):
        node.create(shards, **more)
    a.create(typed, schema=encode_schema(SCHEMA))
    b.create(typed)
    a.create(schema, schema=encode_schema(SCHEMA))
    b.create(schema, schema=encode_schema(other))
    a.create(state, settings={"state": True})
    b.create(state)
    a.create(good)
    a.produce(X, range(3), topic=good)
    link = pull(a, b)
    async with linked(link):
        await until(lambda: b.has(good) and same(a, b, topic=good))
        await until(lambda: sum(each.state == "refused" for each in link.status.topics.values()) == 4)
    info = link.status.info(link.made, whole=True)
    assert (info.following, info.refused) == (1, 4)
    codes = {each.topic: each.code for each in info.topic_list}
    assert codes == {
        shards: "peer-mismatch",
        typed: "peer-mismatch",
        schema: "peer-mismatch",
        state: "peer-mismatch",
        good: "",
    }


async def test_a_typed_topic_follows_with_every_version_of_its_schema() -> None:
    a, b = MemoryNode("a"), MemoryNode("b")
    sender = TypedSender(a.shell)
    wider = pa.schema([*SCHEMA, ("more", pa.string())])
    for number in range(3):
        sender.send([{"at": number, "value": 1, "host": "h"}])
    name = sender.info.topic
    async with linked(pull(a, b, "m")):
        await until(lambda: b.has(name) and same(a, b, topic=name))
        a.admin.request(AlterTopic(name, encode_schema(wider)))
        sender.send([{"at": 9, "value": 2, "host": "i"}])
        await until(lambda: same(a, b, topic=name))
    schemas = b.topic(name).schemas
    assert schemas is not None and schemas.version == 2 and schemas.newest.equals(wider)
    assert a.values(name) == b.values(name)


async def test_a_full_disk_at_the_sink_loses_nothing() -> None:
    a, b = MemoryNode("a"), MemoryNode("b")
    a.create()
    a.produce(X, range(10))
    async with linked(pull(a, b)):
        await until(lambda: b.has(TOPIC) and same(a, b))
        b.disk.fail_next("write", 28, count=1)
        a.produce(X, range(10, 20))
        link_state = b.shell.core.peering.links.places
        await rest()
        noted = [each.place.entry for places in link_state.values() for each in places.values()]
        assert noted == [30], "what failed is not noted as there"
        b.disk.fail_never()
        b.shell.wait(2_000_000)
    async with linked(pull(a, b)):
        await until(lambda: same(a, b))


# --- what is remembered -------------------------------------------------------------------------------


def test_blocks_of_linked_topics_are_remembered_for_thirty_days_after_their_end() -> None:
    for link, repeated in ((True, "duplicate"), (False, "stored")):
        a = MemoryNode("a")
        if link:
            a.admin.request(AddPeer("headpond://other", ["*"]))
        a.create()
        a.produce(X, range(2))
        a.admin.send(title_frame(X, a.topic().uuid, topic=TOPIC, producer="till"), BlockEnd(X, {0: 2}))
        a.shell.work_all()
        a.shell.now_us += 20 * DAY_US
        now_us = a.shell.now_us
        a.crash()
        a.shell.now_us = now_us
        a.topic().shards[0].log.forget_blocks(now_us)
        assert a.produce(X, range(1))[0].outcome == repeated


def test_a_link_is_remembered_and_its_token_is_never_shown() -> None:
    a = MemoryNode("a")
    secret = "what looks like no token " + "S" * 43
    added = a.admin.request(AddPeer("headpond://other:7411", ["shop/*"], "both", "west", secret))
    a.crash()
    (listed,) = a.admin.request(ListPeers())
    assert listed["name"] == "west" and listed["has_token"] and listed["direction"] == "both"
    assert "S" * 20 not in str(added) + str(listed) + repr(AddPeer("u", [], secret=secret))
    log = a.admin.request(ListAdminLog())
    assert "west" in str(log) and "S" * 20 not in str(log)
    assert a.shell.core.peering.links.links["west"].token == secret
    assert "S" * 20 not in repr(a.shell.core.peering.links.links["west"])
    a.admin.request(RemovePeer("west"))
    a.crash()
    assert a.admin.request(ListPeers()) == []


WEST = AddPeer("headpond://other", ["*"], name="west")
ELSEWHERE = AddPeer("headpond://elsewhere", ["*"], name="west")


def together(node: MemoryNode, *asks: AddPeer | RemovePeer) -> list[str]:
    """The answers to requests that arrive before the one before is on disk."""
    for number, ask in enumerate(asks, 1000):
        node.admin.send(Request(number, ask))
    node.shell.work_all()
    codes = {each.request: each.code for each in node.admin.take(Error)}
    codes |= {each.number: "done" for each in node.admin.take(Response)}
    return [codes[number] for number in range(1000, 1000 + len(asks))]


def test_a_link_that_is_made_again_while_it_is_removed_can_be_listed() -> None:
    a = MemoryNode("a")
    a.admin.request(WEST)
    assert together(a, RemovePeer("west"), WEST) == ["done", "done"]
    (listed,) = a.admin.request(ListPeers())
    assert (listed["name"], listed["state"]) == ("west", "connecting")
    assert a.admin.request(ShowTop("", 10))["node"]
    a.crash()
    assert len(a.admin.request(ListPeers())) == 1


def test_a_change_of_a_link_is_judged_behind_those_that_were_asked_for_before() -> None:
    a = MemoryNode("a")
    asks = (WEST, ELSEWHERE, RemovePeer("west"), RemovePeer("west"), ELSEWHERE, WEST)
    assert together(a, *asks) == ["done", "peer-exists", "done", "peer-not-found", "done", "peer-exists"]
    (listed,) = a.admin.request(ListPeers())
    assert listed["url"] == ELSEWHERE.url
    many = [AddPeer("headpond://other", ["*"], name=f"link {number}") for number in range(LINKS_MAX)]
    assert together(a, *many) == ["done"] * (LINKS_MAX - 1) + ["limit"]


@pytest.mark.parametrize("seed", range(20))
def test_links_are_listed_at_any_time_and_are_after_a_crash_what_they_were(seed: int) -> None:
    chance, a = random.Random(seed), MemoryNode("a")
    asks = (WEST, ELSEWHERE, RemovePeer("west"), AddPeer("headpond://other", ["shop/*"], name="west"))
    for number in range(1, 40):
        a.admin.send(Request(number, chance.choice(asks)))
        while a.shell.pending and chance.random() < 0.4:
            a.shell.work()
        infos = a.shell.core.peering.infos()
        assert [info.name for info in infos] == [*a.shell.core.peering.links.links]
    a.shell.work_all()
    links = dict(a.shell.core.peering.links.links)
    a.crash()
    assert a.shell.core.peering.links.links == links


@pytest.mark.parametrize(
    ("ask", "code"),
    [
        (AddPeer("http://other", ["*"]), "bad-url"),
        (AddPeer("headpond://other", []), "bad-request"),
        (AddPeer("headpond://other", ["a/b/c/d/e"]), "bad-scope"),
        (AddPeer("headpond://other", ["*"], "sideways"), "bad-request"),
        (AddPeer("headpond://other", ["*"], name="x" * 65), "bad-request"),
        (AddPeer("headpond://elsewhere", ["*"], name="west"), "peer-exists"),
        (RemovePeer("east"), "peer-not-found"),
        (OfferHeads(b"u" * 16, 0, [], {}), "topic-not-found"),
        (AdmitRecords(b"u" * 16, 0, "n", SourcePosition(b"u" * 16, 0)), "topic-not-found"),
    ],
)
def test_an_invalid_link_is_refused(ask: AddPeer, code: str) -> None:
    a = MemoryNode("a")
    a.admin.request(AddPeer("headpond://other", ["*"], name="west"))
    with pytest.raises(Exception) as caught:  # noqa: PT011  (its code is what matters)
        a.admin.request(ask)
    assert getattr(caught.value, "code", "") == code


def test_an_unreadable_record_is_not_stored_and_the_connection_stays() -> None:
    b = MemoryNode("b")
    uuid = b.admin.request(OpenFeed(TOPIC, "a", b"u" * 16, 1))["uuid"]
    good = segment_frame([b"x", b"y", b"z"])[11:-4]
    for segment, (count, body) in enumerate([(3, good), (3, b"noise"), (2, good), (3, good[:-9])]):
        record = RecordHeader(0, count, X, 0, 7).encode() + body
        b.admin.send(encode_peer(uuid, segment, record))
    place = SourcePosition(b"u" * 16, 12)
    done = b.admin.request(AdmitRecords(uuid, 0, "a", place))
    assert (done["records"], done["unreadable"]) == (1, 3)
    assert [(each[2], each[4]) for each in b.stored()] == [(0, 3)]
    with pytest.raises(BadRequest):
        b.admin.request(AdmitRecords(uuid, 0, "n" * 65, place))
    again = b.admin.request(OpenFeed(TOPIC, "a", b"u" * 16, 1))
    assert again["places"][0][1] == 12


def test_a_record_of_a_schema_that_is_not_known_yet_waits() -> None:
    a, b = MemoryNode("a"), MemoryNode("b")
    sender = TypedSender(a.shell)
    name, first = sender.info.topic, encode_schema(SCHEMA)
    a.admin.request(AlterTopic(name, encode_schema(pa.schema([*SCHEMA, ("more", pa.string())]))))
    sender.send([{"at": 1, "value": 1, "host": "h"}])
    (record,) = a.topic(name).shards[0].log.read(0, 2**20).records
    uuid = b.admin.request(OpenFeed(name, "a", b"u" * 16, 1, [first]))["uuid"]
    b.admin.send(encode_peer(uuid, 0, b"".join(record.parts)[11:-4]))
    with pytest.raises(SchemaMismatch):
        b.admin.request(AdmitRecords(uuid, 0, "a", SourcePosition(b"u" * 16, 1)))
    assert b.stored(name) == []


def test_records_without_a_feed_are_refused() -> None:
    a = MemoryNode("a")
    uuid = a.admin.request(CreateTopic(TOPIC))["uuid"]
    stranger = a.shell.connect()
    stranger.send(encode_peer(uuid, 0, b"r" * 64))
    assert stranger.closed
    assert a.stored() == []
