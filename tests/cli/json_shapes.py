"""What each command prints with ``--json``: the shapes of the code, and those that only the command line has.

docs/json.md is generated from them, and ``contract.py`` checks the output of every command against them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypedDict, get_type_hints

from headpond.model.ledger import LogAccount, ProducerAccount, SubscriptionAccount
from headpond.model.policy import Policy
from headpond.pipes.lab.run import LabResult
from headpond.shapes import resources
from headpond.shapes.convert import ErrorExplained
from headpond.shapes.message import Row
from headpond.sim.runner import Repeats, Scoreboard
from headpond.spark.jobs.archive import ArchiveResult, CompactResult
from headpond.spark.jobs.audit.audit import AuditResult
from headpond.spark.jobs.audit.follow import FollowedAudit
from headpond.spark.jobs.audit.ledger import LedgerAudit
from headpond.spark.jobs.replay import ReplayResult
from headpond.spark.jobs.reshard import ReshardResult
from headpond.spark.pipeline.progress import BatchSample
from headpond.spark.start.class_cache import PrepareResult
from headpond.spark.sweep.sweep import SweepResult
from headpond.wire.control import access, catalog, consuming, links, producing, staging
from headpond.wire.control.ledger import LedgerInfo
from headpond.wire.control.status import TopLink, TopNode, TopSubscription, TopTopic

MEANINGS: dict[Any, tuple[Any, ...]] = {
    resources.TopicShape: (catalog.TopicInfo,),
    resources.ShardShape: (catalog.ShardInfo,),
    resources.CompactedShardShape: (catalog.ShardCompaction,),
    resources.SettingShape: (catalog.SettingInfo,),
    resources.PlaceShape: (catalog.PlaceInfo,),
    resources.ProducerShape: (producing.ProducerInfo,),
    resources.WriterShape: (staging.WriterInfo,),
    resources.StageShape: (staging.StageInfo,),
    resources.SubscriptionShape: (consuming.SubscriptionInfo,),
    vars(resources)["PolicyShape"]: (Policy,),
    resources.UnackedShape: (consuming.UnackedEntry,),
    resources.TokenShape: (access.TokenInfo,),
    resources.AdministeredShape: (access.AdminRecord,),
    resources.PeerShape: (links.PeerInfo,),
    resources.PeerTopicShape: (links.PeerTopicInfo,),
    resources.PeerSubscriptionShape: (links.PeerSubscriptionInfo,),
}
"""The classes that say what the fields of a shape mean, beside the shape itself."""


def joined(name: str, *parts: Any, **more: Any) -> Any:
    """A shape with the fields of some classes, which say what they mean, and ``more`` fields."""
    fields = {field: hint for part in parts for field, hint in get_type_hints(part).items()}
    shape = TypedDict(name, {**fields, **more})  # type: ignore[misc]  # mypy knows literal ones only
    MEANINGS[shape] = parts
    return shape


# --- messages ---------------------------------------------------------------------------------------


class ReadyShape(TypedDict):
    ready: str
    """The URL of the node."""
    http: str | None
    """The URL of HTTP; null: the node does not serve it."""


class ProducedShape(TypedDict):
    sent: int
    """Lines of stdin."""
    stored: int
    duplicate: int
    spilled: int
    """Safe on this disk, to be delivered later."""
    spill_reasons: dict[str, str]
    """By code: why a node did not take the spilled messages."""
    rejected: int
    seconds: float


# --- refills ----------------------------------------------------------------------------------------


class DestinationShape(TypedDict):
    destination: str
    """The URL of a node."""
    pending: int
    """Segments."""
    acked: int
    refused: int
    lost: int
    """Segments that can no longer be read."""


class RefillDamageShape(TypedDict):
    offset: int
    end: int
    why: str
    shard: int | None
    segments: list[int] | None
    """`[first, end)`"""
    unnamed: int | None
    """Lost segments whose numbers are unknown."""


class RefillShardShape(TypedDict):
    shard: int
    segments: list[list[int]]
    """`[first, end)`"""
    snapshots: list[int]
    rows: int
    bytes: int


class RefusalShape(TypedDict):
    destination: str
    shard: int
    segments: list[int]
    """`[first, end)`"""
    code: str
    message: str


class RefillListed(TypedDict):
    file: str
    slot: str
    topic: str | None
    """Null, like the fields below it: the file cannot be read."""
    producer: str | None
    block: str | None
    created_at: str | None
    segments: int | None
    rows: int | None
    bytes: int
    destinations: list[DestinationShape]
    in_use_by: int | None
    """The id of a process."""
    continuable: bool
    torn_bytes: int
    damage: list[RefillDamageShape]
    error: str | None
    """Why the file cannot be read at all."""
    late: bool
    """Written by an instance that another one replaced: only `--late` sends it."""


class RefillShape(RefillListed, total=False):
    typed: bool
    shards: int | None
    why_not_continuable: str | None
    closed: bool
    segments_next: dict[str, int]
    """By shard."""
    shard_list: list[RefillShardShape]
    refusals: list[RefusalShape]


class RefillSentShape(TypedDict):
    slot: str
    topic: str
    producer: str | None
    destinations: list[str]
    bytes: int
    """Before it was sent."""
    bytes_left: int
    unreachable: list[str]
    delivered: bool
    error: str | None
    """A code."""
    lost: list[str]
    """Segments that the files lost to damage or cuts."""


class DroppedFileShape(TypedDict):
    file: str
    segments: int | None
    rows: int | None
    bytes: int
    undelivered: int | None


class RefillDroppedShape(TypedDict):
    destination: str | None
    """The destination whose messages were dropped; null: the files were."""
    dropped: list[DroppedFileShape]


# --- access -----------------------------------------------------------------------------------------


class FirstTokenShape(TypedDict):
    token: str
    """Its id."""
    secret: str
    """The whole token; it is not shown again."""
    name: str


class ContextListed(TypedDict):
    context: str
    url: str
    token: str | None
    """Its id only."""
    ca: str | None
    cert: str | None
    key: str | None


class ContextShape(ContextListed, total=False):
    in_use: bool


class RemovedContextShape(TypedDict):
    context: str
    removed: bool


class CertificateShape(TypedDict):
    subject: str
    issuer: str
    names: list[str]
    """The hosts that it is valid for."""
    ends_in_s: float


class AddressErrorShape(TypedDict):
    code: str
    message: str


class AddressShape(TypedDict):
    """Fields about the whole node are null unless the token is an admin of everything."""

    address: str
    answered: bool
    serves: bool
    """Whether a client would use this address now."""
    standby: bool
    """Whether it is a member of a cluster that is not the active one."""
    node: str | None
    software: str | None
    tls: bool
    answered_in_s: float | None
    clock_ahead_s: float | None
    """How far the clock of the node is ahead of this machine's."""
    tokens_needed: bool | None
    token: str | None
    """Its id."""
    rights: list[str] | None
    scopes: list[str] | None
    producer: str | None
    subscription: str | None
    expires_in_s: float | None
    free_bytes: int | None
    disk_full: bool | None
    last_stop: str | None
    """`clean` or `cut_short`."""
    recovered: list[str]
    """What the node found damaged, missing or torn when it started; the first 100 lines."""
    successor: str | None
    certificate: CertificateShape | None
    error: AddressErrorShape | None
    advice: list[str]


