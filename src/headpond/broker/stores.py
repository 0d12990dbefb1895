"""Everything durable of a node: its catalog, its logs and its journals, opened and committed.

Opening makes the files one consistent whole, even if some of them rotted or were restored from an older copy;
``recovered`` lists what it found. Its repairs are durable before it removes the seal of the last clean stop
(storage/seal.py). Each journal has a lane that commits it (storage/commit_lane.py). Closing in good order
leaves a new seal.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, cast

from headpond.broker.access.admin_log import AdminLog
from headpond.broker.access.tokens import Tokens
from headpond.broker.catalog.changes import TopicAltered, TopicCreated, TopicDeleted
from headpond.broker.catalog.topics import TOPICS_FOLDER, Catalog, Shard, Topic
from headpond.broker.context import Context
from headpond.broker.ingest.admission import Admission
from headpond.broker.ingest.lookup import SegmentLookup
from headpond.broker.ledger.runs import Runs
from headpond.broker.links.link_table import PeerLinks
from headpond.broker.staging.stages import Stages
from headpond.broker.staging.writers import Writers
from headpond.broker.steps import Errand, Wait
from headpond.broker.subscriptions.journal import Subscriptions, release, unjournaled_copies
from headpond.broker.subscriptions.records import Missed, Tallied
from headpond.broker.subscriptions.subscription import Subscription
from headpond.model.errors import BadFrame, BadTopicName, HeadpondError, SchemaMismatch
from headpond.model.names import TopicName
from headpond.model.stored_times import StoredTimes
from headpond.storage.append import Batch
from headpond.storage.commit_journal import remove_journal, replay
from headpond.storage.commit_lane import CommitLane, Committer, Write
from headpond.storage.commit_rounds import WRITE_AGAIN_US, CheckpointWrite, CommitRounds, RoundWrite
from headpond.storage.disk import Disk, open_salvaged
from headpond.storage.frame_file import read_frame
from headpond.storage.journal import JournalTable, TableState
from headpond.storage.log.batch import LogOptions
from headpond.storage.log.format import parse_name
from headpond.storage.log.read import StoredRecord
from headpond.storage.log.shard_log import OpenLogs, ShardLog
from headpond.storage.long_work import LongJob, LongWork
from headpond.storage.seal import SealedFile, read_seal, remove_seal, write_seal
from headpond.wire.frame import FrameType
from headpond.wire.title import Title, decode_title
from headpond.wire.typed.schema import decode_schema
from headpond.wire.typed.versions import SchemaVersions

Readable = tuple[Topic, int, list[StoredRecord]]
"""Records of a topic's shard that were just synced."""


