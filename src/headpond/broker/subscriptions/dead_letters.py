"""Dead letters: a message that reached ``max_attempts``, or that a consumer refused for good, is copied to the
dead-letter topic, and then settled.

A copy's identity is made from the subscription and the entry: block = hash of (topic, subscription, shard,
number of redrives), segment = the entry. So a copy that a crash interrupts is made again and is a duplicate.
The copy is a plain message with the original's value (a typed topic's as JSON), key, id and headers, and
headers that name its origin. While a copy cannot be made nothing is settled; the subscription shows why
(``bury_fault``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from hashlib import blake2b
from typing import Any

import pyarrow as pa

from headpond.broker.catalog.topic_requests import TopicRequests
from headpond.broker.catalog.topics import Catalog, Shard, Topic
from headpond.broker.context import Context
from headpond.broker.effects import Fetch
from headpond.broker.ingest.admission import Admit, Early
from headpond.broker.steps import Steps, on_disk, run
from headpond.broker.stores import Stores
from headpond.broker.subscriptions.records import Settlement
from headpond.broker.subscriptions.subscription import Subscription
from headpond.model.bounds import Span
from headpond.model.errors import (
    BadRequest,
    HeadpondError,
    SegmentTooLarge,
    TopicNotFound,
)
from headpond.model.identity import SEGMENT_NUMBER_MAX, Identity
from headpond.storage.log.read import ReadResult, StoredRecord, segment_of
from headpond.wire.frame import FrameType, encode
from headpond.wire.plain.columns import rows_to_batch
from headpond.wire.plain.segment import encode_plain
from headpond.wire.typed.record import stored_rows
from headpond.wire.typed.values import python_values, value_json

READ_BYTES = 256 * 1024
COPIES_MAX = 256
"""Made in one step, so that many of them do not delay other work."""
AGAIN_US = 1_000_000
"""How long to wait after a failure."""
MAX_ATTEMPTS, REFUSED = "max-attempts", "refused"
"""The reason of a copy whose consumers gave none."""
DEAD_LETTERS = "(dead letters)"
"""The producer of the copies, as the ledger shows it."""


Full = Callable[[Topic, int], HeadpondError | None]
"""Why a topic cannot store that many bytes now: the disk's watermark, a tenant's quota."""


class DeadLetters:
    def __init__(
        self,
        context: Context,
        stores: Stores,
        topics: TopicRequests,
        *,
        done: Callable[[Subscription, int, list[Span]], None],
        full: Full,
    ) -> None:
        self._context = context
        self._stores = stores
        self._topics = topics
        self._counters = context.counters
        self._done = done
        self._full = full

    def bury(self, subscription: Subscription, topic: Topic) -> None:
        """Begins to copy and settle dying entries, unless that is under way."""
        if subscription.burying or subscription.bury_again_us > self._context.clock_us():
            return
        subscription.burying = True
        subscription.bury_again_us = 0
        shard = next(index for index, cursor in enumerate(subscription.cursors) if cursor.dying)
        run(
            self._copied(subscription, topic, shard),
            partial(self._settle, subscription, shard),
            partial(self._fail, subscription),
        )

    def _copied(self, subscription: Subscription, topic: Topic, shard: int) -> Steps[list[Span]]:
        """Copies some dying entries of a shard; returns them once the copies are on the disk."""
        dying = subscription.cursors[shard].dying
        if not subscription.policy.dead_letter:
            return list(dying.spans(0, dying.end))
        dead = yield from self._topics.ensure(subscription.policy.dead_letter)
        entry = dying.first
        if entry is None:  # settled meanwhile
            return []
        if (unfit := unfit_for_copies(dead)) is not None:
            raise unfit
        _, originals = yield from topic.read(self._context, Fetch, shard, entry, READ_BYTES)
        if self._stores.catalog.by_uuid(dead.uuid) is not dead:  # the next attempt creates it again
            raise TopicNotFound(f"topic {dead.shown} was deleted meanwhile")
        spans = self._copy(subscription, topic, dead, shard, originals)
        if spans:
            yield on_disk(dead.shards[shard % len(dead.shards)].lane)
        return spans

    def _copy(
        self, subscription: Subscription, topic: Topic, dead: Topic, shard: int, originals: ReadResult
    ) -> list[Span]:
        """Appends a copy of every dying row; returns their spans, and those of rows that cannot be read."""
        cursor = subscription.cursors[shard]
        target = dead.shards[shard % len(dead.shards)]
        entries: list[int] = []
        full: HeadpondError | None = None
        for record in originals.records:
            header = record.header
            spans = list(cursor.dying.spans(header.first_entry, header.end_entry))
            if spans and len(entries) < COPIES_MAX:
                wanted = [entry for span in spans for entry in range(*span)][:COPIES_MAX]
                size = sum(map(len, record.parts)) * len(wanted) // (header.end_entry - header.first_entry)
                if (full := self._full(dead, size)) is not None:
                    break
                self._copy_rows(subscription, topic, target, shard, record, wanted)
                entries += wanted
        lost = [span for start, end in originals.lost for span in cursor.dying.spans(start, end)]
        if full is not None and not entries and not lost:
            raise full
        return [(entry, entry + 1) for entry in entries] + lost

    def _copy_rows(
        self,
        subscription: Subscription,
        topic: Topic,
        target: Shard,
        shard: int,
        record: StoredRecord,
        entries: list[int],
    ) -> None:
        first = record.header.first_entry
        try:
            stored = stored_rows(segment_of(record), topic.schemas, record.header.stored_at_us)
            rows = _rows(stored, [entry - first for entry in entries])
        except HeadpondError:  # consumers cannot read it either: it is settled without a copy
            self._counters["messages_dead_without_copy"] += len(entries)
            return
        for entry, row in zip(entries, rows, strict=True):
            origin = Identity(record.header.block, shard, record.segment, entry - first)
            headers = self._headers(subscription, topic, shard, entry, origin)
            try:
                self._append(subscription, target, shard, entry, row, headers)
            except SegmentTooLarge:
                self._counters["messages_dead_without_copy"] += 1

    def _headers(
        self, subscription: Subscription, topic: Topic, shard: int, entry: int, origin: Identity
    ) -> dict[str, str]:
        cursor = subscription.cursors[shard]
        attempts = cursor.delivered.of(entry)
        word = REFUSED if cursor.may_be_tried_after(attempts) else MAX_ATTEMPTS
        return {
            "dead.reason": cursor.reasons.of(entry) or word,
            "dead.attempts": str(attempts),
            "dead.topic": topic.name,
            "dead.subscription": subscription.name,
            "dead.shard": str(shard),
            "dead.entry": str(entry),
            "dead.identity": str(origin),
        }

    def _append(
        self,
        subscription: Subscription,
        target: Shard,
        shard: int,
        entry: int,
        row: dict[str, Any],
        headers: dict[str, str],
    ) -> None:
        value = row.get("value")
        if isinstance(value, dict):
            value = value_json(value)
        own = dict(row.get("headers") or [])
        batch = rows_to_batch([value], [row.get("key")], [row.get("id")], [own | headers], [row["sent_at"]])
        body = encode_plain(batch)
        block, segment = _identity(subscription, shard, entry)
        crc = int.from_bytes(encode(FrameType.SEGMENT, body, segment=segment)[-4:], "little")
        verdict = target.admission.decide(block, segment)
        if isinstance(verdict, Early):
            target.admission.declare(block, segment)
            verdict = target.admission.decide(block, segment)
        if not isinstance(verdict, Admit):
            return  # the copy exists already
        target.log.marks.book.tally(
            block, DEAD_LETTERS, self._stores.catalog.run, self._context.now_us(), sparse=True
        )
        target.log.append(
            block=block,
            segment=segment,
            count=1,
            origin_crc=crc,
            stored_at_us=self._context.now_us(),
            body=body,
        )
        target.admission.admitted(block, segment)
        self._counters["messages_dead"] += 1

    # --- ends ---------------------------------------------------------------------------------------

    def _settle(self, subscription: Subscription, shard: int, spans: list[Span]) -> None:
        buried = [span for span in spans if subscription.bury(shard, *span) > 0]
        if buried:
            topic, name = subscription.topic_uuid, subscription.name
            self._stores.settlements.stage(Settlement(topic, name, shard, [], [], [], [], buried))
        subscription.burying = False
        subscription.bury_fault = ""
        self._done(subscription, shard, buried)

    def _fail(self, subscription: Subscription, error: HeadpondError) -> None:
        """Nothing was settled; it is repeated after a while."""
        self._counters["burials_failed"] += 1
        subscription.burying = False
        subscription.bury_fault = error.message
        subscription.bury_again_us = self._context.clock_us() + AGAIN_US
        self._done(subscription, 0, [])


def _identity(subscription: Subscription, shard: int, entry: int) -> tuple[bytes, int]:
    """The block and segment of an entry's copy."""
    high, segment = divmod(entry, SEGMENT_NUMBER_MAX)
    words = (subscription.topic_uuid.hex(), subscription.name, shard, high, subscription.redrives)
    return blake2b(
        "/".join(map(str, words)).encode(), digest_size=16, person=b"headpond.dead"
    ).digest(), segment


