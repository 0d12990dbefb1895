"""The ledger of a topic: what became of every message, from marks, logs and cursors in memory."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from headpond.broker.catalog.topic_requests import TopicRequests
from headpond.broker.catalog.topics import Topic
from headpond.broker.context import Context
from headpond.broker.ingest.ingest import Ingester
from headpond.broker.ledger.runs import Runs
from headpond.broker.session import Session
from headpond.broker.stores import Stores
from headpond.broker.subscriptions.cursor import ShardCursor
from headpond.broker.subscriptions.subscription import Subscription
from headpond.model.errors import ProducerNotFound, SubscriptionNotFound
from headpond.model.ledger import (
    LogAccount,
    ProducerAccount,
    SubscriptionAccount,
    sum_producers,
    sum_shards,
)
from headpond.model.ranges import RangeSet
from headpond.storage.log.book import BlockTally
from headpond.wire.control.ledger import (
    BLOCKS_MAX,
    RANGES_MAX,
    SEGMENT_RANGES_MAX,
    BlockAccount,
    BlockSegments,
    LedgerInfo,
    ShowLedger,
    SubscriptionLedger,
)


class LedgerRequests:
    def __init__(self, context: Context, stores: Stores, topics: TopicRequests, producing: Ingester) -> None:
        self._context = context
        self._stores = stores
        self._topics = topics
        self._producing = producing

    def show_ledger(self, session: Session, ask: ShowLedger) -> LedgerInfo:
        topic = self._topics.find(ask.topic)
        runs = self._stores.runs
        pages = ProducerPages(topic, runs, self._producing.open_blocks(topic), segments=ask.segments)
        blocks, left_out = pages.blocks(ask.producer) if ask.blocks or ask.segments else ([], 0)
        producers = pages.accounts()
        if ask.producer is not None:
            producers = [account for account in producers if account.producer == ask.producer]
            if not producers:
                raise ProducerNotFound(
                    f"topic {topic.shown} has no messages of a producer {ask.producer[:80]!r}"
                )
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
            subscription.history.lost[-RANGES_MAX:],
        )


class _Page(NamedTuple):
    """One block over all shards."""

    account: ProducerAccount
    closed: bool
    touched_us: int


class ProducerPages:
    """What all producers of a topic announced, and its fate. Connections have ``open_blocks`` open."""

    def __init__(
        self, topic: Topic, runs: Runs, open_blocks: Collection[bytes], *, segments: bool = False
    ) -> None:
        self._runs = runs
        parts: dict[bytes, list[tuple[ProducerAccount, bool, int]]] = {}
        self._folded: dict[str, list[ProducerAccount]] = {}
        self._segments: dict[bytes, list[BlockSegments]] = {}
        for number, shard in enumerate(topic.shards):
            marks = shard.log.marks
            for block, tally in marks.book.tallies.items():
                known = marks.get(block)
                admitted = known.admitted if known is not None else RangeSet()
                account = tally.account(admitted, marks.under_way(block))
                closed = tally.closed or tally.sparse
                parts.setdefault(block, []).append((account, closed, tally.touched_us))
                if segments:
                    found = _segments(number, tally, admitted)
                    self._segments.setdefault(block, []).append(found)
            for name, account in marks.book.folded.items():
                self._folded.setdefault(name, []).append(account)
        self._pages = {block: _page(found, block in open_blocks) for block, found in parts.items()}

    def accounts(self) -> list[ProducerAccount]:
        """One per name, in order."""
        by_name = {name: list(accounts) for name, accounts in self._folded.items()}
        for page in self._pages.values():
            by_name.setdefault(page.account.producer, []).append(page.account)
        found = [sum_producers(name, accounts) for name, accounts in sorted(by_name.items())]
        for account in found:
            account.exact = self._runs.exact(account.run)
        return found

    def blocks(self, producer: str | None) -> tuple[list[BlockAccount], int]:
        """One per block, the latest first, and how many were left out."""
        pages = [
            (block, page)
            for block, page in self._pages.items()
            if producer is None or page.account.producer == producer
        ]
        pages.sort(key=lambda item: item[1].touched_us, reverse=True)
        shown = []
        room = SEGMENT_RANGES_MAX
        for block, page in pages[:BLOCKS_MAX]:
            segments = self._segments.get(block, [])
            room -= sum(len(each.announced) + len(each.admitted) for each in segments)
            if room < 0:
                break
            page.account.exact = self._runs.exact(page.account.run)
            shown.append(BlockAccount(block, page.account, page.closed, page.touched_us, segments))
        return shown, len(pages) - len(shown)


def _segments(shard: int, tally: BlockTally, admitted: RangeSet) -> BlockSegments:
    announced = admitted.copy()
    if not tally.sparse:  # else numbers between those that came were never meant to come
        announced.add(0, max(admitted.end, tally.declared, tally.announced))
    return BlockSegments(shard, list(announced), list(admitted))


def _page(parts: list[tuple[ProducerAccount, bool, int]], is_open: bool) -> _Page:
    account = sum_producers(parts[0][0].producer, [part for part, _, _ in parts])
    closed = all(done for _, done, _ in parts)
    account.blocks = 1
    account.open = int(is_open and not closed)
    account.unclosed = int(not closed and not is_open)
    return _Page(account, closed, max(touched_us for _, _, touched_us in parts))


def log_account(topic: Topic) -> LogAccount:
    """Entries against counted messages, over all shards; both include those that are not durable yet."""
    total = LogAccount()
    for shard in topic.shards:
        book = shard.log.marks.book
        total.entries += shard.log.entry_next - book.counted_from
        total.messages += sum(tally.messages for tally in book.tallies.values())
        total.messages += sum(account.messages for account in book.folded.values())
        total.lost += book.lost
        total.before += book.counted_from
    return total


def subscription_account(topic: Topic, subscription: Subscription, runs: Runs) -> SubscriptionAccount:
    """Over all shards."""
    shards = zip(subscription.cursors, topic.shards, strict=True)
    accounts = [shard_account(cursor, shard.log.entry_durable, runs) for cursor, shard in shards]
    return sum_shards(subscription.name, accounts)


def shard_account(cursor: ShardCursor, end: int, runs: Runs) -> SubscriptionAccount:
    """``end`` is the shard's durable end."""
    tally = cursor.tally
    offered = max(cursor.offered, cursor.cursor)
    new = max(end - offered, 0) - cursor.settled.count(offered, end) - cursor.ahead.count(offered, end)
    dead = cursor.dead.count(tally.start, cursor.dead.end)
    unacked = len(cursor.unacked)
    return SubscriptionAccount(
        stored=end - tally.start,
        acknowledged=tally.acked,
        skipped=tally.skipped,
        dead=dead,
        retention=tally.retention,
        damaged=tally.damaged,
        expired=tally.expired,
        compacted=tally.compacted,
        passed=tally.passed,
        unknown=tally.unknown,
        in_flight=len(cursor.held),
        available=len(cursor.ready) + len(cursor.parked) + len(cursor.unacked_log.entries) + new - unacked,
        unacked=unacked,
        dying=len(cursor.dying),
        reached=(reached := cursor.reached),
        since_run=tally.copies_run,
        reached_since=reached - tally.reached_before - tally.elsewhere,
        delivered=tally.delivered,
        redelivered=tally.redelivered,
        unseen=tally.unseen,
        elsewhere=tally.elsewhere,
        late=tally.late,
        delivered_before=tally.delivered_before,
        exact=runs.exact(tally.run),
    )
