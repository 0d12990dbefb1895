"""Subscriptions looked after, blocking."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from headpond.client.admin import Admin as AsyncAdmin
from headpond.client.batch import Batch
from headpond.client.subscription_admin import Place, Start
from headpond.model.message import Message
from headpond.sync.background import Background
from headpond.wire.control import SubscriptionInfo, UnackedEntry


class SubscriptionAdmin:
    _admin: AsyncAdmin
    _background: Background

    def create_subscription(self, topic: str, subscription: str, **options: Any) -> SubscriptionInfo:
        """Makes a subscription that nobody reads yet; kind, mode, start, policy, exist_ok, positions."""
        return self._background.run(self._admin.create_subscription(topic, subscription, **options))

    def list_subscriptions(self, topic: str | None = None) -> list[SubscriptionInfo]:
        """A topic's subscriptions, or those of all topics, and how far each has come."""
        return self._background.run(self._admin.list_subscriptions(topic))

    def show_subscription(self, topic: str, subscription: str) -> SubscriptionInfo:
        """One subscription, with its policy, its counts and which of its entries are dead."""
        return self._background.run(self._admin.show_subscription(topic, subscription))

    def delete_subscription(self, topic: str, subscription: str) -> None:
        """Removes a subscription; ``SubscriptionBusy`` while somebody reads it."""
        self._background.run(self._admin.delete_subscription(topic, subscription))

    def seek(self, topic: str, subscription: str, to: Start, *, shard: int | None = None) -> SubscriptionInfo:
        """Sets the place: ``earliest``, ``latest``, an entry or a time; of one shard or of all."""
        return self._background.run(self._admin.seek(topic, subscription, to, shard=shard))

    def advance(
        self,
        topic: str,
        subscription: str,
        positions: Sequence[int],
        *,
        topic_uuid: bytes | None = None,
        incarnations: Sequence[int] | None = None,
    ) -> list[int]:
        """Acknowledges everything before these positions, one a shard; returns where it stands then."""
        done = self._admin.advance(
            topic, subscription, positions, topic_uuid=topic_uuid, incarnations=incarnations
        )
        return self._background.run(done)

    def pause(self, topic: str, subscription: str) -> SubscriptionInfo:
        """Nothing is handed out until ``resume``, whoever is connected."""
        return self._background.run(self._admin.pause(topic, subscription))

    def resume(self, topic: str, subscription: str) -> SubscriptionInfo:
        """Ends a pause."""
        return self._background.run(self._admin.resume(topic, subscription))

    def promote(self, topic: str, subscription: str) -> SubscriptionInfo:
        """Makes the passive copy of another node's subscription active here; one that is active stays so."""
        return self._background.run(self._admin.promote(topic, subscription))

    def unacked(
        self, topic: str, subscription: str, *, start: Place = (0, 0), limit: int | None = None
    ) -> list[UnackedEntry]:
        """Entries that a consumer had and did not settle, with their attempts and what each waits for."""

        async def all_of_them() -> list[UnackedEntry]:
            found = self._admin.unacked(topic, subscription, start=start, limit=limit)
            return [entry async for entry in found]

        return self._background.run(all_of_them())

    def skipped(
        self, topic: str, subscription: str, *, start: Place = (0, 0), limit: int | None = None
    ) -> list[tuple[int, int, int]]:
        """The entries that consumers skipped, as (shard, first, end), in order."""

        async def all_of_them() -> list[tuple[int, int, int]]:
            found = self._admin.skipped(topic, subscription, start=start, limit=limit)
            return [each async for each in found]

        return self._background.run(all_of_them())

    def redrive(self, topic: str, subscription: str, entries: Iterable[tuple[int, int]] | None = None) -> int:
        """Offers dead messages again, to this subscription alone; returns how many."""
        return self._background.run(self._admin.redrive(topic, subscription, entries))

    def dead_letters(self, topic: str, subscription: str) -> list[Message]:
        """The copies of the messages that are dead now, in the order in which they died."""

        async def all_of_them() -> list[Message]:
            return [message async for message in self._admin.dead_letters(topic, subscription)]

        return self._background.run(all_of_them())

    def browse(self, topic: str, *, shard: int | None = None, entry: int = 0) -> list[Batch]:
        """What a topic holds now, from an entry on, without a subscription."""

        async def all_of_it() -> list[Batch]:
            return [batch async for batch in self._admin.browse(topic, shard=shard, entry=entry)]

        return self._background.run(all_of_it())
