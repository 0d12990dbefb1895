"""Sends an order and reads it back: ``python examples/quickstart.py [URL]``, with a node running."""

from __future__ import annotations

import asyncio
import sys

import headpond


async def main(url: str) -> None:
    async with headpond.connect(url) as client:
        await client.admin.create_topic("orders", shards=4, exist_ok=True)
        async with client.producer("orders", name="till-1") as producer:
            receipt = await producer.send(b"one tea", key=b"table-4", id="o-1", headers={"till": "1"})
            print(receipt.outcome, "at entry", receipt.entry, "of shard", receipt.shard)
        async with client.consumer("orders", subscription="kitchen") as consumer:
            message = await consumer.receive(timeout=5)
            if message is None:
                sys.exit("nothing came within 5 seconds")
            print(message.value, message.key, message.headers, message.identity)
            await consumer.ack(message)
            await consumer.flush()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "headpond://127.0.0.1:7411"))