# --- clusters ---------------------------------------------------------------------------------------


class ClusterMemberShape(TypedDict):
    member: str
    role: str
    """`active`, `standby`, `copying` or `starting`"""
    epoch: int
    """How many members were active in turn, as far as its folder knows."""
    seq: int
    """The last record of the stream that its folder has."""
    durable_seq: int
    """The last one that its folder has synced."""
    lag: int
    """Records of the stream that its folder lacks."""
    lag_s: float | None
    """Of a standby: seconds since it had every record that the active member had."""
    url: str
    http: str | None
    version: str | None
    """Of Headpond."""
    doubts: int
    """How often it looked in the stream for records without an answer."""
    void: int
    """Records of replaced members that it passed over."""


class StreamShape(TypedDict):
    leader: str | None
    """A NATS server; null during an election."""
    replicas: dict[str, str]
    """By NATS server: its state."""
    bytes: int
    bytes_max: int
    first_seq: int
    """Of the oldest record in the stream."""
    last_seq: int


class GroupShape(TypedDict):
    group: str
    active: str | None
    """The active member."""
    stream: StreamShape
    members: list[ClusterMemberShape]
    """Those that answer."""


class GroupTenantShape(TypedDict):
    tenant: str
    topics: int
    """That the group has."""
    group: str
    """The group that the tenant is on: another one if this group has copies of its topics."""


