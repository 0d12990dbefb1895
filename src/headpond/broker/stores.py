"""Everything durable of a node: its catalog, its logs and its journals, opened and committed.

Opening makes the files one consistent whole, even if some of them rotted or were restored from an older copy;
``recovered`` lists what it found. Its repairs are durable before it removes the seal of the last clean stop
(storage/seal.py). Each journal has a lane that commits it (storage/commit_lane.py). Closing in good order
leaves a new seal.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any, cast

from headpond.broker.access.admin_log import AdminLog
from headpond.broker.access.tokens import Tokens
from headpond.broker.catalog.topics import (
    TOPICS_FOLDER,
    Catalog,
    CatalogChange,
    Shard,
    Topic,
    TopicAltered,
    TopicCreated,
    TopicDeleted,
)
from headpond.broker.catalog.topics import decode_change as decode_catalog_change
from headpond.broker.catalog.topics import encode_change as encode_catalog_change
from headpond.broker.context import Context
from headpond.broker.ingest.admission import Admission
from headpond.broker.ingest.lookup import SegmentLookup
from headpond.broker.ledger.runs import Runs
from headpond.broker.links.link_table import PeerLinks
from headpond.broker.staging.stores import Errand, StagingStores
from headpond.broker.steps import Wait, on_disk
from headpond.broker.subscriptions.journal import Subscriptions
from headpond.broker.subscriptions.records import LastAttached, Missed, Tallied, encode_change
from headpond.broker.subscriptions.records import decode_change as decode_settlement
from headpond.broker.subscriptions.subscription import Subscription
from headpond.model.errors import BadFrame, BadTopicName, HeadpondError, SchemaMismatch
from headpond.model.names import TopicName
from headpond.storage.append import Batch
from headpond.storage.commit_journal import replay
from headpond.storage.commit_lane import CommitLane, Committer, Write
from headpond.storage.commit_rounds import WRITE_AGAIN_US, CheckpointWrite, CommitRounds, RoundWrite
from headpond.storage.disk import Disk
from headpond.storage.frame_file import read_frame
from headpond.storage.journal import FileJournal, JournalTable, TableState
from headpond.storage.log.batch import LogOptions
from headpond.storage.log.format import parse_name
from headpond.storage.log.read import StoredRecord
from headpond.storage.log.shard_log import OpenLogs
from headpond.storage.long_work import LongJob, LongWork
from headpond.storage.salvage import open_salvaged
from headpond.storage.seal import SealedFile, read_seal, remove_seal, write_seal
from headpond.wire.frame import FrameType
from headpond.wire.title import Title, decode_title
from headpond.wire.typed.schema import decode_schema
from headpond.wire.typed.versions import SchemaVersions

# Topics that the catalog has lost: each log file names its topic, so opening can find it again.
#
# A folder below ``topics/`` that the catalog does not name is the rest of a deletion, or a topic whose catalog
# record was lost: a topic is in the catalog before it has a folder, and the catalog remembers a deletion until
# the folder is gone. Opening removes the first, and takes back the second if its name is free. It reports
# anything else and leaves it alone.


def strays(disk: Disk, known: set[bytes]) -> list[bytes]:
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


def identify(disk: Disk, uuid: bytes, now_us: int) -> list[TopicCreated | TopicAltered]:
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


Readable = tuple[Topic, int, list[StoredRecord]]
"""Records of a topic's shard that were just synced."""


