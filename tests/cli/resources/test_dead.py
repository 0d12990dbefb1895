"""Dead letters end to end: a real node, killed in between, and the command line as a user has it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pyarrow as pa

import headpond
from tests.cli.conftest import Cli, Node

TWICE = headpond.Policy(max_attempts=2, backoff=0.0)


def refuse(url: str, topic: str, count: int, policy: headpond.Policy = TWICE) -> None:
    """A consumer that refuses all there is, until so many messages are dead, and goes away."""

    async def main() -> None:
        async with headpond.connect(url) as client, client.consumer(topic, "s", policy=policy) as consumer:
            while (await client.admin.show_subscription(topic, "s")).dead < count:
                if (message := await consumer.receive(0.1)) is not None:
                    await consumer.nack(message)
                    await consumer.flush()

    asyncio.run(asyncio.wait_for(main(), 30))


def listed(cli: Cli, url: str, topic: str) -> list[dict[str, Any]]:
    done = cli("dead", "list", topic, "-s", "s", "--json", url=url)
    assert (done.code, done.err) == (0, "")
    found: list[dict[str, Any]] = json.loads(done.out)
    return found


def test_dead_letters_outlive_a_kill_and_are_redriven_with_nobody_reading(cli: Cli, node: Node) -> None:
    cli("produce", "orders", "--key-separator", ":", url=node.url, stdin=b"k:a\nk:b\nk:c\n")
    refuse(node.url, "orders", 3)
    node.restart()
    before = listed(cli, node.url, "orders")
    assert [(each["entry"], each["attempts"], each["reason"], each["value"]) for each in before] == [
        (entry, 2, "max-attempts", value) for entry, value in enumerate("abc")
    ]
    assert {each["topic"] for each in before} == {"default/default/default/orders"}
    origin = json.loads(cli("consume", "orders", "-s", "look", "-n", 1, "--json", url=node.url).out)
    assert before[0]["identity"] == origin["identity"]

    shown = cli("dead", "show", "orders", 1, "-s", "s", url=node.url)  # it has no headers
    assert shown.code == 0 and b"value         b\n" in shown.out and b"header" not in shown.out

    found = cli("dead", "redrive", "orders", "-s", "s", "--entry", 0, "--entry", "0/2", url=node.url)
    assert found.out == b"re-drove 2 messages of orders to s\n"
    node.restart()  # redriven messages stay redriven
    assert [each["entry"] for each in listed(cli, node.url, "orders")] == [1]
    came = cli("consume", "orders", "-s", "s", "--idle", 1, "--json", url=node.url)
    rows = [json.loads(line) for line in came.out.splitlines()]
    assert [(row["value"], row["attempt"]) for row in rows] == [("a", 2), ("c", 2)], (
        "once, and once for the crash"
    )
    assert cli("consume", "orders", "-s", "look", "--idle", 0.5, url=node.url).out == b"b\nc\n", "nobody else's"


def test_a_typed_topics_dead_letters_are_json_whatever_their_columns_hold(cli: Cli, node: Node) -> None:
    async def fill() -> None:
        async with headpond.connect(node.url) as client:
            await client.admin.create_topic(
                "t", schema=pa.schema([("at", pa.timestamp("s")), ("n", pa.int64())])
            )
            async with client.producer("t") as producer:
                far = pa.array([400_000_000_000, 0], pa.timestamp("s"))
                await producer.send_batch(pa.table({"at": far, "n": pa.array([1, 2], pa.int64())}))

    asyncio.run(fill())
    refuse(node.url, "t", 2)
    values = [json.loads(each["value"]) for each in listed(cli, node.url, "t")]
    assert values == [{"at": 400_000_000_000, "n": 1}, {"at": "1970-01-01T00:00:00", "n": 2}]
    assert cli("dead", "redrive", "t", "-s", "s", "--all", url=node.url).code == 0
    lines = cli("consume", "t", "-s", "s", "-n", 2, url=node.url).out.splitlines()
    assert [json.loads(line) for line in lines] == values, "the original, as it was"


def test_a_typed_dead_letter_topic_is_refused(cli: Cli, service: Node, topic: str) -> None:
    cli("topic", "create", topic, url=service.url)
    cli("topic", "create", f"{topic}.dead", "--column", "n:int64", url=service.url)
    done = cli("sub", "create", topic, "s", url=service.url)
    assert done.code == 1
    assert f"error: topic {topic}.dead is typed" in done.err
    assert "--dead-letter" in done.err
    assert cli("sub", "create", topic, "s", "--dead-letter", f"{topic}.bin", url=service.url).code == 0


def test_dead_messages_are_listed_and_redriven_without_their_copies(
    cli: Cli, service: Node, topic: str
) -> None:
    url = service.url
    cli("produce", topic, url=url, stdin=b"a\nb\n")
    refuse(url, topic, 2)
    cli("topic", "delete", f"{topic}.dead", "--yes", url=url)
    rows = listed(cli, url, topic)
    assert [(row["entry"], row["value"], row["reason"], row["attempts"]) for row in rows] == [
        (0, "a", None, None),
        (1, "b", None, None),
    ]
    assert b"b" in cli("dead", "show", topic, 1, "-s", "s", url=url).out
    assert cli("dead", "redrive", topic, "-s", "s", "--all", url=url).code == 0
    refuse(url, topic, 2)
    assert [row["reason"] for row in listed(cli, url, topic)] == ["max-attempts"] * 2, "and has a copy again"


def test_without_a_dead_letter_topic_the_originals_are_listed(cli: Cli, service: Node, topic: str) -> None:
    cli("produce", topic, url=service.url, stdin=b"a\nb\n")
    refuse(service.url, topic, 2, headpond.Policy(max_attempts=1, dead_letter=""))
    assert [row["value"] for row in listed(cli, service.url, topic)] == ["a", "b"]
