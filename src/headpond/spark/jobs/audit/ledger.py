"""``audit_ledger``: compares a topic's ledger, as the sent side, with the identities in a topic or archive.

The ledger of a topic knows the number of every segment that its producers announced, also of those that never
arrived. The received side is read once, as identities alone, and summed by segment; then the two are compared
as ranges of segment numbers. So this finds segments that no node ever stored, which an audit of topics cannot.

Only stored segments have a known number of messages, so missing ones are counted in segments.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from headpond.model.errors import BadRequest, LimitReached
from headpond.model.names import TopicName
from headpond.model.ranges import RangeSet
from headpond.spark.jobs.feed import Feed, FeedKind, Source, feed_of, need_columns, read, summed
from headpond.spark.jobs.work import Progress, Work, run_job
from headpond.wire.control.ledger import BlockAccount, LedgerInfo

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RUNS_MAX = 1_000_000
"""Unbroken runs of received segments."""
RANGES_MAX = 1_000
"""Missing ranges that the result lists."""
STORED, NOT_STORED = "stored", "not-stored"


class MissingSegments(msgspec.Struct, frozen=True, kw_only=True):
    """Segments of one block and shard that were announced and not received: ``first <= n < end``."""

    producer: str
    block: str
    shard: int
    first: int
    end: int
    there: str
    """At the node of the ledger: ``stored`` (or refused for good), or ``not-stored`` (a hole, or pending)."""


class SentAccount(msgspec.Struct, kw_only=True):
    """One producer; counts are segments where they do not say messages."""

    producer: str
    blocks: int = 0
    unclosed: int = 0
    """Blocks that never ended: their producer may have had more segments in memory."""
    sent: int = 0
    """Announced to the node of the ledger."""
    stored: int = 0
    """There."""
    refused: int = 0
    pending: int = 0
    holes: int = 0
    messages: int = 0
    """In the segments stored there."""
    received: int = 0
    missing: int = 0
    missing_stored: int = 0
    """Of the missing, those that the node of the ledger stored or refused."""
    ahead: int = 0
    """Received, and not announced to the node of the ledger."""
    received_messages: int = 0
    repeated_messages: int = 0
    """Further copies of a message."""
    short_messages: int = 0
    """Not received, of segments that were received in part; at least so many."""
    R: float | None = None
    """``received / sent``; with ``unclosed`` blocks at most that."""


class LedgerAudit(SentAccount, kw_only=True):
    """The result; its own counts are those of all producers together."""

    ledger_of: str
    received_from: str
    forgotten: int = 0
    """Segments of blocks of which the ledger keeps only a sum: not compared."""
    blocks_left_out: int = 0
    """Blocks beyond the limit of one answer of the node: not compared."""
    other_messages: int = 0
    """Received messages of blocks that were not compared."""
    producers: list[SentAccount] = []
    ranges: list[MissingSegments] = []
    """The first missing ranges."""
    ranges_left_out: int = 0
    seconds: float = 0.0

    @property
    def complete(self) -> bool:
        return not self.missing and not self.short_messages

    @property
    def clean(self) -> bool:
        return self.complete and not self.repeated_messages


def audit_ledger(
    topic: str,
    received: Source | DataFrame | None = None,
    *,
    producer: str | None = None,
    url: str | None = None,
    token: str | None = None,
    received_url: str | None = None,
    received_token: str | None = None,
    master: str | None = None,
    progress: Progress | None = None,
) -> LedgerAudit:
    """Compares the ledger of ``topic``, or of one ``producer`` in it, with the messages received.

    ``received`` is by default the same topic, on another node with ``received_url``; or an archive of it. It
    must have the original identities: messages that a pipeline wrote have others.
    """
    name = str(TopicName.parse(topic))
    sent = feed_of(f"{FeedKind.TOPIC}:{name}", "the sent side", url, token)
    there = (received_url, received_token) if received_url else (url, token)
    feed = feed_of(name if received is None else received, "the received side", *there)
    for each in (sent, feed):
        each.check()

    def body(work: Work) -> LedgerAudit:
        began = time.monotonic()
        work.say("reading the received side")
        # The ledger first: segments that arrive in between are then ahead of it, not missing.
        ledger = _ledger(sent, producer)
        runs = _runs(read(work.spark, feed, columns="identity"))
        found = compare(ledger, runs, producer)
        found.ledger_of = TopicName.parse(name).short + (f"@{producer}" if producer is not None else "")
        found.received_from = str(feed)
        found.seconds = round(time.monotonic() - began, 3)
        return found

    return run_job("audit", body, master=master, progress=progress)


def parse_sent(text: str) -> tuple[str, str | None]:
    """``TOPIC`` or ``TOPIC@PRODUCER``."""
    topic, at, producer = text.partition("@")
    if not topic or (at and not producer):
        raise BadRequest(f"{text!r} is not TOPIC or TOPIC@PRODUCER")
    return topic, producer or None


def _ledger(topic: Feed, producer: str | None) -> LedgerInfo:
    with topic.connect() as client:
        return client.admin.ledger(topic.name, producer=producer, segments=True)


def _runs(frame: DataFrame) -> pa.Table:
    """Unbroken runs of the segments that were received, with their messages and further copies of those."""
    need_columns(frame, ("identity",), "the received side")
    words = (("block", "string"), ("shard", "int"), ("segment", "bigint"), ("row", "bigint"))
    segments = summed(
        frame.where("identity is not null").selectExpr(
            *(f"cast(split(identity, '/')[{at}] as {kind}) as {name}" for at, (name, kind) in enumerate(words))
        ),
        ("block", "shard", "segment"),
        "count(*) as copies",
        "count(distinct row) as messages",
        "max(row) + 1 as known",
    )
    place = "row_number() over (partition by block, shard order by segment)"
    found = summed(
        segments.selectExpr("*", f"segment - {place} as run"),
        ("block", "shard", "run"),
        "min(segment) as first",
        "max(segment) + 1 as `end`",
        "sum(messages) as messages",
        "sum(copies - messages) as repeated",
        "sum(known - messages) as short",
    )
    runs = found.drop("run").limit(RUNS_MAX + 1).toArrow()
    if runs.num_rows > RUNS_MAX:
        raise LimitReached(f"the received side has more than {RUNS_MAX:,} runs of segments")
    return runs


# --- comparing --------------------------------------------------------------------------------------


def compare(ledger: LedgerInfo, runs: pa.Table, producer: str | None) -> LedgerAudit:
    """The ledger's segments against those that were received."""
    received: dict[tuple[str, int], RangeSet] = {}
    messages: dict[str, list[int]] = {}
    for run in runs.to_pylist():
        received.setdefault((run["block"], run["shard"]), RangeSet()).add(run["first"], run["end"])
        counts = messages.setdefault(run["block"], [0, 0, 0])
        for at, name in enumerate(("messages", "repeated", "short")):
            counts[at] += run[name]
    total = LedgerAudit(producer="", ledger_of="", received_from="", blocks_left_out=ledger.blocks_left_out)
    by_name: dict[str, SentAccount] = {}
    missing: list[MissingSegments] = []
    for block in ledger.blocks:
        account = by_name.setdefault(block.account.producer, SentAccount(producer=block.account.producer))
        _add(account, block)
        lacking = _compare(account, block, received)
        missing += lacking
        unique, repeated, short = messages.pop(block.block.hex(), (0, 0, 0))
        account.received_messages += unique
        account.repeated_messages += repeated
        # Only the ledger's count shows rows missing at the end of a segment, and only if no segment is missing.
        account.short_messages += max(short, 0 if lacking else block.account.messages - unique)
    total.other_messages = sum(unique + repeated for unique, repeated, _ in messages.values())
    announced = sum(account.announced for account in ledger.producers)
    total.forgotten = announced - sum(account.sent for account in by_name.values())
    total.producers = sorted(by_name.values(), key=lambda account: account.producer)
    for account in total.producers:
        for field in SentAccount.__struct_fields__:
            if field not in ("producer", "R"):
                setattr(total, field, getattr(total, field) + getattr(account, field))
        account.R = _share(account)
    total.producer, total.R = producer or "", _share(total)
    total.ranges = missing[:RANGES_MAX]
    total.ranges_left_out = len(missing) - len(total.ranges)
    return total


