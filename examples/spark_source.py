"""Reads a topic with Spark, as a table and as a stream: ``python examples/spark_source.py [URL]``.

A node must be running, and ``pip install '.[spark]'`` must have been run.
"""

from __future__ import annotations

import sys
import tempfile

import headpond.spark
import headpond.sync


def main(url: str) -> None:
    with headpond.sync.connect(url) as client:
        client.admin.create_topic("visits", shards=2, exist_ok=True)
        with client.producer("visits") as producer:
            for number in range(1000):
                producer.post(b"page %d" % (number % 7), key=b"user %d" % (number % 50))

        spark = headpond.spark.session()
        visits = spark.read.format("headpond").option("url", url).option("topic", "visits").load()
        visits.selectExpr("cast(value as string) as page").groupBy("page").count().orderBy("page").show()

        stream = spark.readStream.format("headpond").option("url", url).option("topic", "visits")
        stream = stream.option("subscription", "pages").option("maxEntriesPerTrigger", 500)
        with tempfile.TemporaryDirectory() as checkpoint:
            query = (
                stream.load()
                .writeStream.foreachBatch(
                    lambda frame, number: print("batch", number, "has", frame.count(), "rows")
                )
                .option("checkpointLocation", checkpoint)
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
        place = client.admin.show_subscription("visits", "pages")
        print("read up to", place.positions, "and", place.unsettled, "behind")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "headpond://127.0.0.1:7411")
