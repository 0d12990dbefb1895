"""Making a subscription and attaching a consumer: where it starts, and the checks of what clients ask for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from headpond.broker.access.quotas import Quotas
from headpond.broker.catalog.topics import Topic
from headpond.broker.context import Context
from headpond.broker.effects import Fetch, FindEntry
from headpond.broker.session import Session
from headpond.broker.steps import SingleFlight, Steps, Wait
from headpond.broker.stores import Stores
from headpond.broker.subscriptions.attachment import CREDIT_BYTES_MAX, Attachment
from headpond.broker.subscriptions.dead_letters import check_dead_letter
from headpond.broker.subscriptions.journal import KINDS
from headpond.broker.subscriptions.records import Opened
from headpond.broker.subscriptions.subscription import Subscription
from headpond.model.entry_set import EntrySet
from headpond.model.errors import (
    BadRequest,
    IncarnationChanged,
    LimitReached,
    ProtocolError,
    StorageFailed,
    SubscriptionMismatch,
    SubscriptionNotFound,
    TopicMismatch,
    TopicNotFound,
)
from headpond.model.names import is_part
from headpond.storage.disk import Disk
from headpond.storage.log.compact import StateScan
from headpond.storage.log.read import StoredRecord
from headpond.storage.long_work import ShardPlace
from headpond.wire.control.consuming import CreateSubscription, KnownRecord, Settle, Subscribe, Subscribed
from headpond.wire.control.links import OpenCopy
from headpond.wire.frame import FILE_BODY_BYTES_MAX

CONSUMERS_MAX = 1024
MODES = ("resilient", "non_resilient")
STATE = "state"
WAITING_MAX = 256
"""Subscriptions that are being created from a topic's state at a time."""

Described = Subscribe | CreateSubscription | OpenCopy
"""The requests that describe a subscription."""
StateEnd = tuple[int, bytes]
"""A shard's end, and the bitmap of the entries before it that are current."""


class Start(NamedTuple):
    """Where a new subscription begins."""

    entries: list[int]
    """By shard: the first entry that it reads."""
    state: Sequence[StateEnd] = ()
    """By shard, if it begins with the state of a state topic."""


