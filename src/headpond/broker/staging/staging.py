"""Staged writes: a client fills and finishes stages, then commits them as one batch, all or none.

1. The node checks a chunk when it comes, like a segment of a producer. The first fault of a stage is the answer
   to its finish. Opening the stage again clears a fault that can pass, such as a full disk.
2. One record in the journal of writers commits a batch. Before it, no topic has anything of the batch, and the
   node may refuse it; after it, the node publishes the batch, whatever happens.
3. A batch at or below the writer's newest one is compared with the batch of its number, once the newest one is
   published. With the same rows it is a duplicate, and its stages are dropped; with other rows, or if it cannot
   be compared, it is refused, and its stages stay.
4. The holder of a writer is the query that committed the newest batch. Another query may follow only if it
   repeats the newest batch, which shows that it does the same work, and not within ``staging.lease_s`` of a
   commit.
5. An abort, an expiry or another batch cannot touch the stages of a recorded batch.
"""

from __future__ import annotations

import logging
from functools import partial

from headpond.broker.access.guard import Guard
from headpond.broker.access.quotas import Quotas
from headpond.broker.access.rights import reaches_stage
from headpond.broker.catalog.topic_requests import TopicRequests
from headpond.broker.catalog.topics import Topic
from headpond.broker.context import Context
from headpond.broker.ingest.watermark import Watermark
from headpond.broker.session import Session, hold_unacked
from headpond.broker.staging.compare import Comparison
from headpond.broker.staging.publish import Publisher
from headpond.broker.staging.requests import WriterRequests
from headpond.broker.staging.stage_file import remove_files
from headpond.broker.staging.stages import StageState
from headpond.broker.staging.writers import (
    REMEMBERED,
    BatchRecorded,
    WriterState,
    WriterTaken,
    hash_of_stages,
    number_segments,
    tenant_of,
)
from headpond.broker.steps import Steps, in_worker, on_disk, run
from headpond.broker.stores import Stores
from headpond.model.errors import (
    BadRequest,
    BatchDiffers,
    BatchOutOfTurn,
    Conflict,
    Gap,
    HeadpondError,
    KeyMissing,
    LimitReached,
    StageMismatch,
    StageNotFound,
    StagingFull,
    StorageFailed,
    TopicMismatch,
    TopicNotFound,
    WriterHeld,
)
from headpond.storage.log.latest_rows import keyless_rows
from headpond.wire.control.staging import (
    ON_REPEAT,
    AbortStages,
    BatchInfo,
    CommitBatch,
    FinishStage,
    OpenStage,
    StageInfo,
    StageOpened,
    decode_chunk,
)
from headpond.wire.frame import Frame
from headpond.wire.plain.segment import check_state_rows
from headpond.wire.typed.record import check_messages

logger = logging.getLogger("headpond.node")

TICK_US = 10_000_000
FRAME_COST_BYTES = 512
WRITE_BYTES = 4 * 1024 * 1024
"""Chunks that no client waits for are written together, this many bytes at a time."""


