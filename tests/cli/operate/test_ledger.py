"""``headpond ledger`` over a real node, which is also killed."""

from __future__ import annotations

import json
from typing import Any

import headpond.sync
from headpond.sync.client import Client
from tests.cli.conftest import Cli, Node


def produce(client: Client, topic: str, count: int, name: str = "till") -> None:
    with client.producer(topic, name=name) as producer:
        for number in range(count):
            producer.send(b"m%d" % number)


def consume(client: Client, topic: str, count: int) -> None:
    with client.consumer(topic, subscription="billing") as consumer:
        for message, _ in zip(consumer, range(count), strict=False):
            consumer.ack(message)
        consumer.flush()


def found(cli: Cli, node: Node, topic: str, *more: object) -> dict[str, Any]:
    done = cli("ledger", topic, "--json", *more, url=node.url)
    assert (done.code, done.err) == (0, "")
    result: dict[str, Any] = json.loads(done.out)
    return result


def test_the_tables_show_both_hops_and_that_they_balance(cli: Cli, service: Node, topic: str) -> None:
    with headpond.sync.connect(service.url) as client:
        produce(client, topic, 10)
        consume(client, topic, 4)
        done = cli("ledger", topic, "--blocks", url=service.url)
        text = done.out.decode()
        assert (done.code, done.err) == (0, "")
        assert "10 entries; 10 messages: balances" in text
        assert text.count("balances") == 4, "the log, the block, its producer and the subscription"
        info = client.admin.ledger(topic)
    assert info.balanced
    (producer,), (billing,) = info.producers, info.subscriptions
    assert (producer.producer, producer.messages, producer.unclosed) == ("till", 10, 0)
    assert (str(producer.reliability), str(producer.use_ratio)) == ("1.000000", "1.000000")
    assert (billing.account.stored, billing.account.acknowledged, billing.account.unsettled) == (10, 4, 6)


def test_one_producer_and_one_subscription_alone(cli: Cli, service: Node, topic: str) -> None:
    with headpond.sync.connect(service.url) as client:
        for name in ("till-1", "till-2"):
            produce(client, topic, 1, name)
            client.admin.create_subscription(topic, name)
    info = found(cli, service, topic, "--producer", "till-2", "--subscription", "till-1", "--blocks")
    assert [row["producer"] for row in info["producers"]] == ["till-2"]
    assert [row["subscription"] for row in info["subscriptions"]] == ["till-1"]
    assert [row["producer"] for row in info["blocks"]] == ["till-2"]
    nobody = cli("ledger", topic, "--producer", "till-3", "--json", url=service.url)
    assert (nobody.code, json.loads(nobody.err)["code"]) == (1, "producer-not-found")


def test_after_a_kill_uncertain_counts_are_bounds(cli: Cli, node: Node) -> None:
    with headpond.sync.connect(node.url) as client:
        produce(client, "orders", 10)
        consume(client, "orders", 4)
        node.restart()
        info = found(cli, node, "orders")
        (producer,), (billing,) = info["producers"], info["subscriptions"]
        assert (producer["messages"], producer["r"]["bound"], producer["ur"]["bound"]) == (
            10,
            "exact",
            "at most",
        )
        assert billing["acknowledged"] == 4 and billing["since_run"] == 2
        assert (billing["r"]["bound"], billing["delivered"], info["balanced"]) == ("at least", 0, True)
        node.stop()
        node.start()
        again = client.admin.ledger("orders").subscriptions[0].account
    assert (again.acknowledged, again.since_run, again.exact) == (4, 2, False), (
        "a clean restart changes nothing"
    )