class SubscriptionOpener:
    """Finds a subscription, or creates it where its client wants it to begin; worker threads read the disk.

    To begin with the state of a state topic, a job reads one shard after the other (storage/log/compact.py).
    The result becomes one record of the settlement journal, together with the subscription: each shard's end,
    and which entries before it are current. The stream continues there, without a gap and without a repeat.
    """

    def __init__(self, context: Context, stores: Stores, quotas: Quotas) -> None:
        self._context = context
        self._stores = stores
        self._quotas = quotas
        self._scans: SingleFlight[list[StateEnd]] = SingleFlight()
        """By topic and subscription."""

    def find_start(self, topic: Topic, name: str, start: str | int | list[int]) -> Steps[Start | None]:
        """The start of a new subscription, at one place or one per shard; None if the subscription exists."""
        if self._stores.subscriptions.get(topic.uuid, name) is not None:
            return None
        if start == STATE:
            state = yield from self._state(topic, name)
            return Start([shard.log.entry_first for shard in topic.shards], state)
        places = start if isinstance(start, list) else [start] * len(topic.shards)
        if len(places) != len(topic.shards):
            raise BadRequest(f"{len(places)} positions for the {len(topic.shards)} shards of {topic.shown}")
        entries: list[int] = []
        for shard, place in enumerate(places):
            entries.append((yield from self.entry(topic, shard, place)))
        return Start(entries)

    def entry(self, topic: Topic, shard: int, start: str | int) -> Steps[int]:
        """The first entry of a shard from a place or a time on."""
        log = topic.shards[shard].log
        if start == "earliest":
            return log.entry_first
        if start == "latest":
            return log.entry_durable
        if isinstance(start, str) and start.isascii() and start.isdigit() and len(start) < 20:
            start = int(start)
        if isinstance(start, int):
            if start < 0:
                raise BadRequest(f"start {start} is not an entry: entries count from 0")
            return min(max(start, log.entry_first), log.entry_durable)
        _, found = yield from topic.read(self._context, FindEntry, shard, 0, 0, _time_us(start))
        return found.next_entry

    def _state(self, topic: Topic, name: str) -> Steps[list[StateEnd]]:
        if not topic.is_state:
            raise BadRequest(
                f"start {STATE!r}: topic {topic.shown} is no state topic",
                hint="Create one with `headpond topic create TOPIC --state`, or start at earliest or latest.",
            )
        key = (topic.uuid, name)
        if key in self._scans:
            found: list[StateEnd] = yield self._scans.join(key)
            return found
        if len(self._scans) >= WAITING_MAX:
            raise LimitReached(f"{WAITING_MAX} subscriptions are being made from a topic's state; try again")
        return (yield from self._scans.run(key, self._scan(topic)))

    def _scan(self, topic: Topic) -> Steps[list[StateEnd]]:
        found: list[tuple[int, EntrySet]] = []
        for number, shard in enumerate(topic.shards):
            scan = StateScan(shard.log, self._stores.settings.limits.state_bytes, topic.schemas)
            wait: Wait[OSError | None] = Wait()
            self._stores.long_work.add(_ScanJob((topic.uuid, number), scan, wait.done))
            error = yield wait
            if self._stores.catalog.by_uuid(topic.uuid) is not topic:  # its other shards cannot be read
                raise TopicNotFound(f"topic {topic.shown} was deleted")
            if error is not None:
                raise StorageFailed(f"the node could not read topic {topic.shown}: {error.strerror or error}")
            found.append((scan.end, scan.current))
        # Compaction and retention may have removed some meanwhile: a later row of the key follows, or none.
        for (_, current), shard in zip(found, topic.shards, strict=True):
            current.discard(0, shard.log.entry_first)
            current.exclude(shard.log.compacted)
        states = [(end, current.encode()) for end, current in found]
        size = sum(len(encoded) for _, encoded in states)
        if size > FILE_BODY_BYTES_MAX // 2:
            raise LimitReached(f"the state of topic {topic.shown} takes {size:,} bytes in the journal")
        return states

    def find_or_create(
        self, session: Session | None, topic: Topic, ask: Described, start: Start | None, created_at_us: int
    ) -> Subscription:
        """The subscription that a client describes; the caller waits until a new one is on the disk.

        ``start`` is where a new one begins; None if the subscription existed a moment ago. ``session`` is that
        of the client, if there is one.
        """
        stores, name = self._stores, ask.subscription
        subscription = stores.subscriptions.get(topic.uuid, name)
        if subscription is not None:
            if (subscription.kind, subscription.mode) != (ask.kind, ask.mode):
                raise SubscriptionMismatch(
                    f"subscription {name!r} of {topic.shown} is {subscription.kind}, "
                    f"{subscription.mode}; the request says {ask.kind}, {ask.mode}"
                )
            return subscription
        if stores.catalog.by_uuid(topic.uuid) is not topic:
            raise TopicNotFound(f"topic {topic.shown} was deleted")
        if start is None:
            raise SubscriptionNotFound(f"subscription {name!r} of {topic.shown} was deleted meanwhile")
        limit = stores.settings.limits.subscriptions
        if len(stores.subscriptions) >= limit:
            raise LimitReached(f"this node holds at most {limit} subscriptions (limits.subscriptions)")
        have = stores.subscriptions.of_tenant(topic.tenant)
        self._quotas.create(session, topic.tenant, "subscriptions", have)
        policy = topic.settings.policy(ask.policy).effective(topic.name, ask.mode)
        check_dead_letter(stores.catalog, topic, policy.dead_letter)
        opened = (topic.uuid, name, ask.kind, ask.mode, start.entries, created_at_us, policy)
        stores.settlements.note(Opened(*opened, stores.runs.number, list(start.state)))
        made = stores.subscriptions.get(topic.uuid, name)
        assert made is not None
        for number, shard in enumerate(topic.shards):
            stores.settlements.stage(*stores.subscriptions.pass_compacted(made, number, shard.log.compacted))
        return made


