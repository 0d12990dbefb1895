"""The consumer: messages or batches out, settlements in."""

from __future__ import annotations

import asyncio
import logging
import os
from abc import abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import datetime
from operator import length_hint
from time import monotonic
from typing import Any, Self

from headpond.client.arguments import check_argument, checked
from headpond.client.consume.batch import Batch, Batches, last_of, only, without
from headpond.client.consume.gate import Gate, covers
from headpond.client.consume.intake import Intake
from headpond.client.consume.settler import DELAY_MAX_S, Flushes, Settler
from headpond.client.link.link import Link
from headpond.client.options import ConsumerOptions, LostSpan, NodeState
from headpond.client.scope import AsyncScope
from headpond.model.bounds import ENTRY_MAX, Span
from headpond.model.errors import BadRequest, Closed, HeadpondError, TimedOut
from headpond.model.message import Message
from headpond.model.names import TopicName
from headpond.model.policy import Policy
from headpond.wire.control.consuming import Extend, Settle, Subscribe, Subscribed


class Standing:
    """The part of a consumer that one looks at."""

    stopped: HeadpondError | None
    _gate: Gate
    _intake: Intake
    _link: Link

    @property
    def strict(self) -> bool:
        """Whether this side holds the order: a message comes only after the one before it was settled."""
        return self._gate.strict

    @property
    def repeats(self) -> bool:
        """Whether messages may wait to be handed out that were handed out before."""
        return self._gate.repeats

    @property
    def policy(self) -> Policy:
        """The subscription's redelivery policy, with every default filled in."""
        info = self._intake.info
        return (info.policy if info is not None else None) or Policy()

    @property
    def active(self) -> bool:
        """Of a failover subscription: whether this consumer is the one that reads now."""
        return self._gate.active

    @property
    def paused(self) -> bool:
        """Whether somebody paused the subscription."""
        return self._gate.paused

    @property
    def lost(self) -> list[LostSpan]:
        """Entries that were reported as not to come: damaged at the node, or not readable here.

        Damaged ones are settled by the node. What could not be read here (so says the reason) is not settled:
        it is in flight until this consumer is closed, then comes to the next, which may be able to read it.
        """
        return self._intake.losses.spans if hasattr(self, "_intake") else []

    @property
    def nodes(self) -> list[NodeState]:
        """The services that are read, as they stand now."""
        link, welcome = self._link, self._link.welcome
        state = "reading" if link.up and self.stopped is None else "away"
        return [NodeState(link.service, welcome.node if welcome is not None else None, state)]

    @property
    def copies(self) -> int:
        """Messages that came and were not handed out, since another node had brought them."""
        return 0


# What a program says became of messages: acknowledged, not wanted, failed, or in need of more time.
#
# A message, a batch, some rows of one, a range of entries, or everything up to a message. All of it is
# recorded here at once; it is on the node's disk when ``flush`` returns.


