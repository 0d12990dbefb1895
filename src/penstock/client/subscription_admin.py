"""Subscriptions looked after: created, shown, moved, paused, deleted; dead messages seen and offered again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from datetime import datetime

from penstock.client.batch import Batch, read_record
from penstock.client.link import Link
from penstock.model.errors import BadFrame
from penstock.model.message import Message
from penstock.model.policy import Policy
from penstock.model.topic import TopicName
from penstock.wire.control import (
    Browse,
    Browsed,
    CreateSubscription,
    DeleteSubscription,
    Deliver,
    ListSubscriptions,
    PauseSubscription,
    Redrive,
    SeekSubscription,
    ShowSubscription,
    ShowTopic,
    SubscriptionInfo,
    TopicInfo,
    read_result,
)
from penstock.wire.frame import FILE_BODY_BYTES_MAX, decode_at
from penstock.wire.schema_versions import SchemaVersions

Start = str | int | datetime


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
    ) -> SubscriptionInfo:
        """Makes a subscription that nobody reads yet: it holds what is stored from ``start`` on."""
        if policy is not None:
            policy.checked()
        ask = CreateSubscription(_full(topic), subscription, kind, mode, _word(start), policy, exist_ok)
        return read_result(await self._link.request(ask, retry=exist_ok), SubscriptionInfo)

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

    async def pause(self, topic: str, subscription: str) -> SubscriptionInfo:
        """Nothing is handed out until ``resume``, whoever is connected; settlements are taken."""
        ask = PauseSubscription(_full(topic), subscription, True)
        return read_result(await self._link.request(ask, retry=True), SubscriptionInfo)

    async def resume(self, topic: str, subscription: str) -> SubscriptionInfo:
        """Ends a pause."""
        ask = PauseSubscription(_full(topic), subscription, False)
        return read_result(await self._link.request(ask, retry=True), SubscriptionInfo)

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
        ``dead.subscription``, ``dead.shard``, ``dead.entry``, ``dead.identity``.
        """
        info = await self.show_subscription(topic, subscription)
        target = info.policy.dead_letter if info.policy is not None else None
        if not target or not info.dead_entries:
            return
        dead = {
            (str(shard), str(entry)) for shard, start, end in info.dead_entries for entry in range(start, end)
        }
        latest: dict[tuple[str, str], Message] = {}
        async for batch in self.browse(target):
            for message in batch.messages():
                headers = message.headers
                mine = (headers.get("dead.topic"), headers.get("dead.subscription"))
                place = (headers.get("dead.shard", ""), headers.get("dead.entry", ""))
                if mine == (info.topic, info.subscription) and place in dead:
                    latest.pop(
                        place, None
                    )  # one that was offered again and died again counts by its last death
                    latest[place] = message
        for message in latest.values():
            yield message

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
                for record in found.records:
                    if (batch := self._read(record, info, each, at)) is not None:
                        yield batch
                if found.entry_next <= at:
                    break
                at = found.entry_next

    def _read(self, record: bytes, info: TopicInfo, shard: int, entry: int) -> Batch | None:
        frame = decode_at(record, 0, FILE_BODY_BYTES_MAX)
        if frame is None:
            raise BadFrame("a record that ends too early")
        node = self._link.welcome.node if self._link.welcome is not None else ""
        schemas = SchemaVersions(info.schemas) if info.schemas else None
        return read_record(frame, Deliver(0, shard, 1, 0, [(entry, 2**63)]), info.topic, node, schemas)


def _full(topic: str) -> str:
    return str(TopicName.parse(topic))


def _word(start: Start) -> str | int:
    return start.isoformat() if isinstance(start, datetime) else start
