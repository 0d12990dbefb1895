"""The catalogue of errors: what happened, to what, and what to do next.

Every error has a ``code`` (stable, also on the wire and in ``--json``), a ``hint`` (what to do next) and
``retryable`` (whether the same call can succeed later without a change). A class is an entry of the
catalogue; ``penstock errors CODE`` prints its docstring. The base is in error.py, what is about bytes in
byte_errors.py, about Spark alone in spark_errors.py, about a producer's refill in refill_errors.py, about
state topics in state_errors.py, about positions in reading_errors.py, about tenants, settings and registered
producers in tenancy_errors.py, about staged writes in staging_errors.py, about tokens, TLS and quotas in
access_errors.py, about links between nodes in peer_errors.py and follow_errors.py, about HTTP alone in
http_errors.py, about running a node in running_errors.py, about reading several nodes in several_errors.py; all
of it can be imported from here.
"""

from __future__ import annotations

from penstock.model.access_errors import AccessRefused as AccessRefused
from penstock.model.access_errors import BadContext as BadContext
from penstock.model.access_errors import BadScope as BadScope
from penstock.model.access_errors import Insecure as Insecure
from penstock.model.access_errors import NotAllowed as NotAllowed
from penstock.model.access_errors import QuotaReached as QuotaReached
from penstock.model.access_errors import TlsFailed as TlsFailed
from penstock.model.access_errors import TokenExpired as TokenExpired
from penstock.model.access_errors import TokenNeeded as TokenNeeded
from penstock.model.access_errors import TokenNotFound as TokenNotFound
from penstock.model.access_errors import TokenRevoked as TokenRevoked
from penstock.model.access_errors import TokenUnknown as TokenUnknown
from penstock.model.byte_errors import BadChecksum as BadChecksum
from penstock.model.byte_errors import BadFrame as BadFrame
from penstock.model.byte_errors import BadSegment as BadSegment
from penstock.model.byte_errors import Damaged as Damaged
from penstock.model.byte_errors import FrameTooLarge as FrameTooLarge
from penstock.model.byte_errors import SchemaMismatch as SchemaMismatch
from penstock.model.byte_errors import SegmentTooLarge as SegmentTooLarge
from penstock.model.byte_errors import UnknownFrame as UnknownFrame
from penstock.model.error import PenstockError as PenstockError
from penstock.model.follow_errors import SubscriptionPassive as SubscriptionPassive
from penstock.model.http_errors import BodyTooLarge as BodyTooLarge
from penstock.model.http_errors import CrossSite as CrossSite
from penstock.model.http_errors import NoRoute as NoRoute
from penstock.model.http_errors import NotHeld as NotHeld
from penstock.model.http_errors import WrongMediaType as WrongMediaType
from penstock.model.http_errors import WrongMethod as WrongMethod
from penstock.model.peer_errors import PeerBarred as PeerBarred
from penstock.model.peer_errors import PeerExists as PeerExists
from penstock.model.peer_errors import PeerItself as PeerItself
from penstock.model.peer_errors import PeerMismatch as PeerMismatch
from penstock.model.peer_errors import PeerNotFound as PeerNotFound
from penstock.model.reading_errors import BadFilter as BadFilter
from penstock.model.reading_errors import EntriesMissing as EntriesMissing
from penstock.model.reading_errors import IncarnationChanged as IncarnationChanged
from penstock.model.reading_errors import SchemaChanged as SchemaChanged
from penstock.model.refill_errors import RefillFull as RefillFull
from penstock.model.refill_errors import RefillInUse as RefillInUse
from penstock.model.refill_errors import UnknownSegment as UnknownSegment
from penstock.model.refill_errors import UnknownShard as UnknownShard
from penstock.model.running_errors import AddressInUse as AddressInUse
from penstock.model.running_errors import BadConfig as BadConfig
from penstock.model.running_errors import BadData as BadData
from penstock.model.running_errors import DataLocked as DataLocked
from penstock.model.several_errors import NotAcrossNodes as NotAcrossNodes
from penstock.model.spark_errors import BadPipeline as BadPipeline
from penstock.model.spark_errors import JavaMissing as JavaMissing
from penstock.model.spark_errors import JavaTooOld as JavaTooOld
from penstock.model.spark_errors import PipelineFailed as PipelineFailed
from penstock.model.spark_errors import SparkFailed as SparkFailed
from penstock.model.spark_errors import SparkMissing as SparkMissing
from penstock.model.spark_errors import SparkNotPrepared as SparkNotPrepared
from penstock.model.spark_errors import SparkPackages as SparkPackages
from penstock.model.spark_errors import SparkWorker as SparkWorker
from penstock.model.staging_errors import BatchDiffers as BatchDiffers
from penstock.model.staging_errors import BatchOutOfTurn as BatchOutOfTurn
from penstock.model.staging_errors import StageMismatch as StageMismatch
from penstock.model.staging_errors import StageNotFound as StageNotFound
from penstock.model.staging_errors import StagingFull as StagingFull
from penstock.model.staging_errors import WriterHeld as WriterHeld
from penstock.model.staging_errors import WriterNotFound as WriterNotFound
from penstock.model.state_errors import KeyMissing as KeyMissing
from penstock.model.state_errors import ValueMissing as ValueMissing
from penstock.model.tenancy_errors import BadSetting as BadSetting
from penstock.model.tenancy_errors import Fenced as Fenced
from penstock.model.tenancy_errors import NotEmpty as NotEmpty
from penstock.model.tenancy_errors import PlaceExists as PlaceExists
from penstock.model.tenancy_errors import PlaceNotFound as PlaceNotFound
from penstock.model.tenancy_errors import ProducerBusy as ProducerBusy
from penstock.model.tenancy_errors import ProducerExists as ProducerExists
from penstock.model.tenancy_errors import ProducerMismatch as ProducerMismatch
from penstock.model.tenancy_errors import ProducerNotFound as ProducerNotFound