class Settling:
    """The part of a consumer that settles."""

    topic: str
    settler: Settler
    stopped: HeadpondError | None
    life: int = 0
    """How often the topic was found to be another incarnation: an old copy of it was restored."""
    dropped: int = 0
    """Settlements that were dropped for that, and messages of before that the program settled since."""
    _gate: Gate

    # --- done ---------------------------------------------------------------------------------------

    async def ack(self, what: Message | Batch, *, rows: Any = None) -> None:
        """Done: the message does not come again. ``rows`` of a batch: a boolean mask, or row numbers.

        Returns when it is recorded here; ``flush()`` when it is on the node's disk.
        """
        if self.stopped is not None:
            raise self.stopped.again()
        plain = type(what) is Message and rows is None and what.origin.topic == self.topic
        if plain and what.origin.life == self.life:
            assert type(what) is Message
            entry, shard = what.entry, what.origin.shard
            pending = self.settler.ack(shard, entry, entry + 1)
            if self._gate.in_hand is what:
                self._gate.let_go()
            elif self._gate.strict or self._gate.repeats:
                self._settled_here(shard, entry, entry + 1)
        else:
            pending = self.record(self.settler.ack, what, rows)
        self._recorded(pending)

    @checked
    async def ack_range(self, shard: int, first: int, last: int) -> None:
        """Done: the entries ``first`` to ``last``, both counted, of a shard."""
        self._recorded(self._record_range(self.settler.ack, shard, first, last))

    @checked
    async def ack_upto(self, message: Message) -> None:
        """Done: this message and all before it on its shard; not in shared and key_shared subscriptions."""
        self._check_open()
        shard, spans = self._entries(message, None)
        if not spans:
            return
        end = spans[0][1]
        info = self._standing()
        if info.kind not in ("unique", "failover"):
            raise BadRequest(
                f"a {info.kind} subscription takes no cumulative acknowledgement: others hold what lies before",
                hint="Acknowledge messages, batches or ranges.",
            )
        self._recorded(self.settler.ack_upto(shard, end))
        self._settled_here(shard, 0, end)

    async def skip(self, what: Message | Batch, *, rows: Any = None) -> None:
        """Not wanted: settled like an acknowledgement, and counted apart."""
        self._check_open()
        self._recorded(self.record(self.settler.skip, what, rows))

    @checked
    async def skip_range(self, shard: int, first: int, last: int) -> None:
        """Not wanted: the entries ``first`` to ``last``, both counted, of a shard."""
        self._recorded(self._record_range(self.settler.skip, shard, first, last))

    # --- not done -----------------------------------------------------------------------------------

    @checked
    async def nack(self, what: Message | Batch, delay: float | None = None, *, rows: Any = None) -> None:
        """Failed: it comes again after ``delay`` seconds, or after the subscription's backoff.

        In a resilient subscription nothing else comes before it.
        """
        self._check_open()
        self.record_nack(what, delay, rows)
        self._recorded(0)

    @checked
    async def extend(self, what: Message | Batch, seconds: float | None = None) -> None:
        """More time: the deadline of what is in hand is ``seconds`` from now (None: as the policy says)."""
        self._check_open()
        if seconds is not None and not 0 <= seconds <= DELAY_MAX_S:
            raise BadRequest(f"an extension by {seconds} s; it must be between 0 and {DELAY_MAX_S:.0f}")
        shard, spans = self._entries(what, None)
        self._send_extension(shard, spans, seconds)

    # --- recording ----------------------------------------------------------------------------------

    def record(self, settle: Callable[[int, int, int], int], what: Message | Batch, rows: Any) -> int:
        """Puts entries down as settled, without sending; returns how many wait."""
        shard, spans = self._entries(what, rows)
        pending = 0
        for start, end in spans:
            pending = settle(shard, start, end)
            self._settled_here(shard, start, end)
        return pending

    def _record_range(self, settle: Callable[[int, int, int], int], shard: int, first: int, last: int) -> int:
        self._check_open()
        if not 0 <= shard < self._standing().shards:
            raise BadRequest(f"the topic has no shard {shard}")
        if not 0 <= first <= last < ENTRY_MAX:
            raise BadRequest(f"entries {first} to {last} are not a range below {ENTRY_MAX:,}")
        pending = settle(shard, first, last + 1)
        self._gate.repeats = True  # some of them may wait here to be handed out
        self._settled_here(shard, first, last + 1)
        return pending

    def record_nack(self, what: Message | Batch, delay: float | None, rows: Any) -> None:
        check_delay(delay)
        shard, spans = self._entries(what, rows)
        self._refused_here(shard, spans)
        for start, end in spans:
            for entry in range(start, end):
                self.settler.nack(shard, entry, delay)

    def _entries(self, what: Message | Batch, rows: Any) -> tuple[int, list[Span]]:
        """The shard and the entries that are meant."""
        if not isinstance(what, Message | Batch):
            raise BadRequest(f"a message or a batch can be settled, not {type(what).__name__}")
        if what.origin.topic != self.topic:
            raise BadRequest(f"this message is of {what.origin.topic}, and this consumer of {self.topic}")
        if what.origin.life != self.life:
            self.dropped += len(what) if isinstance(what, Batch) else 1
            return what.origin.shard, []
        if isinstance(what, Batch):
            return what.shard, what.spans if rows is None else what.select(rows)
        if rows is not None:
            raise BadRequest("rows chooses from a batch; this is one message")
        return what.origin.shard, [(what.entry, what.entry + 1)]

    def _check_open(self) -> None:
        if self.stopped is not None:
            raise self.stopped.again()

    # --- the consumer's part ------------------------------------------------------------------------

    @abstractmethod
    def _standing(self) -> Subscribed: ...

    @abstractmethod
    def _recorded(self, pending: int) -> None:
        """Something is to be sent soon."""

    @abstractmethod
    def _settled_here(self, shard: int, start: int, end: int) -> None: ...

    @abstractmethod
    def _refused_here(self, shard: int, spans: list[Span]) -> None: ...

    @abstractmethod
    def _send_extension(self, shard: int, spans: list[Span], seconds: float | None) -> None: ...