class ListedGroupShape(TypedDict):
    group: str
    active: str | None
    """The active member."""
    url: str | None
    """Its members, as clients reach them."""
    members: list[str]
    tenants: list[GroupTenantShape]
    """Those that are placed on it or have topics there."""
    stream: StreamShape | None


class PlacedShape(TypedDict):
    tenant: str
    group: str
    before: str
    """The group that had the tenant."""
    changed: bool


class NatsServerShape(TypedDict):
    address: str
    answered_in_s: float | None
    name: str | None
    version: str | None
    jetstream: bool | None
    sync_always: bool | None
    """Whether `sync_interval` is `always`; null: its monitoring port does not answer."""
    error: str | None


class FindingShape(TypedDict):
    level: str
    """`problem` or `note`"""
    subject: str
    """A NATS server, `servers`, `stream`, a member, or `members`."""
    problem: str
    hint: str


class ClusterCheckupShape(TypedDict):
    ok: bool
    """Whether no finding is a problem."""
    servers: list[NatsServerShape]
    group: GroupShape | None
    """Null: its stream does not answer."""
    findings: list[FindingShape]


class CheckupShape(TypedDict):
    ok: bool
    """Whether an address serves, and the cluster has no problem."""
    addresses: list[AddressShape]
    cluster: ClusterCheckupShape | None
    """Only with `--cluster`."""


class SwitchedShape(TypedDict):
    group: str
    before: str
    """The member that was active."""
    active: str
    seconds: float
    epoch: int


class ReseededShape(TypedDict):
    group: str
    seq: int
    """The stream continues after this sequence."""
    epoch: int


class ChildShape(TypedDict):
    name: str
    pid: int
    address: str


class LocalClusterShape(TypedDict):
    ready: str
    """The URL for clients: all nodes."""
    cluster: str
    """The URL of the NATS servers."""
    processes: list[ChildShape]


class UpShape(TypedDict):
    console: str
    ready: str
    """The URL for clients."""
    cluster: str | None
    """With `--cluster` the URL of the NATS servers."""
    processes: list[ChildShape]
    """With `--cluster` the nodes and the NATS servers."""


# --- accounts and rates -----------------------------------------------------------------------------


class RatioShape(TypedDict):
    value: float | None
    part: int
    whole: int
    bound: str
    """`exact`, `at least` or `at most`"""


class BalanceShape(TypedDict):
    balance: str
    difference: int
    """0 if the account balances"""
    r: RatioShape
    ur: RatioShape


class LedgerRangeShape(TypedDict):
    shard: int
    start: int
    end: int
    reason: str
    at: str


Rate = float | None
if TYPE_CHECKING:
    LogShape = dict[str, Any]
    ProducerAccountShape = dict[str, Any]
    BlockShape = dict[str, Any]
    SubscriptionAccountShape = dict[str, Any]
    NodeTop = dict[str, Any]
    TopicTop = dict[str, Any]
    SubscriptionTop = dict[str, Any]
    LinkTop = dict[str, Any]
