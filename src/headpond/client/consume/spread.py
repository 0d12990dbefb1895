"""The spread: a consumer's part at several nodes. Each message comes once, from the first node to bring it.

The copy tracker decides which messages to hand out, hold, settle and ask for again; the spread carries that to
the intakes at the nodes (docs/several_nodes.md). It also reads one service of several addresses, where another
node may come to answer: there the topic and the subscription are others, so its intake ends and a new one
begins; the tracker still knows messages by their identity.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from time import monotonic

from headpond.client.consume.batch import Batch, NodeEntries, only
from headpond.client.consume.copy_tracker import CopyTracker
from headpond.client.consume.gate import OrderGate
from headpond.client.consume.intake import NodeIntake
from headpond.client.consume.settler import Nack
from headpond.client.consume.shelf import Places, Shelf
from headpond.client.link.link import Link
from headpond.client.options import LostSpan, NodeState
from headpond.model.bounds import Span
from headpond.model.errors import (
    Closed,
    HeadpondError,
    NotAcrossNodes,
    SubscriptionBusy,
    TopicNotFound,
)
from headpond.model.policy import Policy
from headpond.model.ranges import RangeSet
from headpond.wire.control.consuming import Settle

log = logging.getLogger("headpond.client")

CATCH_UP_S = 1.0
CATCH_UP_IDLE_S = 0.1
"""How long closing waits in all, and for the next one, for copies of settled messages."""
FLUSH_AGAIN_S = 0.05

MakeIntake = Callable[[Link, bool, "Spread"], NodeIntake]
"""From the link, and whether the topic may be created: only the first node may create it."""


class Source:
    """One of the services that a spread reads, and the intake at the node that answers there now."""

    def __init__(self, spread: Spread, link: Link, make_intake: MakeIntake, *, create: bool) -> None:
        self.link = link
        self.intake: NodeIntake | None = None
        self.error: HeadpondError | None = None
        """Why the spread no longer reads it, if so."""
        self.trouble: HeadpondError | None = None
        """Why it could not be opened yet; it is tried again."""
        self.messages = 0
        """Handed out."""
        self.waiting: asyncio.Task[Batch | None] | None = None
        """The wait for its next batch, if there are other sources."""
        self._create = create
        self._spread = spread
        self._make_intake = make_intake

    @property
    def state(self) -> NodeState:
        intake = self.intake
        state = "failed" if self.error else "reading" if intake and intake.reachable else "away"
        node = intake.node if intake else None
        return NodeState(self.link.service, node, state, self.messages, self.error or self.trouble)

    @property
    def fault(self) -> HeadpondError | None:
        """Why it takes no more settlements. Only a reader gets the error, and perhaps nobody reads."""
        intake = self.intake
        ended = intake.error if intake is not None and not intake.ended_elsewhere else None
        return self.error or ended or self.link.refusal

    @property
    def waited(self) -> Batch | None:
        """The batch that the wait brought, if nobody took it yet."""
        wait = self.waiting
        came = wait is not None and wait.done() and not wait.cancelled() and wait.exception() is None
        return wait.result() if wait is not None and came else None

    async def open(self) -> None:
        """Subscribes; a refusal is raised."""
        await self.link.at_group(self._open_at)

    async def _open_at(self, link: Link) -> None:
        intake = self._make_intake(link, self._create, self._spread)
        await intake.open()
        self.link = link
        self.intake, self._create, self.trouble = intake, False, None
        self._spread.on_begun(self, intake)

    async def next(self) -> Batch | None:
        """The next batch that has something new; None once it is closed."""
        while True:
            if self.intake is None:
                await self._open_sometime()
            intake = self.intake
            assert intake is not None
            try:
                batch = await intake.next_batch()
            except HeadpondError as error:
                if not intake.ended_elsewhere:
                    raise
                log.warning("%s: another node answers; reading continues there (%s)", self.link.service, error)
                self._spread.on_ended(intake)
                self.intake = None
                continue
            if batch is None:
                return None
            if (batch := self._spread.admit(intake, batch)) is not None:
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


class Spread:
    """``gate`` and ``shelf`` are the consumer's. With one link they order and hold what its intake delivers;
    with several, each intake has its own gate, and the consumer's stays open."""

    def __init__(
        self,
        links: Sequence[Link],
        make_intake: MakeIntake,
        gate: OrderGate,
        shelf: Shelf,
        *,
        create: bool,
        dedup: bool,
    ) -> None:
        self.stopped: HeadpondError | None = Closed("the consumer is not open")
        """Why nothing can be read or settled now; None while it is open."""
        self.is_open = False
        self.used = False
        self.life = 0
        self.dropped = 0
        self.sources = [
            Source(self, link, make_intake, create=create and not number) for number, link in enumerate(links)
        ]
        self._tracker = CopyTracker() if dedup else None
        self._gate = gate
        self._shelf = shelf
        self._ended_lost: list[LostSpan] = []
        """The losses that ended intakes had reported."""
        self._intakes: dict[str, NodeIntake] = {}
        """By node."""
        self._turn = 0
        self._warned = False

    # --- life ---------------------------------------------------------------------------------------

    async def open(self) -> None:
        self.used = True
        await asyncio.gather(*(source.link.open_if_new() for source in self.sources))
        here = [source for source in self.sources if source.link.up] or self.sources[:1]
        results = await asyncio.gather(*(source.open() for source in here), return_exceptions=True)
        failures = [result for result in results if isinstance(result, BaseException)]
        grave = [each for each in failures if _grave(each)]
        if isinstance(results[0], TopicNotFound) and here[0] is self.sources[0]:
            grave.append(results[0])
        if grave or len(failures) == len(here):
            await self._end()
            raise (grave or failures)[0]
        if len(self.sources) > 1:
            self._gate.stand(strict=False, active=True, paused=False, lease_s=0.0, since=0.0)
        self.is_open = True
        self.stopped = None

    async def close(self) -> None:
        """Brings settlements to the disks of the nodes that are there, and logs what the others missed.

        Those deliver the same messages again, settled or not, to the next consumer.
        """
        if not self.is_open:
            return
        self.is_open = False
        self.stopped = Closed("the consumer was closed")
        await self._catch_up()
        await self._end()

    async def _catch_up(self) -> None:
        """Takes copies of settled messages that are on their way: the next reader must not get them."""
        tracker = self._tracker
        if tracker is None or len(self.sources) == 1:
            return
        self._put_back_unread()
        self.send_settlements()
        loop = asyncio.get_running_loop()
        until = loop.time() + CATCH_UP_S
        late = [each for each in self.sources if each.intake is not None and each.intake.reachable]
        while late := [each for each in late if each.intake and tracker.behind(each.intake.node or "")]:
            done = await self._wait_for(late, max(min(until - loop.time(), CATCH_UP_IDLE_S), 0.0))
            if not done:
                return
            late = [each for each in late if each.waiting not in done or self._put_back_from(each)]

    def _put_back_from(self, source: Source) -> bool:
        """Leaves the batch that a source brought to the next reader; False if the source has ended."""
        waited, source.waiting = source.waiting, None
        if waited is None or waited.exception() is not None or (batch := waited.result()) is None:
            return False
        self._put_back(batch)
        return True

    async def _end(self) -> None:
        waits = [source.waiting for source in self.sources if source.waiting is not None]
        for wait in waits:
            wait.cancel()
        for batch in await asyncio.gather(*waits, return_exceptions=True):
            if isinstance(batch, Batch):
                self._put_back(batch)
        self._put_back_unread()
        self.send_settlements()
        closing = []
        for source in self.sources:
            if source.intake is None:
                continue
            if source.intake.reachable:
                closing.append(source.intake.close())
            elif missed := source.intake.abandon():
                log.warning(
                    "%s is away: it did not get %d settlements and may deliver those messages again",
                    source.link.service,
                    missed,
                )
        failures = [each for each in await asyncio.gather(*closing, return_exceptions=True) if each]
        if failures and isinstance(failures[0], BaseException):
            raise failures[0]

    def _put_back(self, batch: Batch) -> None:
        self.release(NodeEntries(batch.node, batch.shard, batch.spans))

    def _put_back_unread(self) -> None:
        for node, intake in self._intakes.items():
            for shard, span in self._shelf.take_unread(node):
                intake.release(NodeEntries(node, shard, [span]))

    # --- state --------------------------------------------------------------------------------------

    @property
    def nodes(self) -> list[NodeState]:
        return [source.state for source in self.sources]

    @property
    def copies(self) -> int:
        return self._tracker.copies if self._tracker is not None else 0

    @property
    def policy(self) -> Policy:
        return next((intake.policy for intake in self._intakes.values()), Policy())

    @property
    def active(self) -> bool:
        return any(intake.active for intake in self._intakes.values())

    @property
    def paused(self) -> bool:
        """Whether the subscription is paused at every node."""
        intakes = self._intakes.values()
        return bool(intakes) and all(intake.paused for intake in intakes)

    @property
    def lost(self) -> list[LostSpan]:
        return self._ended_lost + [span for intake in self._intakes.values() for span in intake.lost]

    @property
    def ahead_bytes(self) -> int:
        waited = [source.waited for source in self.sources]
        return sum(intake.ahead_bytes for intake in self._intakes.values()) + sum(
            batch.nbytes for batch in waited if batch is not None
        )

    @property
    def over(self) -> bool:
        """With one source: whether its intake brings nothing more, though another one may follow it."""
        return not self.is_open or all(each.intake is None or each.intake.over for each in self.sources)

    # --- batches ------------------------------------------------------------------------------------

    async def next_batch(self) -> Batch | None:
        """The next batch of any source, however long it takes; None once the consumer is closed."""
        if self.stopped is not None:
            if self.is_open or not self._intakes:
                raise self.stopped.again()
            return None
        self.sources[0].link.check_loop()
        if len(self.sources) == 1:
            return await self.sources[0].next()
        while reading := [source for source in self.sources if source.error is None]:
            await self._wait_for(reading)
            if not self.is_open:
                return None
            if (batch := self._take_turn(reading)) is not None:
                return batch
        self.stopped = next(each.error for each in self.sources if each.error is not None)
        raise self.stopped.again()

    async def _wait_for(
        self, sources: list[Source], timeout_s: float | None = None
    ) -> set[asyncio.Task[Batch | None]]:
        """Waits until one of the sources brings something; returns the waits that are over."""
        for source in sources:
            if source.waiting is None:
                source.waiting = asyncio.get_running_loop().create_task(source.next())
        waits = {source.waiting for source in sources if source.waiting is not None}
        done, _ = await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        return done

    def _take_turn(self, reading: list[Source]) -> Batch | None:
        """The batch of one of the sources; each comes first in its turn."""
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
        log.error("%s is no longer read: %s", source.link.service, error.message)
        if source.intake is not None:
            self.on_ended(source.intake)

    def take(self) -> Batch | None:
        """Nothing comes without a wait: each source gets its turn."""
        return None

    def take_again(self) -> Batch | None:
        """The refused message of a strict subscription, if it has come again; such a one has one source."""
        intake = self.sources[0].intake
        batch = intake.take_again() if intake is not None else None
        return None if batch is None or intake is None else self.admit(intake, batch)

    def admit(self, intake: NodeIntake, batch: Batch) -> Batch | None:
        """The rows of a batch to hand out."""
        if self._tracker is None:
            return batch
        now_s = monotonic()
        passed: list[Span] = []
        settled: list[Span] = []
        for origin, spans in batch.by_segment():
            arrival = self._tracker.arrive(origin, spans, now_s)
            passed += arrival.passed
            settled += arrival.settled
        if settled:
            intake.settle(NodeEntries(batch.node, batch.shard, settled))
        if self._tracker.forgotten and not self._warned:
            self._warned = True
            log.warning("%s: too much is unsettled or too many blocks: repeats are possible", batch.topic)
        if sum(end - start for start, end in passed) == len(batch):
            return batch
        return only(batch, passed) if passed else None

    # --- what intakes delivered and the program does not have ---------------------------------------

    def unread(self, node: str | None) -> Places:
        """What waits of a node, and the copies that are held."""
        held = self._tracker.held(node or "") if self._tracker is not None else []
        return self._shelf.unread(node) + self._waited(node) + held

    def _waited(self, node: str | None) -> Places:
        batches = [source.waited for source in self.sources]
        here = [each for each in batches if each is not None and each.node == node]
        return [(batch.shard, span) for batch in here for span in batch.spans]

    def take_unread(self, node: str | None) -> Places:
        """Takes it away; every node that has a copy is asked to offer it again."""
        taken = self._waited(node)
        for source in self.sources:
            if (batch := source.waited) is not None and batch.node == node:
                source.waiting = None
        taken += self._shelf.take_unread(node)
        if self._tracker is None:
            return taken
        held = self._tracker.drop_held(node or "")
        for shard, span in taken:
            self._give_back(self._tracker.unread(node or "", shard, [span]))
        return taken + held

    def withdraw(self, shard: int, spans: list[Span], node: str | None) -> None:
        self._shelf.withdraw(shard, spans, node)

    # --- settlements --------------------------------------------------------------------------------

    def at(self, node: str) -> NodeIntake | None:
        """The intake at a node, if it can record something."""
        intake = self._intakes.get(node)
        return intake if intake is not None and intake.stopped is None else None

    def settle(self, entries: NodeEntries, *, skip: bool = False) -> None:
        if (intake := self.at(entries.place)) is not None:
            intake.settle(entries, skip=skip)  # the others get it in ranges: `on_settle`
        elif self._tracker is not None:
            self._carry(self._tracker.settle(*entries), skip=skip)

    def settle_range(self, shard: int, first: int, last: int, *, skip: bool) -> None:
        raise NotAcrossNodes(
            "entries are positions in one node's log, and this consumer may read several nodes",
            hint="Settle messages or batches.",
        )

    def ack_upto(self, entries: NodeEntries) -> None:
        """Acknowledges up to an entry at the node that brought it, copies included."""
        if (intake := self.at(entries.place)) is not None:
            intake.ack_upto(entries)

    def refuse(self, entries: NodeEntries, nack: Nack) -> None:
        found = [entries]
        if self._tracker is not None:
            self.send_settlements()  # so that the tracker knows earlier settlements
            found = self._tracker.refuse(*entries) or found
        self._ask_again(found, nack)

    def extend(self, entries: NodeEntries, seconds: float | None) -> None:
        if (intake := self.at(entries.place)) is not None:
            intake.extend(entries, seconds)

    def release(self, entries: NodeEntries) -> None:
        if (intake := self.at(entries.place)) is not None:
            intake.release(entries)

    def send_settlements(self) -> None:
        """Sends every settlement recorded so far, also those that they cause at other nodes."""
        for _ in self._intakes:
            for intake in list(self._intakes.values()):
                if intake.stopped is None:
                    intake.send_settlements()

    async def flush(self) -> None:
        """Returns when all settlements are on the disks of the nodes that are there, of one at least."""
        while True:
            self.send_settlements()
            intakes = [source.intake for source in self.sources]
            there = [intake for intake in intakes if intake is not None and intake.reachable]
            if any([await self._flushed(intake) for intake in there]):
                return
            if self.stopped is not None:
                raise self.stopped.again()
            left = [source for source in self.sources if source.fault is None]
            if not left:
                raise next(source.fault for source in self.sources if source.fault).again()
            if not there and any(source.link.up for source in left):
                return  # another node answers than before: it gets the settlements as it delivers copies
            waits = [asyncio.ensure_future(each.link.wait_up()) for each in left]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()
            await asyncio.sleep(FLUSH_AGAIN_S)  # the link is up before its consumers are

    async def _flushed(self, intake: NodeIntake) -> bool:
        """Whether a node has everything; False if it is lost meanwhile."""
        if intake.stopped is not None:
            return False
        flushing, losing = asyncio.ensure_future(intake.flush()), asyncio.ensure_future(intake.away.wait())
        try:
            await asyncio.wait((flushing, losing), return_when=asyncio.FIRST_COMPLETED)
            if not flushing.done() or (flushing.exception() is not None and intake.stopped is not None):
                return False  # lost, or it ended: another node answers
            await flushing
            return True
        finally:
            flushing.cancel()
            losing.cancel()

    def _carry(self, found: list[NodeEntries], *, skip: bool = False) -> None:
        for intake, entries in self._with_intakes(found):
            intake.settle(entries, skip=skip)

    def _ask_again(self, found: list[NodeEntries], nack: Nack | None = None) -> None:
        for intake, entries in self._with_intakes(found):
            intake.refuse(entries, nack or Nack())

    def _give_back(self, found: list[NodeEntries]) -> None:
        for intake, entries in self._with_intakes(found):
            intake.give_back(entries)

    def _with_intakes(self, found: list[NodeEntries]) -> Iterator[tuple[NodeIntake, NodeEntries]]:
        for entries in found:
            if (intake := self.at(entries.place)) is not None:
                yield intake, entries

    # --- events of intakes and sources --------------------------------------------------------------

    def on_settle(self, node: str, frames: list[Settle]) -> None:
        if self._tracker is None:
            return
        for frame in frames:
            upto = [] if frame.upto is None else [(0, frame.upto)]
            self._carry(self._tracker.settle(node, frame.shard, [*frame.acked, *upto]))
            self._carry(self._tracker.settle(node, frame.shard, frame.skipped), skip=True)

    def on_moved(self, node: str) -> None:
        """Everything that the node brings from now on is wanted."""
        if self._tracker is not None:
            self._give_back([there for there in self._tracker.clear() if there.place != node])

    def on_lost(self, entries: NodeEntries, reason: str) -> None:
        if self._tracker is None or reason == "expired":
            return
        if reason == "settled":  # by another consumer: what waits here is withdrawn, as if it had not come
            node, shard, spans = entries
            waiting = RangeSet(span for number, span in self._shelf.unread(node) if number == shard)
            unread = [part for span in spans for part in waiting.overlap(*span)]
            self._give_back(self._tracker.unread(node, shard, unread))
        elif reason == "dead":
            self._carry(self._tracker.dead(*entries), skip=True)
        else:
            self._ask_again(self._tracker.lost(*entries))

    def on_begun(self, source: Source, intake: NodeIntake) -> None:
        assert intake.node is not None
        other = self._intakes.get(intake.node)
        if other is not None and other.stopped is None:
            log.warning("%s leads to a node that is read already", source.link.service)
        self._intakes[intake.node] = intake
        if self._tracker is not None:
            self._tracker.up(intake.node)

    def on_ended(self, intake: NodeIntake) -> None:
        assert intake.node is not None
        intake.end()
        self._ended_lost += intake.lost
        if self._intakes.get(intake.node) is intake:
            del self._intakes[intake.node]
        if self._tracker is not None:
            self._ask_again(self._tracker.gone(intake.node))

    def on_up(self, intake: NodeIntake) -> None:
        welcome = intake.link.welcome
        if self._tracker is not None and welcome is not None and welcome.node == intake.node:
            self._tracker.up(welcome.node)

    def on_down(self, intake: NodeIntake) -> None:
        if self._tracker is not None and intake.node is not None:
            self._ask_again(self._tracker.down(intake.node))


def _grave(error: BaseException) -> bool:
    """Whether a consumer must not open without this node: it is there, and refused."""
    if isinstance(error, SubscriptionBusy):
        return True
    if isinstance(error, TopicNotFound):  # the first copy of a message creates it there
        return False
    return not isinstance(error, HeadpondError) or not error.retryable
