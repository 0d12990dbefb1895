"""The consumer: messages or batches out, settlements in."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import datetime
from operator import length_hint
from time import monotonic
from typing import Any, Self

from headpond.client.arguments import check_argument
from headpond.client.batch import Batch, last_of, only, without
from headpond.client.batches import Batches
from headpond.client.flushes import Flushes
from headpond.client.gate import Gate, covers
from headpond.client.intake import Intake
from headpond.client.link import Link
from headpond.client.options import ConsumerOptions
from headpond.client.scope import Scope
from headpond.client.settler import Settler
from headpond.client.settling import Settling
from headpond.client.standing import Standing
from headpond.model.errors import Closed, HeadpondError, TimedOut
from headpond.model.message import Message
from headpond.model.topic import TopicName
from headpond.wire.control import Extend, Settle, Span, Subscribe, Subscribed

SETTLE_AFTER_S = 0.005
SETTLE_MESSAGES = 1024
"""Settlements are sent after this long or this many, whichever is first."""
SETTLE_RESILIENT_MESSAGES = 256
"""In a resilient subscription: what a death makes come again at most."""
TOGETHER_BYTES = 8 * 1024 * 1024
"""Of rows that are taken at once: the window holds them folded, and they may be a hundred times that."""
INSTANCE_BYTES = 16


log = logging.getLogger("headpond.client")


class Consumer(Standing, Settling, Scope):
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
