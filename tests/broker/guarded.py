"""A node with tokens, in memory, and one of each thing that can be asked of it."""

from __future__ import annotations

from typing import Any

from headpond.model.policy import Policy
from headpond.storage.memory_disk import MemoryDisk
from headpond.wire.control import codec as ops
from headpond.wire.control.access import (
    CreateToken,
    ListAdminLog,
    ListTokens,
    RevokeToken,
    ShowAccess,
    ShowToken,
    TokenCreated,
)
from headpond.wire.control.codec import Control, read_result
from headpond.wire.control.following import (
    ApplyDropped,
    ApplySettled,
    FollowSubscriptions,
    OpenCopy,
    PromoteSubscription,
    ReadDropped,
    ReadSettled,
    TellPromoted,
)
from headpond.wire.control.links import (
    AddPeer,
    AdmitRecords,
    FollowTopics,
    ListPeers,
    OfferHeads,
    OpenFeed,
    Place,
    ReadHeads,
    RemovePeer,
    ShowPeer,
    peer_parts,
)
from headpond.wire.control.staging import encode_chunk
from headpond.wire.frame import FrameType, encode
from tests.fire.core_shell import CoreClient, CoreShell
from tests.fire.raw_client import segment_body, segment_frame, title_frame

TOPIC = "acme/shop/till/orders"
ABSENT = "acme/shop/till/nothing"
BLOCK = b"b" * 16
INSTANCE = b"i" * 16
WRITER = "acme/shop/nightly"
STAGE = b"s" * 16


def samples(topic: str = TOPIC, uuid: bytes = b"u" * 16, stage: bytes = STAGE) -> dict[type[Control], Control]:
    """One operation of each kind about a topic, or about the component that holds it."""
    component = topic.rpartition("/")[0]
    found: list[Control] = [
        ops.OpenTopic(topic, True),
        ops.CreateTopic(topic, 2),
        ops.AlterTopic(topic, b""),
        ops.ShowTopic(topic),
        ops.ListTopics(),
        ops.DeleteTopic(topic),
        ops.CompactTopic(topic),
        ops.ReadEnds([topic]),
        ops.FindTime(uuid, 0),
        ops.FetchEntries(uuid, 0, 0),
        ops.AdvanceSubscription(topic, "billing", [1]),
        ops.CreateSubscription(topic, "extra"),
        ops.ListSubscriptions(topic),
        ops.ShowSubscription(topic, "billing"),
        ops.ListUnacked(topic, "billing"),
        ops.ListSkipped(topic, "billing"),
        ops.DeleteSubscription(topic, "billing"),
        ops.SeekSubscription(topic, "billing", "latest"),
        ops.PauseSubscription(topic, "billing", True),
        ops.Redrive(topic, "billing"),
        ops.Browse(topic, 0, 0),
        ops.CreatePlace("component", component, {"hard_ttl": "1s"}),
        ops.ListPlaces("component"),
        ops.ShowPlace("component", component),
        ops.DeletePlace("component", component, True),
        ops.ChangeSettings("topic", topic, {"hard_ttl": "1s"}),
        ops.CreateProducer(topic, "till-2"),
        ops.ListProducers(topic),
        ops.ShowProducer(topic, "till-1"),
        ops.DeleteProducer(topic, "till-1"),
        ops.OpenProducer(topic, "till-3", INSTANCE),
        ops.CloseProducer(topic, "till-1", INSTANCE),
        CreateToken("mine", ["consume"], [topic]),
        ListTokens(),
        ShowToken("admin"),
        RevokeToken("admin"),
        ShowAccess(),
        ListAdminLog(),
        ops.OpenStage(stage, WRITER, topic),
        ops.FinishStage(stage, 1),
        ops.CommitBatch(WRITER, 1, [stage]),
        ops.AbortStages(WRITER, [stage]),
        ops.ListWriters(),
        ops.ShowWriter(WRITER),
        ops.DeleteWriter(WRITER),
        ops.ShowLedger(topic),
        ops.ShowTop(),
        ops.ShowNode(),
        AddPeer("headpond://127.0.0.1:1", ["*"], name="west"),
        ListPeers(),
        ShowPeer("west"),
        RemovePeer("west"),
        FollowTopics([topic]),
        ReadHeads(uuid, 0, 0),
        OpenFeed(topic, "n", b"u" * 16, 1),
        OfferHeads(uuid, 0, [], {}),
        AdmitRecords(uuid, 0, "n", Place(b"u" * 16, 0)),
        PromoteSubscription(topic, "audit"),
        FollowSubscriptions([topic], ["*"]),
        ReadSettled(uuid, "audit", 0, 1, 0, 0, 0),
        ReadDropped(uuid, 0),
        ApplyDropped(uuid, "n", "copy", 0, 1, 0, 0, []),
        TellPromoted(uuid, "audit", 1, 1, "n"),
        OpenCopy(uuid, "n", "copy", "shared", "non_resilient", Policy(), 1, 0, 0, "west"),
        ApplySettled(uuid, "n", "copy", 0, 1, 0, 0, [], [], 0, 0, 0),
    ]
    return {type(ask): ask for ask in found}


