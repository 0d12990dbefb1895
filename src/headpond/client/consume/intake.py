"""The intake: a consumer's part at one node. It subscribes, takes deliveries and sends settlements.

Deliveries wait undecoded until they are asked for; credit goes back to the node as they are taken.

When the connection is lost, the node gives to others what it had sent ahead. So the consumer drops everything
that the program does not have. It subscribes again over the next connection in three steps:

1. SUBSCRIBE, without credit, names what the program has in hand: only that was an attempt.
2. After SUBSCRIBED the intake sends the settlements that were not confirmed, and then the credit.
3. The node offers again what is not settled. The program does not get twice what it has in hand: it can settle
   it as before. A unique or failover subscription keeps it for this consumer if that is the active one;
   otherwise the node may offer it again, and the intake passes over it.

This holds for one topic only: if another topic of that name answers, entries mean other messages, and the
subscription ends for this consumer.

The gate decides whether a message may be handed out; the node's messages about that go to the gate.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from time import monotonic
from typing import Protocol

import msgspec

from headpond.client.consume.batch import Batch, NodeEntries, RecordReader
from headpond.client.consume.deliveries import Deliveries
from headpond.client.consume.gate import IN_HAND_MAX, InHand, OrderGate
from headpond.client.consume.settler import Nack, Settler
from headpond.client.consume.shelf import Places
from headpond.client.link.link import Link
from headpond.client.options import ConsumerOptions, LostSpan, NodeState
from headpond.model.bounds import ENTRY_MAX, Span, check_fields
from headpond.model.errors import (
    BadRequest,
    Closed,
    HeadpondError,
    IncarnationChanged,
    SchemaMismatch,
    SubscriptionMoved,
    TimedOut,
    TopicMismatch,
)
from headpond.model.policy import Policy
from headpond.model.ranges import RangeSet
from headpond.wire.control.consuming import (
    Credit,
    Deliver,
    Extend,
    GiveBack,
    KnownRecord,
    Lost,
    Renew,
    Settle,
    Settled,
    Subscribe,
    Subscribed,
    Unsubscribe,
    Unsubscribed,
)
from headpond.wire.frame import Frame
from headpond.wire.typed.versions import SchemaVersions

log = logging.getLogger("headpond.client")

SETTLE_AFTER_S = 0.005
SETTLE_MESSAGES = 1024
"""Settlements are sent after this long or this many, whichever is first."""
SETTLE_RESILIENT_MESSAGES = 256
"""In a strict subscription: the most messages that a consumer's death makes come again."""
SUBSCRIBE_TIMEOUT_S = 30.0
STATE_TIMEOUT_S = 600.0
"""A subscription that starts with a topic's state exists when the node has read the whole topic."""
INSTANCE_BYTES = 16
RENEWALS = 3
"""RENEW frames per lease."""
EXTENSIONS = 10
"""EXTEND frames per deadline, for messages that were sent ahead: a deadline counts from the moment when the
program gets a message, less a tenth at most."""
SPANS_MAX = 4096
SINGLE = ("unique", "failover")
"""Kinds in which one consumer gets everything: the node keeps for it what its program has in hand."""
OTHER_TOPIC_HINT = (
    "The topic was deleted and created again, or another node answers. Open a new consumer to read this one."
)


class Holder(Protocol):
    """Holds batches until the program has their messages; ``node`` is that of an intake beside others."""

    def unread(self, node: str | None) -> Places:
        """The entries that it holds."""

    def take_unread(self, node: str | None) -> Places:
        """The same, and holds them no longer."""

    def withdraw(self, shard: int, spans: list[Span], node: str | None) -> None:
        """Drops entries that must not be handed out."""


class Others(Protocol):
    """Joins the intakes of a consumer of several nodes, which may have copies of each other's messages."""

    def on_settle(self, node: str, frames: list[Settle]) -> None:
        """The intake takes settlements, to send them."""

    def on_moved(self, node: str) -> None:
        """Somebody moved the subscription at the node: everything may come again."""

    def on_lost(self, entries: NodeEntries, reason: str) -> None:
        """The node will not deliver entries."""

    def on_up(self, intake: NodeIntake) -> None:
        """A node answers again, perhaps another one than that of the intake."""

    def on_down(self, intake: NodeIntake) -> None:
        """The node is away."""


