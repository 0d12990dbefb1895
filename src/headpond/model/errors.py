"""The catalogue of errors: what happened, to what, and what to do next.

Every error has a ``code`` (stable, also on the wire and in ``--json``), a ``hint`` (what to do next) and
``retryable`` (whether the same call can succeed later without a change). A class is an entry of the
catalogue; ``headpond errors CODE`` prints its docstring. The base is in error.py, what is about bytes in
byte_errors.py, about Spark alone in spark_errors.py, about a producer's refill in refill_errors.py, about
state topics in state_errors.py, about positions in reading_errors.py, about tenants, settings and registered
producers in tenancy_errors.py, about staged writes in staging_errors.py, about tokens, TLS and quotas in
access_errors.py, about links between nodes in peer_errors.py and follow_errors.py, about HTTP alone in
http_errors.py, about running a node in running_errors.py, about reading several nodes in several_errors.py; all
of it can be imported from here.
"""

from __future__ import annotations

from headpond.model.access_errors import AccessRefused as AccessRefused
from headpond.model.access_errors import BadContext as BadContext
from headpond.model.access_errors import BadScope as BadScope
from headpond.model.access_errors import Insecure as Insecure
from headpond.model.access_errors import NotAllowed as NotAllowed
from headpond.model.access_errors import QuotaReached as QuotaReached
from headpond.model.access_errors import TlsFailed as TlsFailed
from headpond.model.access_errors import TokenExpired as TokenExpired
from headpond.model.access_errors import TokenNeeded as TokenNeeded
from headpond.model.access_errors import TokenNotFound as TokenNotFound
from headpond.model.access_errors import TokenRevoked as TokenRevoked
from headpond.model.access_errors import TokenUnknown as TokenUnknown
from headpond.model.byte_errors import BadChecksum as BadChecksum
from headpond.model.byte_errors import BadFrame as BadFrame
from headpond.model.byte_errors import BadSegment as BadSegment
from headpond.model.byte_errors import Damaged as Damaged
from headpond.model.byte_errors import FrameTooLarge as FrameTooLarge
from headpond.model.byte_errors import SchemaMismatch as SchemaMismatch
from headpond.model.byte_errors import SegmentTooLarge as SegmentTooLarge
from headpond.model.byte_errors import UnknownFrame as UnknownFrame
from headpond.model.error import HeadpondError as HeadpondError
from headpond.model.follow_errors import SubscriptionPassive as SubscriptionPassive
from headpond.model.http_errors import BodyTooLarge as BodyTooLarge
from headpond.model.http_errors import CrossSite as CrossSite
from headpond.model.http_errors import NoRoute as NoRoute
from headpond.model.http_errors import NotHeld as NotHeld
from headpond.model.http_errors import WrongMediaType as WrongMediaType
from headpond.model.http_errors import WrongMethod as WrongMethod
from headpond.model.peer_errors import PeerBarred as PeerBarred
from headpond.model.peer_errors import PeerExists as PeerExists
from headpond.model.peer_errors import PeerItself as PeerItself
from headpond.model.peer_errors import PeerMismatch as PeerMismatch
from headpond.model.peer_errors import PeerNotFound as PeerNotFound
from headpond.model.reading_errors import BadFilter as BadFilter
from headpond.model.reading_errors import EntriesMissing as EntriesMissing
from headpond.model.reading_errors import IncarnationChanged as IncarnationChanged
from headpond.model.reading_errors import SchemaChanged as SchemaChanged
from headpond.model.refill_errors import RefillFull as RefillFull
from headpond.model.refill_errors import RefillInUse as RefillInUse
from headpond.model.refill_errors import UnknownSegment as UnknownSegment
from headpond.model.refill_errors import UnknownShard as UnknownShard
from headpond.model.running_errors import AddressInUse as AddressInUse
from headpond.model.running_errors import BadConfig as BadConfig
from headpond.model.running_errors import BadData as BadData
from headpond.model.running_errors import DataLocked as DataLocked
from headpond.model.several_errors import NotAcrossNodes as NotAcrossNodes
from headpond.model.spark_errors import BadPipeline as BadPipeline
from headpond.model.spark_errors import JavaMissing as JavaMissing
from headpond.model.spark_errors import JavaTooOld as JavaTooOld
from headpond.model.spark_errors import PipelineFailed as PipelineFailed
from headpond.model.spark_errors import SparkFailed as SparkFailed
from headpond.model.spark_errors import SparkMissing as SparkMissing
from headpond.model.spark_errors import SparkNotPrepared as SparkNotPrepared
from headpond.model.spark_errors import SparkPackages as SparkPackages
from headpond.model.spark_errors import SparkWorker as SparkWorker
from headpond.model.staging_errors import BatchDiffers as BatchDiffers
from headpond.model.staging_errors import BatchOutOfTurn as BatchOutOfTurn
from headpond.model.staging_errors import StageMismatch as StageMismatch
from headpond.model.staging_errors import StageNotFound as StageNotFound
from headpond.model.staging_errors import StagingFull as StagingFull
from headpond.model.staging_errors import WriterHeld as WriterHeld
from headpond.model.staging_errors import WriterNotFound as WriterNotFound
from headpond.model.state_errors import KeyMissing as KeyMissing
from headpond.model.state_errors import ValueMissing as ValueMissing
from headpond.model.tenancy_errors import BadSetting as BadSetting
from headpond.model.tenancy_errors import Fenced as Fenced
from headpond.model.tenancy_errors import NotEmpty as NotEmpty
from headpond.model.tenancy_errors import PlaceExists as PlaceExists
from headpond.model.tenancy_errors import PlaceNotFound as PlaceNotFound
from headpond.model.tenancy_errors import ProducerBusy as ProducerBusy
from headpond.model.tenancy_errors import ProducerExists as ProducerExists
from headpond.model.tenancy_errors import ProducerMismatch as ProducerMismatch
from headpond.model.tenancy_errors import ProducerNotFound as ProducerNotFound

