"""The programs of a tea house, which keep a node busy: ``python -m headpond.cli.up.traffic URL LOSSY_URL``.

========  =================================  ================================================================
topic     messages                           subscriptions
========  =================================  ================================================================
orders    JSON, keyed by table               kitchen (key_shared), billing (shared), archive (in bursts)
payments  JSON, over the lossy link          accounting (over the lossy link too)
emails    text                               mailer (shared): some addresses do not exist, so messages die
readings  typed: sensor, celsius, door_open  dashboard (failover), in batches
menu      a state topic: dish and price      screens
========  =================================  ================================================================
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pyarrow as pa

import headpond
from headpond.client.connect import Client
from headpond.client.link.dialling import Backoff
from headpond.model.errors import HeadpondError
from headpond.model.message import Message
from headpond.model.policy import Policy

log = logging.getLogger(__name__)

DISHES = {"green tea": 3.2, "black tea": 3.0, "scone": 4.1, "soup": 6.5, "cucumber sandwich": 5.4}
TILLS = ("till-1", "till-2")
COOKS = ("anna", "ben", "cem")
MAILERS = ("mailer-1", "mailer-2")
SCREENS = ("screen-1", "screen-2")
READINGS = pa.schema(
    [("sensor", pa.string()), pa.field("celsius", pa.float64(), nullable=False), ("door_open", pa.bool_())]
)
SETTINGS: dict[str, Any] = {"soft_ttl": 3600, "max_bytes": 256 * 1024 * 1024}
"""So that a demonstration may run for days."""
AGAIN_S = 1.0
FEW_SENT: dict[str, Any] = {"linger_s": 0.2, "window_bytes": 1}
"""Over the lossy link: segments of several messages, one at a time: a loss repeats all that are unconfirmed."""
SLOW_S, QUICK_S = 150.0, 30.0
"""The archive is slow for so long, then quick for so long."""

chance = random.Random()


# --- producers ----------------------------------------------------------------------------------------


async def send(
    client: Client, topic: str, name: str, messages: AsyncIterator[dict[str, Any]], **options: Any
) -> None:
    async with client.producer(topic, name=name, refill=None, **options) as producer:
        async for message in messages:
            await producer.post_when_room(**message)


async def orders(per_second: float) -> AsyncIterator[dict[str, Any]]:
    number = 0
    while True:
        number += 1
        table, dish = chance.randint(1, 24), chance.choice(list(DISHES))
        value = {"order": number, "table": table, "dish": dish, "count": chance.randint(1, 4)}
        yield {"value": json.dumps(value).encode(), "key": f"table-{table}", "headers": {"room": "garden"}}
        await asyncio.sleep(chance.expovariate(per_second))


async def payments(per_second: float) -> AsyncIterator[dict[str, Any]]:
    number = 0
    while True:
        number += 1
        value = {
            "payment": number,
            "euros": round(chance.uniform(3, 60), 2),
            "by": chance.choice(("card", "cash")),
        }
        yield {"value": json.dumps(value).encode(), "id": f"p-{number}"}
        await asyncio.sleep(1 / per_second)


async def emails(per_second: float) -> AsyncIterator[dict[str, Any]]:
    number = 0
    while True:
        number += 1
        place = "nowhere.invalid" if chance.random() < 0.03 else "example.org"
        yield {
            "value": f"Your table is ready, guest {number}".encode(),
            "headers": {"to": f"guest-{number}@{place}"},
        }
        await asyncio.sleep(chance.expovariate(per_second))


async def menu(per_second: float) -> AsyncIterator[dict[str, Any]]:
    while True:
        for dish, price in DISHES.items():
            value = {"dish": dish, "euros": round(price * chance.uniform(0.9, 1.1), 2)}
            yield {"value": json.dumps(value).encode(), "key": dish}
            await asyncio.sleep(1 / per_second)


async def readings(client: Client, per_second: int) -> None:
    async with client.producer("readings", name="sensors", refill=None) as producer:
        while True:
            sensors = [f"room-{chance.randint(1, 8)}" for _ in range(per_second)]
            celsius = [round(chance.gauss(21, 2), 1) for _ in sensors]
            doors = [chance.random() < 0.1 for _ in sensors]
            await producer.send_batch(pa.table([sensors, celsius, doors], schema=READINGS))
            await asyncio.sleep(1)


# --- consumers ----------------------------------------------------------------------------------------

Work = Callable[[], Awaitable[None]]
Handle = Callable[[Any, Message[bytes]], Awaitable[None]]


async def consume(client: Client, topic: str, subscription: str, handle: Handle, **options: Any) -> None:
    async with client.consumer(topic, subscription, start="earliest", **options) as consumer:
        async for message in consumer:
            await handle(consumer, message)


async def accept(consumer: Any, message: Message[bytes]) -> None:
    await consumer.ack(message)


async def deliver_mail(consumer: Any, message: Message[bytes]) -> None:
    await asyncio.sleep(0.02)
    address = message.headers["to"]
    if address.endswith(".invalid"):
        await consumer.nack(message, reason=f"550 no such mailbox: {address}")
    else:
        await consumer.ack(message)


async def archive(consumer: Any, message: Message[bytes]) -> None:
    """Falls behind, and catches up."""
    if asyncio.get_running_loop().time() % (SLOW_S + QUICK_S) < SLOW_S:
        await asyncio.sleep(0.05)
    await consumer.ack(message)


async def watch_readings(client: Client, name: str) -> None:
    consumer = client.consumer("readings", "dashboard", kind="failover", start="earliest", name=name)
    async with consumer:
        async for batch in consumer.batches():
            await consumer.ack(batch)


# --- all of them --------------------------------------------------------------------------------------


async def prepare(client: Client) -> None:
    admin = client.admin
    for topic, shards in (("orders", 4), ("payments", 1), ("emails", 1)):
        await admin.create_topic(topic, shards=shards, settings=SETTINGS, exist_ok=True)
    await admin.create_topic("readings", schema=READINGS, settings=SETTINGS, exist_ok=True)
    await admin.create_topic("menu", state=True, exist_ok=True)
    for till in TILLS:
        await admin.create_producer("orders", till, access="single", exist_ok=True)
    policy = Policy(max_attempts=3, backoff=0.5, redelivery="after_backoff")
    await admin.create_subscription("emails", "mailer", kind="shared", policy=policy, exist_ok=True)


def works(client: Client, terminal: Client, accounting: Client) -> list[Work]:
    return [
        *(partial(send, client, "orders", name, orders(20)) for name in TILLS),
        lambda: send(terminal, "payments", "terminal", payments(20), **FEW_SENT),
        lambda: send(client, "emails", "reservations", emails(8)),
        lambda: send(client, "menu", "chef", menu(2)),
        lambda: readings(client, 100),
        *(
            partial(consume, client, "orders", "kitchen", accept, kind="key_shared", name=name)
            for name in COOKS
        ),
        *(partial(consume, client, "orders", "billing", accept, kind="shared", name=name) for name in TILLS),
        partial(consume, client, "orders", "archive", archive, name="archive"),
        partial(consume, accounting, "payments", "accounting", accept, name="accounting", credit_bytes=4096),
        *(
            partial(consume, client, "emails", "mailer", deliver_mail, kind="shared", name=name)
            for name in MAILERS
        ),
        *(partial(watch_readings, client, name) for name in SCREENS),
        partial(consume, client, "menu", "screens", accept, name="screens"),
    ]


async def keep_on(work: Work) -> None:
    """A program that fails starts again, as under a supervisor."""
    while True:
        try:
            await work()
        except HeadpondError as error:
            log.warning("%s", error)
        await asyncio.sleep(AGAIN_S)


async def main(url: str, lossy_url: str) -> None:
    current = asyncio.current_task()
    assert current is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, current.cancel)
    backoff = Backoff(max_s=0.5)  # the link breaks so often that it would wait ever longer
    async with (
        headpond.connect(url, name="tea house") as client,
        headpond.connect(lossy_url, name="terminal", backoff=backoff) as terminal,
        headpond.connect(lossy_url, name="accounting", backoff=backoff) as accounting,
    ):
        await prepare(client)
        await asyncio.gather(*(keep_on(work) for work in works(client, terminal, accounting)))


if __name__ == "__main__":
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
    with suppress(asyncio.CancelledError):
        asyncio.run(main(*sys.argv[1:]))
