"""Questions about what became of everything, and about how busy the node is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headpond.broker.catalog.topics import Topic
from headpond.broker.ledger.ledger import ProducerPages, log_account, subscription_account
from headpond.broker.ledger.top import read_top
from headpond.broker.subscriptions.subscription import Subscription
from headpond.model.errors import ProducerNotFound, SubscriptionNotFound
from headpond.wire.control.codec import Operation
from headpond.wire.control.ledger import RANGES_MAX, LedgerInfo, ShowLedger, SubscriptionLedger
from headpond.wire.control.status import ShowTop

if TYPE_CHECKING:
    from headpond.broker.core import NodeCore


class LedgerRequests:
    """``topic_of`` finds a topic by its name, or raises."""

    def __init__(self, node: NodeCore, topic_of: Callable[[str], Topic]) -> None:
        self._node = node
        self._topic = topic_of

    def on_request(self, operation: Operation, answer: Callable[[Any], None]) -> bool:
        """Carries out an operation if it is one of these."""
        if isinstance(operation, ShowLedger):
            answer(self._ledger(operation))
        elif isinstance(operation, ShowTop):
            answer(read_top(self._node, operation))
        else:
            return False
        return True

    def _ledger(self, ask: ShowLedger) -> LedgerInfo:
        topic = self._topic(ask.topic)
        runs = self._node.stores.runs
        pages = ProducerPages(topic, runs, self._node.changes.open_blocks(topic), segments=ask.segments)
        blocks, left_out = pages.blocks(ask.producer) if ask.blocks or ask.segments else ([], 0)
        producers = pages.accounts()
        if ask.producer is not None:
            producers = [account for account in producers if account.producer == ask.producer]
            if not producers:
                raise ProducerNotFound(f"nothing came to {topic.shown} from a producer {ask.producer[:80]!r}")
        return LedgerInfo(
            topic=topic.name,
            at_us=self._node.now_us(),
            run=runs.number,
            crashed=runs.crashed,
            log=log_account(topic),
            producers=producers,
            subscriptions=[self._subscription(topic, one) for one in self._subscriptions(topic, ask)],
            blocks=blocks,
            blocks_left_out=left_out,
        )

    def _subscriptions(self, topic: Topic, ask: ShowLedger) -> list[Subscription]:
        found = sorted(self._node.subscriptions.of_topic(topic.uuid), key=lambda one: one.name)
        if ask.subscription is None:
            return found
        named = [one for one in found if one.name == ask.subscription]
        if not named:
            raise SubscriptionNotFound(f"topic {topic.shown} has no subscription {ask.subscription[:80]!r}")
        return named

    def _subscription(self, topic: Topic, subscription: Subscription) -> SubscriptionLedger:
        return SubscriptionLedger(
            subscription_account(topic, subscription, self._node.stores.runs),
            subscription.kind,
            subscription.mode,
            sum(attachment.connected for attachment in subscription.attachments),
            self._node.subscriptions.history(subscription).lost[-RANGES_MAX:],
        )