# --- talking to a node ------------------------------------------------------------------------------


class ProtocolError(HeadpondError):
    """A well-formed frame came in a state that does not allow it."""

    code = "protocol"
    default_hint = "This is a fault of the peer's client library; see docs/protocol.md."


class VersionUnsupported(HeadpondError):
    """The two sides of a connection have no protocol version in common."""

    code = "version-unsupported"
    default_hint = "Update the older side."


class Unavailable(HeadpondError):
    """No node answered at the address."""

    code = "unavailable"
    default_hint = (
        "Is the node running? Start one with `headpond node`, or pass the right --url (`headpond context list` "
        "shows the context in use)."
    )
    retryable = True


class ConnectionLost(HeadpondError):
    """The connection ended while an answer was awaited; what was asked may or may not have happened."""

    code = "connection-lost"
    default_hint = "The client reconnects by itself; ask again."
    retryable = True


class TimedOut(HeadpondError):
    """The answer did not come within the time allowed."""

    code = "timeout"
    default_hint = "The node may be overloaded or out of reach; try again, or allow more time."
    retryable = True


class LimitReached(HeadpondError):
    """A limit of the node was reached: connections, topics, consumers or bytes in memory."""

    code = "limit"
    default_hint = "Close what is not needed, or raise the limit named in the message in the node's settings."
    retryable = True


class NodeStopping(HeadpondError):
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


class Closed(HeadpondError):
    """The client, producer or consumer was closed already."""

    code = "closed"
    default_hint = "Open a new one; use it inside its `async with` block."


class BadRequest(HeadpondError):
    """An argument is missing, of the wrong kind or out of range."""

    code = "bad-request"
    default_hint = "Correct the argument named in the message."


class BadURL(BadRequest):
    """An address is not of the form headpond://HOST:PORT, or headponds:// with TLS."""

    code = "bad-url"
    default_hint = "Write headpond://HOST:PORT, several with commas between: headpond://a:7411,b:7411."


# --- topics -----------------------------------------------------------------------------------------


class BadTopicName(HeadpondError):
    """A topic name is not TOPIC or TENANT/PRODUCT/COMPONENT/TOPIC of allowed characters."""

    code = "bad-topic-name"
    default_hint = (
        "Use NAME or tenant/product/component/name; each part 1-128 of letters, digits, '.', '_' or '-', "
        "starting with a letter or digit, and with no '..' and no '.' at the end; a topic's own at most 123."
    )


class TopicNotFound(HeadpondError):
    """The topic does not exist, and was not to be created."""

    code = "topic-not-found"
    default_hint = (
        "Create it with `headpond topic create NAME`, or list what there is with `headpond topic list`."
    )


class TopicExists(HeadpondError):
    """A topic of that name exists already with other settings."""

    code = "topic-exists"
    default_hint = (
        "Shards and schema are fixed for a topic's life; choose another name or delete the topic first."
    )