class GuardedNode:
    """A node with one topic, one message, one subscription and one producer, and tokens for all of it."""

    def __init__(self, disk: MemoryDisk | None = None) -> None:
        self.disk = disk or MemoryDisk()
        self.shell = CoreShell(self.disk, seed=1, now_us=1_000_000)
        first = CreateToken("admin", ["admin"], ["*"])
        self.admin_text = self.made(self.shell.connect(), first).secret
        self.admin = self.shell.connect(self.admin_text)
        self.uuid: bytes = self.admin.request(ops.CreateTopic(TOPIC))["uuid"]
        self.admin.request(ops.CreateSubscription(TOPIC, "billing"))
        self.admin.request(ops.CreateProducer(TOPIC, "till-1"))
        self.admin.send(title_frame(BLOCK, self.uuid, topic=TOPIC), segment_frame([b"secret"]))
        self.shell.work_all()
        self.admin.request(ops.OpenStage(STAGE, WRITER, TOPIC))
        self.admin.send(encode_chunk(STAGE, 0, 0, segment_body([b"staged"])))
        self.shell.work_all()
        self.admin.events.clear()

    def made(self, client: CoreClient, ask: CreateToken) -> TokenCreated:
        return read_result(client.request(ask), TokenCreated)

    def token(self, rights: list[str], scopes: list[str], **more: Any) -> str:
        return self.made(self.admin, CreateToken("t", rights, scopes, **more)).secret

    def client(self, rights: list[str], scopes: list[str], **more: Any) -> CoreClient:
        client = self.shell.connect(self.token(rights, scopes, **more))
        client.events.clear()
        return client

    @property
    def state(self) -> dict[str, Any]:
        """All that somebody could have changed."""
        ask = self.admin.request
        return {
            "topic": ask(ops.ShowTopic(TOPIC)),
            "topics": ask(ops.ListTopics()),
            "subscription": ask(ops.ShowSubscription(TOPIC, "billing")),
            "subscriptions": ask(ops.ListSubscriptions("")),
            "producers": ask(ops.ListProducers("")),
            "writers": ask(ops.ListWriters()),
            "stages": ask(ops.ShowWriter(WRITER)),
            "places": ask(ops.ListPlaces("component")),
            "tokens": [(each["token"], each["revoked_at_us"]) for each in ask(ListTokens())],
        }


def frames_about(uuid: bytes, topic: str = TOPIC) -> dict[FrameType, list[bytes | Control]]:
    """For every kind of frame that a client may send: what somebody who means no good would send."""
    block = b"x" * 16
    title = title_frame(block, uuid, topic=topic)
    subscribe = ops.Subscribe(
        7, topic, "billing", "unique", "non_resilient", "earliest", 1024, policy=Policy(), create_topic=True
    )
    return {
        FrameType.TITLE: [title],
        FrameType.SEGMENT: [title, segment_frame([b"forged"])],
        FrameType.SNAPSHOT: [title, encode(FrameType.SNAPSHOT, b"", shard=0, segment=9)],
        FrameType.HOLE: [title, ops.Hole(block, 0, 9)],
        FrameType.BLOCK_END: [title, ops.BlockEnd(block, {0: 1})],
        FrameType.STAGE: [encode_chunk(STAGE, 0, 1, segment_body([b"forged"]))],
        FrameType.PEER: [b"".join(peer_parts(uuid, 0, 0, b"r" * 64))],
        FrameType.PING: [ops.Ping(1)],
        FrameType.PONG: [ops.Pong(1)],
        FrameType.REQUEST: [ops.Request(1, ops.ShowTopic(topic))],
        FrameType.SUBSCRIBE: [subscribe],
        FrameType.UNSUBSCRIBE: [ops.Unsubscribe(1)],
        FrameType.CREDIT: [ops.Credit(1, 1000)],
        FrameType.SETTLE: [ops.Settle(1, 1, 0, [(0, 1)])],
        FrameType.EXTEND: [ops.Extend(1, 0, [(0, 1)])],
        FrameType.RENEW: [ops.Renew(1, 1)],
        FrameType.GIVE_BACK: [ops.GiveBack(1, 0, [(0, 1)])],
    }