def _time_us(start: str) -> int:
    if start == STATE:
        raise BadRequest(
            "a subscription begins with a topic's state when it is created, and not later",
            hint="Delete it and create it again, or create another one.",
        )
    try:
        time = datetime.fromisoformat(start)
    except ValueError:
        raise BadRequest(
            f"start {start!r} is none of earliest, latest, state, an entry number or a time",
            hint="Write a time as 2026-01-31T12:00:00+00:00.",
        ) from None
    time = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return round(time.timestamp() * 1e6)


class _ScanJob:
    def __init__(self, place: ShardPlace, scan: StateScan, then: Callable[[OSError | None], None]) -> None:
        self.place = place
        self._scan = scan
        self._then = then

    def run(self, disk: Disk) -> None:
        self._scan.step()

    def done(self, error: OSError | None) -> bool:
        if error is None and not self._scan.finished:
            return True
        self._then(error)
        return False


def check_subscription(ask: Described) -> None:
    """Raises unless a request describes a subscription."""
    if ask.kind not in KINDS:
        raise BadRequest(f"kind {ask.kind!r} is none of {', '.join(KINDS)}")
    if ask.mode not in MODES:
        raise BadRequest(f"mode {ask.mode!r} is none of {', '.join(MODES)}")
    if not is_part(ask.subscription):
        raise BadRequest(
            f"subscription name {ask.subscription[:80]!r} is not allowed",
            hint="Use 1-128 of letters, digits, '.', '_' or '-', starting with a letter or digit, "
            "with no '..' and no '.' at the end.",
        )
    if ask.policy is not None:
        ask.policy.checked()


def check_subscribe(session: Session, ask: Subscribe, topic: Topic) -> None:
    """Raises unless these describe a consumer."""
    if ask.topic_uuid is not None and ask.topic_uuid != topic.uuid:
        raise TopicMismatch(f"topic {topic.shown} is not the one that this consumer read before")
    check_subscription(ask)
    if ask.consumer in session.consumers:
        raise ProtocolError(f"consumer {ask.consumer} is open already on this connection")
    if len(session.consumers) + len(session.subscribing) > CONSUMERS_MAX:
        raise LimitReached(f"a connection holds at most {CONSUMERS_MAX} consumers")


def check_settle(topic: Topic, subscription: Subscription, ask: Settle) -> int:
    """Raises before any of a settlement takes effect; returns the end of its shard's log."""
    if ask.shard >= len(topic.shards):
        raise BadRequest(f"topic {topic.shown} has no shard {ask.shard}")
    end = topic.shards[ask.shard].log.entry_durable
    if ask.upto is not None:
        if not subscription.single:
            raise BadRequest(f"a {subscription.kind} subscription takes no cumulative acknowledgement")
        if ask.upto > end:
            raise BadRequest(f"entries up to {ask.upto} cannot be settled: the shard's entries end at {end}")
    spans = ask.acked
    if ask.skipped or ask.nacked:
        spans = [*ask.acked, *ask.skipped, *((entry, entry + 1) for entry, _ in ask.nacked)]
    for start, stop in spans:
        if not start < stop <= end:
            raise BadRequest(f"entries {start} to {stop} cannot be settled: the shard's entries end at {end}")
    return end


def attach(session: Session, ask: Subscribe, subscription: Subscription) -> Attachment:
    """The attachment of a consumer; raises if the subscription is a copy of another node's."""
    subscription.check_active(ask.topic)
    return Attachment(
        session.connection,
        ask.consumer,
        ask.name,
        min(ask.credit_bytes, CREDIT_BYTES_MAX),
        session.writable,
        resumed=ask.credit_bytes > 0,
        instance=ask.instance,
        keeps=ask.keeps,
    )