# --- talking to a node ------------------------------------------------------------------------------


class ProtocolError(PenstockError):
    """A well-formed frame came in a state that does not allow it."""

    code = "protocol"
    default_hint = "This is a fault of the peer's client library; see docs/protocol.md."


class VersionUnsupported(PenstockError):
    """The two sides of a connection have no protocol version in common."""

    code = "version-unsupported"
    default_hint = "Update the older side."


class Unavailable(PenstockError):
    """No node answered at the address."""

    code = "unavailable"
    default_hint = (
        "Is the node running? Start one with `penstock node`, or pass the right --url (`penstock context list` "
        "shows the context in use)."
    )
    retryable = True


class ConnectionLost(PenstockError):
    """The connection ended while an answer was awaited; what was asked may or may not have happened."""

    code = "connection-lost"
    default_hint = "The client reconnects by itself; ask again."
    retryable = True


class TimedOut(PenstockError):
    """The answer did not come within the time allowed."""

    code = "timeout"
    default_hint = "The node may be overloaded or out of reach; try again, or allow more time."
    retryable = True


class LimitReached(PenstockError):
    """A limit of the node was reached: connections, topics, consumers or bytes in memory."""

    code = "limit"
    default_hint = "Close what is not needed, or raise the limit named in the message in the node's settings."
    retryable = True


class NodeStopping(PenstockError):
    """The node is shutting down and takes nothing new."""

    code = "stopping"
    default_hint = "The client reconnects when the node is back."
    retryable = True
    successor: str = ""
    """The URL of the node that goes on in its place, if it names one."""

    def again(self) -> NodeStopping:
        twin = super().again()
        twin.successor = self.successor
        return twin


class Closed(PenstockError):
    """The client, producer or consumer was closed already."""

    code = "closed"
    default_hint = "Open a new one; use it inside its `async with` block."


class BadRequest(PenstockError):
    """An argument is missing, of the wrong kind or out of range."""

    code = "bad-request"
    default_hint = "Correct the argument named in the message."


class BadURL(BadRequest):
    """An address is not of the form penstock://HOST:PORT, or penstocks:// with TLS."""

    code = "bad-url"
    default_hint = "Write penstock://HOST:PORT, several with commas between: penstock://a:7411,b:7411."


# --- topics -----------------------------------------------------------------------------------------


class BadTopicName(PenstockError):
    """A topic name is not TOPIC or TENANT/PRODUCT/COMPONENT/TOPIC of allowed characters."""

    code = "bad-topic-name"
    default_hint = (
        "Use NAME or tenant/product/component/name; each part 1-128 of letters, digits, '.', '_' or '-', "
        "starting with a letter or digit, and with no '..' and no '.' at the end; a topic's own at most 123."
    )


class TopicNotFound(PenstockError):
    """The topic does not exist, and was not to be created."""

    code = "topic-not-found"
    default_hint = (
        "Create it with `penstock topic create NAME`, or list what there is with `penstock topic list`."
    )


class TopicExists(PenstockError):
    """A topic of that name exists already with other settings."""

    code = "topic-exists"
    default_hint = (
        "Shards and schema are fixed for a topic's life; choose another name or delete the topic first."
    )