class TopicMismatch(HeadpondError):
    """The topic is not the one the sender knew: it was re-created, or its shard count differs."""

    code = "topic-mismatch"
    default_hint = "Open the producer anew, so that it reads the topic's present settings."


# --- producing --------------------------------------------------------------------------------------


class Gap(HeadpondError):
    """A segment came before the ones that must precede it; the answer names the segment expected."""

    code = "gap"
    default_hint = "The sender goes back to the segment named, or declares the hole."
    retryable = True


class Conflict(HeadpondError):
    """A segment number came again with other content: a producer's sequence went backwards."""

    code = "conflict"
    default_hint = (
        "Another producer uses this block too, or the refill folder was put back from an old copy: open the "
        "producer with another `block`, or without `resume`, which takes a new one."
    )


class SnapshotNeeded(HeadpondError):
    """A typed segment came to a node that has no decoder state for it."""

    code = "snapshot"
    default_hint = "The sender sends a snapshot and goes on from its last acknowledged segment."
    retryable = True


class PredecessorMissing(HeadpondError):
    """A new block waits for the producer's earlier block, whose segments have not all arrived."""

    code = "predecessor"
    default_hint = (
        "Send or declare lost what the earlier block left behind, or open the producer with ordered=False."
    )
    retryable = True


class DiskFull(HeadpondError):
    """The node's disk has no room; nothing of the segment was kept."""

    code = "disk-full"
    default_hint = "Free space on the node's data folder or lower retention; the client tries again."
    retryable = True


class StorageFailed(HeadpondError):
    """The node could not write or sync; nothing was acknowledged and the file is not trusted again."""

    code = "storage-failed"
    default_hint = "Look at the node's disk (dmesg, smartctl); the client tries again on a new file."
    retryable = True


class BufferFull(HeadpondError):
    """A producer holds as many unsent bytes as it may; `post` does not wait."""

    code = "buffer-full"
    default_hint = "Use `send`, await some promises or `flush()` first, or raise memory_max."
    retryable = True


# --- subscriptions ----------------------------------------------------------------------------------


class SubscriptionNotFound(HeadpondError):
    """The topic has no subscription of that name."""

    code = "subscription-not-found"
    default_hint = "A subscription is created when the first consumer opens it."


class SubscriptionMismatch(HeadpondError):
    """The subscription exists with another kind or mode."""

    code = "subscription-mismatch"
    default_hint = "Open it with the kind and mode it was created with, or use another subscription name."


class SubscriptionBusy(HeadpondError):
    """A unique subscription has its one consumer already."""

    code = "subscription-busy"
    default_hint = "Close the other consumer, or use another subscription."
    retryable = True


class SubscriptionMoved(HeadpondError):
    """The place of a subscription was set anew (`headpond sub seek`): its consumers begin there."""

    code = "subscription-moved"
    default_hint = "The client subscribes again by itself."
    retryable = True


class LeaseLost(HeadpondError):
    """A resilient consumer was silent for longer than its lease, and another one took its place."""

    code = "lease-lost"
    default_hint = "The client subscribes again by itself and waits for its turn; do not block its event loop."
    retryable = True


class NotSupported(HeadpondError):
    """The node understood the request but does not offer it."""

    code = "not-supported"
    default_hint = "See the CHANGELOG for what this version offers."


# --- pipes ------------------------------------------------------------------------------------------


class RouteMismatch(HeadpondError):
    """The two ends of a pipe were opened with different routes."""

    code = "route-mismatch"
    default_hint = "Open both ends with the same pipes in the same order."


class SessionOver(HeadpondError):
    """A sender's session was ended by a later one of the same name."""

    code = "session-over"
    default_hint = "Stop the older of the two programs, or give each sender of a receiver a name of its own."


class PipeFull(HeadpondError):
    """A receiver had no room for what its storage gave it, and stopped in front of it."""

    code = "pipe-full"
    default_hint = (
        "Give the pipe more room (dedup(sessions=…), continuous(queue=…)); it goes on where it stopped."
    )


def _entries(base: type[HeadpondError]) -> dict[str, type[HeadpondError]]:
    found = {base.code: base}
    for child in base.__subclasses__():
        found |= _entries(child)
    return found


CATALOGUE: dict[str, type[HeadpondError]] = _entries(HeadpondError)


def from_code(code: str, message: str, hint: str | None = None) -> HeadpondError:
    """The error that a code read from the wire stands for; an unknown code keeps its text."""
    kind = CATALOGUE.get(code)
    if kind is None:
        return HeadpondError(f"{message} ({code})", hint=hint)
    return kind(message, hint=hint)
