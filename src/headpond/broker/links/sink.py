"""The sink of a link: admits records of another node's log by the same marks as segments of producers.

1. A segment that the marks know with the same ``origin_crc`` is a duplicate; with another one it is a conflict,
   and is not stored.
2. Records come in the order of the source's log. A missing segment before one is a hole, which the sink
   declares and passes. A segment that another link brings for it later is admitted, late.
3. Refused segments are copied too, so their numbers are used here as well, and so are segments of a state topic
   that compaction emptied: what another link has of them is older than the rows that superseded them.
4. The node of the producer has checked predecessors, leases and epochs; the sink does not.

``stored_at`` and the entry are this node's; everything else is copied. The position in the source's log is
noted when the records are durable, never before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from headpond.broker.access.quotas import Quotas
from headpond.broker.catalog.topic_requests import TopicRequests
from headpond.broker.catalog.topics import Shard, Topic
from headpond.broker.context import Context
from headpond.broker.ingest.lookup import Found
from headpond.broker.ingest.watermark import Watermark
from headpond.broker.links.link_table import LinkProgress, PlaceNoted
from headpond.broker.session import Session, shown
from headpond.broker.steps import Steps, on_disk
from headpond.broker.stores import Stores
from headpond.model.errors import (
    BadRequest,
    BadSegment,
    HeadpondError,
    PeerBarred,
    PeerMismatch,
    ProtocolError,
    SchemaMismatch,
    StorageFailed,
    TopicMismatch,
)
from headpond.model.names import TopicName
from headpond.wire.control.catalog import AlterTopic, CreateTopic
from headpond.wire.control.links import (
    CONFLICTING,
    HEADS_MAX,
    KNOWN,
    REFUSAL_BYTES_MAX,
    WANTED,
    AdmitRecords,
    Admitted,
    BlockName,
    FeedOpened,
    OfferHeads,
    OpenFeed,
    RecordHead,
)
from headpond.wire.plain.packed import is_packed
from headpond.wire.plain.segment import decode_plain
from headpond.wire.record import RECORD_HEADER_BYTES, RecordHeader, is_stub
from headpond.wire.typed.record import check_messages, version_of
from headpond.wire.typed.schema import decode_schema

logger = logging.getLogger("headpond.peers")

NODE_LENGTH_MAX = 64
FEEDS_MAX = 20_000
"""Shards that one connection may feed."""
LOOKUPS_MAX = 32
"""Old segments of an offer whose checksums are read from the files, all of one block."""


@dataclass(slots=True)
class Intake:
    """The records that came for a shard on one connection since the last ``admit_records``."""

    blocks: dict[bytes, BlockName] = field(default_factory=dict)
    outcome: dict[str, int] = field(default_factory=dict)
    fault: HeadpondError | None = None
    """Why the sink ignores the rest of them."""
    begun: bool = False
    """Whether records of the last offer have come: the next offer is another one."""

    def count(self, name: str, by: int = 1) -> None:
        self.outcome[name] = self.outcome.get(name, 0) + by

    def written(self, error: HeadpondError | None) -> None:
        """The write of one of them has ended."""
        self.fault = self.fault or error


class PeerSink:
    def __init__(
        self,
        context: Context,
        stores: Stores,
        topics: TopicRequests,
        quotas: Quotas,
        watermark: Watermark,
        progress: LinkProgress,
        stored: Callable[[Topic, int, int, RecordHeader], None],
    ) -> None:
        """``stored`` is called for each record that was appended: topic, shard, first entry, header."""
        self._context = context
        self._catalog = stores.catalog
        self._links = stores.peers
        self._topics = topics
        self._quotas = quotas
        self._watermark = watermark
        self._progress = progress
        self._stored = stored
        self._intakes: dict[int, dict[tuple[bytes, int], Intake]] = {}
        """By connection, then by topic and shard, for each shard whose feed was opened."""

    def on_disconnect(self, connection: int) -> None:
        self._intakes.pop(connection, None)

    def is_fed(self, uuid: bytes) -> bool:
        """Whether a connection has opened a feed of a topic."""
        return any((uuid, 0) in intakes for intakes in self._intakes.values())

    # --- topics -------------------------------------------------------------------------------------

    def open_feed(self, session: Session, ask: OpenFeed) -> Steps[FeedOpened]:
        name = str(TopicName.parse(ask.topic))
        if not ask.node or 2 ** (ask.shards.bit_length() - 1) != ask.shards:
            raise BadRequest(f"a feed needs the node's name and a power of 2 as its shards, not {ask.shards}")
        if len(self._intakes.get(session.connection, ())) >= FEEDS_MAX:
            raise BadRequest(f"a connection may feed at most {FEEDS_MAX:,} shards")
        topic = self._catalog.by_name(name)
        if topic is None:
            topic = yield from self._create(name, ask)
        yield from self._follow_schema(topic, ask)
        self._check(topic, ask)
        intakes = self._intakes.setdefault(session.connection, {})
        for number in range(len(topic.shards)):
            intakes.setdefault((topic.uuid, number), Intake())
        places = [self._progress.place(topic, ask.node, number) for number in range(len(topic.shards))]
        self._progress.hold(topic)
        return FeedOpened(topic.uuid, places)

    def _create(self, name: str, ask: OpenFeed) -> Steps[Topic]:
        if name in self._links.barred:
            raise PeerBarred(f"topic {TopicName.parse(name).short} was deleted on the node to copy it to")
        first = ask.schemas[0] if ask.schemas else None
        yield from self._topics.create_topic(
            None, CreateTopic(name, ask.shards, True, first, dict(ask.settings))
        )
        topic = self._topics.find(name)
        logger.info("topic %s was created like the one of node %s", topic.shown, shown(ask.node))
        return topic

    def _follow_schema(self, topic: Topic, ask: OpenFeed) -> Steps[None]:
        """Gives the topic the versions of the schema that it lacks, one after the other."""
        while (
            topic.schemas is not None
            and 0 < (version := topic.schemas.version) < len(ask.schemas)
            and _same_schemas(topic, ask.schemas)
        ):
            yield from self._topics.alter_topic(None, AlterTopic(topic.name, ask.schemas[version]))
            if topic.schemas.version <= version:
                raise PeerMismatch(
                    f"topic {topic.shown} has two equal versions of its schema on the other node"
                )

    def _check(self, topic: Topic, ask: OpenFeed) -> None:
        if len(topic.shards) != ask.shards:
            raise PeerMismatch(f"topic {topic.shown} has {len(topic.shards)} shards here, {ask.shards} there")
        if topic.is_state != ask.state:
            where = "here and not there" if topic.is_state else "there and not here"
            raise PeerMismatch(f"topic {topic.shown} is a state topic {where}")
        if (topic.schemas is None) != (not ask.schemas):
            here, there = ("plain", "typed") if topic.schemas is None else ("typed", "plain")
            raise PeerMismatch(f"topic {topic.shown} is {here} here, {there} there")
        if topic.schemas is not None and not _same_schemas(topic, ask.schemas):
            raise PeerMismatch(f"topic {topic.shown} has a different schema there")

    # --- offers -------------------------------------------------------------------------------------

    def offer_heads(self, session: Session, ask: OfferHeads) -> Steps[list[int]]:
        """For each head, whether this node wants its record."""
        topic, shard = self._shard(ask.topic, ask.shard)
        intake = self._intake(session.connection, topic, ask.shard)
        # The records of an offer may come in several parts, and an offer may be several requests.
        intake.blocks = ask.blocks if intake.begun else {**intake.blocks, **ask.blocks}
        intake.begun = len(intake.blocks) > HEADS_MAX
        found = yield from self._look_up(topic, ask)
        if shard.log.entry_durable < shard.log.entry_next:  # a segment counts as known once it is written
            yield on_disk(shard.lane)
        verdicts = [_judge(shard, head, found, state=topic.is_state) for head in ask.heads]
        if conflicts := verdicts.count(CONFLICTING):
            self._conflict(topic, ask.shard, ask.heads[verdicts.index(CONFLICTING)], conflicts)
        return verdicts

    def _look_up(self, topic: Topic, ask: OfferHeads) -> Steps[Found]:
        """Reads some checksums that are no longer in memory, of one block: each block costs a walk of a file.

        Each offer looks up another block. A segment of the other blocks counts as equal if its number is known.
        """
        if not ask.heads:
            return {}
        block = ask.heads[ask.heads[0].first_entry % len(ask.heads)].block
        known = topic.shards[ask.shard].log.marks.get(block)
        if known is None:
            return {}
        old = [
            (block, head.segment)
            for head in ask.heads
            if head.block == block and head.segment in known.admitted and head.segment not in known.recent
        ]
        if not old:
            return {}
        try:
            found: Found = yield topic.shards[ask.shard].lookup.find(old[:LOOKUPS_MAX])
        except StorageFailed:
            return {}
        return found

    def _conflict(self, topic: Topic, number: int, first: RecordHead, conflicts: int = 1) -> None:
        self._context.counters["peer_conflicts"] += conflicts
        where = f"topic {topic.shown}, shard {number}, block {first.block.hex()}, segment {first.segment}"
        logger.error("%s: a peer has different content under this number (%d in all)", where, conflicts)

    # --- records ------------------------------------------------------------------------------------

    def take(
        self, connection: int, uuid: bytes, number: int, segment: int, header: RecordHeader, record: bytes
    ) -> None:
        """Takes a record; the answer to the ``admit_records`` behind it has the fault, if there is one."""
        intake = self._intakes.get(connection, {}).get((uuid, number))
        if intake is None:
            raise ProtocolError("a record came for a topic whose feed is not open")
        if intake.fault is not None:
            return
        try:
            self._take(intake, uuid, number, segment, header, record)
        except HeadpondError as error:
            intake.fault = error

    def _take(
        self, intake: Intake, uuid: bytes, number: int, segment: int, header: RecordHeader, record: bytes
    ) -> None:
        topic, shard = self._shard(uuid, number)
        full = self._watermark.refusal(len(record)) or self._quotas.refusal(topic, len(record))
        if full is None and header.block not in shard.log.marks:
            full = self._quotas.refuse_block(topic)
        if full is not None:
            raise full
        head = RecordHead(0, header.count, header.block, segment, header.origin_crc, len(record))
        verdict = _judge(shard, head, {}, state=topic.is_state)
        if verdict == CONFLICTING:  # another link brought a different one meanwhile
            intake.count("conflicts")
            self._conflict(topic, number, head)
            return
        if verdict == KNOWN:
            intake.count("duplicates")
            shard.lane.wait(intake.written)
            return
        body = record[RECORD_HEADER_BYTES:]
        try:
            _check_rows(topic, header, body)
        except BadSegment as error:
            where = f"topic {topic.shown}, shard {number}, block {header.block.hex()}, segment {segment}"
            logger.error("%s: a peer sent an unreadable record, which is not stored: %s", where, error.message)
            intake.count("unreadable")
            self._context.counters["peer_records_unreadable"] += 1
            return
        first = shard.log.entry_next
        self._append(topic, shard, intake, head, body)
        self._stored(topic, number, first, header)

    def _append(self, topic: Topic, shard: Shard, intake: Intake, head: RecordHead, body: bytes) -> None:
        now_us, book = self._context.now_us(), shard.log.marks.book
        named = intake.blocks.get(head.block, BlockName())
        run = self._catalog.run if head.segment == 0 else 1
        book.tally(head.block, named.producer, run, now_us, sparse=named.sparse)
        expected = shard.admission.next(head.block)
        if head.segment > expected and not named.sparse:
            intake.count("holes", shard.admission.declare(head.block, head.segment))
            book.declare(head.block, head.segment)
        late = head.segment < expected and not named.sparse
        shard.store(head.block, head.segment, head.count, head.origin_crc, now_us, body, topic.schemas)
        shard.lane.wait(intake.written)
        intake.count("late", late)
        intake.count("records")
        intake.count("messages", head.count)
        intake.count("bytes", len(body))
        counters = self._context.counters
        counters["segments_late"] += late
        counters["segments_refused"] += not head.count
        counters["peer_records_in"] += 1
        counters["peer_bytes_in"] += len(body)

    def admit_records(self, session: Session, ask: AdmitRecords) -> Steps[Admitted]:
        """Answers when all records that came for a shard are durable, and notes their position."""
        topic, shard = self._shard(ask.topic, ask.shard)
        intake = self._intake(session.connection, topic, ask.shard)
        if not ask.node or (ask.place.last is not None and ask.place.last.refusal):
            raise BadRequest("a position needs the node's name, and a last record that was not refused")
        self._intakes[session.connection][topic.uuid, ask.shard] = Intake(intake.blocks, begun=True)
        log, own_end = shard.log, shard.log.entry_next
        yield on_disk(shard.lane)
        if intake.fault is not None:  # also if a write failed before this request came
            raise intake.fault
        place = (topic.uuid, ask.node, ask.shard, ask.place, log.incarnation_at(own_end), own_end)
        self._progress.note(PlaceNoted(*place, self._context.now_us()))
        return msgspec.convert(intake.outcome, Admitted)

    def _shard(self, uuid: bytes, number: int) -> tuple[Topic, Shard]:
        topic = self._catalog.find(uuid)
        if number >= len(topic.shards):
            raise TopicMismatch(f"topic {topic.shown} has no shard {number}")
        return topic, topic.shards[number]

    def _intake(self, connection: int, topic: Topic, number: int) -> Intake:
        intake = self._intakes.get(connection, {}).get((topic.uuid, number))
        if intake is None:
            raise BadRequest(f"this connection has not opened a feed of topic {topic.shown}")
        return intake


def _judge(shard: Shard, head: RecordHead, found: Found, *, state: bool) -> int:
    """Compares a segment with the marks, or with ``found`` in the files.

    A segment that one node refused and the other stored is a conflict too, except in a state topic: compaction
    may have emptied it on one of them.
    """
    known = shard.log.marks.get(head.block)
    if known is None or head.segment not in known.admitted:
        return WANTED
    stored = known.recent.get(head.segment) or found.get((head.block, head.segment))
    if stored is None:
        return KNOWN
    crc, _, count = stored
    if crc != head.origin_crc or (not state and (count > 0) != (head.count > 0)):
        return CONFLICTING
    return KNOWN


def _check_rows(topic: Topic, header: RecordHeader, body: bytes) -> None:
    """Refuses a record that readers could not read."""
    if not header.count:  # a refused segment: the body is the reason
        if len(body) > REFUSAL_BYTES_MAX:
            raise BadSegment(f"the reason of a refused segment has {len(body):,} bytes")
        if is_packed(body) or is_stub(body):  # recovery would take other segments from it
            raise BadSegment("the reason of a refused segment is a record")
        return
    if topic.schemas is None:
        rows = decode_plain(body).num_rows
    elif (version := version_of(body)) > topic.schemas.version:
        raise SchemaMismatch(f"a record of topic {topic.shown} has schema version {version}, unknown here")
    else:
        rows = check_messages(body, topic.schemas, state=topic.is_state)
    if rows != header.count:
        raise BadSegment(f"a record has {rows} rows, and its header says {header.count}")


def _same_schemas(topic: Topic, encoded: list[bytes]) -> bool:
    """Whether the versions that both nodes have are equal: records name theirs by number."""
    assert topic.schemas is not None
    pairs = zip(topic.schemas.encoded, encoded, strict=False)
    return all(mine == theirs or decode_schema(mine).equals(decode_schema(theirs)) for mine, theirs in pairs)