def subscribed(
    subscription: Subscription, attachment: Attachment, topic: Topic, *, recall: bool = False
) -> Subscribed:
    """The answer to a consumer: the values in effect, and its role."""
    schemas = list(topic.schemas.encoded) if topic.schemas is not None else []
    return Subscribed(
        attachment.consumer,
        topic.name,
        topic.uuid,
        len(topic.shards),
        subscription.kind,
        subscription.mode,
        [cursor.cursor for cursor in subscription.cursors],
        schemas[-1] if schemas else None,
        schemas,
        subscription.policy,
        subscription.active(attachment),
        subscription.paused,
        subscription.lease_s,
        attachment.renewal,
        recall,
    )


def by_shard(spans: Sequence[tuple[int, int, int]] | None, topic: Topic) -> dict[int, EntrySet] | None:
    """The existing entries that a consumer names as (shard, start, end); None: it names none."""
    if spans is None:
        return None
    found = {shard: EntrySet() for shard in range(len(topic.shards))}
    for shard, start, end in spans:
        if shard in found:
            found[shard].add(start, min(end, topic.shards[shard].log.entry_durable))
    return found


def check_known(context: Context, topic: Topic, known: Sequence[KnownRecord]) -> Steps[None]:
    """Raises unless the logs still have the records that a consumer knows, one shard after the other.

    A log only grows, so everything before a record that is where it was is unchanged. The record's time is
    compared too: a restored old copy may get the same record at the same place again.
    """
    for each in known:
        shards, entry = topic.shards, each.first_entry
        if each.shard >= len(shards) or entry >= shards[each.shard].log.entry_durable:
            raise _another_incarnation(topic, each)
        log = shards[each.shard].log
        if entry < log.entry_first or entry in log.compacted:
            continue  # retention or compaction removed it
        _, found = yield from topic.read(context, Fetch, each.shard, entry, 1)
        if not all(_is_same(record, each) for record in found.records[:1]):
            raise _another_incarnation(topic, each)


def _is_same(record: StoredRecord, known: KnownRecord) -> bool:
    """Whether a record that was read is the one that a consumer knows; damage may hide it."""
    header = record.header
    if header.first_entry > known.first_entry:
        return True
    found = (header.first_entry, header.block, record.segment, header.stored_at_us)
    return found == (known.first_entry, known.block, known.segment, known.stored_at_us)


def _another_incarnation(topic: Topic, known: KnownRecord) -> IncarnationChanged:
    return IncarnationChanged(
        f"shard {known.shard} of topic {topic.shown} does not have what this consumer read at entry "
        f"{known.first_entry}: an old copy was restored",
        hint="Drop what was read before, and subscribe again without it.",
    )


def not_held(topic: Topic, shard: int, incarnation: int, entry: int) -> IncarnationChanged:
    log = topic.shards[shard].log
    return IncarnationChanged(
        f"shard {shard} of topic {topic.shown} does not have what incarnation {incarnation} had before entry "
        f"{entry}: it lost entries, or an old copy was restored; it is in incarnation {log.incarnation} now, "
        f"its entries end at {log.entry_durable}"
    )


def check_positions(topic: Topic, positions: Sequence[int], incarnations: Sequence[int] | None) -> None:
    """Raises unless there is one position per shard, each in the incarnation that is named, if one is."""
    for each in (positions, incarnations):
        if each is not None and len(each) != len(topic.shards):
            raise BadRequest(f"{len(each)} positions for the {len(topic.shards)} shards of {topic.shown}")
    for shard, (incarnation, entry) in enumerate(zip(incarnations or (), positions, strict=False)):
        if not topic.shards[shard].log.holds(incarnation, entry):
            raise not_held(topic, shard, incarnation, entry)
