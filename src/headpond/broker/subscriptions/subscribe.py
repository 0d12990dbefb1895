"""What a consumer may ask for when it comes, and may say when it leaves; checked before anything is made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from headpond.broker.catalog.topics import Topic
from headpond.broker.session import Session
from headpond.broker.steps import Steps, Wait
from headpond.broker.stores import Stores
from headpond.broker.subscriptions.attachment import CREDIT_BYTES_MAX, Attachment
from headpond.broker.subscriptions.dead_letters import check_dead_letter
from headpond.broker.subscriptions.records import Opened, encode_change
from headpond.broker.subscriptions.subscription import Subscription, check_active
from headpond.model.entry_set import EntrySet
from headpond.model.errors import (
    BadRequest,
    HeadpondError,
    IncarnationChanged,
    LimitReached,
    ProtocolError,
    StorageFailed,
    SubscriptionMismatch,
    TopicMismatch,
    TopicNotFound,
)
from headpond.model.names import is_part
from headpond.model.policy import Policy
from headpond.storage.disk import Disk
from headpond.storage.log.compact import StateScan
from headpond.storage.log.read import StoredRecord
from headpond.storage.long_work import ShardPlace
from headpond.wire.control.consuming import KnownRecord, Subscribe, Subscribed
from headpond.wire.frame import FILE_BODY_BYTES_MAX

STATE = "state"
WAITING_MAX = 256
"""Subscriptions that are being created from a topic's state at a time."""

ShardStart = tuple[int, bytes]
"""A shard's end, and the bitmap of the entries before it that are current."""


class StateStarts:
    """Finds out where a subscription begins that starts with the current state of a state topic.

    A worker thread reads one shard after the other (storage/log/compact.py). The result becomes one record of
    the settlement journal, together with the subscription: each shard's end, and which entries before it are
    current. The stream follows behind these ends, so there is no gap and no repeat.
    """

    def __init__(self, stores: Stores) -> None:
        self._stores = stores
        self._finding: dict[tuple[bytes, str], list[Wait[list[ShardStart]]]] = {}
        """By topic and subscription: everybody else who waits for the result."""

    def find(self, topic: Topic, name: str, start: str | int) -> Steps[list[ShardStart]]:
        """Each shard's state if a new subscription starts with it, else an empty list."""
        if start != STATE or self._stores.subscriptions.get(topic.uuid, name) is not None:
            return []
        if not topic.is_state:
            raise BadRequest(
                f"start {STATE!r}: topic {topic.shown} is no state topic",
                hint="Create one with `headpond topic create TOPIC --state`, or start at earliest or latest.",
            )
        key = (topic.uuid, name)
        if (others := self._finding.get(key)) is not None:
            others.append(Wait())
            found: list[ShardStart] = yield others[-1]
            return found
        if len(self._finding) >= WAITING_MAX:
            raise LimitReached(f"{WAITING_MAX} subscriptions are being made from a topic's state; try again")
        others = self._finding[key] = []
        try:
            found = yield from self._scan(topic)
        except HeadpondError as error:
            del self._finding[key]
            for other in others:
                other.failed(error)
            raise
        del self._finding[key]
        for other in others:
            other.done(found)
        return found

    def _scan(self, topic: Topic) -> Steps[list[ShardStart]]:
        found: list[tuple[int, EntrySet]] = []
        for number, shard in enumerate(topic.shards):
            scan = StateScan(shard.log, self._stores.settings.limits.state_bytes, topic.schemas)
            wait: Wait[OSError | None] = Wait()
            self._stores.long_work.add(_ScanJob((topic.uuid, number), scan, wait.done))
            error = yield wait
            if self._stores.catalog.by_uuid(topic.uuid) is not topic:
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
            raise LimitReached(f"the state of topic {topic.shown} takes {size:,} bytes to write down")
        return states


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


CONSUMERS_MAX = 1024

KINDS = ("unique", "shared", "failover", "key_shared")
MODES = ("resilient", "non_resilient")


def check_subscription(name: str, kind: str, mode: str, policy: Policy | None) -> None:
    """Refuses what cannot be a subscription before anything is made for it."""
    if kind not in KINDS:
        raise BadRequest(f"kind {kind!r} is none of {', '.join(KINDS)}")
    if mode not in MODES:
        raise BadRequest(f"mode {mode!r} is none of {', '.join(MODES)}")
    _check_name(name, "subscription")
    if policy is not None:
        policy.checked()


def check_subscribe(session: Session, ask: Subscribe, topic: Topic) -> None:
    """Refuses what cannot be a consumer."""
    if ask.topic_uuid is not None and ask.topic_uuid != topic.uuid:
        raise TopicMismatch(f"topic {topic.shown} is not the one that this consumer read before")
    check_subscription(ask.subscription, ask.kind, ask.mode, ask.policy)
    if ask.consumer in session.consumers:
        raise ProtocolError(f"consumer {ask.consumer} is open already on this connection")
    if len(session.consumers) + len(session.subscribing) > CONSUMERS_MAX:
        raise LimitReached(f"a connection holds at most {CONSUMERS_MAX} consumers")


