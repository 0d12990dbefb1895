"""A program for ``spark-submit``: counts the messages of ``orders`` by key and writes a message a key."""

from __future__ import annotations

import sys

import penstock.spark


def main(url: str) -> None:
    spark = penstock.spark.session("counts")  # the one that spark-submit asks for
    orders = spark.read.format("penstock").options(url=url, topic="orders", minPartitions="8").load()
    counts = orders.groupBy("key").count().selectExpr("key", "cast(cast(count as string) as binary) as value")
    counts.write.format("penstock").options(url=url, topic="counts", sinkId="counts", batch="1").mode(
        "append"
    ).save()
    print("counted", spark.sparkContext.master)
    assert penstock.spark.session(master=spark.sparkContext.master) is not None
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
