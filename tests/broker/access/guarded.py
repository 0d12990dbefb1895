"""A node with tokens, in memory, and one request of each kind."""

from __future__ import annotations

from typing import Any

from headpond.model.policy import Policy
from headpond.storage.memory_disk import MemoryDisk
from headpond.wire.control.access import (
    CreateToken,
    ListAdminLog,
    ListTokens,
    RevokeToken,
    ShowAccess,
    ShowToken,
    TokenCreated,
)
from headpond.wire.control.backup import BeginBackup, EndBackup
from headpond.wire.control.catalog import (
    AlterTopic,
    ChangeSettings,
    CompactTopic,
    CreatePlace,
    CreateTopic,
    DeletePlace,
    DeleteTopic,
    ListPlaces,
    ListTopics,
    OpenTopic,
    ShowPlace,
    ShowTopic,
)
from headpond.wire.control.codec import Request, read_result
from headpond.wire.control.consuming import (
    Browse,
    CreateSubscription,
    Credit,
    DeleteSubscription,
    Extend,
    GiveBack,
    ListSkipped,
    ListSubscriptions,
    ListUnacked,
    PauseSubscription,
    Redrive,
    Renew,
    SeekSubscription,
    Settle,
    ShowSubscription,
    Subscribe,
    Unsubscribe,
)
from headpond.wire.control.greeting import Ping, Pong
from headpond.wire.control.ledger import ShowLedger
from headpond.wire.control.links import (
    AddPeer,
    AdmitRecords,
    ApplyDropped,
    ApplySettled,
    FollowSubscriptions,
    FollowTopics,
    ListPeers,
    OfferHeads,
    OpenCopy,
    OpenFeed,
    PromoteSubscription,
    ReadDropped,
    ReadHeads,
    ReadSettled,
    RemovePeer,
    ShowPeer,
    SourcePosition,
    TellPromoted,
)
from headpond.wire.control.operation import Control
from headpond.wire.control.producing import (
    BlockEnd,
    CloseProducer,
    CreateProducer,
    DeleteProducer,
    Hole,
    ListProducers,
    OpenProducer,
    ShowProducer,
)
from headpond.wire.control.reading import AdvanceSubscription, FetchEntries, FindTime, ReadEnds
from headpond.wire.control.staging import (
    AbortStages,
    CommitBatch,
    DeleteWriter,
    FinishStage,
    ListWriters,
    OpenStage,
    ShowWriter,
)
from headpond.wire.control.status import ShowNode, ShowTop
from headpond.wire.frame import FrameType, encode
from tests.fire.core_shell import CoreClient, CoreShell
from tests.fire.raw_client import encode_chunk, encode_peer, segment_body, segment_frame, title_frame

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
        OpenTopic(topic, True),
        CreateTopic(topic, 2),
        AlterTopic(topic, b""),
        ShowTopic(topic),
        ListTopics(),
        DeleteTopic(topic),
        CompactTopic(topic),
        ReadEnds([topic]),
        FindTime(uuid, 0),
        FetchEntries(uuid, 0, 0),
        AdvanceSubscription(topic, "billing", [1]),
        CreateSubscription(topic, "extra"),
        ListSubscriptions(topic),
        ShowSubscription(topic, "billing"),
        ListUnacked(topic, "billing"),
        ListSkipped(topic, "billing"),
        DeleteSubscription(topic, "billing"),
        SeekSubscription(topic, "billing", "latest"),
        PauseSubscription(topic, "billing", True),
        Redrive(topic, "billing"),
        Browse(topic, 0, 0),
        CreatePlace("component", component, {"hard_ttl": "1s"}),
        ListPlaces("component"),
        ShowPlace("component", component),
        DeletePlace("component", component, True),
        ChangeSettings("topic", topic, {"hard_ttl": "1s"}),
        CreateProducer(topic, "till-2"),
        ListProducers(topic),
        ShowProducer(topic, "till-1"),
        DeleteProducer(topic, "till-1"),
        OpenProducer(topic, "till-3", INSTANCE),
        CloseProducer(topic, "till-1", INSTANCE),
        CreateToken("mine", ["consume"], [topic]),
        ListTokens(),
        ShowToken("admin"),
        RevokeToken("admin"),
        ShowAccess(),
        ListAdminLog(),
        OpenStage(stage, WRITER, topic),
        FinishStage(stage, 1),
        CommitBatch(WRITER, 1, [stage]),
        AbortStages(WRITER, [stage]),
        ListWriters(),
        ShowWriter(WRITER),
        DeleteWriter(WRITER),
        ShowLedger(topic),
        ShowTop(),
        ShowNode(),
        BeginBackup(),
        EndBackup(),
        AddPeer("headpond://127.0.0.1:1", ["*"], name="west"),
        ListPeers(),
        ShowPeer("west"),
        RemovePeer("west"),
        FollowTopics([topic]),
        ReadHeads(uuid, 0, 0),
        OpenFeed(topic, "n", b"u" * 16, 1),
        OfferHeads(uuid, 0, [], {}),
        AdmitRecords(uuid, 0, "n", SourcePosition(b"u" * 16, 0)),
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
        self.uuid: bytes = self.admin.request(CreateTopic(TOPIC))["uuid"]
        self.admin.request(CreateSubscription(TOPIC, "billing"))
        self.admin.request(CreateProducer(TOPIC, "till-1"))
        self.admin.send(title_frame(BLOCK, self.uuid, topic=TOPIC), segment_frame([b"secret"]))
        self.shell.work_all()
        self.admin.request(OpenStage(STAGE, WRITER, TOPIC))
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
        """Everything that a client could have changed."""
        ask = self.admin.request
        return {
            "topic": ask(ShowTopic(TOPIC)),
            "topics": ask(ListTopics()),
            "subscription": ask(ShowSubscription(TOPIC, "billing")),
            "subscriptions": ask(ListSubscriptions("")),
            "producers": ask(ListProducers("")),
            "writers": ask(ListWriters()),
            "stages": ask(ShowWriter(WRITER)),
            "places": ask(ListPlaces("component")),
            "tokens": [(each["token"], each["revoked_at_us"]) for each in ask(ListTokens())],
        }


