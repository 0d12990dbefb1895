"""Questions about what became of everything, and about how busy the node is."""

from __future__ import annotations

from collections.abc import Mapping

from headpond.broker.catalog.topic_requests import TopicRequests
from headpond.broker.catalog.topics import Topic
from headpond.broker.context import Context
from headpond.broker.ingest.ingest import Producing
from headpond.broker.ledger.ledger import ProducerPages, log_account, subscription_account
from headpond.broker.session import Session
from headpond.broker.steps import Handler
from headpond.broker.stores import Stores
from headpond.broker.subscriptions.subscription import Subscription
from headpond.model.errors import ProducerNotFound, SubscriptionNotFound
from headpond.wire.control.codec import Operation
from headpond.wire.control.ledger import RANGES_MAX, LedgerInfo, ShowLedger, SubscriptionLedger


class LedgerRequests:
    def __init__(self, context: Context, stores: Stores, topics: TopicRequests, producing: Producing) -> None:
        self._context = context
        self._stores = stores
        self._topics = topics
        self._producing = producing
        self.handlers: Mapping[type[Operation], Handler] = {ShowLedger: self._ledger}

    def _ledger(self, session: Session, ask: ShowLedger) -> LedgerInfo:
        topic = self._topics.find(ask.topic)
        runs = self._stores.runs
        pages = ProducerPages(topic, runs, self._producing.open_blocks(topic), segments=ask.segments)
        blocks, left_out = pages.blocks(ask.producer) if ask.blocks or ask.segments else ([], 0)
        producers = pages.accounts()
        if ask.producer is not None:
            producers = [account for account in producers if account.producer == ask.producer]
            if not producers:
                raise ProducerNotFound(f"nothing came to {topic.shown} from a producer {ask.producer[:80]!r}")
        return LedgerInfo(
            topic=topic.name,
            at_us=self._context.now_us(),
            run=runs.number,
            crashed=runs.crashed,
            log=log_account(topic),
            producers=producers,
            subscriptions=[self._subscription(topic, one) for one in self._subscriptions(topic, ask)],
            blocks=blocks,
            blocks_left_out=left_out,
        )

    def _subscriptions(self, topic: Topic, ask: ShowLedger) -> list[Subscription]:
        found = sorted(self._stores.subscriptions.of_topic(topic.uuid), key=lambda one: one.name)
        if ask.subscription is None:
            return found
        named = [one for one in found if one.name == ask.subscription]
        if not named:
            raise SubscriptionNotFound(f"topic {topic.shown} has no subscription {ask.subscription[:80]!r}")
        return named

    def _subscription(self, topic: Topic, subscription: Subscription) -> SubscriptionLedger:
        return SubscriptionLedger(
            subscription_account(topic, subscription, self._stores.runs),
            subscription.kind,
            subscription.mode,
            sum(attachment.connected for attachment in subscription.attachments),
            self._stores.subscriptions.history(subscription).lost[-RANGES_MAX:],
        )
