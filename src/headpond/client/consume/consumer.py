"""The consumer: messages or batches out, settlements in.

This is the program's side: which message comes next, and which entries a settlement means. Its ``core`` is the
nodes' side: an ``NodeIntake`` at one node, or a ``Spread`` over the intakes at several.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from time import monotonic
from typing import Any, Generic, Self

from headpond.client.arguments import check_argument, checked
from headpond.client.consume.batch import Batch, NodeEntries, only
from headpond.client.consume.gate import OrderGate
from headpond.client.consume.intake import NodeIntake
from headpond.client.consume.settler import DELAY_MAX_S, Nack, Settler, fit_reason
from headpond.client.consume.shelf import Shelf
from headpond.client.consume.spread import Spread
from headpond.client.link.link import Link
from headpond.client.options import ConsumerOptions, LostSpan, NodeState
from headpond.client.scope import AsyncScope
from headpond.model.bounds import Span
from headpond.model.errors import BadRequest, HeadpondError
from headpond.model.message import Message, ValueT
from headpond.model.names import TopicName
from headpond.model.policy import Policy

TOGETHER_BYTES = 8 * 1024 * 1024
"""Rows that ``next_batches`` takes at once: the credit counts them compressed, and they may be much more."""


class Consumer(AsyncScope, Generic[ValueT]):
    """Reads one subscription. Open it with ``async with client.consumer(topic, subscription) as consumer``."""

    internal = AsyncScope.internal | {
        *("ahead_bytes", "core", "drops", "life", "repeats", "stopped", "strict"),
        *("keep_unread", "next_batches", "put_back", "record", "send_settlements"),
    }

    def __init__(
        self,
        links: Sequence[Link],
        topic: str,
        subscription: str,
        name: str | None,
        options: ConsumerOptions,
        make_settler: Callable[[int, int], Settler] = Settler,
    ) -> None:
        self.topic = str(TopicName.parse(topic))
        self.subscription = subscription
        self.name = name or ""
        self._options = options
        self._make_settler = make_settler
        self._again: Batch | None = None
        """The refused message, come again."""
        self._gate: OrderGate
        self._shelf: Shelf
        self.core: NodeIntake | Spread
        """The part that talks to the nodes."""
        self._connect(links)

    def _connect(self, links: Sequence[Link]) -> None:
        """Prepares to read these services, whatever was read before."""
        self._links = links
        self._gate, self._shelf = OrderGate(monotonic), Shelf(self)
        if len(links) == 1 and not links[0].may_change:
            self.core = self._new_intake(links[0], self._options.create, None)
        else:
            create, dedup = self._options.create, self._options.dedup
            self.core = Spread(links, self._new_intake, self._gate, self._shelf, create=create, dedup=dedup)

    def _new_intake(self, link: Link, create: bool, spread: Spread | None) -> NodeIntake:
        """With one link, its intake shares the consumer's gate; with several, each has its own."""
        gate = self._gate if len(self._links) == 1 else OrderGate(monotonic)
        if spread is not None:
            gate.forget()  # the order of another node's messages does not hold here
        return NodeIntake(
            link,
            self.topic,
            self.subscription,
            self.name,
            replace(self._options, create=create),
            make_settler=self._make_settler if spread is None else Settler,
            gate=gate,
            holder=spread or self._shelf,
            others=spread,
        )

    # --- life ---------------------------------------------------------------------------------------

    async def open(self) -> Self:
        """Subscribes; ``async with`` does this, unless it is done already."""
        if not self.core.is_open:
            await self._links[0].at_group(self._open_at)
        return self

    async def _open_at(self, link: Link) -> None:
        needs_spread = len(self._links) > 1 or link.may_change
        if self.core.used or link is not self._links[0] or needs_spread != isinstance(self.core, Spread):
            self._connect([link, *self._links[1:]])
        await self.core.open()

    async def close(self) -> None:
        """Brings settlements to the node's disk, within ``close_timeout``, and releases unsettled messages.

        Settlements that did not get there are raised: as ``TimedOut``, or as the error that ended the
        subscription. Of several nodes, those that are away get nothing, which is logged.
        """
        await self.core.close()

    @property
    def shown(self) -> str:
        return f"the consumer of {self.topic}"

    # --- state --------------------------------------------------------------------------------------

    @property
    def stopped(self) -> HeadpondError | None:
        """Why nothing can be read or settled now; None while the consumer is open."""
        return self.core.stopped

    @property
    def strict(self) -> bool:
        """Whether settlements belong on the event loop: the client holds the order, or reads several nodes."""
        return self._gate.strict or isinstance(self.core, Spread)

    @property
    def repeats(self) -> bool:
        """Whether messages may wait to be handed out that were handed out before."""
        return self._gate.repeats

    @property
    def policy(self) -> Policy:
        """The subscription's redelivery policy, with every default filled in."""
        return self.core.policy

    @property
    def active(self) -> bool:
        """In a failover subscription: whether this consumer is the one that reads now."""
        return self.core.active

    @property
    def paused(self) -> bool:
        """Whether somebody paused the subscription, at every node that is read."""
        return self.core.paused

    @property
    def lost(self) -> list[LostSpan]:
        """Entries that will not be delivered: damaged at the node, or not readable here.

        The node settles damaged ones. Those that this client could not read (the reason says so) are not
        settled: they are in flight until this consumer closes, then go to the next one, which may be able to
        read them.
        """
        return self.core.lost

    @property
    def nodes(self) -> list[NodeState]:
        """The services that are read, and the state of each."""
        return self.core.nodes

    @property
    def copies(self) -> int:
        """Messages that the client held back, because another node had delivered them."""
        return self.core.copies

    @property
    def life(self) -> int:
        """How often the topic was found to be another incarnation: somebody restored an old copy of it."""
        return self.core.life

    @property
    def dropped(self) -> int:
        """How many settlements the client dropped, because their messages are of an incarnation that ended."""
        return self.core.dropped

    @property
    def drops(self) -> int:
        """How often messages were dropped before the program got them, since they may be another's now."""
        return self._shelf.drops

    @property
    def ahead_bytes(self) -> int:
        """About what the consumer keeps in memory of messages that the program does not have."""
        return self.core.ahead_bytes + self._shelf.bytes

    def keep_unread(
        self,
        unread: Callable[[], list[tuple[int, Span]]],
        take_unread: Callable[[], list[tuple[int, Span]]],
        withdraw: Callable[[int, list[Span]], None],
    ) -> None:
        """Messages that were taken wait elsewhere until the program gets them: in the blocking twin's thread.

        With several nodes the program has what the twin took.
        """
        if isinstance(self.core, NodeIntake):
            self._shelf.keep_elsewhere(unread, take_unread, withdraw)

    # --- reading ------------------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        """One message after the other; a loop that was left, or a wait that was given up, can continue.

        In a resilient subscription (unique, failover) the next one comes once the one before it was settled.
        """
        return self

    async def __anext__(self) -> Message[ValueT]:
        gate = self._gate
        if (
            message := self._at_hand() if gate.shut or gate.strict else next(self._shelf.current, None)
        ) is None:
            message = await self._next_message()
        if message is None:
            raise StopAsyncIteration
        return message

    async def receive(self, timeout: float | None = None) -> Message[ValueT] | None:
        """The next message; None if none comes within ``timeout`` seconds, or the consumer was closed."""
        if timeout is not None:
            check_argument("timeout", timeout, float | None)
        gate = self._gate
        message = self._at_hand() if gate.shut or gate.strict else next(self._shelf.current, None)
        if message is not None:
            return message
        try:
            async with asyncio.timeout(timeout):
                return await self._next_message()
        except TimeoutError:
            return None

    def _at_hand(self) -> Message[Any] | None:
        """The next message of the current batch, if the order allows it, without waiting."""
        gate = self._gate
        if gate.shut or monotonic() >= gate.check_at:
            return None
        message = next(self._shelf.current, None)
        if message is not None:
            gate.in_hand, gate.shut = message, True
        return message

    async def _next_message(self) -> Message[Any] | None:
        gate, shelf, core = self._gate, self._shelf, self.core
        self._again = None
        if not core.is_open:
            await core.next_batch()  # raises an error if the consumer was never open
            return None
        while True:
            if gate.shut or (gate.strict and monotonic() >= gate.check_at):
                if (message := await self._pass()) is not None:
                    break
                if gate.strict and core.over:
                    if (batch := await core.next_batch()) is None:
                        return None
                    shelf.batches.append(batch)
                    continue
            if (message := next(shelf.current, None)) is not None:
                break
            if shelf.batches:
                shelf.begin(shelf.batches.popleft())
            elif (batch := await core.next_batch()) is not None:
                shelf.batches.append(batch)
            else:
                return None
        if gate.strict:
            gate.hand(message)
        return message

    async def _pass(self) -> Message[Any] | None:
        """Waits until something may be handed out; returns the refused message, if that comes first."""
        gate, core = self._gate, self.core
        while not core.over:
            if gate.awaited is not None and gate.may_hand_again:
                while (batch := core.take_again()) is not None:  # others were settled while they came
                    if (one := only(batch, [_span(gate.awaited[1])])) is not None:
                        self._again = one
                        return one.messages()[0]
            if not gate.shut and monotonic() < gate.check_at:
                return None
            await gate.wait()
        return None

    def batches(self) -> AsyncIterator[Batch]:
        """One batch after the other: rows of one or more stored segments of a shard, as columns.

        In a resilient subscription (unique, failover, shared) a batch is one message.
        """
        return Batches(self._next_batch)

    async def next_batches(self, count_max: int) -> list[Batch]:
        """Waits for a batch, and takes what else has arrived; an empty list once the consumer is closed."""
        batch = await self._next_batch()
        batches: list[Batch] = []
        size = 0
        while batch is not None:
            batches.append(batch)
            size += batch.nbytes
            room = len(batches) < count_max and size < TOGETHER_BYTES
            more = room and not self._gate.shut and not self._gate.strict
            batch = self.core.take() if more else None
        return batches

    async def _next_batch(self) -> Batch | None:
        gate, shelf = self._gate, self._shelf
        if self.core.is_open and gate.strict:
            message = await self._next_message()
            if message is None or self._again is not None or shelf.batch is None:
                return self._again
            return only(shelf.batch, [_span(message.entry)], message.attempt)
        if self.core.is_open and gate.shut:
            await self._pass()
        if (rest := shelf.rest()) is not None:
            return rest
        return shelf.batches.popleft() if shelf.batches else await self.core.next_batch()

    def put_back(self, what: Message[Any] | Batch, *, rows: Any = None) -> None:
        """The program did not look at these messages: closing does not count them as an attempt."""
        self.core.release(self._entries(what, rows))

    # --- settling: recorded at once, and on the node's disk when `flush` returns --------------------

    async def ack(self, what: Message[Any] | Batch, *, rows: Any = None) -> None:
        """Acknowledges: the node does not redeliver it. ``rows`` of a batch: a boolean mask, or row numbers.

        Returns when the client has recorded it; ``flush()`` when it is on the node's disk.
        """
        core = self.core
        if core.stopped is not None:
            raise core.stopped.again()
        if (
            isinstance(what, Message)
            and rows is None
            and type(core) is NodeIntake
            and what.origin.topic == self.topic
            and what.origin.life == core.life
        ):
            entry, shard, gate = what.entry, what.origin.shard, self._gate
            pending = core.settler.ack(shard, entry, entry + 1)
            if gate.in_hand is what:
                gate.let_go()
            elif gate.strict or gate.repeats:
                core.settled(shard, entry, entry + 1)
            if core.timer is None or pending >= core.settle_messages:
                core.recorded(pending)
        else:
            core.settle(self._entries(what, rows))

    @checked
    async def ack_range(self, shard: int, first: int, last: int) -> None:
        """Acknowledges the entries ``first`` to ``last``, both included, of a shard."""
        self._check_open()
        self.core.settle_range(shard, first, last, skip=False)

    @checked
    async def ack_upto(self, message: Message[Any]) -> None:
        """Acknowledges a message and all before it on its shard; not in shared and key_shared subscriptions."""
        self._check_open()
        entries = self._entries(message, None)
        if entries.spans:
            self.core.ack_upto(entries)

    async def skip(self, what: Message[Any] | Batch, *, rows: Any = None) -> None:
        """Settles messages as not wanted: like an acknowledgement, and counted separately."""
        self._check_open()
        self.core.settle(self._entries(what, rows), skip=True)

    @checked
    async def skip_range(self, shard: int, first: int, last: int) -> None:
        """Skips the entries ``first`` to ``last``, both included, of a shard."""
        self._check_open()
        self.core.settle_range(shard, first, last, skip=True)

    @checked
    async def nack(
        self, what: Message[Any] | Batch, delay: float | None = None, *, reason: str = "", rows: Any = None
    ) -> None:
        """Refuses: the node redelivers it after ``delay`` seconds, or after the subscription's backoff.

        In a resilient subscription nothing else comes before it. The node lists ``reason`` with the message
        until it is settled, and puts it into its dead letter; 512 characters at most.
        """
        self._check_open()
        if delay is not None and not 0 <= delay <= DELAY_MAX_S:
            raise BadRequest(f"a delay of {delay} s; it must be between 0 and {DELAY_MAX_S:.0f}")
        self.core.refuse(self._entries(what, rows), Nack(delay, fit_reason(reason)))

    @checked
    async def dead_letter(self, what: Message[Any] | Batch, *, reason: str = "", rows: Any = None) -> None:
        """Refuses finally: the node copies it to the dead-letter topic, with ``reason``, and settles it."""
        self._check_open()
        self.core.refuse(self._entries(what, rows), Nack(0.0, fit_reason(reason), dead=True))

    @checked
    async def extend(self, what: Message[Any] | Batch, seconds: float | None = None) -> None:
        """Moves the deadline of held messages to ``seconds`` from now (None: the policy's)."""
        self._check_open()
        if seconds is not None and not 0 <= seconds <= DELAY_MAX_S:
            raise BadRequest(f"an extension by {seconds} s; it must be between 0 and {DELAY_MAX_S:.0f}")
        self.core.extend(self._entries(what, None), seconds)

    async def flush(self) -> None:
        """Returns when every settlement recorded before is on the node's disk.

        With several nodes: on the disks of those that are there, of one at least.
        """
        if self.core.stopped is not None:
            raise self.core.stopped.again()
        await self.core.flush()

    def send_settlements(self) -> None:
        """Sends every settlement recorded so far."""
        self.core.send_settlements()

    def record(self, settle: Callable[[int, int, int], int], what: Message[Any] | Batch, rows: Any) -> int:
        """Records entries with a method of the settler, without sending; returns how many settlements wait."""
        _, shard, spans = self._entries(what, rows)
        pending = 0
        for start, end in spans:
            pending = settle(shard, start, end)
        return pending

    def _entries(self, what: Message[Any] | Batch, rows: Any) -> NodeEntries:
        """The entries that are meant; none if an old copy of the topic was restored since they came."""
        if not isinstance(what, Message | Batch):
            raise BadRequest(f"a message or a batch can be settled, not {type(what).__name__}")
        origin = what.origins[0] if isinstance(what, Batch) else what.origin
        if origin.topic != self.topic:
            raise BadRequest(f"this message is of {origin.topic}, and this consumer of {self.topic}")
        if origin.life != self.core.life:
            self.core.dropped += len(what) if isinstance(what, Batch) else 1
            spans = []
        elif isinstance(what, Batch):
            spans = what.spans if rows is None else what.select(rows)
        elif rows is not None:
            raise BadRequest("rows chooses from a batch; this is one message")
        else:
            spans = [_span(what.entry)]
        return NodeEntries(origin.node, origin.shard, spans)

    def _check_open(self) -> None:
        if self.core.stopped is not None:
            raise self.core.stopped.again()


class Batches:
    """Not an async generator: a program may give up the wait for a batch and still get it with the next one."""

    def __init__(self, next_batch: Callable[[], Awaitable[Batch | None]]) -> None:
        self._next_batch = next_batch

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Batch:
        if (batch := await self._next_batch()) is None:
            raise StopAsyncIteration
        return batch


def _span(entry: int) -> Span:
    return entry, entry + 1
