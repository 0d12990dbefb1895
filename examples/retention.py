"""What retention deletes and what it keeps, told by a real node: ``python examples/retention.py`` (20 seconds).

One topic with a soft time to live, one with a hard one, one with a limit of bytes; each has a quick
subscription that settles everything at once and a slow one that settles nothing. Then a message with a time of
its own.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path

import headpond
from headpond.cli.operate.demo import NodeProcess

TTL_S = 2
COUNT = 10
KIB_64 = os.urandom(64 * 1024)  # what could be folded would take less room


async def settle(client: headpond.Client, topic: str, subscription: str, count: int) -> None:
    async with client.consumer(topic, subscription=subscription) as consumer:
        for _ in range(count):
            message = await consumer.receive(timeout=20)
            if message is None:
                raise SystemExit(f"{topic}: a message that should be there did not come")
            await consumer.ack(message)
        await consumer.flush()


async def prepare(client: headpond.Client, topic: str, value: bytes, **settings: int) -> None:
    """A topic with a quick and a slow subscription; the quick one settles all of its messages."""
    await client.admin.create_topic(topic, settings=settings)
    for name in ("quick", "slow"):
        await client.admin.create_subscription(topic, name)
    async with client.producer(topic) as producer:
        for _ in range(COUNT):
            await producer.send(value)
            await settle(client, topic, "quick", 1)


async def kept(client: headpond.Client, topic: str) -> tuple[int, int]:
    (shard,) = (await client.admin.show_topic(topic)).shard_list
    return shard.entry_first, shard.entry_next


async def until_gone(client: headpond.Client, topic: str, entry: int) -> None:
    """Waits until entries before ``entry`` are deleted."""
    async with asyncio.timeout(40):
        while (await kept(client, topic))[0] < entry:  # noqa: ASYNC110  # the node does not tell when it deletes
            await asyncio.sleep(0.2)


async def until_told(client: headpond.Client, topic: str, count: int) -> None:
    """Waits until the slow subscription knows what it lost: that comes right behind the deletion."""
    async with asyncio.timeout(40):
        while (await client.admin.show_subscription(topic, "slow")).lost < count:  # noqa: ASYNC110
            await asyncio.sleep(0.1)


async def tell_losses(client: headpond.Client, topic: str) -> None:
    for name in ("quick", "slow"):
        info = await client.admin.show_subscription(topic, name)
        ranges = [f"entries {first}–{end - 1} ({reason})" for _, first, end, reason, _ in info.lost_ranges]
        print(f"  {name}: settled {info.settled}, lost {info.lost}{': ' if ranges else ''}{', '.join(ranges)}")


async def soft(client: headpond.Client) -> None:
    print(f"\nsoft_ttl = {TTL_S} s: deletes what is older and settled in every subscription")
    await prepare(client, "soft", b"x", soft_ttl=TTL_S)
    await asyncio.sleep(TTL_S + 2)
    first, end = await kept(client, "soft")
    print(f"  after {TTL_S + 2} s entries {first}–{end - 1} are all there: the slow subscription owes them")
    await settle(client, "soft", "slow", COUNT)
    await until_gone(client, "soft", COUNT)
    print("  once it settled them too they were deleted")
    await tell_losses(client, "soft")


async def hard(client: headpond.Client) -> None:
    print(f"\nhard_ttl = {TTL_S} s: deletes what is older, settled or not")
    await prepare(client, "hard", b"x", hard_ttl=TTL_S)
    await until_gone(client, "hard", COUNT)
    await until_told(client, "hard", COUNT)
    print("  they were deleted under the slow subscription, which is told which")
    await tell_losses(client, "hard")


async def size(client: headpond.Client) -> None:
    print("\nmax_bytes = 256 KiB: deletes the oldest when a shard takes more")
    await prepare(client, "size", KIB_64, max_bytes=256 * 1024)
    await until_gone(client, "size", COUNT - 3)
    await until_told(client, "size", COUNT - 3)
    first, end = await kept(client, "size")
    print(f"  of {COUNT} messages of 64 KiB entries {first}–{end - 1} are left")
    await tell_losses(client, "size")


async def own(client: headpond.Client) -> None:
    print("\nttl= of a message: it is not delivered after its own time")
    async with client.producer("own") as producer:
        await producer.send(b"brief", ttl=0.2)
        await producer.send(b"lasting", ttl=3600)
    await asyncio.sleep(0.5)
    async with client.consumer("own", subscription="s") as consumer:
        message = await consumer.receive(timeout=5)
        print(f"  came: {message.value.decode() if message is not None else 'nothing'}")
    info = await client.admin.show_subscription("own", "s")
    print(f"  expired before it was delivered: {info.expired}")


async def main(url: str) -> None:
    async with headpond.connect(url) as client:
        for part in (soft, hard, size, own):
            await part(client)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        node = NodeProcess(Path(folder) / "node")
        node.start()
        try:
            asyncio.run(main(node.url))
        finally:
            node.stop()
