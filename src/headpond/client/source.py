"""A source: one of the services that a consumer of several nodes reads, and its consumer at the node there now.

A service of several addresses may come to answer from another node. There the topic and the subscription are
others, so the consumer ends and a new one begins; what is known of messages by their identity stays.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol

from headpond.client.batch import Batch
from headpond.client.consumer import Consumer
from headpond.client.link import Link
from headpond.client.options import ConsumerOptions
from headpond.client.settler import Settler
from headpond.model.errors import HeadpondError, TopicNotFound
from headpond.wire.control import GiveBack, Settle, Span

log = logging.getLogger("headpond.client")


class Owner(Protocol):
    """The consumer of several nodes."""

    def on_taken(self, part: Part, frames: list[Settle]) -> None: ...

    def on_moved(self, part: Part) -> None: ...

    def on_lost_entries(self, part: Part, shard: int, spans: list[Span], reason: str) -> None: ...

    def unread_at(self, node: str) -> list[tuple[int, Span]]: ...

    def take_unread_at(self, node: str) -> list[tuple[int, Span]]: ...

    def on_source_up(self, source: Source) -> None: ...

    def on_source_down(self, source: Source) -> None: ...

    def on_source_begun(self, source: Source) -> None: ...

    def on_source_ended(self, source: Source) -> None: ...

    def admit(self, part: Part, batch: Batch) -> Batch | None: ...


class TellingSettler(Settler):
    """Tells what it was told, in ranges, as it is about to be sent."""

    on_taken: Callable[[list[Settle]], None]

    def take(self) -> list[Settle]:
        taken = super().take()
        if taken:
            self.on_taken(taken)
        return taken


class Part(Consumer):
    """The consumer at one node, which settles and refuses also copies that were never handed out."""

    def __init__(
        self,
        owner: Owner,
        link: Link,
        topic: str,
        subscription: str,
        name: str | None,
        options: ConsumerOptions,
    ) -> None:
        super().__init__(link, topic, subscription, name, options, TellingSettler)
        self._owner = owner
        self.node = ""
        self.ended_elsewhere = False
        """Whether it ended because another node answered."""
        self._gate.on_lost = lambda shard, spans, reason: owner.on_lost_entries(self, shard, spans, reason)

    async def open(self) -> Part:
        await super().open()
        assert isinstance(self.settler, TellingSettler)
        self.settler.on_taken = lambda frames: self._owner.on_taken(self, frames)
        self.node = self._link.welcome.node if self._link.welcome is not None else ""
        self._intake.begins_again = False
        self._intake.shares_unread = False  # copies that are held are among it
        return self

    def _unread(self) -> list[tuple[int, Span]]:
        return super()._unread() + self._owner.unread_at(self.node)

    def _take_unread(self) -> list[tuple[int, Span]]:
        return super()._take_unread() + self._owner.take_unread_at(self.node)

    @property
    def reachable(self) -> bool:
        return self.stopped is None and self._link.up

    def send_settlements(self) -> None:
        """Also while its node is away, for what that means to the others: sent when it is back."""
        super().send_settlements()
        self.settler.take()

    def settle_spans(self, shard: int, spans: list[Span], *, skip: bool = False) -> None:
        """Records entries as settled."""
        pending = 0
        for start, end in spans:
            pending = (self.settler.skip if skip else self.settler.ack)(shard, start, end)
            self._settled_here(shard, start, end)
        self._recorded(pending)

    def refuse_spans(self, shard: int, spans: list[Span], delay: float | None) -> None:
        """Records entries as to come again."""
        self._refused_here(shard, spans)
        for start, end in spans:
            for entry in range(start, end):
                self.settler.nack(shard, entry, delay)
        self._recorded(0)

    def give_back(self, shard: int, spans: list[Span]) -> None:
        """Has the node offer entries again that were not looked at."""
        self._intake.release(shard, spans)
        self._link.send(GiveBack(self._intake.number, shard, spans))

    def abandon(self) -> int:
        """Closes without a word to a node that is away; returns how many settlements it did not confirm."""
        self._open = False
        dropped = self.settler.drop()
        self._intake.end()
        return dropped

    def _on_ended(self, error: HeadpondError) -> HeadpondError:
        welcome = self._link.welcome
        self.ended_elsewhere = welcome is not None and self.node not in ("", welcome.node)
        return super()._on_ended(error)

    def _on_moved(self, error: HeadpondError) -> None:
        super()._on_moved(error)
        self._owner.on_moved(self)


class Source:
    """``make_part`` is told whether the topic may be made: a copy of it is for who knows its shards to make."""

    def __init__(
        self, owner: Owner, link: Link, make_part: Callable[[Link, bool], Part], *, create: bool
    ) -> None:
        self.link = link
        self.part: Part | None = None
        self.error: HeadpondError | None = None
        """Why it is not read any more, if so."""
        self.trouble: HeadpondError | None = None
        """Why it could not be opened yet; it is tried again."""
        self.create = create
        self.messages = 0
        """Handed out."""
        self.waiting: asyncio.Task[Batch | None] | None = None
        """The wait for its next batch, when there are other sources."""
        self.lost = asyncio.Event()
        """Set while its node is away."""
        self._owner = owner
        self._make_part = make_part
        self._number = link.next_number()

    def listen(self) -> None:
        self.link.add_consumer(self._number, self)
        if not self.link.up:
            self.lost.set()

    def end(self) -> None:
        self.link.remove_consumer(self._number)

    @property
    def waited(self) -> Batch | None:
        """What the wait for its next batch brought, if nobody took that yet."""
        wait = self.waiting
        came = wait is not None and wait.done() and not wait.cancelled() and wait.exception() is None
        return wait.result() if wait is not None and came else None

    async def open(self) -> None:
        """Subscribes; a refusal is raised."""
        part = self._make_part(self.link, self.create)
        await part.open()
        self.part, self.create, self.trouble = part, False, None
        self._owner.on_source_begun(self)

    async def next(self) -> Batch | None:
        """The next batch that has something new; None once it is closed."""
        while True:
            if self.part is None:
                await self._open_sometime()
            part = self.part
            assert part is not None
            try:
                batches = await part.next_batches(1)
            except HeadpondError as error:
                if not part.ended_elsewhere:
                    raise
                log.warning("%s: another node answers, reading goes on there (%s)", self.link.service, error)
                self._owner.on_source_ended(self)
                self.part = None
                continue
            if not batches:
                return None
            if (batch := self._owner.admit(part, batches[0])) is not None:
                self.messages += len(batch)
                return batch

    async def _open_sometime(self) -> None:
        attempts = 0
        while True:
            await self.link.wait_up()
            try:
                await self.open()
                return
            except HeadpondError as error:
                if not (error.retryable or isinstance(error, TopicNotFound)):
                    raise
                if self.trouble is None or self.trouble.message != error.message:
                    log.warning("%s: %s; trying again", self.link.service, error.message)
                self.trouble = error
                await asyncio.sleep(self.link.backoff.delay_s(attempts))
                attempts += 1

    # --- what the link tells ------------------------------------------------------------------------

    def on_up(self) -> None:
        self.lost.clear()
        self._owner.on_source_up(self)

    def on_down(self) -> None:
        self.lost.set()
        self._owner.on_source_down(self)

    def on_error(self, error: HeadpondError) -> None:
        """The part hears that too, and ends with it."""

    def on_writable(self) -> None: ...

    def on_deliver(self, deliver: Any, frames: Any) -> None: ...

    def on_control(self, message: Any) -> None: ...
