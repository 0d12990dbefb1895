"""The consumer of several nodes: each message once, from whichever node brings it first.

What to hand out, hold, settle and ask for again is ``Seen``'s to say; here that is carried to the consumers at
the nodes (docs/several_nodes.md). It is also the consumer of one service with several addresses, of which
another may come to answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from operator import length_hint
from typing import Any, Self

from headpond.client.arguments import checked
from headpond.client.consume.batch import Batch, Batches
from headpond.client.consume.consumer import Consumer, check_delay
from headpond.client.consume.seen import Seen
from headpond.client.consume.source import Part, Source, Spread
from headpond.client.link.link import Link
from headpond.client.options import ConsumerOptions, LostSpan, NodeState
from headpond.model.bounds import Span
from headpond.model.errors import (
    Closed,
    HeadpondError,
    NotAcrossNodes,
    SubscriptionBusy,
    TopicNotFound,
    Unavailable,
)
from headpond.model.message import Message
from headpond.model.policy import Policy

log = logging.getLogger("headpond.client")

CATCH_UP_S = 1.0
CATCH_UP_IDLE_S = 0.1
"""How long closing waits in all, and for the next of them, for copies of what was settled."""


class Several(Consumer):
    def __init__(
        self,
        links: Sequence[Link],
        topic: str,
        subscription: str,
        name: str | None,
        options: ConsumerOptions,
    ) -> None:
        super().__init__(links[0], topic, subscription, name, options)
        self._spread = spread = Spread(Seen() if options.dedup else None, self._unread_at, self._take_unread_at)

        def make(link: Link, create: bool) -> Part:
            return Part(spread, link, topic, subscription, name, replace(options, create=create))

        self._sources = [
            Source(spread, link, make, create=options.create and not number)
            for number, link in enumerate(links)
        ]
        self._turn = 0
        self._rest: deque[Batch] = deque()
        """Batches that came and nobody waited for."""

    # --- life ---------------------------------------------------------------------------------------

    async def open(self) -> Self:
        if self._open:
            return self
        await asyncio.gather(*(source.link.open_if_new() for source in self._sources))
        for source in self._sources:
            source.listen()
        here = [source for source in self._sources if source.link.up] or self._sources[:1]
        results = await asyncio.gather(*(source.open() for source in here), return_exceptions=True)
        failures = [result for result in results if isinstance(result, BaseException)]
        grave = [each for each in failures if _grave(each)]
        if isinstance(results[0], TopicNotFound) and here[0] is self._sources[0]:
            grave.append(results[0])
        if grave or len(failures) == len(here):
            await self._end()
            raise (grave or failures)[0]
        self.topic = next(iter(self._spread.parts.values())).topic
        self._open = True
        self.stopped = None
        return self

    @property
    def nodes(self) -> list[NodeState]:
        """What is read now, and what is not."""
        found = []
        for source in self._sources:
            part = source.part
            state = "failed" if source.error else "reading" if part and part.reachable else "away"
            node = part.node if part else None
            error = source.error or source.trouble
            found.append(NodeState(source.link.service, node, state, source.messages, error))
        return found

    @property
    def copies(self) -> int:
        """Messages that came and were not handed out, since another node had brought them."""
        return self._spread.seen.copies if self._spread.seen is not None else 0

    @property
    def strict(self) -> bool:
        """Whatever is settled concerns several consumers, so it is done on their loop."""
        return True

    @property
    def policy(self) -> Policy:
        return next((part.policy for part in self._spread.parts.values()), Policy())

    @property
    def active(self) -> bool:
        return any(part.active for part in self._spread.parts.values())

    @property
    def paused(self) -> bool:
        """Whether it is paused at every node."""
        parts = self._spread.parts.values()
        return bool(parts) and all(part.paused for part in parts)

    @property
    def lost(self) -> list[LostSpan]:
        return self._spread.lost + [span for part in self._spread.parts.values() for span in part.lost]

    async def close(self) -> None:
        """Brings settlements to the disks of the nodes that are there; what others missed is logged.

        Of those, unsettled messages and settled ones come again to whoever reads next.
        """
        if not self._open:
            return
        self._open = False
        self.stopped = Closed("the consumer was closed")
        await self._catch_up()
        await self._end()

    async def _catch_up(self) -> None:
        """Takes copies of what is settled that are on their way: they are not to come to the next reader."""
        seen = self._spread.seen
        if seen is None or len(self._sources) == 1:
            return
        self._put_back_rest()
        self._spread.send_settlements()
        until = asyncio.get_running_loop().time() + CATCH_UP_S
        late = [each for each in self._sources if each.part is not None and each.part.reachable]
        while late := [each for each in late if each.part and seen.behind(each.part.node)]:
            for source in late:
                if source.waiting is None:
                    source.waiting = asyncio.get_running_loop().create_task(source.next())
            waits = {source.waiting for source in late if source.waiting is not None}
            left_s = min(until - asyncio.get_running_loop().time(), CATCH_UP_IDLE_S)
            done, _ = await asyncio.wait(waits, timeout=max(left_s, 0.0), return_when=asyncio.FIRST_COMPLETED)
            if not done:
                return
            for source in [each for each in late if each.waiting in done]:
                late = [each for each in late if each is not source or not self._put_back_from(source)]

    def _put_back_from(self, source: Source) -> bool:
        """What a source brought is for the next reader; whether it has ended."""
        waited, source.waiting = source.waiting, None
        if waited is None or waited.exception() is not None or (batch := waited.result()) is None:
            return True
        self.put_back(batch)
        return False

    async def _end(self) -> None:
        waits = [source.waiting for source in self._sources if source.waiting is not None]
        for wait in waits:
            wait.cancel()
        for batch in await asyncio.gather(*waits, return_exceptions=True):
            if isinstance(batch, Batch):
                self._rest.append(batch)
        self._put_back_rest()
        self._spread.send_settlements()
        closing = []
        for source in self._sources:
            source.end()
            if source.part is None:
                continue
            if source.part.reachable:
                closing.append(source.part.close())
            elif missed := source.part.abandon():
                log.warning(
                    "%s is away: it did not hear of %d settlements; those messages may come again from it",
                    source.link.service,
                    missed,
                )
        failures = [each for each in await asyncio.gather(*closing, return_exceptions=True) if each]
        if failures and isinstance(failures[0], BaseException):
            raise failures[0]

    def _put_back_rest(self) -> None:
        left = length_hint(self._current)
        for message in self._messages[len(self._messages) - left :] if left else []:
            self.put_back(message)
        for batch in self._rest:
            self.put_back(batch)
        self._rest.clear()
        self._current = iter(())

    # --- reading ------------------------------------------------------------------------------------

    def _at_hand(self) -> Message | None:
        return next(self._current, None)

    async def _next_message(self) -> Message | None:
        while (message := next(self._current, None)) is None:
            if (batch := await self._one_batch()) is None:
                return None
            self._begin(batch)
        return message

    def batches(self) -> AsyncIterator[Batch]:
        return Batches(self._one_batch)

    async def next_batches(self, count_max: int) -> list[Batch]:
        batch = await self._one_batch()
        return [] if batch is None else [batch]

    async def _one_batch(self) -> Batch | None:
        if (rest := self._take_rest()) is not None:
            return rest
        if self._rest:
            return self._rest.popleft()
        if self.stopped is not None:
            if self._open or not self._spread.parts:
                raise self.stopped.again()
            return None
        self._link.check_loop()
        reading = [source for source in self._sources if source.error is None]
        if len(self._sources) == 1:
            return await self._sources[0].next()
        while reading:
            for source in reading:
                if source.waiting is None:
                    source.waiting = asyncio.get_running_loop().create_task(source.next())
            waits = {source.waiting for source in reading if source.waiting is not None}
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if not self._open:
                return None
            if (batch := self._take_turn(reading)) is not None:
                return batch
            reading = [source for source in self._sources if source.error is None]
        self.stopped = next(each.error for each in self._sources if each.error is not None)
        raise self.stopped.again()

    def _take_turn(self, reading: list[Source]) -> Batch | None:
        """What one of them brought; each is looked at first in its turn."""
        self._turn += 1
        for at in range(len(reading)):
            source = reading[(self._turn + at) % len(reading)]
            if source.waiting is None or not source.waiting.done():
                continue
            waited, source.waiting = source.waiting, None
            error = waited.exception()
            if isinstance(error, HeadpondError):
                self._fail(source, error)
            elif error is not None:
                raise error
            else:
                return waited.result()
        return None

    def _fail(self, source: Source, error: HeadpondError) -> None:
        source.error = error
        log.error("%s is not read any more: %s", source.link.service, error.message)
        if source.part is not None:
            self._spread.on_source_ended(source)

    def _unread_at(self, node: str) -> list[tuple[int, Span]]:
        left = length_hint(self._current)
        rest = self._messages[len(self._messages) - left :] if left else []
        unread = [(each.origin.shard, (each.entry, each.entry + 1)) for each in rest if each.node == node]
        waiting = [each.waited for each in self._sources]
        here = [each for each in (*self._rest, *waiting) if each is not None and each.origin.node == node]
        return unread + [(each.shard, span) for each in here for span in each.spans]

    def _take_unread_at(self, node: str) -> list[tuple[int, Span]]:
        unread = self._unread_at(node)
        self._rest = deque(batch for batch in self._rest if batch.origin.node != node)
        for source in self._sources:
            if (batch := source.waited) is not None and batch.origin.node == node:
                source.waiting = None
        if self._messages and self._messages[0].node == node:
            self._current = iter(())
        self.drops += 1
        return unread

    def keep_unread(
        self,
        unread: Callable[[], list[tuple[int, Span]]],
        take_unread: Callable[[], list[tuple[int, Span]]],
        withdraw: Callable[[int, list[Span]], None],
    ) -> None:
        """What the blocking twin took counts as handed out."""

    # --- settling -----------------------------------------------------------------------------------

    async def ack(self, what: Message | Batch, *, rows: Any = None) -> None:
        self._settle(what, rows, skip=False)

    async def skip(self, what: Message | Batch, *, rows: Any = None) -> None:
        self._settle(what, rows, skip=True)

    def _settle(self, what: Message | Batch, rows: Any, *, skip: bool) -> None:
        self._check_open()
        shard, spans = self._entries(what, rows)
        self._spread.settle(what.origin.node, shard, spans, skip=skip)

    @checked
    async def nack(self, what: Message | Batch, delay: float | None = None, *, rows: Any = None) -> None:
        self._check_open()
        check_delay(delay)
        shard, spans = self._entries(what, rows)
        self._spread.refuse(what.origin.node, shard, spans, delay)

    @checked
    async def extend(self, what: Message | Batch, seconds: float | None = None) -> None:
        self._check_open()
        if (part := self._spread.at(what.origin.node)) is not None:
            await part.extend(what, seconds)

    @checked
    async def ack_upto(self, message: Message) -> None:
        """Done: this message and all before it on its shard at the node that brought it, copies included."""
        self._check_open()
        if (part := self._spread.at(message.origin.node)) is not None:
            await part.ack_upto(message)

    @checked
    async def ack_range(self, shard: int, first: int, last: int) -> None:
        self._refuse_range()

    @checked
    async def skip_range(self, shard: int, first: int, last: int) -> None:
        self._refuse_range()

    def _refuse_range(self) -> None:
        raise NotAcrossNodes(
            "entries are places in one node's log, and this consumer may read several",
            hint="Settle messages or batches.",
        )

    def put_back(self, what: Message | Batch, *, rows: Any = None) -> None:
        if (part := self._spread.at(what.origin.node)) is not None:
            part.put_back(what, rows=rows)

    async def flush(self) -> None:
        """Returns when all that was settled is on the disks of the nodes that are there, of one at least."""
        self._check_open()
        while True:
            self._spread.send_settlements()
            there = [source for source in self._sources if source.part is not None and source.part.reachable]
            if any([await self._flushed(source) for source in there]):
                return
            self._check_open()
            if all(source.error is not None for source in self._sources):
                raise Unavailable("no node is left to settle at")
            if not there and any(source.link.up for source in self._sources):
                return  # at another node than before: what is settled is so there as its copies come
            waits = [asyncio.ensure_future(each.link.wait_up()) for each in self._sources if not each.error]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()
            await asyncio.sleep(0)

    async def _flushed(self, source: Source) -> bool:
        """Whether a node has it all; not if it is lost meanwhile."""
        part = source.part
        if part is None or part.stopped is not None:
            return False
        flushing, losing = asyncio.ensure_future(part.flush()), asyncio.ensure_future(source.lost.wait())
        try:
            await asyncio.wait((flushing, losing), return_when=asyncio.FIRST_COMPLETED)
            if not flushing.done() or (flushing.exception() is not None and part.stopped is not None):
                return False  # lost, or it ended: another node answers
            await flushing
            return True
        finally:
            flushing.cancel()
            losing.cancel()


def _grave(error: BaseException) -> bool:
    """Whether a consumer is not to be opened without this node: it is there, and said no."""
    if isinstance(error, SubscriptionBusy):
        return True
    if isinstance(error, TopicNotFound):  # the first copy of a message makes it there
        return False
    return not isinstance(error, HeadpondError) or not error.retryable