def _add(account: SentAccount, block: BlockAccount) -> None:
    counts = block.account
    account.blocks += 1
    account.unclosed += counts.unclosed + counts.open
    account.sent += counts.announced
    account.refused += sum(counts.refused.values())
    for name in ("stored", "pending", "holes", "messages"):
        setattr(account, name, getattr(account, name) + getattr(counts, name))


def _compare(
    account: SentAccount, block: BlockAccount, received: dict[tuple[str, int], RangeSet]
) -> list[MissingSegments]:
    found: list[MissingSegments] = []
    for each in block.segments:
        came = received.get((block.block.hex(), each.shard), RangeSet())
        announced, admitted = RangeSet(each.announced), RangeSet(each.admitted)
        known = _count(span for run in came for span in announced.overlap(*run))
        account.received += known
        account.ahead += came.count - known
        for run in (span for each_run in announced for span in came.missing(*each_run)):
            account.missing += run[1] - run[0]
            account.missing_stored += _count(admitted.overlap(*run))
            parts = [(span, STORED) for span in admitted.overlap(*run)]
            parts += [(span, NOT_STORED) for span in admitted.missing(*run)]
            found += [
                MissingSegments(
                    producer=account.producer,
                    block=block.block.hex(),
                    shard=each.shard,
                    first=first,
                    end=end,
                    there=there,
                )
                for (first, end), there in sorted(parts)
            ]
    return found


def _count(spans: Iterable[tuple[int, int]]) -> int:
    return sum(end - start for start, end in spans)


def _share(account: SentAccount) -> float | None:
    return account.received / account.sent if account.sent else None
