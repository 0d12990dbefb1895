"""Segments in, acknowledgements out.

A segment is judged by its number, validated and appended, all without IO; its answer waits in the shard's
lane until the append is synced. It handles a whole segment at a time, no single row. typed_blocks.py adds
what typed topics need.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import msgspec

from headpond.broker.access.quotas import Quotas
from headpond.broker.access.rights import check_title
from headpond.broker.catalog.topic_requests import TopicListener
from headpond.broker.catalog.topics import Catalog, Shard, Topic
from headpond.broker.context import Context
from headpond.broker.ingest.admission import Admit, Early, Refused, Repeat, predecessor_done
from headpond.broker.ingest.producers import fenced
from headpond.broker.ingest.typed_blocks import TypedBlocks, judge_schema
from headpond.broker.ingest.watermark import Watermark
from headpond.broker.session import BlockContext, Session
from headpond.broker.sessions import Sessions
from headpond.broker.steps import Steps, run
from headpond.model.errors import (
    BadRequest,
    BadSegment,
    Conflict,
    Fenced,
    Gap,
    HeadpondError,
    KeyMissing,
    LimitReached,
    NotAllowed,
    PredecessorMissing,
    ProtocolError,
    SchemaMismatch,
    SegmentTooLarge,
    TopicMismatch,
    TopicNotFound,
    ValueMissing,
)
from headpond.model.grant import ALL
from headpond.storage.log.book import Book
from headpond.storage.log.marks import Stored
from headpond.wire.control.producing import Ack, AckItem, BlockEnd, Hole
from headpond.wire.frame import Frame
from headpond.wire.plain.segment import check_state_rows
from headpond.wire.title import Predecessor, Title, decode_title

BLOCKS_MAX = 1024
"""Blocks that one connection may speak of; the oldest context is let go and must be titled again."""
HOLES_MAX = 10_000
"""Of one block in one shard: each takes room in the marks, which every log file begins with."""
ANSWERS_MAX = 1024
"""Answers in one ACK frame, which keeps it far below the limit of a control frame."""
MESSAGE_LENGTH_MAX = 300
NAME_LENGTH_MAX = 600
FRAME_COST_BYTES = 512
"""The memory that a segment takes beside its bytes, until it is answered."""

FINAL = (BadSegment, SchemaMismatch, SegmentTooLarge, KeyMissing, ValueMissing)
"""Faults of the segment itself: the same bytes can never be taken."""


class Ingester(TopicListener):
    def __init__(
        self, context: Context, sessions: Sessions, catalog: Catalog, watermark: Watermark, quotas: Quotas
    ) -> None:
        limits = context.settings.limits
        self._context = context
        self._sessions = sessions
        self._catalog = catalog
        self._counters = context.counters
        self._typed = TypedBlocks(
            context.counters,
            connection_bytes_max=limits.connection_decoder_bytes,
            bytes_max=limits.decoder_bytes,
        )
        self._now_us = context.now_us
        self._watermark = watermark
        self._quotas = quotas
        self.answers: dict[tuple[int, bytes, int, str], list[AckItem]] = {}
        self._arrivals_us: list[int] = []
        """When the segments came that ``answers`` acknowledge as stored."""

    # --- context ------------------------------------------------------------------------------------

    def on_title(self, session: Session, frame: Frame) -> None:
        """Switches the connection to a block, new or known."""
        block, shard_power, title = decode_title(frame.body)
        known = session.blocks.get(block)
        if known is not None and known.title_crc == frame.crc and known.refusal is None:
            session.current = known
            return
        topic, refusal = self._judge_title(session, block, shard_power, title)
        context = BlockContext(block, frame.crc, title.topic[:NAME_LENGTH_MAX], topic)
        context.producer, context.epoch, context.late = title.producer, title.epoch, title.late
        context.refusal = refusal
        if topic is not None and context.refusal is None:
            context.schema, context.refusal = judge_schema(topic, title.schema)
        if known is None or known.schema is None or not known.schema.equals(context.schema):
            self._typed.decoders.drop_block(session.connection, block)
        if topic is not None and title.predecessor is not None:
            shards = title.predecessor.segments_next.items()
            wanted = {shard: segment for shard, segment in shards if shard < len(topic.shards)}
            context.predecessor = Predecessor(title.predecessor.block, wanted)
        if len(session.blocks) >= BLOCKS_MAX and block not in session.blocks:
            oldest = next(iter(session.blocks))
            del session.blocks[oldest]
            self._typed.decoders.drop_block(session.connection, oldest)
        session.blocks[block] = context
        session.current = context

    def _judge_title(
        self, session: Session, block: bytes, shard_power: int, title: Title
    ) -> tuple[Topic | None, HeadpondError | None]:
        """The topic, if the session may send to it, and why the block cannot be taken, if it cannot.

        A topic that the session may not send to is as if it did not exist.
        """
        topic, grant = self._catalog.by_uuid(title.topic_uuid), session.grant
        if grant is not ALL:
            try:
                check_title(grant, title.topic, title.producer)
                if topic is not None and not grant.reaches(topic.place):
                    topic = None
                if topic is not None and grant.producer and _is_anothers(topic, block, title):
                    raise NotAllowed(f"the block is not one of producer {title.producer!r}")
            except HeadpondError as error:
                self._counters["operations_not_allowed"] += 1
                return None, error
        if topic is None:
            return None, self._unknown_topic(title.topic)
        if topic.created.shard_power != shard_power:
            shards = f"{2**topic.created.shard_power} shards, the producer cut {2**shard_power}"
            return topic, TopicMismatch(f"topic {topic.shown} has {shards}")
        return topic, topic.producers.judge(title, topic.shown)

    def _unknown_topic(self, name: str) -> HeadpondError:
        if self._catalog.by_name(name) is not None:
            return TopicMismatch(f"topic {name[:NAME_LENGTH_MAX]} was deleted and created again")
        return TopicNotFound(f"there is no topic {name[:NAME_LENGTH_MAX]!r}")

    # --- segments -----------------------------------------------------------------------------------

    def on_segment(self, session: Session, frame: Frame) -> None:
        context = session.current
        if context is None:
            raise ProtocolError("a segment came before any title")
        refusal = context.refusal
        topic = context.topic
        if refusal is None and topic is not None and frame.shard >= len(topic.shards):
            refusal = TopicMismatch(f"topic {topic.shown} has no shard {frame.shard}")
        # Rows of the wrong schema use up their numbers, like any segment refused for good.
        lasting = refusal is not None and not isinstance(refusal, SchemaMismatch)
        if lasting or topic is None or not topic.shards:
            refusal = refusal or self._unknown_topic(context.topic_name)
            self._reject(session, context, frame, refusal)
            return
        if topic.has_rates:
            self._quotas.charge(session, topic, size=len(frame.body))
        if topic.tenant not in session.tenants and (crowded := self._quotas.enter(session, topic)) is not None:
            self._reject(session, context, frame, crowded)
            return
        shard = topic.shards[frame.shard]
        if context.block not in shard.log.marks.book.tallies:
            self._tally(context, shard, context.block, first=frame.segment == 0)
        if context.predecessor is not None and not self._predecessor_done(context, context.predecessor):
            missing = PredecessorMissing("the producer's earlier block is not complete")
            self._reject(session, context, frame, missing)
            return
        verdict = shard.admission.decide(context.block, frame.segment)
        if isinstance(verdict, Admit):
            self._admit(session, context, shard, frame, verdict)
        elif isinstance(verdict, Early):
            # Behind one that a full disk refused the reason is the disk: to go back at once would not help.
            full = self._watermark.refusal(0) if self._watermark.full else None
            gap = Gap(f"segment {frame.segment} came, {verdict.expected} is expected")
            self._reject(session, context, frame, full or gap, expected=verdict.expected)
        else:
            self._learn(session, context, frame)
            if verdict.recent is not None:
                self._answer_again(session, context, shard, frame, verdict.recent)
            else:
                compare = self._compare(session, context, shard, frame)
                run(compare, lambda done: None, partial(self._reject, session, context, frame))

    def _compare(self, session: Session, context: BlockContext, shard: Shard, frame: Frame) -> Steps[None]:
        """Answers an old segment that came again: only the files have its first copy."""
        size = len(frame.body) + FRAME_COST_BYTES
        session.unacked_bytes += size
        self._context.unacked_bytes += size
        key = (context.block, frame.segment)
        try:
            found = yield shard.lookup.find([key])
        finally:
            session.unacked_bytes -= size
            self._context.unacked_bytes -= size
        self._answer_again(session, context, shard, frame, found[key])

    def _answer_again(
        self, session: Session, context: BlockContext, shard: Shard, frame: Frame, stored: Stored | None
    ) -> None:
        """Answers a segment that was admitted before."""
        verdict = shard.admission.compare(context.block, stored, frame.crc)
        if isinstance(verdict, Repeat):
            self._repeat(session, context, shard, frame, verdict.first_entry)
        elif isinstance(verdict, Refused):
            again = context.refusal or BadSegment("this segment was refused before, and its number is used")
            self._answer_when_durable(session, context, shard, frame, _rejected(frame.segment, again))
        else:
            conflict = Conflict(f"segment {frame.segment} of shard {frame.shard} was stored with other content")
            self._reject(session, context, frame, conflict)

    def _predecessor_done(self, context: BlockContext, predecessor: Predecessor) -> bool:
        assert context.topic is not None
        shards = context.topic.shards
        if predecessor_done([shard.admission for shard in shards], predecessor):
            context.predecessor = None
            return True
        for number, segment in predecessor.segments_next.items():
            if segment > 0:
                book = self._tally(context, shards[number], predecessor.block)
                book.announce(predecessor.block, segment)
        return False

    def _tally(self, context: BlockContext, shard: Shard, block: bytes, *, first: bool = False) -> Book:
        """The ledger's page of a block that this producer sends or names; ``first``: it begins with this."""
        book = shard.log.marks.book
        # Of a block that is met in its middle, an earlier run may have known more and been cut short.
        book.tally(block, context.producer, self._catalog.run if first else 1, self._now_us())
        return book

    def _stage_tallies(self, shard: Shard) -> None:
        """Stages the ledger's counts; while the disk is full they wait for the next record."""
        if not self._watermark.full:
            shard.log.stage_tallies(self._now_us())
            shard.lane.mark()

    def _admit(
        self, session: Session, context: BlockContext, shard: Shard, frame: Frame, verdict: Admit
    ) -> None:
        topic, size = context.topic, len(frame.body)
        assert topic is not None
        full: HeadpondError | None = self._watermark.refusal(size)
        if full is None and topic.settings.tenant_stored_bytes is not None:
            full = self._quotas.refusal(topic, size)
        if full is None and verdict.new:
            full = self._quotas.refuse_block(topic)
        if full is not None:
            self._reject(session, context, frame, full)
            return
        refusal: HeadpondError | None = None
        try:
            body, count = self._record(session, context, topic, frame)
        except FINAL as error:  # recorded, so that what follows in the block is not stuck behind it
            refusal, count = error, 0
            body = msgspec.msgpack.encode([error.code, error.message[:MESSAGE_LENGTH_MAX]])
        except HeadpondError as error:  # the same segment can be taken later, with a snapshot before it
            self._reject(session, context, frame, error)
            return
        if topic.has_rates:
            self._quotas.charge(session, topic, messages=count)
        first_entry = shard.store(
            context.block, frame.segment, count, frame.crc, self._now_us(), body, topic.schemas
        )
        if verdict.late:
            self._counters["segments_late"] += 1
        if refusal is None:
            answer = AckItem(frame.segment, "stored", first_entry)
        else:
            answer = _rejected(frame.segment, refusal)
            self._counters["segments_refused"] += 1
        self._answer_when_durable(session, context, shard, frame, answer, stored_bytes=len(body))

    def _record(self, session: Session, context: BlockContext, topic: Topic, frame: Frame) -> tuple[bytes, int]:
        """The bytes to store of a segment, and how many rows it has."""
        if context.refusal is not None:
            raise context.refusal
        settings = topic.settings
        if topic.schemas is None:
            bytes_max = settings.message_bytes_max
            return frame.body, check_state_rows(frame.body, state=settings.state, message_bytes_max=bytes_max)
        return self._typed.take(session, context, frame, topic.schemas, state=settings.state)

    def _learn(self, session: Session, context: BlockContext, frame: Frame) -> None:
        if context.schema is not None:
            self._typed.learn(session, context, frame)

    def _repeat(
        self, session: Session, context: BlockContext, shard: Shard, frame: Frame, first_entry: int | None
    ) -> None:
        self._counters["segments_duplicate"] += 1
        self._tally(context, shard, context.block).repeated(context.block)
        self._stage_tallies(shard)
        answer = AckItem(frame.segment, "duplicate", first_entry)
        if first_entry is not None and first_entry < shard.log.entry_durable:
            self._answer(session, context, frame.shard, answer)
        else:  # the first copy may be on its way to the disk: both are answered when it is there
            under_way = first_entry is not None and first_entry < shard.log.entry_taken
            self._answer_when_durable(session, context, shard, frame, answer, staged=not under_way)

    def _answer_when_durable(
        self,
        session: Session,
        context: BlockContext,
        shard: Shard,
        frame: Frame,
        answer: AckItem,
        *,
        staged: bool = True,
        stored_bytes: int = 0,
    ) -> None:
        size = max(len(frame.body), stored_bytes) + FRAME_COST_BYTES
        assert context.topic is not None
        durability, arrived_us = context.topic.settings.durability, session.heard_us
        session.unacked_bytes += size
        self._context.unacked_bytes += size

        def durable(error: HeadpondError | None) -> None:
            session.unacked_bytes -= size
            self._context.unacked_bytes -= size
            if error is not None:
                self._counters["segments_failed"] += 1
                self._answer(session, context, frame.shard, _rejected(frame.segment, error))
            else:  # a setting that changed meanwhile may hold for these bytes or not: the weaker one is named
                topic = context.topic
                named = durability if durability == "os" or topic is None else topic.settings.durability
                self._arrivals_us.append(arrived_us)
                self._answer(session, context, frame.shard, answer, named)

        shard.lane.wait(durable, staged=staged)

    def _reject(
        self,
        session: Session,
        context: BlockContext,
        frame: Frame,
        error: HeadpondError,
        *,
        expected: int | None = None,
    ) -> None:
        self._counters[f"segments_rejected_{error.code}"] += 1
        shards = context.topic.shards if context.topic is not None else []
        if frame.shard < len(shards) and not isinstance(error, BadRequest | TopicMismatch | TopicNotFound):
            book = self._tally(context, shards[frame.shard], context.block)
            book.rejected(context.block, frame.segment, error.code)
            self._stage_tallies(shards[frame.shard])
        self._answer(session, context, frame.shard, _rejected(frame.segment, error, expected))

    # --- answers ------------------------------------------------------------------------------------

    def _answer(
        self, session: Session, context: BlockContext, shard: int, item: AckItem, durability: str | None = None
    ) -> None:
        if durability is None:
            durability = context.topic.settings.durability if context.topic is not None else "sync"
        key = (session.connection, context.block, shard, durability)
        items = self.answers.setdefault(key, [])
        items.append(item)
        if len(items) >= ANSWERS_MAX:
            del self.answers[key]
            self._sessions.acknowledge(session.connection, [Ack(context.block, shard, durability, items)])

    def flush(self) -> None:
        """Sends the answers gathered since the last call, one frame a block and shard."""
        answers, self.answers = self.answers, {}
        if self._arrivals_us:
            now_us = self._context.clock_us()
            for arrived_us in self._arrivals_us:
                self._context.timings.publish.observe(now_us - arrived_us)
            self._arrivals_us.clear()
        acks: dict[int, list[Ack]] = {}
        for (connection, block, shard, durability), items in answers.items():
            acks.setdefault(connection, []).append(Ack(block, shard, durability, items))
        for connection, its_acks in acks.items():
            self._sessions.acknowledge(connection, its_acks)

    def on_snapshot(self, session: Session, frame: Frame) -> None:
        """Encoder state of a typed block: the decoder starts from it; everything before it is a declared hole.

        A snapshot has no answer: the segments behind it have.
        """
        context = session.current
        if context is None:
            raise ProtocolError("a snapshot came before any title")
        topic = context.topic
        if context.schema is None or topic is None or frame.shard >= len(topic.shards):
            self._counters["snapshots_ignored"] += 1
        elif self._typed.on_snapshot(session, context, frame):
            self._declare(context, topic.shards[frame.shard], frame.segment)

    # --- other parts' changes -----------------------------------------------------------------------

    def topic_deleted(self, topic: Topic, error: HeadpondError) -> None:
        for context in self._contexts(topic):
            context.refusal = error

    def fence(self, topic: Topic, producer: str, epoch: int | None) -> None:
        """A new epoch of a producer is on the disk: refuses what older ones send. None: it was removed."""
        known = topic.producers.get(producer)
        for context in self._contexts(topic):
            if context.producer != producer or context.late:
                continue
            if known is not None and context.epoch != epoch:
                context.refusal = fenced(known, topic.shown, context.epoch)
            elif known is None and context.epoch:
                context.refusal = Fenced(f"producer {producer!r} of {topic.shown} was removed")

    def open_blocks(self, topic: Topic) -> set[bytes]:
        """The blocks of a topic that connections have open."""
        return {context.block for context in self._contexts(topic)}

    def _contexts(self, topic: Topic) -> Iterator[BlockContext]:
        contexts = (context for session in self._sessions for context in session.blocks.values())
        return (context for context in contexts if context.topic is topic)

    def on_disconnect(self, session: Session) -> None:
        self._typed.decoders.drop_connection(session.connection)

    # --- holes and ends -----------------------------------------------------------------------------

    def on_hole(self, session: Session, hole: Hole) -> None:
        context = session.blocks.get(hole.block)
        if context is not None and context.topic is None and context.refusal is not None:
            return  # its segments are turned away, each with the reason
        if context is None or context.topic is None or hole.shard >= len(context.topic.shards):
            raise ProtocolError("a hole in a block that no title named, or in a shard that is not there")
        self._declare(context, context.topic.shards[hole.shard], hole.segment)

    def _declare(self, context: BlockContext, shard: Shard, segment: int) -> None:
        known = shard.log.marks.get(context.block)
        if (
            known is not None
            and len(known.admitted) >= HOLES_MAX
            and segment > shard.admission.next(context.block)
        ):
            raise LimitReached(
                f"a block of {shard.lane.name} has {HOLES_MAX:,} holes, as many as are remembered",
                hint="Begin another block: open the producer again.",
            )
        left_out = shard.admission.declare(context.block, segment)
        self._counters["segments_in_holes"] += left_out
        if left_out:
            self._tally(context, shard, context.block).declare(context.block, segment)
            self._stage_tallies(shard)

    def on_block_end(self, session: Session, end: BlockEnd) -> None:
        context = session.blocks.get(end.block)
        if context is None or context.topic is None:
            return
        self._typed.decoders.drop_block(session.connection, end.block)
        for shard_number, segment_next in end.segments_next.items():
            if shard_number < len(context.topic.shards):
                shard = context.topic.shards[shard_number]
                if segment_next:
                    self._tally(context, shard, end.block).close(end.block, segment_next)
                    self._stage_tallies(shard)
                marks = shard.log.marks.get(end.block)
                if marks is not None and marks.ended_us is None:
                    shard.log.append_end(end.block, self._now_us())
                    shard.lane.mark()


def _rejected(segment: int, error: HeadpondError, expected: int | None = None) -> AckItem:
    return AckItem(segment, "rejected", None, error.code, error.message[:MESSAGE_LENGTH_MAX], expected)


def _is_anothers(topic: Topic, block: bytes, title: Title) -> bool:
    """Whether the block, or its predecessor, is known as another producer's.

    Otherwise a token that is bound to a producer could use up the segment numbers of another one.
    """
    blocks = [block] if title.predecessor is None else [block, title.predecessor.block]
    tallies = (shard.log.marks.book.tallies.get(each) for shard in topic.shards for each in blocks)
    return any(tally is not None and tally.run and tally.producer != title.producer for tally in tallies)