class Stores:
    def __init__(self, disk: Disk, context: Context) -> None:
        settings, now_us, clock_us = context.settings, context.now_us, context.clock_us
        self.settings = settings
        self.recovered: list[str] = []
        """What opening found that is not as it should be, a line each."""
        self.leftovers: list[str] = []
        """Folders of deleted topics that are still to be removed."""
        self.deleted: dict[bytes, Topic] = {}
        """Deleted topics with a write under way."""
        self.rounds = CommitRounds(
            generation_bytes=settings.log.commit_journal_bytes,
            alone_max=sys.maxsize if disk.ordered else settings.threads,
            clock_us=clock_us,
        )
        self.long_work = LongWork()
        self._disk = disk
        self._context = context
        self._alarm = context.alarms.add(self._try_again)
        self._dirty: dict[CommitLane, None] = {}
        """Lanes with something to write, in the order they got it."""
        self._tables: dict[CommitLane, JournalTable] = {}
        self.readable: list[Readable] = []
        """What became readable; the core takes it."""
        self.closed_in: list[tuple[Topic, int]] = []
        """The shards of which a file may have been closed; ``Packing`` takes them."""
        self._log_options = LogOptions(
            rotate_bytes=settings.log.rotate_bytes,
            preallocate_bytes=settings.log.preallocate_bytes,
            index_every_bytes=settings.log.index_every_bytes,
            pack_segments_min=settings.log.pack_segments_min,
        )
        self._open_logs = OpenLogs(settings.limits.open_logs)
        self._closed = False
        self._paused: Wait[None] | None = None
        """While no write may begin: waits for the end of those under way."""

        replayed = replay(disk)
        self.recovered += replayed.lines()
        self.seal = read_seal(disk)
        self.seal.include(replayed.lost)
        self.recovered += self.seal.faults
        self.runs = Runs(disk, self.seal)
        self.recovered += self.runs.recovered
        self.seal.in_use = self.seal.in_use or self.runs.number > 1
        self.last_stop = "clean" if self.seal.found else "cut_short" if self.seal.in_use else ""
        """How the run before this one ended; empty where there was none."""
        self.writers = Writers()
        self.writers_journal = self._open_table("writers", self.writers, memory_first=True)
        self.stages = Stages(disk, self.recovered, self.seal, self._dirty, settings)
        self._write_repairs()
        self.stages.claim(self.writers.pending_stages())
        self._held = self.writers.held_blocks()
        self.peers = PeerLinks()
        self.peers_journal = self._open_table("peers", self.peers)
        self.catalog = Catalog(settings.topic_defaults(), clock_us(), self.runs.number)
        self.catalog_journal = self._open_table("catalog", self.catalog)
        if self._take_strays():
            self.catalog_journal.compact()
            self._write_repairs()
        for topic in self.catalog:
            self._open_shards(topic)
        self.subscriptions = Subscriptions(now_us, clock_us, self._schemas, self._tenant_of)
        self.settlements = self._open_table("settlements", self.subscriptions, memory_first=True)
        self._fit_subscriptions()
        self.tokens = Tokens(now_us)
        self.tokens_journal = self._open_table("tokens", self.tokens)
        if self.tokens_journal.lost:
            self.recovered.append(
                "tokens: all are revoked, since a revocation may be among the lost records; "
                "stop the node and make a new one with `headpond token bootstrap`"
            )
        self.admin_log = AdminLog(settings.limits.admin_records)
        self.admin_log_journal = self._open_table("admin_log", self.admin_log)
        if replayed.lost:
            remove_journal(disk)
        remove_seal(disk)
        self.runs.begin()

    # --- opening ------------------------------------------------------------------------------------

    def _write_repairs(self) -> None:
        """What opening staged is durable before more is built on it, and before the seal goes. Does IO."""
        for lane in list(self._dirty):
            write = lane.take()
            write.run(self._disk)
            lane.done(write, None)

    def _open_table(self, folder: str, state: TableState, *, memory_first: bool = False) -> JournalTable:
        table = JournalTable(
            self._disk,
            folder,
            state,
            self._dirty,
            compact_bytes=self.settings.journal_compact_bytes,
            seal=self.seal,
            memory_first=memory_first,
        )
        self.recovered += table.recovered
        self._tables[table.lane] = table
        self._write_repairs()
        return table

    def _take_strays(self) -> bool:
        """Finishes deletions and takes back topics that the catalog lost; returns whether there were such.

        A folder below ``topics/`` that the catalog does not name is the rest of a deletion, or a topic whose
        catalog record was lost: a topic is in the catalog before it has a folder, and the catalog remembers a
        deletion until the folder is gone. Opening removes the first, and takes back the second if its name is
        free. It reports anything else and leaves it alone.
        """
        found = _strays(self._disk, {topic.uuid for topic in self.catalog})
        deleted = self.catalog.deleted
        deleted &= set(found)  # of the others nothing is left to remove
        adopted = False
        for uuid in found:
            folder = f"{TOPICS_FOLDER}/{uuid.hex()}"
            if uuid in deleted:
                self.leftovers.append(folder)
                continue
            changes = _identify(self._disk, uuid, self._context.now_us())
            created = changes[0] if changes else None
            if not isinstance(created, TopicCreated):
                self.recovered.append(
                    f"folder {folder} belongs to no topic and no log file in it names one; it is left "
                    "alone: restore it from a copy, or remove it"
                )
            elif self.catalog.by_name(created.name) is not None:
                self.recovered.append(
                    f"folder {folder} holds a topic {created.name} that the catalog lost, and another of that "
                    "name exists; it is left alone: delete that one and start again to have it back, or remove "
                    "the folder"
                )
            else:
                adopted = True
                for change in changes:
                    self.catalog.apply(change)
                self.recovered.append(
                    f"topic {created.name} was lost from the catalog; its logs bring it back without settings"
                )
        return adopted

    def _open_shards(self, topic: Topic, *, new: bool = False) -> None:
        """Opens the logs; those of a ``new`` topic have no files, so this does no IO."""
        now_us = self._context.now_us()
        hold_us = self.peers.hold_us(topic.name, topic.uuid, now_us)
        for number in range(2**topic.created.shard_power):
            folder = f"{topic.folder}/{number:05d}"
            log = ShardLog.open(
                self._disk,
                folder,
                title=topic.title,
                shard=number,
                shard_power=topic.created.shard_power,
                now_us=now_us,
                options=self._log_options,
                settings=topic.settings,
                held=self._held,
                peer_hold_us=hold_us,
                sealed=self.seal.last_in(folder),
                new=new,
            )
            place = f"topic {topic.shown}, shard {number}"
            self.recovered += [f"{place}: {line}" for line in log.report.lines()]
            on_done = partial(self._log_wrote, topic, number)
            lane = CommitLane(place, log.appender, on_done, self._dirty, shares=True)
            lookup = SegmentLookup(self._context.add_effect, topic.uuid, number)
            topic.shards.append(Shard(log, Admission(log), lane, lookup, StoredTimes(log.known_times())))

    def _schemas(self, uuid: bytes) -> SchemaVersions | None:
        topic = self.catalog.by_uuid(uuid)
        return topic.schemas if topic is not None else None

    def _tenant_of(self, uuid: bytes) -> str:
        topic = self.catalog.by_uuid(uuid)
        return topic.tenant if topic is not None else ""

    def _fit_subscriptions(self) -> None:
        """Makes subscriptions and logs agree. New incarnations are on the disk before anyone hears of them."""
        if self.settlements.journal.report.lost:
            self.recovered.append(
                "settlements: a subscription whose records are lost is gone, or gets settled messages again"
            )
        for subscription in list(self.subscriptions.all()):
            topic = self.catalog.by_uuid(subscription.topic_uuid)
            if topic is None:
                self.subscriptions.drop_topic(subscription.topic_uuid)
            else:
                self._fit(topic, subscription)
        for topic in self.catalog:
            for shard in topic.shards:
                shard.log.stage_loss(self._context.now_us())
                shard.lane.mark()
        self._write_repairs()

    def _fit(self, topic: Topic, subscription: Subscription) -> None:
        """Positions and logs must agree, also when one of them was restored from an older copy."""
        for number, (cursor, shard) in enumerate(zip(subscription.cursors, topic.shards, strict=True)):
            names = (topic.uuid, subscription.name, number)
            cursor.begin()
            cursor.flag_unrecorded(shard.log.entry_next)
            cursor.skipped.discard(0, shard.log.entry_first)
            # A crash may have come before these were recorded.
            passed = self.subscriptions.pass_compacted(subscription, number, shard.log.compacted)
            self.settlements.stage(*passed)
            if not self.runs.exact(cursor.tally.copies_run):
                cursor.tally.begin_copies(self.runs.number, cursor.reached)
                cursor.journaled_copies = cursor.tally.copies
                self.settlements.stage(Tallied(*names, cursor.tally))
            if spans := cursor.unread(cursor.cursor, shard.log.entry_first):
                self.settlements.note(Missed(*names, spans, "retention", self._context.now_us()))
            settled_end = max(cursor.cursor, cursor.settled.end)
            if settled_end > shard.log.entry_next:
                gone = f"entries {shard.log.entry_next} to {settled_end - 1} are gone"
                self.recovered.append(
                    f"topic {topic.shown}, shard {number}: {gone}, though subscription {subscription.name!r} "
                    "settled them; a new incarnation begins"
                )
                shard.log.lose_upto(settled_end)

    # --- committing ---------------------------------------------------------------------------------

    def due(self) -> list[Committer]:
        """What can be written now."""
        if self._paused is not None:
            return []
        if not (self._dirty or self.rounds.has_work or self.long_work.due):
            return []
        now_us = self._context.clock_us()
        ready = [lane for lane in self._dirty if lane.due and lane.resume_us <= now_us]
        for lane in ready:
            del self._dirty[lane]
        chosen = self.rounds.choose(ready)
        return [*chosen, self.long_work] if self.long_work.due else chosen

    def pause(self) -> Wait[None]:
        """Lets no write begin until ``resume``; waits until none is under way."""
        assert self._paused is None
        self._paused = Wait()
        self._note_rest()
        return self._paused

    def resume(self) -> None:
        self._paused = None

    def _note_rest(self) -> None:
        if self._paused is not None and not self._paused.over and not self._busy:
            self._paused.done(None)

    def lengths(self) -> dict[str, int]:
        """How long the files are that are being written, without reserved room; for a time without writes."""
        lanes = [shard.lane for topic in self.catalog for shard in topic.shards]
        appenders = [lane.appender for lane in (*lanes, *self._tables, self.stages.lane)]
        return {each.path: each.durable_end for each in appenders if each.path}

    def _try_again(self) -> None:
        """The time of some lane has come that waits after a failure: ``due`` has it now. Others wait longer."""
        now_us = self._context.clock_us()
        for resume_us in (*(lane.resume_us for lane in self._dirty), self.rounds.checkpoint.resume_us):
            if resume_us > now_us:
                self._alarm.by(resume_us)

    def wrote(self, lane: Committer, write: Write, error: OSError | None) -> None:
        """A write ended: calls its waiters."""
        try:
            if isinstance(lane, CommitLane):
                self.rounds.alone_done(lane)
                self._lane_wrote(lane, write, error)
            else:
                self._shared_wrote(lane, write, error)
        finally:
            if self._paused is not None:
                self._note_rest()

    def _shared_wrote(self, lane: Committer, write: Write, error: OSError | None) -> None:
        if lane is self.long_work:
            self.long_work.done(cast(LongJob, write), error)
        elif isinstance(write, Errand):
            write.ended(error)
        elif isinstance(write, RoundWrite):
            self.rounds.done(write, error)
            for one, its_write in write.writes:
                self._lane_wrote(one, its_write, error or write.errors.get(one))
        else:
            assert isinstance(write, CheckpointWrite)
            self.rounds.checkpoint_done(write, error)
            self._try_again()

    def _lane_wrote(self, lane: CommitLane, write: Write, error: OSError | None) -> None:
        if error is not None:
            lane.resume_us = self._context.clock_us() + WRITE_AGAIN_US
            self._alarm.by(lane.resume_us)
            if isinstance(write, Batch):
                self.rounds.suspect(write.path)
        lane.done(write, error)
        if not lane.shares and (table := self._tables.get(lane)) is not None:  # logs share, journals do not
            table.compact_if_long()  # only now: the waiters have applied the changes

    def _log_wrote(self, topic: Topic, number: int, write: Any, error: OSError | None) -> bool:
        shard = topic.shards[number]
        if error is not None:
            shard.log.failed(write)
            shard.admission.forget()
            return True
        records = shard.log.committed(write)
        if records and records[0].header.stored_at_us >= shard.times.due_us:
            shard.times.note(records[0].header.first_entry, records[0].header.stored_at_us)
        self.readable.append((topic, number, records))
        if write.creates and not self._disk.ordered:
            self.closed_in.append((topic, number))
        self._open_logs.wrote(shard.log)
        return False

    # --- changes ------------------------------------------------------------------------------------

    def topic_created(self, created: TopicCreated) -> Topic:
        """Its record is durable: the topic exists from now on."""
        topic = self.catalog.apply(created)
        assert topic is not None
        self._open_shards(topic, new=True)
        return topic

    def topic_deleted(self, deleted: TopicDeleted, error: HeadpondError) -> Topic | None:
        """Its record is durable: refuses everything staged for it. Its folder goes after the last write."""
        topic = self.catalog.apply(deleted)
        if topic is not None:
            for shard in topic.shards:
                shard.lane.abandon(error)
                self.rounds.drop(shard.lane)
                self._open_logs.forget(shard.log)
            self.deleted[topic.uuid] = topic
            self.long_work.drop(topic.uuid)
            self.writers.forget_topic(topic.uuid)
        return topic

    def at_rest(self) -> list[Topic]:
        """Deleted topics without a write under way, whose folders can be removed now."""
        found = [
            topic
            for topic in self.deleted.values()
            if not any(shard.lane.busy for shard in topic.shards) and not self.long_work.concerns(topic.uuid)
        ]
        for topic in found:
            del self.deleted[topic.uuid]
        return found

    @property
    def _busy(self) -> bool:
        """Whether a write is under way."""
        lanes = [shard.lane for topic in self.catalog for shard in topic.shards]
        lanes += [*self._tables, self.stages.lane]
        return any(lane.busy for lane in lanes) or self.rounds.busy or self.long_work.busy

    def close(self) -> list[OSError]:
        """Everything staged was committed: closes the files in good order; returns what went wrong."""
        if self._closed:
            return []
        self._closed = True
        in_order = not self._busy
        faults: list[OSError] = []
        sealed: list[SealedFile | None] = []
        with suppress(HeadpondError):  # a journal that lost a write is not written to again
            for subscription in self.subscriptions.all():
                self.settlements.stage(*release(subscription), *unjournaled_copies(subscription))
        closes: list[Callable[[], SealedFile | None]] = []
        try:
            self.rounds.close(self._disk)
        except OSError as error:  # the next opening writes the logs from the commit journal
            faults.append(error)
        else:
            if not self.rounds.busy:  # a log that closes may replace a file, which the journal must not name
                closes += [shard.log.close for topic in self.catalog for shard in topic.shards]
        tables = [self.tokens_journal, self.admin_log_journal, self.peers_journal]
        tables += [self.catalog_journal, self.settlements, self.writers_journal]
        closes += [table.journal.close for table in tables]
        for close in closes:
            try:
                sealed.append(close())
            except OSError as error:
                faults.append(error)
        try:
            sealed += self.stages.close()
            if not faults:
                sealed.append(self.runs.close())
            if not faults and in_order:
                write_seal(self._disk, [file for file in sealed if file is not None])
        except OSError as error:
            faults.append(error)
        return faults


