"""A source: one of the services that a consumer of several nodes reads, and its consumer at the node there now.

A service of several addresses may come to answer from another node. There the topic and the subscription are
others, so the consumer ends and a new one begins; what is known of messages by their identity stays.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from time import monotonic
from typing import Any, Protocol

from headpond.client.consume.batch import Batch, only
from headpond.client.consume.consumer import Consumer
from headpond.client.consume.seen import Seen, There
from headpond.client.consume.settler import Settler
from headpond.client.link.link import Link
from headpond.client.options import ConsumerOptions, LostSpan
from headpond.model.bounds import Span
from headpond.model.errors import HeadpondError, TopicNotFound
from headpond.wire.control.consuming import GiveBack, Settle

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


# What becomes of a message at one node, carried to the consumers at the others.
#
# ``Seen`` says what that is; here are the consumers, by node, and nothing waits.


class Spread:
    """``unread`` names what came from a node and was not handed out; ``take_unread`` also takes it away."""

    def __init__(
        self,
        seen: Seen | None,
        unread: Callable[[str], list[tuple[int, Span]]],
        take_unread: Callable[[str], list[tuple[int, Span]]],
    ) -> None:
        self.seen = seen
        self.lost: list[LostSpan] = []
        """What the consumers that ended had reported."""
        self.parts: dict[str, Part] = {}
        """By node."""
        self._unread = unread
        self._take_unread = take_unread
        self._told_forgotten = False

    # --- what the program does ----------------------------------------------------------------------

    def at(self, node: str) -> Part | None:
        """The consumer at a node, if something can be recorded there."""
        part = self.parts.get(node)
        return part if part is not None and part.stopped is None else None

    def settle(self, node: str, shard: int, spans: list[Span], *, skip: bool) -> None:
        if (part := self.at(node)) is not None:
            part.settle_spans(shard, spans, skip=skip)  # the others hear of it in ranges: `on_taken`
        elif self.seen is not None:
            self._carry(self.seen.settle(node, shard, spans), skip=skip)

    def refuse(self, node: str, shard: int, spans: list[Span], delay: float | None) -> None:
        there = [There(node, shard, spans)]
        if self.seen is not None:
            self.send_settlements()  # what was settled before is known before
            there = self.seen.refuse(node, shard, spans) or there
        self._ask_again(there, delay)

    def send_settlements(self) -> None:
        """Sends what was settled so far, also what that settles elsewhere."""
        for _ in self.parts:
            for part in list(self.parts.values()):
                if part.stopped is None:
                    part.send_settlements()

    def admit(self, part: Part, batch: Batch) -> Batch | None:
        """What of a batch is to be handed out."""
        if self.seen is None:
            return batch
        arrival = self.seen.arrive(batch.origin, batch.spans, monotonic())
        if arrival.settled:
            part.settle_spans(batch.shard, arrival.settled)
        if self.seen.forgotten and not self._told_forgotten:
            self._told_forgotten = True
            log.warning("%s: too much is unsettled or too many blocks: repeats are possible", part.topic)
        if arrival.passed == batch.spans:
            return batch
        return only(batch, arrival.passed, batch.attempt) if arrival.passed else None

    def unread_at(self, node: str) -> list[tuple[int, Span]]:
        """What came from a node and was not handed out: what waits, and copies that are held."""
        return self._unread(node) + (self.seen.held(node) if self.seen is not None else [])

    def take_unread_at(self, node: str) -> list[tuple[int, Span]]:
        """Takes away what came from a node and was not handed out; whoever has a copy is to offer it again."""
        taken = self._take_unread(node)
        if self.seen is None:
            return taken
        held = self.seen.drop_held(node)
        for shard, span in taken:
            self._give_back(self.seen.unread(node, shard, [span]))
        return taken + held

    def _give_back(self, found: list[There]) -> None:
        for there in found:
            if (part := self.at(there.place)) is not None:
                part.give_back(there.shard, there.spans)

    def _carry(self, found: list[There], *, skip: bool = False) -> None:
        for there in found:
            if (part := self.at(there.place)) is not None:
                part.settle_spans(there.shard, there.spans, skip=skip)

    def _ask_again(self, found: list[There], delay: float | None) -> None:
        for there in found:
            if (part := self.at(there.place)) is not None:
                part.refuse_spans(there.shard, there.spans, delay)

    # --- what the sources tell ----------------------------------------------------------------------

    def on_taken(self, part: Part, frames: list[Settle]) -> None:
        if self.seen is None:
            return
        for frame in frames:
            upto = [] if frame.upto is None else [(0, frame.upto)]
            self._carry(self.seen.settle(part.node, frame.shard, [*frame.acked, *upto]))
            self._carry(self.seen.settle(part.node, frame.shard, frame.skipped), skip=True)

    def on_moved(self, part: Part) -> None:
        """Somebody set the subscription anew at one node: all that it brings from now on is wanted."""
        if self.seen is not None:
            self._give_back([there for there in self.seen.clear() if there.place != part.node])

    def on_lost_entries(self, part: Part, shard: int, spans: list[Span], reason: str) -> None:
        if self.seen is None or reason in ("expired", "settled"):
            return
        if reason == "dead":
            self._carry(self.seen.dead(part.node, shard, spans), skip=True)
        else:
            self._ask_again(self.seen.lost(part.node, shard, spans), None)

    def on_source_begun(self, source: Source) -> None:
        part = source.part
        assert part is not None
        other = self.parts.get(part.node)
        if other is not None and other.stopped is None and other is not part:
            log.warning("%s is a node that is read already", source.link.service)
        self.parts[part.node] = part
        if self.seen is not None:
            self.seen.up(part.node)

    def on_source_up(self, source: Source) -> None:
        welcome, part = source.link.welcome, source.part
        if self.seen is not None and part is not None and welcome is not None and welcome.node == part.node:
            self.seen.up(part.node)

    def on_source_down(self, source: Source) -> None:
        if self.seen is not None and source.part is not None:
            self._ask_again(self.seen.down(source.part.node), None)

    def on_source_ended(self, source: Source) -> None:
        part = source.part
        assert part is not None
        self.lost += part.lost
        if self.parts.get(part.node) is part:
            del self.parts[part.node]
        if self.seen is not None:
            self._ask_again(self.seen.gone(part.node), None)
