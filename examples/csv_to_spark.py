"""A CSV file into a typed topic, and an aggregate over it in Spark: ``python examples/csv_to_spark.py [FILE]``.

The topic gets the columns of the file, with the types that Arrow finds. Without FILE the program first writes a
million rows to ``trips.csv``. Each run adds the rows of its file to the topic. A node must be running, and
``pip install '.[spark]'`` must have been run.
"""

from __future__ import annotations

import sys

import pyarrow as pa
import pyarrow.csv

import headpond.spark
import headpond.sync


def write_trips(path: str, rows: int = 1_000_000) -> None:
    towns = [("Bern", "Genf", "Chur")[number % 3] for number in range(rows)]
    trips = pa.table({"town": towns, "km": pa.array(range(rows), pa.int64())})
    pyarrow.csv.write_csv(trips, path)


def load(path: str, topic: str) -> int:
    """Sends the file block by block, so that it may be larger than the memory."""
    with headpond.sync.connect() as client, pyarrow.csv.open_csv(path) as blocks:
        client.admin.create_topic(topic, schema=blocks.schema, exist_ok=True)
        with client.producer(topic) as producer:
            return sum(producer.send_batch(block).stored for block in blocks)


def main(path: str) -> None:
    print(f"{load(path, 'trips'):,} rows stored")
    spark = headpond.spark.session()
    trips = spark.read.format("headpond").options(topic="trips", columns="value").load().select("value.*")
    trips.groupBy("town").agg({"km": "avg", "*": "count"}).orderBy("town").show()


if __name__ == "__main__":
    if len(sys.argv) == 1:
        write_trips("trips.csv")
    main(sys.argv[1] if len(sys.argv) > 1 else "trips.csv")
