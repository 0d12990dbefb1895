"""``client.admin``, blocking: every method of ``headpond.client.admin.Admin``, which documents it."""

from __future__ import annotations

from typing import Any

from headpond.client.admin import Admin as AsyncAdmin
from headpond.client.connect import Client
from headpond.client.consume.batch import Batch
from headpond.sync.background import Background, Twin, blocking, collected
from headpond.wire.control.consuming import SubscriptionInfo


class Admin(Twin[AsyncAdmin]):
    """``client.admin``: tenants, topics, producers, writers, subscriptions, tokens, links and the node."""

    def __init__(self, client: Client, background: Background) -> None:
        super().__init__(client.admin, background)

    create_topic = blocking(AsyncAdmin.create_topic)
    alter_topic = blocking(AsyncAdmin.alter_topic)
    list_topics = blocking(AsyncAdmin.list_topics)
    show_topic = blocking(AsyncAdmin.show_topic)
    compact_topic = blocking(AsyncAdmin.compact_topic)
    ends = blocking(AsyncAdmin.ends)
    delete_topic = blocking(AsyncAdmin.delete_topic)
    ledger = blocking(AsyncAdmin.ledger)

    create_tenant = blocking(AsyncAdmin.create_tenant)
    create_product = blocking(AsyncAdmin.create_product)
    create_component = blocking(AsyncAdmin.create_component)
    list_tenants = blocking(AsyncAdmin.list_tenants)
    list_products = blocking(AsyncAdmin.list_products)
    list_components = blocking(AsyncAdmin.list_components)
    show_tenant = blocking(AsyncAdmin.show_tenant)
    show_product = blocking(AsyncAdmin.show_product)
    show_component = blocking(AsyncAdmin.show_component)
    delete_tenant = blocking(AsyncAdmin.delete_tenant)
    delete_product = blocking(AsyncAdmin.delete_product)
    delete_component = blocking(AsyncAdmin.delete_component)

    # The settings of the four `set_` could hold a `self`, so mypy says: no setting has that name.
    set_tenant = blocking(AsyncAdmin.set_tenant)  # type: ignore[arg-type]
    set_product = blocking(AsyncAdmin.set_product)  # type: ignore[arg-type]
    set_component = blocking(AsyncAdmin.set_component)  # type: ignore[arg-type]
    set_topic = blocking(AsyncAdmin.set_topic)  # type: ignore[arg-type]
    unset_tenant = blocking(AsyncAdmin.unset_tenant)
    unset_product = blocking(AsyncAdmin.unset_product)
    unset_component = blocking(AsyncAdmin.unset_component)
    unset_topic = blocking(AsyncAdmin.unset_topic)

    create_producer = blocking(AsyncAdmin.create_producer)
    list_producers = blocking(AsyncAdmin.list_producers)
    show_producer = blocking(AsyncAdmin.show_producer)
    delete_producer = blocking(AsyncAdmin.delete_producer)

    list_writers = blocking(AsyncAdmin.list_writers)
    show_writer = blocking(AsyncAdmin.show_writer)
    delete_writer = blocking(AsyncAdmin.delete_writer)

    list_subscriptions = blocking(AsyncAdmin.list_subscriptions)
    show_subscription = blocking(AsyncAdmin.show_subscription)
    delete_subscription = blocking(AsyncAdmin.delete_subscription)
    seek = blocking(AsyncAdmin.seek)
    advance = blocking(AsyncAdmin.advance)
    pause = blocking(AsyncAdmin.pause)
    resume = blocking(AsyncAdmin.resume)
    promote = blocking(AsyncAdmin.promote)
    unacked = collected(AsyncAdmin.unacked)
    skipped = collected(AsyncAdmin.skipped)
    redrive = blocking(AsyncAdmin.redrive)
    dead_letters = collected(AsyncAdmin.dead_letters)

    create_token = blocking(AsyncAdmin.create_token)
    list_tokens = blocking(AsyncAdmin.list_tokens)
    show_token = blocking(AsyncAdmin.show_token)
    revoke_token = blocking(AsyncAdmin.revoke_token)
    show_access = blocking(AsyncAdmin.show_access)
    list_admin_log = blocking(AsyncAdmin.list_admin_log)

    add_peer = blocking(AsyncAdmin.add_peer)
    list_peers = blocking(AsyncAdmin.list_peers)
    show_peer = blocking(AsyncAdmin.show_peer)
    remove_peer = blocking(AsyncAdmin.remove_peer)

    top = blocking(AsyncAdmin.top)
    show_node = blocking(AsyncAdmin.show_node)
    begin_backup = blocking(AsyncAdmin.begin_backup)
    end_backup = blocking(AsyncAdmin.end_backup)

    def create_subscription(self, topic: str, subscription: str, **options: Any) -> SubscriptionInfo:
        """Creates a subscription without a consumer; kind, mode, start, policy, exist_ok, positions."""
        return self._background.run(self._twin.create_subscription(topic, subscription, **options))

    def browse(self, topic: str, *, shard: int | None = None, entry: int = 0) -> list[Batch]:
        """The messages that a topic holds now, from an entry on, without a subscription."""
        return _browse(self, topic, shard=shard, entry=entry)


_browse = collected(AsyncAdmin.browse)
