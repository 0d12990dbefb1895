"""One of each conversation message, with every field set."""

from __future__ import annotations

from penstock.wire.control import (
    Ack,
    AckItem,
    BlockEnd,
    Control,
    CreateTopic,
    Credit,
    DeleteSubscription,
    DeleteTopic,
    Deliver,
    Error,
    Hello,
    Hole,
    ListSubscriptions,
    ListTopics,
    Lost,
    OpenTopic,
    Operation,
    Ping,
    Pong,
    Request,
    Response,
    Settle,
    Settled,
    ShowNode,
    ShowTopic,
    Subscribe,
    Subscribed,
    Unsubscribe,
    Unsubscribed,
    Welcome,
)

BLOCK = b"b" * 16

OPERATIONS: list[Operation] = [
    OpenTopic("orders", True),
    CreateTopic("orders", 4, True),
    ShowTopic("orders"),
    ListTopics(),
    DeleteTopic("orders"),
    ListSubscriptions("orders"),
    DeleteSubscription("orders", "billing"),
    ShowNode(),
]

MESSAGES: list[Control] = [
    Hello([1, 2], "python/0.1", "secret"),
    Welcome(1, "node-a", "penstock/0.1", 8, 1, 64),
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
    Subscribed(1, "orders", BLOCK, 4, "unique", "non_resilient", [0, 5, 9, 2**63], b"schema"),
    Unsubscribe(1),
    Unsubscribed(1),
    Credit(1, 2**40),
    Deliver(1, 3, 2, 1, [(5, 9), (11, 12)]),
    Settle(1, 7, 3, [(0, 5)], [(5, 6)], [(6, 2.5), (7, None)]),
    Settled(1, 7, 2),
    Lost(1, 0, [(3, 9)], "damaged"),
]
