"""Retention over real sockets: which messages are deleted, and how a slow subscription learns of it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import headpond
from headpond.client.connect import Client
from tests.cli.conftest import Cli
from tests.client.processes import environment
from tests.client.reading import receive
from tests.fire.real_node import RealNode
from tests.root import ROOT

TTL_S = 2.0
WAIT_S_MAX = 40.0


async def until_kept(client: Client, topic: str, entry: int) -> None:
    """Waits until the topic's one shard begins at an entry."""
    for _ in range(round(WAIT_S_MAX / 0.1)):
        if (await client.admin.show_topic(topic)).shard_list[0].entry_first >= entry:
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"entry {entry} is not the first that is kept")


async def send(client: Client, topic: str, count: int) -> None:
    async with client.producer(topic) as producer:
        for number in range(count):
            await producer.send(b"%d" % number)


async def read_and_settle(client: Client, topic: str, subscription: str, count: int) -> None:
    async with client.consumer(topic, subscription=subscription) as consumer:
        for _ in range(count):
            message = await receive(consumer)
            await consumer.ack(message)
        await consumer.flush()


def test_soft_ttl_keeps_what_a_slow_subscription_has_not_settled(node: RealNode, cli: Cli) -> None:
    async def run() -> None:
        async with headpond.connect(node.url) as client:
            await client.admin.create_topic("soft", settings={"soft_ttl": TTL_S})
            for name in ("quick", "slow"):
                await client.admin.create_subscription("soft", name)
            await send(client, "soft", 10)
            await read_and_settle(client, "soft", "quick", 10)
            await asyncio.sleep(2 * TTL_S)
            assert (await client.admin.show_topic("soft")).shard_list[0].entry_first == 0
            await read_and_settle(client, "soft", "slow", 10)
            await until_kept(client, "soft", 10)

    asyncio.run(run())
    shown = json.loads(cli("sub", "show", "soft", "slow", "--json", url=node.url).out)
    assert (shown["acked"], shown["lost"], shown["lost_ranges"]) == (10, 0, [])


def test_hard_ttl_deletes_and_the_slow_subscription_sees_which_ranges_it_lost(node: RealNode, cli: Cli) -> None:
    async def run() -> None:
        async with headpond.connect(node.url) as client:
            await client.admin.create_topic("hard", settings={"hard_ttl": TTL_S})
            for name in ("quick", "slow"):
                await client.admin.create_subscription("hard", name)
            await send(client, "hard", 7)
            await read_and_settle(client, "hard", "quick", 7)
            await until_kept(client, "hard", 7)
            async with client.consumer("hard", subscription="slow") as consumer:
                await send(client, "hard", 1)
                message = await receive(consumer)
                assert message.entry == 7
                await consumer.ack(message)

    asyncio.run(run())
    for _ in range(2):
        shown = cli("sub", "show", "hard", "slow", url=node.url).out.decode()
        assert "shard 0, entries 0–6: retention" in shown
        (lost,) = json.loads(cli("sub", "show", "hard", "slow", "--json", url=node.url).out)["lost_ranges"]
        assert (lost["shard"], lost["first"], lost["end"], lost["reason"]) == (0, 0, 7, "retention")
        quick = json.loads(cli("sub", "show", "hard", "quick", "--json", url=node.url).out)
        assert all(lost["first"] >= 7 for lost in quick["lost_ranges"]), "it had settled those"
        node.restart()  # killed: it is known afterwards too


def test_a_message_with_a_time_to_live_is_not_delivered_after_it(node: RealNode, cli: Cli) -> None:
    async def run() -> None:
        async with headpond.connect(node.url) as client:
            async with client.producer("brief") as producer:
                await producer.send(b"gone", ttl=0.05, headers={"a": "b"})
                await producer.send(b"stays", ttl=3600)
                await producer.send(b"for ever")
                with_bad = producer.send(b"never", ttl=-1.0)
                try:
                    await with_bad
                except headpond.HeadpondError as error:
                    assert error.code == "bad-request"
                else:
                    raise AssertionError("a negative time was taken")
            await asyncio.sleep(0.2)
            async with client.consumer("brief", subscription="s") as consumer:
                values = []
                while (message := await consumer.receive(timeout=2.0)) is not None:
                    values.append(message.value)
                    await consumer.ack(message)
                assert values == [b"stays", b"for ever"]
                assert consumer.lost == []

    asyncio.run(run())
    shown = json.loads(cli("sub", "show", "brief", "s", "--json", url=node.url).out)
    assert (shown["expired"], shown["acked"], shown["unsettled"]) == (1, 2, 0)


def test_the_blocking_producer_takes_a_time_to_live_too(node: RealNode) -> None:
    with headpond.sync.connect(node.url) as client:
        with client.producer("brief") as producer:
            producer.send(b"gone", ttl=0.0)
            producer.post(b"stays", ttl=60.0).result()
        with client.consumer("brief", subscription="s") as consumer:
            message = consumer.receive(timeout=WAIT_S_MAX)
            assert message is not None
            assert (message.value, message.headers) == (b"stays", {"headpond-ttl": "60"})


def test_the_example_of_retention_runs() -> None:
    example = ROOT / "examples" / "retention.py"
    done = subprocess.run(
        [sys.executable, example], capture_output=True, text=True, timeout=110, env=environment()
    )
    assert (done.returncode, done.stderr) == (0, "")
    parts = {part.split(" ")[0]: part for part in done.stdout.strip().split("\n\n")}
    assert "entries 0–9 are all there" in parts["soft_ttl"]
    assert "slow: settled 10, lost 0" in parts["soft_ttl"]
    assert "slow: settled 0, lost 10: entries 0–" in parts["hard_ttl"]
    assert "slow: settled 0, lost 7: entries 0–" in parts["max_bytes"], "the oldest went"
    assert all("quick: settled 10, lost 0\n" in parts[name] for name in ("soft_ttl", "hard_ttl", "max_bytes"))
    assert "came: lasting" in parts["ttl="]
    assert "expired before it was delivered: 1" in parts["ttl="]