else:
    LogShape = joined("LogAccount", LogAccount, balance=str)
    ProducerAccountShape = joined("ProducerAccount", ProducerAccount, BalanceShape)
    BlockShape = joined("BlockAccount", ProducerAccount, BalanceShape, block=str, closed=bool, last=str)
    SubscriptionAccountShape = joined(
        "SubscriptionAccount",
        *(SubscriptionAccount, BalanceShape),
        kind=str,
        mode=str,
        consumers=int,
        lost_ranges=list[LedgerRangeShape],
    )
    NodeTop = joined("NodeTop", TopNode, stored_s=Rate, delivered_s=Rate, cpu=Rate)
    TopicTop = joined("TopicTop", TopTopic, messages_s=Rate, bytes_s=Rate, r=Rate, ur=Rate)
    SubscriptionTop = joined(
        "SubscriptionTop", TopSubscription, delivered_s=Rate, settled_s=Rate, r=Rate, ur=Rate
    )
    LinkTop = joined("LinkTop", TopLink, r=Rate, ur=Rate)


class LedgerShape(TypedDict):
    topic: str
    at: str
    run: int
    crashed: int
    balanced: bool
    log: LogShape
    producers: list[ProducerAccountShape]
    subscriptions: list[SubscriptionAccountShape]
    blocks: list[BlockShape]
    """With `--blocks`; otherwise empty."""
    blocks_left_out: int


MEANINGS[LedgerShape] = (LedgerInfo,)


class TopShape(TypedDict):
    seconds: float
    """Between the two readings."""
    node: NodeTop
    topics: list[TopicTop]
    subscriptions: list[SubscriptionTop]
    """The furthest behind first."""
    topics_left_out: int
    subscriptions_left_out: int
    links: list[LinkTop]


# --- files and routes -------------------------------------------------------------------------------

Parts = dict[str, Any]


class InspectedListed(TypedDict):
    file: str
    bytes: int
    frames: dict[str, int]
    """How many of each type."""
    records_total: int
    records: list[Parts]
    """The first `--records`."""
    reserved_bytes: int
    torn: list[Parts]
    damage: list[Parts]
    """Empty in a sound file."""


class InspectedShape(InspectedListed, total=False):
    title: Parts
    schema: Parts
    marks: Parts
    typed: Parts
    compacted: Parts
    synced: dict[str, int]
    sealed: dict[str, int]
    """How a clean stop left the file: its length, and its next entry or record."""
    index: dict[str, int]
    destinations: list[str]
    refill: dict[str, int]
    closed: dict[str, int]
    fault: str
    """Of a refill whose beginning cannot be read."""


class ScenarioShape(TypedDict):
    scenario: str
    about: str


class RouteExplainedShape(TypedDict):
    route: str
    channel: Parts
    crashes: list[str]
    hops: list[Parts]
    holds: bool
    promise: Parts | None
    broken: list[Any]
    pipes: list[Parts]
    notes: list[str]


class PipelineCheckedShape(TypedDict):
    pipeline: str
    sources: list[str]
    steps: list[str]
    sinks: list[str]
    tried: bool
    """Whether it was tried on Spark too."""


class LinkHarmShape(TypedDict):
    passed: int
    """Segments that the link passed on."""
    swallowed: int
    """Segments that it never passed on."""
    answers_swallowed: int
    cuts: int
    came_twice: int
    """Segments that reached the node again, and were refused as duplicates."""


class CarriedShape(TypedDict):
    sent: int
    received: int
    unique: int
    missing: int
    repeated: int
    R: float
    UR: float


class DemoShape(TypedDict):
    sent: int
    stored: int
    duplicate: int
    received: int
    lost: int
    repeated: int
    R: float
    UR: float
    """Of the messages that the consumer received."""
    UR_arrived: float | None
    """Of the segments that reached the node, before it dropped repeats."""
    in_order: bool
    link: LinkHarmShape
    spark: CarriedShape | None
    """Null with `--no-spark`."""
    checks: dict[str, bool]
    held: bool
    seconds: float