class Heartbeat:
    """Sends RENEW while the consumer lives, and EXTEND for the ``unread`` entries: those not handed out yet."""

    def __init__(self, link: Link, consumer: int, unread: Callable[[], Places]) -> None:
        self._link = link
        self._consumer = consumer
        self._unread = unread
        self._renew_s = self._extend_s = 0.0
        self._renewing: asyncio.TimerHandle | None = None
        self._extending: asyncio.TimerHandle | None = None
        self._sent: dict[int, float] = {}
        self._number = 0

    def begin(self) -> None:
        """A SUBSCRIBE is sent: a lease that it brings begins now."""
        self.stop()
        self._number = 0
        self._sent = {0: monotonic()}

    def stop(self) -> None:
        for timer in (self._renewing, self._extending):
            if timer is not None:
                timer.cancel()
        self._renewing = self._extending = None

    def on_subscribed(self, message: Subscribed) -> float:
        """Returns when the lease that the message reports began."""
        deadline = message.policy.deadline if message.policy is not None else None
        self._renew_s = message.lease_s / RENEWALS
        self._extend_s = (deadline or 0.0) / EXTENSIONS
        loop = asyncio.get_running_loop()
        if self._renewing is None and self._renew_s:
            self._renewing = loop.call_later(self._renew_s, self._renew)
        if self._extending is None and self._extend_s:
            self._extending = loop.call_later(self._extend_s, self._extend)
        since = self._sent.get(message.renewal, 0.0)
        self._sent = {number: at for number, at in self._sent.items() if number >= message.renewal}
        return since

    def _renew(self) -> None:
        self._number += 1
        self._sent[self._number] = monotonic()
        self._link.send(Renew(self._consumer, self._number))
        self._renewing = asyncio.get_running_loop().call_later(self._renew_s, self._renew)

    def _extend(self) -> None:
        for shard, spans in in_frames(self._unread()):
            self._link.send(Extend(self._consumer, shard, spans))
        self._extending = asyncio.get_running_loop().call_later(self._extend_s, self._extend)


def in_frames(places: Places) -> Iterator[tuple[int, list[Span]]]:
    """Spans by shard, joined where they touch, and not too many for one frame."""
    by_shard: dict[int, RangeSet] = {}
    for shard, span in places:
        by_shard.setdefault(shard, RangeSet()).add(*span)
    for shard, entries in by_shard.items():
        spans = list(entries)
        for at in range(0, len(spans), SPANS_MAX):
            yield shard, spans[at : at + SPANS_MAX]


