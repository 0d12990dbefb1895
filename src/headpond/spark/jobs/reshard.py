"""``reshard``: copies a topic to a new one with another number of shards, and compares the two.

A topic's shards are fixed for its life, so ``reshard`` creates a topic with the columns and settings of the old
one and replays the old one into it: exactly once, restartable, and with the messages of a key in order, since a
key's messages are in one shard before and after. An audit then compares the two by ``headpond-origin``.
"""

from __future__ import annotations

import json
import time

import msgspec

from headpond.model.errors import BadRequest, TopicMismatch, TopicNotFound
from headpond.spark.jobs.audit.audit import ORIGIN_HEADER, AuditResult, compare, keys_of
from headpond.spark.jobs.feed import Feed, topic_of
from headpond.spark.jobs.replay import (
    BATCH_ENTRIES,
    ReplayLane,
    ReplayResult,
    ReplayTarget,
    run_lanes,
    topic_lanes,
)
from headpond.spark.jobs.work import Progress, Work, run_job
from headpond.wire.control.catalog import TopicInfo
from headpond.wire.typed.schema import decode_schema

WINDOW_S = 3600.0


class ReshardResult(msgspec.Struct, frozen=True, kw_only=True):
    """The messages written, and the result of the audit."""

    source: str
    target: str
    shards_before: int
    shards: int
    rows: int
    """Written by this run."""
    there: int
    """Written by earlier ones."""
    sent: int
    missing: int
    repeated: int
    strangers: int
    """Messages of the new topic that came from elsewhere."""
    in_order: bool
    """Whether the messages of each old shard are in order in each new shard."""
    verified: bool
    """Whether no message is missing or repeated, and all are in order."""
    seconds: float


def reshard(
    source: str,
    target: str,
    shards: int,
    *,
    batch_entries: int = BATCH_ENTRIES,
    url: str | None = None,
    token: str | None = None,
    master: str | None = None,
    progress: Progress | None = None,
) -> ReshardResult:
    """Copies the messages of ``source`` to ``target``; run again, it adds the new ones."""
    hint = "Name topics, as NAME or topic:NAME."
    feed = topic_of(source, "the topic", hint, url, token)
    goal = topic_of(target, "the new topic", hint, url, token)
    if feed == goal:
        raise BadRequest(
            f"{feed} cannot become itself", hint="Name a new topic: shards are fixed for its life."
        )
    before, uuid = _prepare(feed, goal, shards)
    began = time.monotonic()

    def body(work: Work) -> tuple[ReplayResult, AuditResult]:
        lanes = topic_lanes(work.spark, feed, None, None, batch_entries)
        written = run_lanes(work, feed, lanes, ReplayTarget(goal, uuid), None, began)
        work.say("comparing the two")
        return written, _audit(work, feed, goal, lanes)

    written, found = run_job("reshard", body, master=master, progress=progress)
    in_order = found.orders is not None and "strict" in found.orders.held
    return ReshardResult(
        source=feed.name,
        target=goal.name,
        shards_before=before.shards,
        shards=shards,
        rows=written.rows,
        there=written.there,
        sent=found.sent,
        missing=found.missing,
        repeated=found.repeated,
        strangers=found.strangers + found.received_unnamed,
        in_order=in_order,
        verified=in_order and not found.missing and not found.repeated,
        seconds=round(time.monotonic() - began, 3),
    )


def _prepare(feed: Feed, goal: Feed, shards: int) -> tuple[TopicInfo, str]:
    """Creates the new topic like the old one, or takes the one that an earlier run created."""
    with feed.connect() as client:
        before = client.admin.show_topic(feed.name)
        if not any(shard.entry_next > shard.entry_first for shard in before.shard_list):
            raise BadRequest(f"{feed} is empty", hint="There is nothing to reshard; create a topic instead.")
        try:
            after = client.admin.show_topic(goal.name)
        except TopicNotFound:
            schema = None if before.schema is None else decode_schema(before.schema)
            own = {each.name: each.value for each in before.settings if each.origin == "topic"}
            after = client.admin.create_topic(goal.name, shards, schema=schema, settings=own)
    if after.shards != shards:
        raise TopicMismatch(
            f"{goal.name} is there with {after.shards} shards, and {shards} were asked for",
            hint="Name a topic that is not there, or the number that it has.",
        )
    return before, after.uuid.hex()


def _audit(work: Work, feed: Feed, goal: Feed, lanes: list[ReplayLane]) -> AuditResult:
    """Compares the replayed messages with the new topic; messages sent to the old one since do not count."""
    limits: dict[str, str | None] = {
        name: json.dumps({str(shard): place for shard, place in enumerate(places)})
        for name, places in (("start", [lane.first for lane in lanes]), ("end", [lane.end for lane in lanes]))
    }
    keys = keys_of(f"headers['{ORIGIN_HEADER}']", None)
    return compare(work, (feed, goal), keys, limits, WINDOW_S)