class TopicMismatch(PenstockError):
    """The topic is not the one the sender knew: it was re-created, or its shard count differs."""

    code = "topic-mismatch"
    default_hint = "Open the producer anew, so that it reads the topic's present settings."


# --- producing --------------------------------------------------------------------------------------


class Gap(PenstockError):
    """A segment came before the ones that must precede it; the answer names the segment expected."""

    code = "gap"
    default_hint = "The sender goes back to the segment named, or declares the hole."
    retryable = True


class Conflict(PenstockError):
    """A segment number came again with other content: a producer's sequence went backwards."""

    code = "conflict"
    default_hint = (
        "Another producer uses this block too, or the refill folder was put back from an old copy: open the "
        "producer with another `block`, or without `resume`, which takes a new one."
    )


class SnapshotNeeded(PenstockError):
    """A typed segment came to a node that has no decoder state for it."""

    code = "snapshot"
    default_hint = "The sender sends a snapshot and goes on from its last acknowledged segment."
    retryable = True


class PredecessorMissing(PenstockError):
    """A new block waits for the producer's earlier block, whose segments have not all arrived."""

    code = "predecessor"
    default_hint = (
        "Send or declare lost what the earlier block left behind, or open the producer with ordered=False."
    )
    retryable = True


class DiskFull(PenstockError):
    """The node's disk has no room; nothing of the segment was kept."""

    code = "disk-full"
    default_hint = "Free space on the node's data folder or lower retention; the client tries again."
    retryable = True


class StorageFailed(PenstockError):
    """The node could not write or sync; nothing was acknowledged and the file is not trusted again."""

    code = "storage-failed"
    default_hint = "Look at the node's disk (dmesg, smartctl); the client tries again on a new file."
    retryable = True


class BufferFull(PenstockError):
    """A producer holds as many unsent bytes as it may; `post` does not wait."""

    code = "buffer-full"
    default_hint = "Use `send`, await some promises or `flush()` first, or raise memory_max."
    retryable = True


# --- subscriptions ----------------------------------------------------------------------------------


class SubscriptionNotFound(PenstockError):
    """The topic has no subscription of that name."""

    code = "subscription-not-found"
    default_hint = "A subscription is created when the first consumer opens it."


class SubscriptionMismatch(PenstockError):
    """The subscription exists with another kind or mode."""

    code = "subscription-mismatch"
    default_hint = "Open it with the kind and mode it was created with, or use another subscription name."


class SubscriptionBusy(PenstockError):
    """A unique subscription has its one consumer already."""

    code = "subscription-busy"
    default_hint = "Close the other consumer, or use another subscription."
    retryable = True


class SubscriptionMoved(PenstockError):
    """The place of a subscription was set anew (`penstock sub seek`): its consumers begin there."""

    code = "subscription-moved"
    default_hint = "The client subscribes again by itself."
    retryable = True


class LeaseLost(PenstockError):
    """A resilient consumer was silent for longer than its lease, and another one took its place."""

    code = "lease-lost"
    default_hint = "The client subscribes again by itself and waits for its turn; do not block its event loop."
    retryable = True


class NotSupported(PenstockError):
    """The node understood the request but does not offer it."""

    code = "not-supported"
    default_hint = "See the CHANGELOG for what this version offers."


# --- pipes ------------------------------------------------------------------------------------------


class RouteMismatch(PenstockError):
    """The two ends of a pipe were opened with different routes."""

    code = "route-mismatch"
    default_hint = "Open both ends with the same pipes in the same order."


class SessionOver(PenstockError):
    """A sender's session was ended by a later one of the same name."""

    code = "session-over"
    default_hint = "Stop the older of the two programs, or give each sender of a receiver a name of its own."


class PipeFull(PenstockError):
    """A receiver had no room for what its storage gave it, and stopped in front of it."""

    code = "pipe-full"
    default_hint = (
        "Give the pipe more room (dedup(sessions=…), continuous(queue=…)); it goes on where it stopped."
    )


def _entries(base: type[PenstockError]) -> dict[str, type[PenstockError]]:
    found = {base.code: base}
    for child in base.__subclasses__():
        found |= _entries(child)
    return found


CATALOGUE: dict[str, type[PenstockError]] = _entries(PenstockError)


def from_code(code: str, message: str, hint: str | None = None) -> PenstockError:
    """The error that a code read from the wire stands for; an unknown code keeps its text."""
    kind = CATALOGUE.get(code)
    if kind is None:
        return PenstockError(f"{message} ({code})", hint=hint)
    return kind(message, hint=hint)
