"""A stream over a node's topic: the topic is the storage, a subscription keeps the receiver's position.

It starts a node, sends numbers, reads some of them, and ends the receiver. The node is killed
(SIGKILL) and started again while the sender keeps sending. A second receiver continues where the first one was.

    python examples/pipes/stream_topic.py [MESSAGES]

It ends by itself, with exit code 0 only if every message was received once, in order.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile

import headpond
from headpond.pipes.drivers import topic


def start_node(data: str, listen: str = "127.0.0.1:0") -> tuple[subprocess.Popen[str], str]:
    """Returns when it can serve, with its URL."""
    command = [sys.executable, "-m", "headpond", "node", "--data", data, "--listen", listen]
    node = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert node.stdout is not None
    word, _, url = node.stdout.readline().strip().partition(" ")
    if word != "ready":
        raise SystemExit("the node did not start")
    return node, url


def kill(node: subprocess.Popen[str]) -> None:
    node.kill()
    node.wait()
    if node.stdout is not None:
        node.stdout.close()


async def receive(client: headpond.Client, count: int) -> list[int]:
    """Reads so many; what it was done with is on the node's disk when this returns."""
    got: list[int] = []
    async with topic.receiver(client, "numbers", subscription="reader") as receiver:
        while len(got) < count:
            item = await receiver.receive(timeout=30)
            if item is None:
                break
            got.append(int(item.payload))
            receiver.confirm(item)
    return got


async def demonstrate(messages: int, data: str) -> bool:
    node, url = start_node(data)
    try:
        async with headpond.connect(url) as client, topic.sender(client, "numbers") as sender:
            await sender.send_many([b"%d" % number for number in range(messages // 2)])
            first = await receive(client, messages // 3)
            print(f"the first receiver read {len(first)}, up to {first[-1]}")
            sending = asyncio.create_task(
                sender.send_many([b"%d" % number for number in range(messages // 2, messages)])
            )
            await asyncio.sleep(0)
            kill(node)
            print("the node is killed, and started again")
            node, _ = await asyncio.to_thread(start_node, data, url.removeprefix("headpond://"))
            await sending
            await sender.flush()
            stats = sender.stats
            print(f"sender: {stats.accepted} sent, {stats.confirmed} confirmed, {stats.reconnects} reconnects")
            second = await receive(client, messages - len(first))
            print(f"the second receiver read {len(second)}, from {second[0]} on")
    finally:
        kill(node)
    got = first + second
    unique = len(set(got))
    print(
        f"sent {messages}, received {len(got)}, unique {unique}: "
        f"R = {unique / messages:g}, UR = {unique / len(got):g}"
    )
    return got == list(range(messages))


def main() -> int:
    messages = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    with tempfile.TemporaryDirectory() as data:
        return 0 if asyncio.run(demonstrate(messages, data)) else 1


if __name__ == "__main__":
    sys.exit(main())