def frames_about(uuid: bytes, topic: str = TOPIC) -> dict[FrameType, list[bytes | Control]]:
    """A malicious frame of every kind that a client may send."""
    block = b"x" * 16
    title = title_frame(block, uuid, topic=topic)
    subscribe = Subscribe(
        7, topic, "billing", "unique", "non_resilient", "earliest", 1024, policy=Policy(), create_topic=True
    )
    return {
        FrameType.TITLE: [title],
        FrameType.SEGMENT: [title, segment_frame([b"forged"])],
        FrameType.SNAPSHOT: [title, encode(FrameType.SNAPSHOT, b"", shard=0, segment=9)],
        FrameType.HOLE: [title, Hole(block, 0, 9)],
        FrameType.BLOCK_END: [title, BlockEnd(block, {0: 1})],
        FrameType.STAGE: [encode_chunk(STAGE, 0, 1, segment_body([b"forged"]))],
        FrameType.PEER: [encode_peer(uuid, 0, b"r" * 64)],
        FrameType.PING: [Ping(1)],
        FrameType.PONG: [Pong(1)],
        FrameType.REQUEST: [Request(1, ShowTopic(topic))],
        FrameType.SUBSCRIBE: [subscribe],
        FrameType.UNSUBSCRIBE: [Unsubscribe(1)],
        FrameType.CREDIT: [Credit(1, 1000)],
        FrameType.SETTLE: [Settle(1, 1, 0, [(0, 1)])],
        FrameType.EXTEND: [Extend(1, 0, [(0, 1)])],
        FrameType.RENEW: [Renew(1, 1)],
        FrameType.GIVE_BACK: [GiveBack(1, 0, [(0, 1)])],
    }
