"""Subscriptions and dead messages from the command line."""

from __future__ import annotations

import asyncio
import json

import headpond
from tests.cli.conftest import Cli, Node
from tests.client.reading import receive


def lines(count: int) -> bytes:
    return b"".join(b"m%d\n" % number for number in range(count))


def test_a_subscription_is_created_shown_moved_paused_and_deleted(cli: Cli, service: Node, topic: str) -> None:
    url = service.url
    cli("produce", topic, url=url, stdin=lines(6))
    made = cli("sub", "create", topic, "s", "--kind", "shared", "--start", 2, "--max-attempts", 3, url=url)
    assert (made.code, made.err) == (0, "")
    shown = json.loads(cli("sub", "show", topic, "s", "--json", url=url).out)
    assert (shown["kind"], shown["mode"], shown["positions"]) == ("shared", "non_resilient", [2])
    assert shown["policy"]["max_attempts"] == 3
    assert shown["policy"]["dead_letter"] == f"default/default/default/{topic}.dead"
    assert "policy max_attempts" in cli("sub", "show", topic, "s", url=url).out.decode()
    assert json.loads(cli("sub", "seek", topic, "s", "--to", 4, "--json", url=url).out)["positions"] == [4]
    assert cli("sub", "pause", topic, "s", url=url).code == 0
    assert json.loads(cli("sub", "list", topic, "--json", url=url).out)[0]["paused"] is True
    assert cli("consume", topic, "-s", "s", "--kind", "shared", "--idle", 0.3, url=url).out == b""
    assert cli("sub", "resume", topic, "s", url=url).code == 0
    assert cli("consume", topic, "-s", "s", "--kind", "shared", "--count", 2, url=url).out == b"m4\nm5\n"
    assert topic in cli("sub", "list", url=url).out.decode()
    assert cli("sub", "delete", topic, "s", url=url).code == 2, "without a terminal it needs --yes"
    assert cli("sub", "delete", topic, "s", "--yes", url=url).code == 0
    gone = cli("sub", "show", topic, "s", "--json", url=url)
    assert (gone.code, json.loads(gone.err)["code"]) == (1, "subscription-not-found")


def test_a_policy_inherits_missing_values_from_the_topic_and_shows_them(
    cli: Cli, service: Node, topic: str
) -> None:
    url = service.url
    cli("produce", topic, url=url, stdin=lines(1))
    cli("topic", "set", topic, "backoff=3s", "redelivery=after_backoff", url=url)

    def policy(subscription: str) -> dict[str, object]:
        shown = json.loads(cli("sub", "show", topic, subscription, "--json", url=url).out)["policy"]
        return {name: shown[name] for name in ("backoff", "redelivery")}

    cli("sub", "create", topic, "left-out", url=url)
    assert policy("left-out") == {"backoff": 3.0, "redelivery": "after_backoff"}
    cli("sub", "create", topic, "said", "--backoff", 1, "--redelivery", "after_backlog", url=url)
    assert policy("said") == {"backoff": 1.0, "redelivery": "after_backlog"}
    cli("consume", topic, "-s", "consumed", "--redelivery", "after_backlog", "--count", 1, url=url)
    assert policy("consumed") == {"backoff": 3.0, "redelivery": "after_backlog"}
    cli("sub", "create", topic, "resilient", "--mode", "resilient", "--redelivery", "after_backlog", url=url)
    assert policy("resilient")["redelivery"] == "after_backoff", "the order waits for a refused message"


def test_a_resilient_subscription_is_consumed_one_message_after_the_other(
    cli: Cli, service: Node, topic: str
) -> None:
    cli("produce", topic, url=service.url, stdin=lines(5))
    done = cli("consume", topic, "-s", "s", "--mode", "resilient", "--count", 3, url=service.url)
    assert done.out == b"m0\nm1\nm2\n"
    done = cli("consume", topic, "-s", "s", "--mode", "resilient", "--count", 2, "--json", url=service.url)
    assert [json.loads(line)["attempt"] for line in done.out.splitlines()] == [1, 1]


def test_a_place_that_makes_no_sense_is_wrong_usage(cli: Cli, service: Node, topic: str) -> None:
    assert cli("sub", "seek", topic, "s", "--to", "yesterday", url=service.url).code == 2
    assert cli("dead", "redrive", topic, "-s", "s", url=service.url).code == 2
    assert cli("dead", "show", topic, "x/y", "-s", "s", url=service.url).code == 2


def test_dead_messages_are_listed_shown_and_redriven(cli: Cli, service: Node, topic: str) -> None:
    url = service.url
    cli("produce", topic, "--key-separator", ":", url=url, stdin=b"k:good\nk:bad\n")

    async def refuse() -> None:
        policy = headpond.Policy(max_attempts=2, backoff=0.0)
        async with headpond.connect(url) as client, client.consumer(topic, "s", policy=policy) as consumer:
            for _ in range(3):
                message = await receive(consumer)
                await (consumer.nack(message) if message.value == b"bad" else consumer.ack(message))
            await consumer.flush()
            while (await client.admin.show_subscription(topic, "s")).dead == 0:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    asyncio.run(refuse())
    (dead,) = json.loads(cli("dead", "list", topic, "-s", "s", "--json", url=url).out)
    assert (dead["shard"], dead["entry"], dead["attempts"], dead["reason"]) == (0, 1, 2, "max-attempts")
    assert (dead["value"], dead["key"], dead["headers"]) == ("bad", "k", {})
    assert "max-attempts" in cli("dead", "list", topic, "-s", "s", url=url).out.decode()
    assert b"bad" in cli("dead", "show", topic, "0/1", "-s", "s", url=url).out
    assert cli("dead", "show", topic, 0, "-s", "s", url=url).code == 1
    assert json.loads(cli("dead", "redrive", topic, "-s", "s", "--entry", 1, "--json", url=url).out) == {
        "redriven": 1
    }
    assert json.loads(cli("dead", "list", topic, "-s", "s", "--json", url=url).out) == []
    assert cli("consume", topic, "-s", "s", "--count", 1, url=url).out == b"bad\n"
    assert b"re-drove 0 messages" in cli("dead", "redrive", topic, "-s", "s", "--all", url=url).out
