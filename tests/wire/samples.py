"""One of each conversation message, with every field set."""

from __future__ import annotations

from headpond.model.policy import Policy
from headpond.wire.control.catalog import CreateTopic, DeleteTopic, ListTopics, OpenTopic, ShowTopic
from headpond.wire.control.codec import Operation, Request, Response
from headpond.wire.control.consuming import (
    Browse,
    CreateSubscription,
    Credit,
    DeleteSubscription,
    Deliver,
    Extend,
    GiveBack,
    ListSkipped,
    ListSubscriptions,
    ListUnacked,
    Lost,
    PauseSubscription,
    Redrive,
    Renew,
    SeekSubscription,
    Settle,
    Settled,
    ShowSubscription,
    Subscribe,
    Subscribed,
    Unsubscribe,
    Unsubscribed,
)
from headpond.wire.control.greeting import Error, Hello, Ping, Pong, Welcome
from headpond.wire.control.operation import Control
from headpond.wire.control.producing import Ack, AckItem, BlockEnd, Hole
from headpond.wire.control.reading import AdvanceSubscription, Fetched, FetchEntries, FindTime, ReadEnds
from headpond.wire.control.status import ShowNode

BLOCK = b"b" * 16
POLICY = Policy(deadline=5.0, max_attempts=3, dead_letter="gone", failover_after=2, lease=1.5)

OPERATIONS: list[Operation] = [
    OpenTopic("orders", True),
    CreateTopic("orders", 4, True),
    ShowTopic("orders"),
    ListTopics(),
    DeleteTopic("orders"),
    ListSubscriptions("orders"),
    DeleteSubscription("orders", "billing"),
    CreateSubscription("orders", "billing", "shared", "resilient", 17, POLICY, True),
    ShowSubscription("orders", "billing"),
    ListUnacked("orders", "billing", 1, 17, 5),
    ListSkipped("orders", "billing", 1, 17, 5),
    SeekSubscription("orders", "billing", "latest", 3),
    PauseSubscription("orders", "billing", True),
    Redrive("orders", "billing", [(0, 1, 9)]),
    Browse("orders", 1, 5, 100),
    ReadEnds(["orders", "other"], [[5, 9], []], 1.5),
    FindTime(BLOCK, 1_700_000_000_000_000),
    FetchEntries(BLOCK, 1, 5, 9, 2, 4096, "key = 'a'"),
    AdvanceSubscription("orders", "billing", [5, 9], BLOCK),
    ShowNode(),
]

MESSAGES: list[Control] = [
    Hello([1, 2], "python/0.1", "secret"),
    Welcome(1, "node-a", "headpond/0.1", 8, 1, 64),
    Error("gap", "what", "hint", True, 3, 4, BLOCK),
    Ping(1),
    Pong(2),
    *(Request(number, operation) for number, operation in enumerate(OPERATIONS)),
    Response(5, {"a": [1, "b", None, b"c"]}),
    Ack(BLOCK, 2, "sync", [AckItem(9, "rejected", 1, "gap", "why", 8), AckItem(10, "stored", 7)]),
    Hole(BLOCK, 1, 5),
    BlockEnd(BLOCK, {0: 3, 1: 2**32}),
    Subscribe(1, "orders", "billing", "shared", "resilient", "earliest", 1024, "c-1", True),
    Subscribe(1, "orders", "billing", "shared", "resilient", 17, 1024),
    Subscribed(1, "orders", BLOCK, 4, "unique", "non_resilient", [0, 5, 9, 2**62], b"schema"),
    Subscribe(1, "a", "b", "failover", "resilient", 17, 1024, policy=POLICY, instance=BLOCK),
    Subscribed(
        1, "a", BLOCK, 1, "failover", "resilient", [0], policy=POLICY, active=False, lease_s=5.0, renewal=2
    ),
    Unsubscribe(1),
    Unsubscribed(1),
    Credit(1, 2**40),
    Deliver(1, 3, 2, 1, [(5, 9), (11, 12)]),
    Settle(1, 7, 3, [(0, 5)], [(5, 6)], [(6, 2.5), (7, None)]),
    Settled(1, 7, 2),
    Settle(1, 8, 0, upto=9),
    Extend(1, 3, [(5, 9)], 30.0),
    Renew(1, 4),
    GiveBack(1, 3, [(5, 9)]),
    Lost(1, 0, [(3, 9)], "damaged"),
    Fetched(3, 2, 17, 40, [(3, 9, "retention")], [b"\x03", b"\x01"]),
]