def _strays(disk: Disk, known: set[bytes]) -> list[bytes]:
    """The uuids of topic folders that are not in ``known``."""
    found: list[bytes] = []
    for name in disk.list(TOPICS_FOLDER):
        try:
            uuid = bytes.fromhex(name)
        except ValueError:
            continue
        if len(uuid) == 16 and uuid not in known:
            found.append(uuid)
    return found


def _identify(disk: Disk, uuid: bytes, now_us: int) -> list[TopicCreated | TopicAltered]:
    """The topic that a folder's log files name, with its schemas; empty if none can be read."""
    folder = f"{TOPICS_FOLDER}/{uuid.hex()}"
    folders = [f"{folder}/{shard}" for shard in disk.list(folder)]
    paths = [f"{inside}/{name}" for inside in folders for name in disk.list(inside)]
    titles = [
        found
        for path in paths
        if parse_name(path.rpartition("/")[2]) is not None and (found := _title(disk, path, uuid)) is not None
    ]
    if not titles:
        return []
    shard_power, title = max(titles, key=lambda found: len(found[1].schemas))
    schemas = title.schemas
    first = schemas[0] if schemas else None
    created = TopicCreated(title.topic, uuid, shard_power, now_us, schema=first)
    return [created, *(TopicAltered(uuid, version, schema) for version, schema in enumerate(schemas[1:], 2))]


def _title(disk: Disk, path: str, uuid: bytes) -> tuple[int, Title] | None:
    """Shard power and title of a log file, if they are a topic's of that uuid."""
    file = open_salvaged(disk, path)
    try:
        frame = read_frame(file, 0).frame
        _, shard_power, title = decode_title(frame.body)
        TopicName.parse(title.topic)
        for schema in title.schemas:
            decode_schema(schema)
    except (BadFrame, BadTopicName, SchemaMismatch):
        return None
    finally:
        file.close()
    return (shard_power, title) if frame.type == FrameType.TITLE and title.topic_uuid == uuid else None