def _check_name(name: str, what: str) -> None:
    """Subscription names follow the rule of a topic name's part."""
    if not is_part(name):
        raise BadRequest(
            f"{what} name {name[:80]!r} is not allowed",
            hint="Use 1-128 of letters, digits, '.', '_' or '-', starting with a letter or digit, "
            "with no '..' and no '.' at the end.",
        )


def find_or_open(
    stores: Stores,
    topic: Topic,
    name: str,
    kind: str,
    mode: str,
    start: str | int | list[int],
    policy: Policy | None,
    now_us: int,
    state: list[ShardStart] | None = None,
    *,
    may_make: Callable[[Topic], None],
) -> Subscription:
    """The subscription of that name; a new one is staged in the journal, for the caller to wait for.

    ``state`` is each shard's, of one that begins with it. ``may_make`` raises why the topic's
    tenant cannot have another one.
    """
    subscription = stores.subscriptions.get(topic.uuid, name)
    if subscription is None:
        limit = stores.settings.limits.subscriptions
        if len(stores.subscriptions) >= limit:
            raise LimitReached(f"this node holds at most {limit} subscriptions (limits.subscriptions)")
        may_make(topic)
        start = "earliest" if state else start
        by_shard = start if isinstance(start, list) else [start] * len(topic.shards)
        if len(by_shard) != len(topic.shards):
            raise BadRequest(f"{len(by_shard)} positions for the {len(topic.shards)} shards of {topic.shown}")
        starts = [start_entry(topic, shard, place) for shard, place in enumerate(by_shard)]
        effective = topic.settings.policy(policy).effective(topic.name, mode)
        check_dead_letter(stores.catalog, topic, effective.dead_letter)
        run = stores.runs.number
        opened = Opened(topic.uuid, name, kind, mode, starts, now_us, effective, run, state or [])
        stores.subscriptions.apply(opened)
        stores.settlements.append(encode_change(opened))
        subscription = stores.subscriptions.get(topic.uuid, name)
        assert subscription is not None
        for number, shard in enumerate(topic.shards):
            for passed in stores.subscriptions.pass_compacted(subscription, number, shard.log.compacted):
                stores.settlements.append(encode_change(passed))
    elif (subscription.kind, subscription.mode) != (kind, mode):
        raise SubscriptionMismatch(
            f"subscription {name!r} of {topic.shown} is {subscription.kind}, "
            f"{subscription.mode}; it was asked for as {kind}, {mode}"
        )
    return subscription


def attach(session: Session, ask: Subscribe, subscription: Subscription) -> Attachment:
    """A consumer as its subscription knows it; a copy of another node's has none."""
    check_active(subscription.name, subscription.copy, ask.topic)
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
    """What a consumer is told of its standing."""
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


def seen_by_shard(seen: Sequence[tuple[int, int, int]] | None, topic: Topic) -> dict[int, EntrySet] | None:
    """What a consumer's program was handed, of what there is; None: it does not say."""
    if seen is None:
        return None
    by_shard = {shard: EntrySet() for shard in range(len(topic.shards))}
    for shard, start, end in seen:
        if shard in by_shard:
            by_shard[shard].add(start, min(end, topic.shards[shard].log.entry_durable))
    return by_shard


def is_there(topic: Topic, known: KnownRecord) -> bool:
    """Whether a log reaches to what a consumer knows of it."""
    shards = topic.shards
    return known.shard < len(shards) and known.first_entry < shards[known.shard].log.entry_durable


def is_gone(topic: Topic, known: KnownRecord) -> bool:
    """Whether nothing stands there any more: retention dropped it, or compaction took it out."""
    if not is_there(topic, known):
        return False
    log = topic.shards[known.shard].log
    return known.first_entry < log.entry_first or known.first_entry in log.compacted


def is_known(record: StoredRecord, known: KnownRecord) -> bool:
    """Whether a record that was found is the one that a consumer knows; damage may hide that."""
    header = record.header
    if header.first_entry > known.first_entry:
        return True
    found = (header.first_entry, header.block, record.segment, header.stored_at_us)
    return found == (known.first_entry, known.block, known.segment, known.stored_at_us)


def another_incarnation(topic: Topic, known: KnownRecord) -> IncarnationChanged:
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
    """Raises unless there is a position a shard, each in the incarnation that is named, if one is."""
    for told in (positions, incarnations):
        if told is not None and len(told) != len(topic.shards):
            raise BadRequest(f"{len(told)} positions for the {len(topic.shards)} shards of {topic.shown}")
    for shard, (incarnation, entry) in enumerate(zip(incarnations or (), positions, strict=False)):
        if not topic.shards[shard].log.holds(incarnation, entry):
            raise not_held(topic, shard, incarnation, entry)


def start_entry(topic: Topic, shard: int, start: str | int) -> int:
    """The first entry that a new subscription reads of a shard."""
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
    if start == STATE:
        raise BadRequest(
            "a subscription begins with a topic's state when it is made, and not later",
            hint="Delete it and make it anew, or make another one.",
        )
    try:
        time = datetime.fromisoformat(start)
    except ValueError:
        raise BadRequest(
            f"start {start!r} is none of earliest, latest, state, an entry number or a time",
            hint="Write a time as 2026-01-31T12:00:00+00:00.",
        ) from None
    time = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return log.find_time(round(time.timestamp() * 1e6))