class Stores:
    def __init__(
        self,
        disk: Disk,
        context: Context,
    ) -> None:
        settings, now_us, clock_us = context.settings, context.now_us, context.clock_us
        self.catalog = Catalog(settings.topic_defaults(), clock_us())
        self.subscriptions = Subscriptions(now_us, clock_us, self._schemas)
        self.recovered: list[str] = []
        """What opening found that is not as it should be, a line each."""
        self.leftovers: list[str] = []
        """Folders of deleted topics that are still to be removed."""
        self._disk = disk
        self.settings = settings
        self._now_us = now_us
        self._add_effect = context.add_effect
        self._clock_us = clock_us
        self._alarm = context.alarms.add(self._try_again)
        self.deleted: dict[bytes, Topic] = {}
        """Deleted topics with a write under way."""
        self._dirty: dict[CommitLane, None] = {}
        """Lanes with something to write, in the order they got it."""
        self._readable: list[Readable] = []
        self._log_options = LogOptions(
            rotate_bytes=settings.log.rotate_bytes,
            preallocate_bytes=settings.log.preallocate_bytes,
            index_every_bytes=settings.log.index_every_bytes,
        )
        self.rounds = CommitRounds(
            generation_bytes=settings.log.commit_journal_bytes, alone_max=settings.threads, clock_us=clock_us
        )
        self.long_work = LongWork()
        self._open_logs = OpenLogs(settings.limits.open_logs)
        self._closed = False
        self.recovered += replay(disk).lines()
        self.seal = read_seal(disk)
        self.recovered += self.seal.faults
        self.runs = Runs(disk, self.seal)
        self.recovered += self.runs.recovered
        self.seal.in_use = self.seal.in_use or self.runs.number > 1
        self.last_stop = "clean" if self.seal.found else "cut_short" if self.seal.in_use else ""
        """How the run before this one ended; empty where there was none."""
        self.catalog.run = self.runs.number
        self.staging = StagingStores(disk, settings, self._dirty, self.recovered, self.seal)
        self._write_repairs()
        self._held = self.staging.writers.held_blocks()
        self.peers = PeerLinks()
        self.peers_kept = self._open_kept("peers", self.peers)
        self._open_catalog()
        self._open_settlements()
        self.tokens = Tokens(now_us)
        self.tokens_kept = self._open_kept("tokens", self.tokens)
        if self.tokens_kept.lost:
            self.recovered.append(
                "tokens: all are revoked, since a revocation may be among the lost records; "
                "stop the node and make a new one with `headpond token bootstrap`"
            )
        self.admin_log = AdminLog(settings.limits.admin_records)
        self.admin_log_kept = self._open_kept("admin_log", self.admin_log)
        self._kept = (self.tokens_kept, self.admin_log_kept, self.peers_kept)
        remove_seal(disk)
        self.runs.begin()

    # --- opening ------------------------------------------------------------------------------------

    def _write_repairs(self) -> None:
        """What opening staged is durable before more is built on it, and before the seal goes. Does IO."""
        for lane in list(self._dirty):
            write = lane.take()
            write.run(self._disk)
            lane.done(write, None)

    def _open_kept(self, folder: str, state: TableState) -> JournalTable:
        compact_bytes = self.settings.journal_compact_bytes
        kept = JournalTable(self._disk, folder, state, self._dirty, compact_bytes=compact_bytes, seal=self.seal)
        self.recovered += kept.recovered
        self._write_repairs()
        return kept

    def _open_catalog(self) -> None:
        self._catalog_journal = journal = FileJournal.open(self._disk, "catalog", self.seal)
        for body in journal.records:
            self.catalog.apply(decode_catalog_change(body))
        self.recovered += [f"catalog: {line}" for line in journal.report.lines()]
        if self._take_strays():
            journal.compact(list(self.catalog.snapshot()))
        else:
            journal.ensure_file()
        self._catalog_lane = CommitLane("the catalog", journal.appender, self._catalog_wrote, self._dirty)
        self._write_repairs()
        for topic in self.catalog:
            self._open_shards(topic)

    def _take_strays(self) -> bool:
        """Finishes deletions and takes back topics that the catalog lost; returns whether there were such."""
        found = strays(self._disk, {topic.uuid for topic in self.catalog})
        deleted = self.catalog.deleted
        deleted &= set(found)  # of the others nothing is left to remove
        adopted = False
        for uuid in found:
            folder = f"{TOPICS_FOLDER}/{uuid.hex()}"
            if uuid in deleted:
                self.leftovers.append(folder)
                continue
            changes = identify(self._disk, uuid, self._now_us())
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

    def _open_shards(self, topic: Topic) -> None:
        for number in range(2**topic.created.shard_power):
            hold_us = self.peers.hold_us(topic.name, topic.uuid, self._now_us())
            now_us, seal = self._now_us(), self.seal
            log = topic.open_log(number, self._disk, now_us, self._log_options, self._held, hold_us, seal)
            place = f"topic {topic.shown}, shard {number}"
            self.recovered += [f"{place}: {line}" for line in log.report.lines()]
            lane = CommitLane(
                place, log.appender, partial(self._log_wrote, topic, number), self._dirty, shares=True
            )
            lookup = SegmentLookup(self._add_effect, topic.uuid, number)
            topic.shards.append(Shard(log, Admission(log), lane, lookup))

    def _schemas(self, uuid: bytes) -> SchemaVersions | None:
        topic = self.catalog.by_uuid(uuid)
        return topic.schemas if topic is not None else None

    def _open_settlements(self) -> None:
        self.settlements = journal = FileJournal.open(self._disk, "settlements", self.seal)
        for body in journal.records:
            change = decode_settlement(body)
            if self.catalog.by_uuid(change.topic) is not None:
                self.subscriptions.apply(change)
        self.recovered += [f"settlements: {line}" for line in journal.report.lines()]
        if journal.report.lost:
            self.recovered.append(
                "settlements: a subscription whose records are lost is gone, or gets settled messages again"
            )
        journal.ensure_file()
        self.settlement_lane = CommitLane(
            "the settlement journal", journal.appender, self._settlements_wrote, self._dirty
        )
        self._write_repairs()
        for subscription in self.subscriptions.all():
            self._fit(subscription)
        self._write_incarnations()

    def _write_incarnations(self) -> None:
        """New incarnations are on the disk before anyone hears of them. Does IO."""
        for topic in self.catalog:
            for shard in topic.shards:
                if shard.log.stage_loss(self._now_us()):
                    write = shard.lane.take()
                    write.run(self._disk)
                    shard.lane.done(write, None)

    def _fit(self, subscription: Subscription) -> None:
        """Positions and logs must agree, also when one of them was restored from an older copy."""
        topic = self.catalog.by_uuid(subscription.topic_uuid)
        assert topic is not None
        for number, (cursor, shard) in enumerate(zip(subscription.cursors, topic.shards, strict=True)):
            cursor.begin()
            cursor.skipped.discard(0, shard.log.entry_first)
            for passed in self.subscriptions.pass_compacted(subscription, number, shard.log.compacted):
                self.settlements.append(encode_change(passed))  # a crash came before it was recorded
                self.settlement_lane.mark()
            if not self.runs.exact(cursor.tally.copies_run):
                cursor.tally.begin_copies(self.runs.number, cursor.reached)
                cursor.noted = cursor.tally.copies
                tallied = Tallied(topic.uuid, subscription.name, number, cursor.tally)
                self.settlements.append(encode_change(tallied))
                self.settlement_lane.mark()
            if spans := cursor.unread(cursor.cursor, shard.log.entry_first):  # a crash came before
                missed = Missed(topic.uuid, subscription.name, number, spans, "retention", self._now_us())
                self.subscriptions.miss(subscription, missed)
                self.settlements.append(encode_change(missed))
                self.settlement_lane.mark()
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
        if not (self._dirty or self.rounds.has_work or self.long_work.due):
            return []
        now_us = self._clock_us()
        ready = [lane for lane in self._dirty if lane.due and lane.resume_us <= now_us]
        for lane in ready:
            del self._dirty[lane]
        chosen = self.rounds.choose(ready)
        return [*chosen, self.long_work] if self.long_work.due else chosen

    def _try_again(self) -> None:
        """The time of some lane has come that waits after a failure: ``due`` has it now. Others wait longer."""
        now_us = self._clock_us()
        for resume_us in (*(lane.resume_us for lane in self._dirty), self.rounds.checkpoint.resume_us):
            if resume_us > now_us:
                self._alarm.by(resume_us)

    def wrote(self, lane: Committer, write: Write, error: OSError | None) -> None:
        """A write ended: calls its waiters."""
        if lane is self.long_work:
            self.long_work.done(cast(LongJob, write), error)
        elif isinstance(write, Errand):
            write.ended(error)
        elif isinstance(write, RoundWrite):
            self.rounds.done(write, error)
            for one, its_write in write.writes:
                self._lane_wrote(one, its_write, error or write.errors.get(one))
        elif isinstance(write, CheckpointWrite):
            self.rounds.checkpoint_done(write, error)
            self._try_again()
        else:
            assert isinstance(lane, CommitLane)
            self.rounds.alone_done(lane)
            self._lane_wrote(lane, write, error)

    def _lane_wrote(self, lane: CommitLane, write: Write, error: OSError | None) -> None:
        if error is not None:
            lane.resume_us = self._clock_us() + WRITE_AGAIN_US
            self._alarm.by(lane.resume_us)
            if isinstance(write, Batch):
                self.rounds.suspect(write.path)
        lane.done(write, error)
        if lane.shares:  # a log
            return
        # Only now does the memory agree with the journal: waiters apply the changes.
        if lane is self._catalog_lane:
            self._compact_if_long(self._catalog_journal, self.catalog, lane)
        elif lane is self.settlement_lane:
            self._compact_if_long(self.settlements, self.subscriptions, lane)
        else:
            self.staging.lane_wrote(lane)
            for kept in self._kept:
                if lane is kept.lane:
                    kept.compact_if_long()

    def _compact_if_long(self, journal: FileJournal, state: Catalog | Subscriptions, lane: CommitLane) -> None:
        if journal.is_long(self.settings.journal_compact_bytes):
            journal.compact(state.snapshot())
            lane.mark()

    def readable(self) -> list[Readable]:
        """What became readable since the last call."""
        readable, self._readable = self._readable, []
        return readable

    def _log_wrote(self, topic: Topic, number: int, write: Any, error: OSError | None) -> bool:
        shard = topic.shards[number]
        if error is not None:
            shard.log.failed(write)
            shard.admission.forget()
            return True
        self._readable.append((topic, number, shard.log.committed(write)))
        self._open_logs.wrote(shard.log)
        return False

    def _catalog_wrote(self, write: Any, error: OSError | None) -> bool:
        self._catalog_journal.done(write, error, self.catalog.snapshot)
        return True

    def _settlements_wrote(self, write: Any, error: OSError | None) -> bool:
        # Settlements stay in memory when a write fails, and go with the next one: nobody is answered before.
        self.settlements.done(write, error, self.subscriptions.snapshot)
        return False

    # --- changes ------------------------------------------------------------------------------------

    def change_catalog(self, body: bytes) -> Wait[None]:
        """Writes a change down; the caller applies it once it is on the disk."""
        self._catalog_journal.append(body)
        return on_disk(self._catalog_lane)

    def note_catalog(self, change: CatalogChange) -> None:
        """Stages a change that nobody waits for."""
        self._catalog_journal.append(encode_catalog_change(change))
        self._catalog_lane.mark()

    def forget_settlements(self) -> None:
        """Removes the records of a deleted topic's subscriptions from the journal."""
        self.settlements.compact(list(self.subscriptions.snapshot()))
        self.settlement_lane.mark()

    def note_seen(self, subscription: Subscription) -> None:
        """Its last consumer left."""
        now_us = self._now_us()
        if self.subscriptions.get(subscription.topic_uuid, subscription.name) is subscription:
            seen = LastAttached(subscription.topic_uuid, subscription.name, now_us)
            self.subscriptions.apply(seen)
            for body in (encode_change(seen), *self.subscriptions.unnoted([subscription])):
                self.settlements.append(body)
            self.settlement_lane.mark()

    def topic_created(self, created: TopicCreated) -> Topic:
        """Its record is durable: the topic exists from now on."""
        topic = self.catalog.apply(created)
        assert topic is not None
        self._open_shards(topic)
        return topic

    def topic_altered(self, altered: TopicAltered) -> Topic | None:
        """Its record is durable: from now on the topic stores with the new schema."""
        return self.catalog.apply(altered)

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
            self.staging.writers.forget_topic(topic.uuid)
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
    def shards(self) -> int:
        """How many logs there are, in all topics."""
        return sum(len(topic.shards) for topic in self.catalog)

    @property
    def _busy(self) -> bool:
        """Whether a write is under way."""
        lanes = [shard.lane for topic in self.catalog for shard in topic.shards]
        lanes += [self._catalog_lane, self.settlement_lane, *(kept.lane for kept in self._kept)]
        others = (self.staging, self.rounds, self.long_work)
        return any(lane.busy for lane in lanes) or any(other.busy for other in others)

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
                for body in self.subscriptions.release(subscription):
                    self.settlements.append(body)
            for body in self.subscriptions.unnoted(self.subscriptions.all()):
                self.settlements.append(body)
        closes = [shard.log.close for topic in self.catalog for shard in topic.shards]
        closes += [kept.journal.close for kept in self._kept]
        for close in (*closes, self._catalog_journal.close, self.settlements.close):
            try:
                sealed.append(close())
            except OSError as error:
                faults.append(error)
        try:
            sealed += self.staging.close()
            if not faults:
                sealed.append(self.runs.close())
                self.rounds.close(self._disk)  # after a fault opening makes the logs whole from it
            if not faults and in_order:
                write_seal(self._disk, [file for file in sealed if file is not None])
        except OSError as error:
            faults.append(error)
        return faults