class Staging:
    def __init__(
        self,
        context: Context,
        stores: Stores,
        guard: Guard,
        quotas: Quotas,
        watermark: Watermark,
        topics: TopicRequests,
        writer_requests: WriterRequests,
    ) -> None:
        self._context = context
        self._counters = context.counters
        self._catalog = stores.catalog
        self._stages = stores.stages
        self._writers = stores.writers
        self._writers_journal = stores.writers_journal
        self._guard = guard
        self._quotas = quotas
        self._watermark = watermark
        self._topics = topics
        self._limits = context.settings.staging
        self._alarm = context.alarms.add(self._on_time, while_stopping=False)
        if self._stages.writers():
            self._alarm.by(context.clock_us())
        limits = context.settings.limits
        self._write_bytes = min(WRITE_BYTES, limits.window_bytes // 2, limits.staged_bytes // 4)
        """Below the limit at which the node stops reading from a connection, which then could not hurry it."""
        self._unwritten_bytes = 0
        self._writer_requests = writer_requests
        self._publisher = Publisher(context, stores)
        self._remove_files()

    # --- a stage ------------------------------------------------------------------------------------

    def open_stage(self, session: Session, ask: OpenStage) -> Steps[StageOpened]:
        self._guard.check_stages(session, [ask.stage])
        _check_writer(ask.writer)
        topic = yield from self._topics.open(session, ask.topic, create=ask.create_topic)
        return self._opened(ask, topic)

    def _opened(self, ask: OpenStage, topic: Topic) -> StageOpened:
        stage = self._stages.get(ask.stage)
        if stage is None:
            limit = self._limits.writer_stages_max
            if self._stages.count_of(ask.writer) >= limit:
                raise StagingFull(f"writer {ask.writer!r} has {limit:,} stages in no batch (writer_stages_max)")
            if len(self._stages) >= self._limits.stages_max:
                raise StagingFull(f"there are {self._limits.stages_max:,} stages in no batch (stages_max)")
            if (crowded := self._quotas.refuse_stage(topic)) is not None:
                raise crowded
            stage = self._stages.begin(ask.stage, ask.writer, topic.uuid, self._context.now_us())
            self._counters["stages_opened"] += 1
            self._alarm.by(self._context.clock_us() + TICK_US)
        elif stage.writer != ask.writer or stage.topic != topic.uuid:
            raise StageMismatch(f"stage {ask.stage.hex()} belongs to another writer or another topic")
        if stage.fault is not None:
            if not stage.fault.retryable:
                raise stage.fault.again()
            stage.fault = None
        stage.touched_us = self._context.now_us()
        return StageOpened(len(stage.chunks), stage.finished, topic.uuid)

    def on_chunk(self, session: Session, frame: Frame) -> None:
        """Takes the next chunk of a stage; the answer to its finish has the fault, if there is one."""
        uuid, segment = decode_chunk(frame.body)
        stage = self._stages.get(uuid)
        if (
            stage is None
            or stage.fault is not None
            or not reaches_stage(session.grant, stage.writer, self._catalog.name_of(stage.topic))
        ):
            self._counters["stage_chunks_ignored"] += 1
            return
        number = frame.segment
        try:
            if number < len(stage.chunks):
                if stage.chunks[number].origin_crc != frame.crc:
                    raise Conflict(f"chunk {number} of stage {uuid.hex()} came before with different content")
                return
            if number > len(stage.chunks):
                raise Gap(f"chunk {number} of stage {uuid.hex()} came, {len(stage.chunks)} is expected")
            rows = self._check(session, stage, frame.shard, segment)
        except HeadpondError as error:
            self._counters[f"stage_chunks_refused_{error.code}"] += 1
            stage.fault = error
            return
        if (topic := self._catalog.by_uuid(stage.topic)) is not None:
            self._quotas.charge(session, topic, messages=rows)
        self._stages.append(stage, frame.shard, rows, frame.crc, segment, self._context.now_us())
        self._counters["stage_chunks"] += 1
        size = len(segment) + FRAME_COST_BYTES
        self._unwritten_bytes += size
        hurry = self._unwritten_bytes >= self._write_bytes
        if hurry:
            self._unwritten_bytes = 0
        hold_unacked(self._context, session, size, self._stages.lane, hurry=hurry)

    def _check(self, session: Session, stage: StageState, shard: int, segment: bytes) -> int:
        """The number of rows of a chunk; raises why it cannot be taken."""
        if stage.finished:
            raise StageMismatch(f"stage {stage.uuid.hex()} is finished and takes no more chunks")
        topic = self._catalog.by_uuid(stage.topic)
        if topic is None:
            raise TopicNotFound("the stage's topic was deleted")
        if shard >= len(topic.shards):
            raise TopicMismatch(f"topic {topic.shown} has no shard {shard}")
        if stage.bytes + len(segment) > self._limits.stage_bytes_max:
            raise BadRequest(f"a stage holds at most {self._limits.stage_bytes_max:,} bytes (stage_bytes_max)")
        if self._stages.bytes + len(segment) > self._limits.bytes_max:
            raise StagingFull(f"all stages together hold at most {self._limits.bytes_max:,} bytes (bytes_max)")
        quotas = self._quotas
        quotas.charge(session, topic, size=len(segment))
        full = (
            self._watermark.refusal(len(segment))
            or quotas.refusal(topic, len(segment))
            or quotas.refuse_staged(topic, len(segment))
        )
        if full is not None:
            raise full
        if topic.schemas is not None:
            if topic.is_state and (keyless := keyless_rows(segment, 0, topic.schemas)):
                raise KeyMissing(f"row {keyless.first} has no key, and the topic is a state topic")
            return check_messages(segment, topic.schemas, state=topic.is_state)
        bytes_max = topic.settings.message_bytes_max
        return check_state_rows(segment, state=topic.is_state, message_bytes_max=bytes_max)

    def finish_stage(self, session: Session, ask: FinishStage) -> Steps[StageInfo]:
        self._guard.check_stages(session, [ask.stage])
        stage = self._stages.get(ask.stage)
        if stage is None:
            raise StageNotFound(f"there is no stage {ask.stage.hex()}")
        if stage.fault is not None:
            raise stage.fault.again()
        # More chunks may have come by now unless this is the end: the client does not stop for the answer.
        if len(stage.chunks) < ask.chunks or (ask.last and len(stage.chunks) > ask.chunks):
            kind: type[HeadpondError] = (
                StageMismatch if stage.finished or ask.chunks < len(stage.chunks) else Gap
            )
            raise kind(f"stage {ask.stage.hex()} has {len(stage.chunks)} chunks, not {ask.chunks}")
        if ask.last and not stage.finished:
            self._stages.finish(stage, self._context.now_us())

        if not (stage.finish_durable or (not ask.last and stage.durable >= ask.chunks)):
            yield on_disk(self._stages.lane)
            if self._stages.get(ask.stage) is not stage:
                raise StageNotFound(f"stage {ask.stage.hex()} was dropped")
        return self._writer_requests.stage_info(stage)

    def abort_stages(self, session: Session, ask: AbortStages) -> int:
        _check_writer(ask.writer)
        visible = [uuid for uuid in ask.stages if self._guard.sees_stage(session, uuid)]
        return self._drop(ask.writer, visible, "aborted")

    def _drop(self, writer: str, uuids: list[bytes], why: str) -> int:
        """Drops those of the writer's stages that no recorded batch has."""
        known = [(uuid, self._stages.get(uuid)) for uuid in uuids]
        mine = [uuid for uuid, stage in known if stage and stage.writer == writer and not stage.claimed]
        dropped = self._stages.drop(mine)
        self._counters[f"stages_{why}"] += dropped
        self._remove_files()
        return dropped

    def _remove_files(self) -> None:
        if numbers := self._stages.take_unneeded():
            run(self._remove(numbers), lambda done: None, lambda error: None)

    def _remove(self, numbers: list[int]) -> Steps[None]:
        if (yield in_worker(self._context, "unneeded stage files", partial(remove_files, numbers))):
            self._stages.removed(numbers)
            self._remove_files()  # files that noted the end of their stages may go too

    # --- a batch ------------------------------------------------------------------------------------

    def commit_batch(self, session: Session, ask: CommitBatch) -> Steps[BatchInfo]:
        self._guard.check_stages(session, ask.stages)
        _check_writer(ask.writer)
        if not ask.holder.isprintable():
            raise BadRequest(f"a holder's name is printable, not {ask.holder!r:.80}")
        if ask.on_repeat not in ON_REPEAT:
            raise BadRequest(
                f"on_repeat is {ask.on_repeat!r:.80}", hint=f"It is one of {', '.join(ON_REPEAT)}."
            )
        while True:
            yield from self._writer_requests.idle(ask.writer)  # one batch of a writer at a time
            writer = self._writers.get(ask.writer)
            if writer is None or ask.batch > writer.batch:
                break
            yield from self._compare(ask, writer)
            if self._writers.get(ask.writer) is writer:
                return (yield from self._duplicate(ask, writer))
        if writer is not None and writer.holder not in ("", ask.holder):
            self._check_lease(ask, writer)
            raise BatchOutOfTurn(
                f"batch {ask.batch} of writer {writer.name!r} comes from {_shown(ask.holder)}, which did not "
                f"repeat batch {writer.batch}, the newest, of {_shown(writer.holder)}; nothing was committed"
            )
        return (yield from self._record(ask, writer))

    def _compare(self, ask: CommitBatch, writer: WriterState) -> Steps[None]:
        """Raises unless a batch at or below the newest one has the rows that were committed."""
        known = writer.remembered(ask.batch)
        call = (ask.batch, hash_of_stages(ask.stages))
        made_again = writer.repeated == call or (known is not None and (known.batch, known.stages) == call)
        if made_again or ask.on_repeat == "drop":  # the answer to the same call was lost
            return
        what = f"batch {ask.batch} of writer {ask.writer!r}"
        if ask.holder != writer.holder:
            what += f", from {_shown(ask.holder)} where batch {writer.batch} was from {_shown(writer.holder)},"
        if known is None:
            raise BatchOutOfTurn(
                f"{what} is below batch {writer.batch}, the newest, and not among the last {REMEMBERED} that "
                "were committed, so it cannot be compared; nothing was committed"
            )
        stages = [self._wanted(ask.writer, uuid) for uuid in ask.stages]
        rows = sum(stage.rows for stage in stages)
        if rows != known.rows:
            raise BatchDiffers(
                f"{what} is a repeat with {rows:,} rows and was committed with {known.rows:,}; "
                "nothing was committed"
            )
        comparison = Comparison(known, stages, self._catalog)
        try:
            while (yield in_worker(self._context, "a repeated batch", comparison.read)):
                pass
        except HeadpondError as error:
            raise StorageFailed(f"{what} could not be compared: {error.message}") from error
        comparison.check(what)

    def _duplicate(self, ask: CommitBatch, writer: WriterState) -> Steps[BatchInfo]:
        takes_over = ask.batch == writer.batch and ask.holder != writer.holder
        if takes_over and writer.holder:
            self._check_lease(ask, writer)
        self._counters["batches_duplicate"] += 1
        writer.repeated = (ask.batch, hash_of_stages(ask.stages))
        self._drop(ask.writer, ask.stages, "duplicate")
        info = BatchInfo(ask.writer, ask.batch, "duplicate", writer.batch, 0)
        if takes_over:
            self._writers_journal.note(WriterTaken(writer.name, writer.uuid, writer.batch, ask.holder))
            yield on_disk(self._writers_journal.lane)
        return info

    def _check_lease(self, ask: CommitBatch, writer: WriterState) -> None:
        since_s = abs(self._context.now_us() - writer.at_us) / 1e6
        if since_s < self._limits.lease_s:
            raise WriterHeld(
                f"writer {writer.name!r} is in use by {_shown(writer.holder)}, which committed batch "
                f"{writer.batch} {since_s:.0f} s ago; {_shown(ask.holder)} may follow after "
                f"{self._limits.lease_s:g} s without a commit"
            )

    def _record(self, ask: CommitBatch, known: WriterState | None) -> Steps[BatchInfo]:
        """Checks everything, commits it with one record, and publishes it."""
        if known is None and len(self._writers) >= self._limits.writers_max:
            raise LimitReached(
                f"this node knows at most {self._limits.writers_max:,} writers (staging.writers_max)"
            )
        if known is None and (tenant := tenant_of(ask.writer)):
            self._quotas.create(None, tenant, "writers", self._writers.of_tenant(tenant))
        stages = [self._wanted(ask.writer, uuid) for uuid in ask.stages]
        if len(set(ask.stages)) != len(ask.stages):
            raise StageMismatch("the batch names a stage twice; nothing was committed")
        size = sum(stage.bytes for stage in stages)
        if (full := self._watermark.refusal(size)) is not None:
            raise full
        uuid = known.uuid if known is not None else self._context.new_uuid()
        parts = number_segments(uuid, known.next if known is not None else {}, stages)
        rows = sum(stage.rows for stage in stages)
        now_us = self._context.now_us()
        record = BatchRecorded(ask.writer, uuid, ask.batch, now_us, parts, rows, size, ask.holder)
        self._stages.claim(ask.stages)
        self._writers_journal.note(record)
        writer = self._writers.get(ask.writer)
        assert writer is not None
        yield on_disk(self._writers_journal.lane)  # the journal repeats a write that failed
        assert writer.pending is record
        yield from self._publisher.publish(writer)
        self._counters["batches_committed"] += 1
        self._remove_files()
        return BatchInfo(ask.writer, ask.batch, "committed", ask.batch, rows)

    def _wanted(self, writer: str, uuid: bytes) -> StageState:
        """A stage; raises why a batch cannot contain it."""
        stage = self._stages.get(uuid)
        if stage is None or stage.claimed:
            raise StageNotFound(f"there is no stage {uuid.hex()} of writer {writer!r}; nothing was committed")
        if stage.writer != writer:
            raise StageMismatch(f"stage {uuid.hex()} belongs to writer {stage.writer!r}; nothing was committed")
        if not stage.finish_durable:
            raise StageMismatch(f"stage {uuid.hex()} is not finished; nothing was committed")
        if self._catalog.by_uuid(stage.topic) is None:
            raise TopicNotFound(f"the topic of stage {uuid.hex()} was deleted; nothing was committed")
        return stage

    # --- time ---------------------------------------------------------------------------------------

    def _on_time(self) -> None:
        self._expire()
        if self._stages.writers():
            self._alarm.by(self._context.clock_us() + TICK_US)

    def _expire(self) -> None:
        before_us = self._context.now_us() - round(self._limits.expire_s * 1e6)
        for stage in self._stages.all():
            if stage.touched_us <= before_us and not stage.claimed:
                logger.warning(
                    "stage %s of writer %r expired: %d messages for %s were never committed",
                    stage.uuid.hex(),
                    stage.writer,
                    stage.rows,
                    self._catalog.name_of(stage.topic) or "a deleted topic",
                )
                self._counters["messages_expired_staged"] += stage.rows
                self._drop(stage.writer, [stage.uuid], "expired")


def _shown(holder: str) -> str:
    return holder or "a client without a name"


def _check_writer(name: str) -> None:
    if not name or not name.isprintable():
        raise BadRequest(f"a writer's name is printable and not empty, not {name!r:.80}")