def check_delay(delay: float | None) -> None:
    if delay is not None and not 0 <= delay <= DELAY_MAX_S:
        raise BadRequest(f"a delay of {delay} s; it must be between 0 and {DELAY_MAX_S:.0f}")


SETTLE_AFTER_S = 0.005
SETTLE_MESSAGES = 1024
"""Settlements are sent after this long or this many, whichever is first."""
SETTLE_RESILIENT_MESSAGES = 256
"""In a resilient subscription: what a death makes come again at most."""
TOGETHER_BYTES = 8 * 1024 * 1024
"""Of rows that are taken at once: the window holds them folded, and they may be a hundred times that."""
INSTANCE_BYTES = 16


log = logging.getLogger("headpond.client")


class Consumer(Standing, Settling, AsyncScope):
    """Reads one subscription. Open it with ``async with client.consumer(topic, subscription) as consumer``."""

    def __init__(
        self,
        link: Link,
        topic: str,
        subscription: str,
        name: str | None,
        options: ConsumerOptions,
        make_settler: Callable[[int, int], Settler] = Settler,
    ) -> None:
        self.topic = str(TopicName.parse(topic))
        self.subscription = subscription
        self.name = name or ""
        self._link = link
        self._options = options
        self._make_settler = make_settler
        self.settler: Settler
        """Where settlements gather; the blocking twin adds to it from its own thread."""
        self._intake: Intake
        self._gate = Gate(monotonic)
        self.stopped: HeadpondError | None = Closed("the consumer is not open")
        """Why nothing can be read or settled any more, or yet."""
        self._unread_of: Callable[[], list[tuple[int, Span]]] = self._unread
        """What was taken and not handed to the application, by shard."""
        self._take_unread_of: Callable[[], list[tuple[int, Span]]] = self._take_unread
        """The same, and takes it away."""
        self._withdraw_of: Callable[[int, list[Span]], None] = lambda shard, spans: None
        """Drops entries of what waits elsewhere."""
        self.settle_messages = SETTLE_MESSAGES
        self.settle_after_s = SETTLE_AFTER_S
        self._open = False
        self._taken: deque[Batch] = deque()
        """Batches that arrived while somebody waited for a message."""
        self._batch: Batch | None = None
        self._batch_bytes = 0
        self._again: Batch | None = None
        """The message that was refused, come again."""
        self._messages: list[Message] = []
        self._current: Iterator[Message] = iter(())
        """What is left of ``_messages``, the messages of ``_batch``."""
        self._timer: asyncio.TimerHandle | None = None
        self._flushes = Flushes()
        self.drops = 0
        """How often what had been taken and not handed out was dropped, since it may be another's now."""
        self._dropped = 0
        """Settlements that the end of the subscription left unconfirmed."""

    # --- life ---------------------------------------------------------------------------------------

    async def open(self) -> Self:
        """Subscribes; ``async with`` does this, unless it is done already."""
        if self._open:
            return self
        options = self._options
        number = self._link.next_number()
        ask = Subscribe(
            number,
            self.topic,
            self.subscription,
            options.kind,
            options.mode,
            options.start.isoformat() if isinstance(options.start, datetime) else options.start,
            options.credit_bytes,
            self.name,
            options.create,
            policy=options.policy,
            instance=os.urandom(INSTANCE_BYTES),
            keeps=True,
        )
        self._loop = asyncio.get_running_loop()
        self._intake = Intake(
            self._link,
            ask,
            unconfirmed=self._unconfirmed,
            on_settled=self._on_settled,
            on_ended=self._on_ended,
            on_lost=options.on_lost,
            on_moved=self._on_moved,
            on_withdrawn=self._on_withdrawn,
            on_another_life=self._on_another_life,
            unread=lambda: self._unread_of(),
            take_unread=lambda: self._take_unread_of(),
            gate=self._gate,
        )
        info = await self._intake.open()
        self.topic = info.topic
        if self.strict:
            self.settle_messages = SETTLE_RESILIENT_MESSAGES
        elif info.mode == "resilient":  # the node waits for each of them before it sends more
            self.settle_after_s = 0.0
        self.settler = self._make_settler(number, info.shards)
        self.stopped = self._intake.error
        self._open = True
        return self

    @property
    def shown(self) -> str:
        return f"the consumer of {self.topic}"

    async def close(self) -> None:
        """Brings settlements to the node's disk, within ``close_timeout``; unsettled messages are released.

        Settlements that did not get there are raised: as ``TimedOut``, or as what ended the subscription.
        """
        if not self._open:
            return
        self._open = False
        self.stopped = Closed("the consumer was closed")
        if self._timer is not None:
            self._timer.cancel()
        self._intake.drop_unread()
        try:
            async with asyncio.timeout(self._options.close_timeout):
                if self._intake.error is None:
                    await self._flush()
                    await self._intake.leave()
                elif self._dropped:
                    raise self._intake.error.again()
        except TimeoutError:
            raise TimedOut(
                f"settlements were not confirmed within {self._options.close_timeout:.3g} s",
                hint="The messages settled last may come again to whoever reads this subscription next.",
            ) from None
        finally:
            self._intake.end()

    def _unread(self) -> list[tuple[int, Span]]:
        left = length_hint(self._current)
        rest = self._messages[len(self._messages) - left :] if left else []
        unread = [(message.origin.shard, (message.entry, message.entry + 1)) for message in rest]
        return unread + [(batch.shard, span) for batch in self._taken for span in batch.spans]

    @property
    def ahead_bytes(self) -> int:
        """About what it keeps in memory of messages that it has not handed out."""
        return self._intake.ahead_bytes + self._batch_bytes + sum(batch.nbytes for batch in self._taken)

    def _take_unread(self) -> list[tuple[int, Span]]:
        unread = Consumer._unread(self)
        self._taken.clear()
        self._current = iter(())
        self.drops += 1
        return unread

    def _on_withdrawn(self, shard: int, spans: list[Span]) -> None:
        """Entries are not to be handed out: those that were taken are dropped."""
        left = length_hint(self._current)
        rest = self._messages[len(self._messages) - left :] if left else []
        if any(covers(shard, spans, (each.shard, each.entry)) for each in rest):
            self._messages = [each for each in rest if not covers(shard, spans, (each.shard, each.entry))]
            self._current = iter(self._messages)
            if self._batch is not None:
                self._batch = only(
                    self._batch, [_span(each.entry) for each in self._messages], self._batch.attempt
                )
        taken = [without(batch, spans) if batch.shard == shard else batch for batch in self._taken]
        self._taken = deque(batch for batch in taken if batch is not None)
        self._withdraw_of(shard, spans)

    def keep_unread(
        self,
        unread: Callable[[], list[tuple[int, Span]]],
        take_unread: Callable[[], list[tuple[int, Span]]],
        withdraw: Callable[[int, list[Span]], None],
    ) -> None:
        """What was taken waits elsewhere until it is handed out: in the blocking twin's thread, for one."""
        self._unread_of, self._take_unread_of, self._withdraw_of = unread, take_unread, withdraw

    # --- reading ------------------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        """One message after the other; a loop that was left, or a wait that was given up, can go on.

        In a resilient subscription (unique, failover) the next one comes once the one before it was settled.
        """
        return self

    async def __anext__(self) -> Message:
        if (message := self._at_hand() or await self._next_message()) is None:
            raise StopAsyncIteration
        return message

    def _at_hand(self) -> Message | None:
        """The common case, without waiting: what is left of a batch, if it may be handed out."""
        gate = self._gate
        if gate.shut or (gate.strict and monotonic() >= gate.check_at):
            return None
        message = next(self._current, None)
        if gate.strict and message is not None:
            gate.in_hand, gate.shut = message, True
        return message

    async def _next_message(self) -> Message | None:
        gate = self._gate
        self._again = None
        if not self._open:
            await self._next_batch()  # raises what ended it
            return None
        while True:
            if gate.shut or (gate.strict and monotonic() >= gate.check_at):
                if (message := await self._pass()) is not None:
                    break
                if gate.strict and self._intake.over:
                    await self._next_batch()
                    return None
            if (message := next(self._current, None)) is not None:
                break
            if self._taken:
                self._begin(self._taken.popleft())
            elif (batch := await self._next_batch()) is not None:
                self._taken.append(batch)
            else:
                return None
        if gate.strict:
            gate.hand(message)
        return message

    def _begin(self, batch: Batch) -> None:
        self._batch, self._batch_bytes = batch, batch.nbytes
        self._messages = batch.messages()
        self._current = iter(self._messages)

    async def _pass(self) -> Message | None:
        """Waits until something may be handed out; returns the message that was refused, if that is first."""
        gate = self._gate
        while not self._intake.over:
            if gate.awaited is not None and gate.may_hand_again:
                while (batch := self._intake.take_again()) is not None:  # others were settled while they came
                    if (one := only(batch, [_span(gate.awaited[1])], batch.attempt)) is not None:
                        self._again = one
                        return one.messages()[0]
            if not gate.shut and monotonic() < gate.check_at:
                return None
            await gate.wait()
        return None

    def batches(self) -> AsyncIterator[Batch]:
        """One batch after the other: the rows of a stored segment, as columns.

        In a resilient subscription (unique, failover, shared) a batch is one message.
        """
        return Batches(self._one_batch)

    async def _one_batch(self) -> Batch | None:
        if self._open and self._gate.strict:
            message = await self._next_message()
            if message is None or self._again is not None or self._batch is None:
                return self._again
            return only(self._batch, [_span(message.entry)], message.attempt)
        if self._open and self._gate.shut:
            await self._pass()
        if (rest := self._take_rest()) is not None:
            return rest
        return self._taken.popleft() if self._taken else await self._next_batch()

    def _take_rest(self) -> Batch | None:
        """What is left of the batch that messages were taken from one by one."""
        left = len([*self._current])
        return last_of(self._batch, left) if left and self._batch is not None else None

    async def receive(self, timeout: float | None = None) -> Message | None:
        """The next message; None if none comes within ``timeout`` seconds, or the consumer was closed."""
        if timeout is not None:
            check_argument("timeout", timeout, float | None)
        if (message := self._at_hand()) is not None:
            return message
        try:
            async with asyncio.timeout(timeout):
                return await self._next_message()
        except TimeoutError:
            return None

    async def next_batches(self, count_max: int) -> list[Batch]:
        """Waits for a batch, and takes what else has arrived; nothing once the consumer is closed."""
        batch = await self._one_batch()
        batches: list[Batch] = []
        size = 0
        while batch is not None:
            batches.append(batch)
            size += batch.nbytes
            room = len(batches) < count_max and size < TOGETHER_BYTES
            more = room and not self._gate.shut and not self._gate.strict
            batch = self._intake.take() if more else None
        return batches

    async def _next_batch(self) -> Batch | None:
        if not hasattr(self, "settler"):
            raise Closed("the consumer is not open")
        self._link.check_loop()
        return await self._intake.next_batch()

    def put_back(self, what: Message | Batch, *, rows: Any = None) -> None:
        """Says that these were taken and not looked at: closing does not count them as an attempt."""
        shard, spans = self._entries(what, rows)
        self._intake.release(shard, spans)

    # --- settling: what goes to the node (what the program says is in settling.py) ------------------

    def _standing(self) -> Subscribed:
        assert self._intake.info is not None, "it is open"
        return self._intake.info

    def _settled_here(self, shard: int, start: int, end: int) -> None:
        self._gate.settle(shard, start, end)
        if self._gate.repeats:
            self._intake.withdraw(shard, [(start, end)])

    def _refused_here(self, shard: int, spans: list[Span]) -> None:
        self._intake.release(shard, spans)
        self._gate.refuse(shard, spans)
        if self._gate.repeats:
            self._intake.withdraw(shard, spans)

    def _send_extension(self, shard: int, spans: list[Span], seconds: float | None) -> None:
        self._link.send(Extend(self._intake.number, shard, spans, seconds))

    def _recorded(self, pending: int) -> None:
        if pending >= self.settle_messages:
            self.send_settlements()
        elif self._timer is None:
            self._timer = self._loop.call_later(self.settle_after_s, self.send_settlements)

    def send_settlements(self) -> None:
        """Sends what was settled so far."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._intake.attached:  # if not, they go with the next subscribing
            self._link.send(*self.settler.take())

    async def flush(self) -> None:
        """Returns when everything settled before is on the node's disk."""
        self._check_open()
        await self._flush()

    async def _flush(self) -> None:
        self.send_settlements()
        if not self.settler.unconfirmed and not self.settler.pending:
            return
        self.settler.take()  # numbered now, sent with the next subscribing
        await self._flushes.wait(self.settler.number)

    def _unconfirmed(self) -> list[Settle]:
        if not hasattr(self, "settler"):
            return []
        self.settler.take()
        return list(self.settler.unconfirmed)

    def _on_settled(self, number: int) -> None:
        for settle in self.settler.confirm(number):
            self._intake.confirmed(settle)
        self._flushes.confirm(number)

    def _on_another_life(self, error: HeadpondError, in_hand: int) -> None:
        """Nothing that was handed out before is settled: other messages stand in those places."""
        unsent = self.settler.drop() if hasattr(self, "settler") else 0
        self.life = self._intake.life
        self.dropped += unsent
        self._flushes.fail(error)
        log.warning(
            "%s: %s; %d messages in hand are not settled, %d settlements are dropped",
            self.topic,
            error.message,
            in_hand,
            unsent,
        )

    def _on_moved(self, error: HeadpondError) -> None:
        """What was settled and not confirmed is void."""
        if hasattr(self, "settler"):
            self.settler.drop()
            self._flushes.fail(error)

    def _on_ended(self, error: HeadpondError) -> HeadpondError:
        """Nothing can be settled any more, so no flush may wait for it."""
        if hasattr(self, "settler"):
            self._dropped = self.settler.drop()
        if self._dropped:
            what = "1 settlement was" if self._dropped == 1 else f"{self._dropped:,} settlements were"
            error = type(error)(f"{error.message}; {what} not confirmed and dropped", hint=error.hint)
        if self._open:
            self.stopped = error
        self._flushes.fail(error)
        return error


def _span(entry: int) -> Span:
    return entry, entry + 1