def _rows(batch: pa.RecordBatch, places: list[int]) -> list[dict[str, Any]]:
    """Some rows as Python values of any type; the time is a number."""
    chosen = batch.take(pa.array(places, pa.int64()))
    columns = dict(zip(chosen.schema.names, chosen.columns, strict=True))
    columns["sent_at"] = columns["sent_at"].view(pa.int64())
    values = [python_values(column) for column in columns.values()]
    return [dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True)]


def check_dead_letter(catalog: Catalog, topic: Topic, dead_letter: str | None) -> None:
    """Refuses a dead-letter topic that could never take a copy."""
    if dead_letter == topic.name:
        raise BadRequest(
            f"topic {topic.shown} cannot be its own dead-letter topic: dead messages would be delivered again"
        )
    dead = catalog.by_name(dead_letter or "")
    if dead is not None and (unfit := unfit_for_copies(dead)) is not None:
        raise unfit


def unfit_for_copies(dead: Topic) -> BadRequest | None:
    """Why a topic cannot take copies of any message; None where it can."""
    if dead.schemas is not None:
        why = "is typed"
    elif dead.is_state:  # a copy would become, or delete, the current value of its key
        why = "is a state topic"
    else:
        return None
    return BadRequest(
        f"topic {dead.shown} {why}; a dead-letter topic must be plain, to take copies of any message",
        hint='Name another with dead_letter="NAME" in the policy (--dead-letter NAME), or "" for none.',
    )