class NodeIntake:
    """``others`` joins it with the intakes at other nodes; None if the consumer reads only this one."""

    def __init__(
        self,
        link: Link,
        topic: str,
        subscription: str,
        name: str,
        options: ConsumerOptions,
        *,
        make_settler: Callable[[int, int], Settler],
        gate: OrderGate,
        holder: Holder,
        others: Others | None = None,
    ) -> None:
        self.number = link.next_number()
        self.info: Subscribed | None = None
        self.stopped: HeadpondError | None = Closed("the consumer is not open")
        """Why nothing can be read or settled now; None while the intake is open."""
        self.error: HeadpondError | None = None
        """The error that ended the subscription for this consumer."""
        self.is_open = False
        self.used = False
        """Whether it was opened before; it cannot be opened twice."""
        self.node: str | None = None
        """The node, in a consumer of several."""
        self.ended_elsewhere = False
        """Whether it ended because another node answered."""
        self.attached = False
        """Whether the node said on the present connection that this consumer is subscribed."""
        self.away = asyncio.Event()
        """Set while no node answers."""
        self.life = 0
        """How often the topic was found to be another incarnation: somebody restored an old copy of it."""
        self.dropped = 0
        """Settlements dropped for that, and earlier messages that the program settled since."""
        self.lost: list[LostSpan] = []
        self.settler = make_settler(self.number, 0)
        """Gathers settlements; the blocking twin adds to it from its own thread."""
        self.settle_messages = SETTLE_MESSAGES
        self.settle_after_s = SETTLE_AFTER_S
        self.timer: asyncio.TimerHandle | None = None
        """Runs while settlements wait to be sent."""
        self.gate = gate
        self.link = link
        self._make_settler = make_settler
        self._holder = holder
        self._others = others
        self._options = options
        self._ask = Subscribe(
            self.number,
            topic,
            subscription,
            options.kind,
            options.mode,
            options.start.isoformat() if isinstance(options.start, datetime) else options.start,
            options.credit_bytes,
            name,
            options.create,
            policy=options.policy,
            instance=os.urandom(INSTANCE_BYTES),
            keeps=True,
        )
        self._known = False
        """Whether the node may know this consumer on the present connection: then it must hear of its end."""
        self._topic_uuid: bytes | None = None
        self._schemas: SchemaVersions | None = None
        """For a typed topic; a new one comes before the first record that needs it."""
        self._subscribed: asyncio.Future[Subscribed] | None = None
        self._left: asyncio.Future[None] | None = None
        self._unconfirmed = 0
        """Settlements that the end of the subscription left unconfirmed."""
        self._heartbeat = Heartbeat(link, self.number, self._sent_ahead)
        self._arrived = asyncio.Event()
        self._closed = self._was_open = False
        self._owed_bytes = 0
        self._in_hand = InHand()
        self._deliveries = Deliveries(
            gate, self._in_hand, read=self._read, owe=self._owe, on_unreadable=self._report_lost
        )
        self._named: list[tuple[int, int, int]] | None = None
        """What the last SUBSCRIBE named as in hand."""
        self._attempts = 0
        self._retry: asyncio.TimerHandle | None = None

    # --- life ---------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Subscribes; a refusal is raised."""
        self.used = True
        check_fields(self._ask)
        self.link.check_loop()
        self._subscribed = asyncio.get_running_loop().create_future()
        self.link.add_consumer(self.number, self)
        self._heartbeat.begin()
        self._known = self.link.send(self._ask)  # while the link is down, `on_up` does it
        timeout_s = STATE_TIMEOUT_S if self._ask.start == "state" else SUBSCRIBE_TIMEOUT_S
        try:
            async with asyncio.timeout(timeout_s):
                info = await self._subscribed
        except BaseException as error:
            self.end()
            if isinstance(error, TimeoutError):
                raise TimedOut(f"subscribing was not answered within {timeout_s:.3g} s") from None
            raise
        if self.gate.strict:
            self.settle_messages = SETTLE_RESILIENT_MESSAGES
        elif info.mode == "resilient":  # the node waits for each settlement before it sends more
            self.settle_after_s = 0.0
        self.settler = self._make_settler(self.number, info.shards)
        if self._others is not None:
            self.node = self.link.welcome.node if self.link.welcome is not None else ""
        self.stopped = self.error
        self.is_open = self._was_open = True

    async def close(self) -> None:
        """Brings settlements to the node's disk, within ``close_timeout``; unsettled messages are released.

        Settlements that did not get there are raised: as ``TimedOut``, or as the error that ended the
        subscription.
        """
        if not self.is_open:
            return
        self.is_open = False
        self.stopped = Closed("the consumer was closed")
        if self.timer is not None:
            self.timer.cancel()
        self.drop_unread()
        try:
            async with asyncio.timeout(self._options.close_timeout):
                if self.error is None:
                    await self.flush()
                    self._left = asyncio.get_running_loop().create_future()
                    if self._say_goodbye():
                        await self._left
                elif self._unconfirmed:
                    raise self.error.again()
        except TimeoutError:
            raise TimedOut(
                f"settlements were not confirmed within {self._options.close_timeout:.3g} s",
                hint="The messages settled last may come again to the next consumer of this subscription.",
            ) from None
        finally:
            self.end()

    def _say_goodbye(self) -> bool:
        """Detaches without waiting, once per connection: a closed consumer never locks a subscription."""
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        known, self._known = self._known, False
        self.attached = False
        self._heartbeat.stop()
        return known and self.link.send(Unsubscribe(self.number, self._in_hand.spans()))

    def end(self) -> None:
        """Ends without a flush; a waiter for a batch gets None."""
        self.is_open = False
        self._closed = True
        self._say_goodbye()
        self._deliveries.clear()
        self.link.remove_consumer(self.number)
        self._arrived.set()
        self.gate.knock()

    def abandon(self) -> int:
        """Ends without a word to a node that is away; returns how many settlements the node did not confirm."""
        dropped = self._drop_settlements()
        self.end()
        return dropped

    # --- state --------------------------------------------------------------------------------------

    @property
    def over(self) -> bool:
        """Whether nothing more will come."""
        return self._closed or self.error is not None

    @property
    def reachable(self) -> bool:
        return self.stopped is None and self.link.up

    @property
    def policy(self) -> Policy:
        return (self.info.policy if self.info is not None else None) or Policy()

    @property
    def active(self) -> bool:
        return self.gate.active

    @property
    def paused(self) -> bool:
        return self.gate.paused

    @property
    def nodes(self) -> list[NodeState]:
        welcome = self.link.welcome
        state = "reading" if self.reachable else "away"
        return [NodeState(self.link.service, welcome.node if welcome is not None else None, state)]

    @property
    def copies(self) -> int:
        return 0

    @property
    def ahead_bytes(self) -> int:
        """Of what the node sent ahead and nobody took yet."""
        return self._deliveries.bytes

    # --- batches ------------------------------------------------------------------------------------

    async def next_batch(self) -> Batch | None:
        """The next batch, however long it takes; None once the consumer is closed."""
        self.link.check_loop()
        while True:
            if not self._was_open:
                raise Closed("the consumer is not open")
            if not self.is_open:
                return None
            if self.error is not None:
                raise self.error.again()
            if self.gate.shut and not self.gate.strict:
                await self.gate.wait()
                continue
            if (batch := self._deliveries.take()) is not None:
                return batch
            self._arrived.clear()
            await self._arrived.wait()

    def take(self) -> Batch | None:
        """The next batch of what has arrived."""
        return self._deliveries.take()

    def take_again(self) -> Batch | None:
        """The refused message, if it has come again."""
        return self._deliveries.take_again()

    def _read(self, run: Sequence[Frame], deliver: Deliver) -> Batch | None:
        node = self.link.welcome.node if self.link.welcome else ""
        return RecordReader(self._ask.topic, node, self._schemas, self.life).read(run, deliver)

    def _report_lost(self, shard: int, spans: list[Span], reason: str) -> None:
        for start, end in spans:
            span = LostSpan(shard, start, end, reason)
            self.lost.append(span)
            topic = self._ask.topic
            log.warning("%s: shard %d, entries %d to %d lost: %s", topic, shard, start, end - 1, reason)
            if self._options.on_lost is not None:
                self._options.on_lost(span)

    def _owe(self, size: int) -> None:
        """Returns credit in quarters, so that the node is never out of it while the client has room."""
        self._owed_bytes += size
        if self._owed_bytes * 4 >= self._ask.credit_bytes:
            self.link.send(Credit(self.number, self._owed_bytes))
            self._owed_bytes = 0

    # --- deliveries that the program does not have --------------------------------------------------

    def _sent_ahead(self) -> Places:
        return self._deliveries.queued() + self._holder.unread(self.node)

    def drop_unread(self) -> Places:
        """Drops messages that were taken and are not in hand: they count as not taken."""
        dropped = self._holder.take_unread(self.node)
        for shard, span in dropped:
            self._in_hand.discard(shard, [span])
        return dropped

    def _drop_ahead(self) -> None:
        """What the node sent ahead is no longer this consumer's."""
        self._deliveries.drop()
        self.drop_unread()

    def _give_back_ahead(self) -> None:
        """The node recalls what it sent ahead: another consumer came, or a key is to move on."""
        dropped = self._deliveries.drop()
        if self._others is None:  # otherwise copies that are held are among what is unread
            dropped += self.drop_unread()
        for shard, spans in in_frames(dropped):
            self.link.send(GiveBack(self.number, shard, spans))
        self.link.send(GiveBack(self.number, 0, [], done=True))

    def give_back(self, entries: NodeEntries) -> None:
        """Asks the node to offer entries again that the program did not get."""
        self.release(entries)
        self.link.send(GiveBack(self.number, entries.shard, entries.spans))

    def release(self, entries: NodeEntries) -> None:
        """The program did not look at these entries: closing does not count them as an attempt."""
        self._in_hand.discard(entries.shard, entries.spans)

    def _withdraw(self, shard: int, spans: list[Span]) -> None:
        """Entries were settled or refused, here or by another consumer: copies that wait are not handed out."""
        self._deliveries.withdraw(shard, spans)
        self._holder.withdraw(shard, spans, self.node)
        self._deliveries.note_repeats(self._holder.unread(self.node))

    # --- settlements --------------------------------------------------------------------------------

    def settle(self, entries: NodeEntries, *, skip: bool = False) -> None:
        """Records entries as settled."""
        pending = 0
        record = self.settler.skip if skip else self.settler.ack
        for start, end in entries.spans:
            pending = record(entries.shard, start, end)
            self.settled(entries.shard, start, end)
        self.recorded(pending)

    def settle_range(self, shard: int, first: int, last: int, *, skip: bool) -> None:
        """Records the entries ``first`` to ``last`` of a shard as settled."""
        if self.info is None or not 0 <= shard < self.info.shards:
            raise BadRequest(f"the topic has no shard {shard}")
        if not 0 <= first <= last < ENTRY_MAX:
            raise BadRequest(f"entries {first} to {last} are not a range below {ENTRY_MAX:,}")
        self.gate.repeats = True  # some of them may wait here to be handed out
        self.settle(NodeEntries("", shard, [(first, last + 1)]), skip=skip)

    def ack_upto(self, entries: NodeEntries) -> None:
        """Records these entries and all before them in their shard as acknowledged."""
        if self.info is not None and self.info.kind not in SINGLE:
            raise BadRequest(
                f"a {self.info.kind} subscription takes no cumulative acknowledgement: others hold messages",
                hint="Acknowledge messages, batches or ranges.",
            )
        shard, end = entries.shard, entries.spans[-1][1]
        pending = self.settler.ack_upto(shard, end)
        self.settled(shard, 0, end)
        self.recorded(pending)

    def refuse(self, entries: NodeEntries, nack: Nack) -> None:
        """Records entries as refused: the node delivers them again, unless they are dead.

        It does so in any case with those that it took back when the connection was lost. They may be on their
        way already, and a refusal would then count for that delivery.
        """
        _, shard, spans = entries
        refused = RangeSet(spans)
        for span in self._in_hand.earlier(shard, spans) if self.attached else ():
            refused.discard(*span)
        self._in_hand.discard(shard, spans)
        self.gate.refuse(shard, spans)
        if self.gate.repeats:
            self._withdraw(shard, list(refused))
        for start, end in refused:
            for entry in range(start, end):
                self.settler.nack(shard, entry, nack)
        self.recorded(0)

    def extend(self, entries: NodeEntries, seconds: float | None) -> None:
        """Moves the deadline of entries in hand."""
        self.link.send(Extend(self.number, entries.shard, entries.spans, seconds))

    def settled(self, shard: int, start: int, end: int) -> None:
        """Entries are settled as far as handing out is concerned."""
        self.gate.settle(shard, start, end)
        if self.gate.repeats:
            self._withdraw(shard, [(start, end)])

    def recorded(self, pending: int) -> None:
        """``pending`` settlements wait: sends them now if they are many, else soon."""
        if pending >= self.settle_messages:
            self.send_settlements()
        elif self.timer is None:
            self.timer = asyncio.get_running_loop().call_later(self.settle_after_s, self.send_settlements)

    def send_settlements(self) -> None:
        """Sends every settlement recorded so far, or at the next subscribing if the node is away."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        if self._others is not None:  # they may have copies of these messages
            taken = self._take_settlements()
        else:
            taken = self.settler.take() if self.attached else []
        if self.attached:
            self.link.send(*taken)

    def _take_settlements(self) -> list[Settle]:
        taken = self.settler.take()
        if taken and self._others is not None:
            self._others.on_settle(self.node or "", taken)
        return taken

    def _drop_settlements(self) -> int:
        """Forgets the settlements that are not confirmed; returns how many."""
        self._take_settlements()
        return self.settler.drop()

    async def flush(self) -> None:
        """Returns when every settlement recorded before is on the node's disk."""
        self.send_settlements()
        if self.settler.pending:
            self._take_settlements()  # the next subscribing sends them
        if self.settler.unconfirmed:
            await self.settler.flushed()

    # --- the link's events --------------------------------------------------------------------------

    def on_down(self) -> None:
        self.away.set()
        if self._others is not None:
            self._others.on_down(self)
        self.attached = self._known = False
        self._heartbeat.stop()
        self._drop_ahead()
        if self._left is not None and not self._left.done():
            self._left.set_result(None)  # the end of the connection released everything

    def on_up(self) -> None:
        self.away.clear()
        if self._others is not None:
            self._others.on_up(self)
        if self.error is None and not self._closed and self._left is None:
            self._resubscribe()

    def _resubscribe(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        self._deliveries.forget_records()
        self._owed_bytes = self._ask.credit_bytes
        if self.gate.strict:  # the node offers everything again, in its order
            self.gate.awaited = None
        self._take_settlements()
        self._in_hand.reconnect()
        unconfirmed = self.settler.unconfirmed
        refused = [(each.shard, entry, entry + 1) for each in unconfirmed for entry, _ in each.nacked]
        if len(refused) > IN_HAND_MAX:
            self._named, refused = None, []
        else:
            self._named = self._in_hand.spans(unconfirmed)
        known = [
            KnownRecord(shard, each.first_entry, each.block, each.segment, each.stored_at_us)
            for shard, each in self._deliveries.last.items()
        ]
        ask = msgspec.structs.replace(self._ask, credit_bytes=0, seen=self._named, refused=refused, known=known)
        if self._topic_uuid is not None:  # a topic created for the occasion would be another one
            ask = msgspec.structs.replace(ask, topic_uuid=self._topic_uuid, create_topic=False)
        self._heartbeat.begin()
        self._known = self.link.send(ask)

    def _resume(self) -> None:
        """Sends settlements before credit, so that the node offers no settled message again."""
        self.attached = True
        # One that stands by may be offered it again when it is active, and passes over it then. In strict order
        # the message in hand comes again first, so that the gate can open.
        holds = self.info is not None and self.info.kind in SINGLE and (self.info.active or self.gate.strict)
        if holds and self._named is not None:
            self._in_hand.keep()
        self._take_settlements()
        self.link.send(*self.settler.unconfirmed)
        self._owe(0)

    def on_writable(self) -> None:
        """A consumer writes little and does not wait for this."""

    def on_deliver(self, deliver: Deliver, frames: list[Frame]) -> None:
        if self.error is not None:
            return
        if deliver.attempt > 1 and self.settler.unconfirmed:
            self.settler.came_again(deliver.shard, deliver.spans)
        self._deliveries.add(deliver, frames, self.info)
        self._arrived.set()

    def on_control(self, message: Subscribed | Unsubscribed | Settled | Lost) -> None:
        if isinstance(message, Unsubscribed):
            if self._left is not None and not self._left.done():
                self._left.set_result(None)
        elif self.error is not None:
            return
        elif isinstance(message, Settled):
            for settle in self.settler.confirm(message.number):  # it does not come again
                self._in_hand.discard(settle.shard, settle.acked)
                if settle.skipped or settle.upto is not None:
                    self._in_hand.discard(settle.shard, [*settle.skipped, (0, settle.upto or 0)])
                if self.gate.repeats:  # the node may have sent it again before it had the settlement
                    self._withdraw(settle.shard, [*settle.acked, *settle.skipped, (0, settle.upto or 0)])
        elif isinstance(message, Subscribed):
            self._on_subscribed(message)
        else:
            self._on_lost(message)

    def _on_lost(self, message: Lost) -> None:
        self.gate.lost(message.shard, message.spans)
        if self._others is not None:
            self._others.on_lost(NodeEntries(self.node or "", message.shard, message.spans), message.reason)
        if message.reason == "settled":
            self._withdraw(message.shard, message.spans)
        elif message.reason not in ("dead", "expired"):
            self._report_lost(message.shard, message.spans, message.reason)

    def _on_subscribed(self, message: Subscribed) -> None:
        self._attempts = 0
        try:
            if message.schemas and (self._schemas is None or list(self._schemas.encoded) != message.schemas):
                self._schemas = SchemaVersions(message.schemas)
                self._deliveries.forget_rows()
        except SchemaMismatch as error:  # a newer node may have types that this client does not know
            self.on_error(error)
            return
        if self._topic_uuid is None:
            self._topic_uuid = message.topic_uuid
        elif self._topic_uuid != message.topic_uuid:
            self._finish(TopicMismatch(f"topic {message.topic} is not the one that this consumer read before"))
            return
        since = self._heartbeat.on_subscribed(message)
        before, self.info = self.info, message
        if before is not None and not message.active:
            self._drop_ahead()
        if message.recall:
            self._give_back_ahead()
        self.gate.stand(
            strict=message.lease_s > 0,  # in other resilient kinds the node sends only what may be handed out
            active=message.active,
            paused=message.paused,
            lease_s=message.lease_s,
            since=since,
        )
        if not self.attached and self.error is None:
            self._resume()
        if self._subscribed is not None and not self._subscribed.done():
            self._subscribed.set_result(message)

    def on_error(self, error: HeadpondError) -> None:
        if self.error is not None:
            return
        self.attached = False
        if self._subscribed is not None and not self._subscribed.done():
            self._known = False
            self._subscribed.set_exception(error)
        elif isinstance(error, IncarnationChanged) and self._others is None:
            self._begin_again(error)
        elif error.retryable:
            self._let_go(error)
            log.warning("subscription %s: %s; trying again", self._ask.subscription, error.message)
            if self._retry is None:
                delay_s = self.link.backoff.delay_s(self._attempts)
                self._attempts += 1
                self._retry = asyncio.get_running_loop().call_later(delay_s, self._resubscribe)
        else:
            self._finish(error)

    def _begin_again(self, error: IncarnationChanged) -> None:
        """Somebody restored an old copy of the topic: entries mean other messages, and nothing known holds."""
        self._heartbeat.stop()
        self._drop_ahead()
        self._deliveries.forget_records()
        in_hand, unsent = self._in_hand.count, self._drop_settlements()
        self._in_hand.clear()
        self.gate.forget()
        self._deliveries.last.clear()
        self.life += 1
        self.dropped += unsent
        self.settler.fail(error)
        log.warning(
            "%s: %s; %d messages in hand are not settled, %d settlements are dropped",
            self._ask.topic,
            error.message,
            in_hand,
            unsent,
        )
        self._resubscribe()

    def _let_go(self, error: HeadpondError) -> None:
        """The deliveries are no longer this consumer's; after a move, its settlements are void, too."""
        self._heartbeat.stop()
        self.gate.end_lease()
        self._drop_ahead()
        if isinstance(error, SubscriptionMoved):
            self._in_hand.clear()
            self.gate.forget()
            self._drop_settlements()
            self.settler.fail(error)
            if self._others is not None:
                self._others.on_moved(self.node or "")

    def _finish(self, error: HeadpondError) -> None:
        """Ends the subscription for this consumer, and lets others have it."""
        if isinstance(error, TopicMismatch):  # the entries are those of other messages there
            self._in_hand.clear()
            error = TopicMismatch(error.message, hint=OTHER_TOPIC_HINT)
        welcome = self.link.welcome
        self.ended_elsewhere = welcome is not None and bool(self.node) and self.node != welcome.node
        self._unconfirmed = self._drop_settlements()
        if self._unconfirmed:
            many = self._unconfirmed
            what = "1 settlement was" if many == 1 else f"{many:,} settlements were"
            error = type(error)(f"{error.message}; {what} not confirmed and dropped", hint=error.hint)
        self.error = error
        if self.is_open:
            self.stopped = error
        self.settler.fail(error)
        self._deliveries.clear()
        self._arrived.set()
        self.gate.knock()
        self._say_goodbye()
