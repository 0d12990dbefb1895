"""What a consumer says became of entries: checked as a whole, then applied as a whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from headpond.broker.catalog.topics import Topic
from headpond.broker.session import Session
from headpond.broker.subscriptions.attachment import Attachment
from headpond.broker.subscriptions.records import Settlement
from headpond.broker.subscriptions.subscription import Change, Subscription
from headpond.model.errors import BadRequest, HeadpondError, TopicNotFound
from headpond.model.ranges import RangeSet
from headpond.storage.commit_lane import CommitLane
from headpond.wire.control.codec import encode_control
from headpond.wire.control.consuming import Settle, Settled


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


# Confirmations: a consumer hears that its settlements are durable, once for all that went with one write.
#
# SETTLED says that everything up to its number is on the disk, so one stands for those before it. While a
# write is under way a busy consumer settles many times; all of that goes with the next write, and is told in
# one frame.


@dataclass(slots=True)
class Confirmation:
    """What one consumer is to hear when a write is done."""

    behind: int
    """How many writes had begun before it."""
    number: int = 0
    late: int = 0
    cost_bytes: int = 0

    def take_in(self, number: int, late: int, cost_bytes: int) -> None:
        self.number = max(self.number, number)
        self.late += late
        self.cost_bytes += cost_bytes


class Confirming:
    def __init__(self, lane: CommitLane, send: Callable[[int, list[bytes]], None]) -> None:
        self._lane = lane
        self._send = send

    def settled(
        self, session: Session, attachment: Attachment, number: int, late: int, cost_bytes: int
    ) -> None:
        """Tells the consumer once what is staged now is durable; until then it counts as memory of its own."""
        session.unacked_bytes += cost_bytes
        staged, known = self._lane.appender.staged.bytes > 0, attachment.confirmation
        if staged and known is not None and known.behind == self._lane.writes:
            known.take_in(number, late, cost_bytes)
            return
        made = Confirmation(self._lane.writes)
        made.take_in(number, late, cost_bytes)
        attachment.confirmation = made if staged else None  # if nothing is, its write has begun or is done
        self._lane.wait(partial(self._tell, session, attachment.consumer, made))

    def _tell(self, session: Session, consumer: int, told: Confirmation, error: HeadpondError | None) -> None:
        session.unacked_bytes -= told.cost_bytes
        self._send(session.connection, [encode_control(Settled(consumer, told.number, told.late))])
