"""Subscriptions looked after: created, shown, moved, paused, deleted; dead messages seen and offered again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import datetime

import msgspec

from headpond.client.arguments import checked_methods
from headpond.client.batch import Batch, read_record
from headpond.client.intake import STATE_TIMEOUT_S
from headpond.client.link import Link
from headpond.model.entry_set import EntrySet
from headpond.model.errors import BadFrame, TopicNotFound
from headpond.model.message import Message
from headpond.model.policy import Policy
from headpond.model.topic import TopicName
from headpond.wire.consuming import PAGE_MAX
from headpond.wire.control import (
    AdvanceSubscription,
    Browse,
    Browsed,
    CreateSubscription,
    DeleteSubscription,
    Deliver,
    ListSkipped,
    ListSubscriptions,
    ListUnacked,
    PauseSubscription,
    Redrive,
    SeekSubscription,
    ShowSubscription,
    ShowTopic,
    SkippedPage,
    SubscriptionInfo,
    TopicInfo,
    UnackedEntry,
    UnackedPage,
    read_result,
)
from headpond.wire.following import PromoteSubscription
from headpond.wire.frame import FILE_BODY_BYTES_MAX, decode_at
from headpond.wire.schema_versions import SchemaVersions

Start = str | int | datetime
Place = tuple[int, int]
"""Shard and entry."""


@checked_methods
class SubscriptionAdmin:
    _link: Link

    async def create_subscription(
        self,
        topic: str,
        subscription: str,
        *,
        kind: str = "unique",
        mode: str = "non_resilient",
        start: Start = "earliest",
        policy: Policy | None = None,
        exist_ok: bool = False,
        positions: Sequence[int] | None = None,
        incarnations: Sequence[int] | None = None,
    ) -> SubscriptionInfo:
        """Makes a subscription that nobody reads yet: it holds what is stored from ``start`` on.

        ``positions`` are entries to start at, one a shard, in the place of ``start``; ``incarnations`` are
        theirs, as in ``advance``.
        """
        places = None if positions is None else list(positions)
        runs = None if incarnations is None else list(incarnations)
        if policy is not None:
            policy.checked()
        asked = (_full(topic), subscription, kind, mode, _word(start), policy, exist_ok, places, runs)
        ask = CreateSubscription(*asked)
        timeout_s = STATE_TIMEOUT_S if start == "state" else None
        made = await self._link.request(ask, retry=exist_ok, timeout_s=timeout_s)
        return read_result(made, SubscriptionInfo)

    async def list_subscriptions(self, topic: str | None = None) -> list[SubscriptionInfo]:
        """A topic's subscriptions, or those of all topics, and how far each has come."""
        ask = ListSubscriptions(_full(topic) if topic is not None else "")
        return read_result(await self._link.request(ask, retry=True), list[SubscriptionInfo])

    async def show_subscription(self, topic: str, subscription: str) -> SubscriptionInfo:
        """One subscription, with its policy, its counts and which of its entries are dead."""
        ask = ShowSubscription(_full(topic), subscription)
        return read_result(await self._link.request(ask, retry=True), SubscriptionInfo)

    async def delete_subscription(self, topic: str, subscription: str) -> None:
        """Removes a subscription; ``SubscriptionBusy`` while somebody reads it."""
        await self._link.request(DeleteSubscription(_full(topic), subscription))

    async def seek(
        self, topic: str, subscription: str, to: Start, *, shard: int | None = None
    ) -> SubscriptionInfo:
        """Sets the place: ``earliest``, ``latest``, an entry or a time; of one shard or of all.

        What lies before it counts as settled, what lies behind it comes (again), with attempts counted anew.
        Consumers that are connected begin there; what they had settled and not flushed is dropped.
        """
        ask = SeekSubscription(_full(topic), subscription, _word(to), shard)
        return read_result(await self._link.request(ask, retry=True), SubscriptionInfo)

    async def advance(
        self,
        topic: str,
        subscription: str,
        positions: Sequence[int],
        *,
        topic_uuid: bytes | None = None,
        incarnations: Sequence[int] | None = None,
    ) -> list[int]:
        """Acknowledges everything before these positions, one a shard; returns where it stands then.

        For who reads by position (``client.reader``) and keeps a subscription's place with it. It never goes
        back. With ``topic_uuid``, another topic of that name is a ``TopicMismatch``. With ``incarnations``, as
        ``fetch`` and ``ends`` told them with the positions, an old copy that was restored is an
        ``IncarnationChanged``.
        """
        runs = None if incarnations is None else list(incarnations)
        ask = AdvanceSubscription(_full(topic), subscription, list(positions), topic_uuid, runs)
        return read_result(await self._link.request(ask, retry=True), dict[str, list[int]])["positions"]

    async def pause(self, topic: str, subscription: str) -> SubscriptionInfo:
        """Nothing is handed out until ``resume``, whoever is connected; settlements are taken."""
        ask = PauseSubscription(_full(topic), subscription, True)
        return read_result(await self._link.request(ask, retry=True), SubscriptionInfo)

    async def resume(self, topic: str, subscription: str) -> SubscriptionInfo:
        """Ends a pause."""
        ask = PauseSubscription(_full(topic), subscription, False)
        return read_result(await self._link.request(ask, retry=True), SubscriptionInfo)

    async def promote(self, topic: str, subscription: str) -> SubscriptionInfo:
        """Makes the passive copy of another node's subscription active here; one that is active stays so.

        From then on nothing that its link brings changes it. What may have been handed out over there and was
        not settled comes again, with an ``attempt`` above 1.
        """
        ask = PromoteSubscription(_full(topic), subscription)
        return read_result(await self._link.request(ask, retry=True), SubscriptionInfo)

    # --- what is not acknowledged -------------------------------------------------------------------

    async def unacked(
        self, topic: str, subscription: str, *, start: Place = (0, 0), limit: int | None = None
    ) -> AsyncIterator[UnackedEntry]:
        """The entries of the unacked log, and others that a consumer had and did not settle, in order.

        Each with its attempts and what it waits for. ``start`` is (shard, entry); at most ``limit`` come.
        """
        at: Place | None = start
        while at is not None and (limit is None or limit > 0):
            size = PAGE_MAX if limit is None else min(limit, PAGE_MAX)
            ask = ListUnacked(_full(topic), subscription, *at, size)
            page = read_result(await self._link.request(ask, retry=True), UnackedPage)
            for entry in page.entries:
                yield entry
            at, limit = page.next, None if limit is None else limit - len(page.entries)

    async def skipped(
        self, topic: str, subscription: str, *, start: Place = (0, 0), limit: int | None = None
    ) -> AsyncIterator[tuple[int, int, int]]:
        """The entries that consumers skipped, as (shard, first, end), in order; at most ``limit`` ranges."""
        at: Place | None = start
        while at is not None and (limit is None or limit > 0):
            size = PAGE_MAX if limit is None else min(limit, PAGE_MAX)
            ask = ListSkipped(_full(topic), subscription, *at, size)
            page = read_result(await self._link.request(ask, retry=True), SkippedPage)
            for shard, first, end in page.ranges:
                yield shard, first, end
            at, limit = page.next, None if limit is None else limit - len(page.ranges)

    # --- dead letters -------------------------------------------------------------------------------

    async def redrive(
        self, topic: str, subscription: str, entries: Iterable[tuple[int, int]] | None = None
    ) -> int:
        """Offers dead messages again, to this subscription alone; returns how many.

        ``entries`` are (shard, entry) pairs of the topic; None takes all that are dead. Their copies stay in
        the dead-letter topic.
        """
        spans = None if entries is None else [(shard, entry, entry + 1) for shard, entry in entries]
        result = await self._link.request(Redrive(_full(topic), subscription, spans))
        return read_result(result, dict[str, int])["redriven"]

    async def dead_letters(self, topic: str, subscription: str) -> AsyncIterator[Message]:
        """The copies of the messages that are dead now, in the order in which they died.

        Their headers say why: ``dead.reason``, ``dead.attempts``, and the original's ``dead.topic``,
        ``dead.subscription``, ``dead.shard``, ``dead.entry``, ``dead.identity``. Of those without a copy (none
        is kept, it was deleted, it was too large) the original comes last, without reason and attempts.
        """
        info = await self.show_subscription(topic, subscription)
        dead = {(shard, entry) for shard, start, end in info.dead_entries for entry in range(start, end)}
        if not dead:
            return
        copies = await self._copies(info, dead)
        for message in copies.values():
            yield message
        async for message in self._originals(info, dead - copies.keys()):
            yield message

    async def _copies(self, info: SubscriptionInfo, dead: set[Place]) -> dict[Place, Message]:
        """By the original's place; one that was offered again and died again counts by its last death."""
        found: dict[Place, Message] = {}
        target = info.policy.dead_letter if info.policy is not None else None
        if not target:
            return found
        try:
            async for batch in self.browse(target):
                for message in batch.messages():
                    headers = message.headers
                    mine = (headers.get("dead.topic"), headers.get("dead.subscription"))
                    place = _place(headers)
                    if place is not None and place in dead and mine == (info.topic, info.subscription):
                        found.pop(place, None)
                        found[place] = message
        except TopicNotFound:  # nothing of it is left
            found.clear()
        return found

    async def _originals(self, info: SubscriptionInfo, places: set[Place]) -> AsyncIterator[Message]:
        for shard in sorted({shard for shard, _ in places}):
            wanted = {entry for each, entry in places if each == shard}
            last = max(wanted)
            async for batch in self.browse(info.topic, shard=shard, entry=min(wanted)):
                for message in batch.messages():
                    if message.entry in wanted:
                        yield _told(message, info.subscription)
                if batch.spans[-1][1] > last:
                    break

    # --- browsing -----------------------------------------------------------------------------------

    async def browse(
        self, topic: str, *, shard: int | None = None, entry: int = 0, bytes_max: int = 1024 * 1024
    ) -> AsyncIterator[Batch]:
        """What a topic holds now, from an entry on, without a subscription; nothing is settled by it."""
        ask = ShowTopic(_full(topic))
        info = read_result(await self._link.request(ask, retry=True), TopicInfo)
        for each in range(info.shards) if shard is None else [shard]:
            at, end = entry, None
            while end is None or at < end:
                question = Browse(info.topic, each, at, bytes_max)
                found = read_result(await self._link.request(question, retry=True), Browsed)
                end = found.entry_end if end is None else end
                compacted = EntrySet.decode(found.compacted) if found.compacted else EntrySet()
                for record in found.records:
                    if (batch := self._read(record, info, each, at, compacted)) is not None:
                        yield batch
                if found.entry_next <= at:
                    break
                at = found.entry_next

    def _read(
        self, record: bytes, info: TopicInfo, shard: int, entry: int, compacted: EntrySet
    ) -> Batch | None:
        frame = decode_at(record, 0, FILE_BODY_BYTES_MAX)
        if frame is None:
            raise BadFrame("a record that ends too early")
        node = self._link.welcome.node if self._link.welcome is not None else ""
        schemas = SchemaVersions(info.schemas) if info.schemas else None
        there = list(compacted.missing(entry, 2**63))
        return read_record(frame, Deliver(0, shard, 1, 0, there), info.topic, node, schemas)


def _full(topic: str) -> str:
    return str(TopicName.parse(topic))


def _word(start: Start) -> str | int:
    return start.isoformat() if isinstance(start, datetime) else start


def _place(headers: dict[str, str]) -> Place | None:
    """Where a copy's original stands. Anybody may write to a dead-letter topic, so it may say nothing."""
    try:
        return int(headers["dead.shard"]), int(headers["dead.entry"])
    except (KeyError, ValueError):
        return None


def _told(message: Message, subscription: str) -> Message:
    """An original, with the headers that tell where it stands."""
    place = {
        "dead.topic": message.topic,
        "dead.subscription": subscription,
        "dead.shard": str(message.shard),
        "dead.entry": str(message.entry),
        "dead.identity": str(message.identity),
    }
    return msgspec.structs.replace(message, header_items=list({**message.headers, **place}.items()))
