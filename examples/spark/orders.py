"""Orders enriched and windowed: feeds sample orders to a topic, runs orders.toml once, prints the result.

    headpond node &
    python examples/spark/orders.py

Some orders come twice and some are broken: each good one comes out once, and the broken ones are in orders.bad.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import headpond.spark
import headpond.sync
from headpond.spark.pipeline import Pipeline

HERE = Path(__file__).parent
URL = os.environ.get("HEADPOND_URL", "headpond://127.0.0.1:7411")
COUNTRIES = ("CH", "FR", "IT")
ORDERS = 1_000
BEGIN = datetime(2026, 1, 1, 12, tzinfo=UTC)


def order(number: int) -> bytes:
    placed_at = BEGIN + timedelta(seconds=number)
    said = {"customer": number % 7, "amount": number % 50 + 1, "placed_at": placed_at.isoformat()}
    if number % 100 == 99:
        said["amount"] = -1
    return json.dumps(said).encode()


def feed(client: headpond.sync.Client) -> None:
    """Sends each order, and every tenth again, as a program does that missed an answer."""
    chance = random.Random(1)
    numbers = [*range(ORDERS), *range(0, ORDERS, 10)]
    chance.shuffle(numbers)
    with client.producer("orders", name="shop") as producer:
        for number in numbers:
            producer.post(order(number), id=f"o-{number}")
        producer.flush()


def main() -> None:
    shutil.rmtree(HERE / "made", ignore_errors=True)
    spark = headpond.spark.session("orders example")
    customers = [(number, COUNTRIES[number % len(COUNTRIES)]) for number in range(7)]
    spark.createDataFrame(customers, "id bigint, country string").write.parquet(
        str(HERE / "made" / "customers")
    )
    with headpond.sync.connect(URL) as client:
        feed(client)
    pipeline = Pipeline.load(HERE / "orders.toml")
    pipeline.set_trigger(available_now=True)
    pipeline.start(spark).wait()
    topics = spark.read.format("headpond").option("url", URL)
    for topic in ("orders.enriched", "orders.bad", "orders.sold"):
        rows = topics.option("topic", topic).load()
        print(f"{topic}: {rows.count():,} messages, {rows.select('id').distinct().count():,} ids")
    topics.option("topic", "orders.sold").load().selectExpr("cast(value as string)").show(5, truncate=False)


if __name__ == "__main__":
    main()
