"""What a consumer says became of entries: checked as a whole, then applied as a whole."""

from __future__ import annotations

from headpond.model.errors import BadRequest, TopicNotFound
from headpond.model.ranges import RangeSet
from headpond.node.core.attachment import Attachment
from headpond.node.core.settlement_records import Settlement
from headpond.node.core.subscription import Change, Subscription
from headpond.node.core.topics import Topic
from headpond.wire.control import Settle


def check_settle(topic: Topic | None, subscription: Subscription, ask: Settle) -> int:
    """Refuses a settlement before any of it takes effect: positions are never ahead of the log.

    Returns the end of its shard's log.
    """
    if topic is None:
        raise TopicNotFound("the topic was deleted")
    if ask.shard >= len(topic.shards):
        raise BadRequest(f"topic {topic.shown} has no shard {ask.shard}")
    end = topic.shards[ask.shard].log.entry_durable
    spans = [*ask.acked, *ask.skipped, *((entry, entry + 1) for entry, _ in ask.nacked)]
    if ask.upto is not None:
        if not subscription.single:
            raise BadRequest(f"a {subscription.kind} subscription takes no cumulative acknowledgement")
        if ask.upto > end:
            raise BadRequest(f"entries up to {ask.upto} cannot be settled: the shard's entries end at {end}")
    for start, stop in spans:
        if not start < stop <= end:
            raise BadRequest(f"entries {start} to {stop} cannot be settled: the shard's entries end at {end}")
    return end


def settle(
    subscription: Subscription,
    ask: Settle,
    by: Attachment,
    end: int,
    clock_us: int,
    now_us: int,
    change: Change,
) -> tuple[Settlement, int]:
    """Applies a settlement; returns what the journal is to hold, and how much of it came late.

    The shard's log is at ``end``; ``clock_us`` is the clock's time, ``now_us`` the time of day.
    """
    acked, skipped = RangeSet(ask.acked), RangeSet(ask.skipped)  # each entry once, however often it is named
    late = sum(subscription.ack(ask.shard, *span, by, change) for span in acked)
    late += sum(subscription.skip(ask.shard, *span, by, change) for span in skipped)
    if ask.upto is not None:
        subscription.ack_upto(ask.shard, ask.upto, by, change)
    refused: list[tuple[int, int, int, int, int]] = []
    repeated = ask.number <= by.repeats_to
    by.settle_number = max(by.settle_number, ask.number)
    for entry, delay_s in ask.nacked:
        refusal = subscription.nack(ask.shard, entry, delay_s, clock_us, end, by, repeated=repeated)
        if refusal is None:
            late += 1
            change.overtaken.append((by, ask.shard, entry, entry + 1))
            continue
        told = (refusal.deliveries, refusal.due_us + now_us - clock_us, refusal.bound)
        if refused and refused[-1][1:] == (entry, *told):
            refused[-1] = (refused[-1][0], entry + 1, *told)
        else:
            refused.append((entry, entry + 1, *told))
    for first, last, *_ in refused:  # only now: who steps back has the rest taken away, uncounted
        if not repeated:
            subscription.failed(by, ask.shard, first, last, change)
    topic, name = subscription.topic_uuid, subscription.name
    handed = subscription.cursors[ask.shard].tally.handed
    subscription.cursors[ask.shard].noted = handed
    settlement = Settlement(
        topic, name, ask.shard, list(acked), list(skipped), [], refused, upto=ask.upto, handed=handed
    )
    return settlement, late