# --- commands ---------------------------------------------------------------------------------------


class AgentShape(TypedDict):
    file: str
    """A refill file that was delivered."""
    slot: str
    topic: str
    bytes: int


class BackupShape(TypedDict):
    backup: str
    """The folder of the backup."""
    files: int
    bytes: int
    bytes_copied: int
    """Without the files that the backup before has too."""


class RestoredShape(TypedDict):
    backup: str
    data: str
    """The data folder."""
    files: int
    bytes: int


class DeletedShape(TypedDict):
    deleted: str


class DeletedOfTopicShape(DeletedShape):
    topic: str


class RedrivenShape(TypedDict):
    redriven: int


PRINTS: dict[str, Any] = {
    "node": ReadyShape,
    "topic create|alter|show|set|unset": resources.TopicShape,
    "topic list": list[resources.TopicShape],
    "topic compact": resources.CompactionShape,
    "topic delete": DeletedShape,
    "tenant|product|component create|show|set|unset": resources.PlaceShape,
    "tenant|product|component list": list[resources.PlaceShape],
    "tenant|product|component delete": resources.PlaceDeletedShape,
    "producer create|show": resources.ProducerShape,
    "producer list": list[resources.ProducerShape],
    "producer delete": DeletedOfTopicShape,
    "writer show": resources.WriterShape,
    "writer list": list[resources.WriterShape],
    "writer delete": resources.WriterDeletedShape,
    "produce": ProducedShape,
    "consume|peek": Iterator[Row],
    "sub create|show|seek|pause|resume|promote": resources.SubscriptionShape,
    "sub list": list[resources.SubscriptionShape],
    "sub unacked": list[resources.UnackedShape],
    "sub skipped": list[resources.SkippedShape],
    "sub delete": DeletedOfTopicShape,
    "dead list": list[resources.DeadShape],
    "dead show": resources.DeadShape,
    "dead redrive": RedrivenShape,
    "refill list|show": list[RefillShape],
    "refill send": list[RefillSentShape],
    "refill drop": RefillDroppedShape,
    "agent": Iterator[AgentShape],
    "token bootstrap": FirstTokenShape,
    "token create|show": resources.TokenShape,
    "token list": list[resources.TokenShape],
    "token revoke": resources.RevokedShape,
    "peer add|show": resources.PeerShape,
    "peer list": list[resources.PeerShape],
    "peer remove": resources.RemovedPeerShape,
    "log admin": Iterator[resources.AdministeredShape],
    "context add|use|show": ContextShape,
    "context list": list[ContextShape],
    "context remove": RemovedContextShape,
    "cluster show": GroupShape,
    "cluster switch": SwitchedShape,
    "cluster groups": list[ListedGroupShape],
    "cluster place": PlacedShape,
    "cluster reseed": ReseededShape,
    "cluster up": LocalClusterShape,
    "doctor": CheckupShape,
    "ledger": LedgerShape,
    "top": Iterator[TopShape],
    "backup": BackupShape,
    "restore": RestoredShape,
    "inspect": InspectedShape,
    "errors": list[ErrorExplained],
    "errors CODE": ErrorExplained,
    "explain": RouteExplainedShape,
    "sim run": Scoreboard,
    "sim scenarios": list[ScenarioShape],
    "sim meta": Repeats,
    "lab run": LabResult,
    "lab sweep": SweepResult,
    "spark run": Iterator[BatchSample],
    "spark check": PipelineCheckedShape,
    "spark audit": AuditResult,
    "spark audit --follow": Iterator[FollowedAudit],
    "spark audit --sent-ledger": LedgerAudit,
    "spark archive": ArchiveResult,
    "spark compact": CompactResult,
    "spark replay": ReplayResult,
    "spark reshard": ReshardResult,
    "spark prepare": PrepareResult,
    "up": UpShape,
    "demo": DemoShape,
}
"""By command: an object, a list of objects, or an iterator of objects, one per line."""
