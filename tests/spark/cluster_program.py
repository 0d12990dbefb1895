"""A program for ``spark-submit``: counts the messages of ``orders`` by key and writes one message per key.

The program calls nothing of Headpond: Spark finds the format of the installed package.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession


def main(url: str) -> None:
    spark = SparkSession.builder.appName("counts").getOrCreate()
    orders = spark.read.format("headpond").options(url=url, topic="orders", minPartitions="8").load()
    counts = orders.groupBy("key").count().selectExpr("key", "cast(cast(count as string) as binary) as value")
    counts.write.format("headpond").options(url=url, topic="counts", sinkId="counts", batch="1").mode(
        "append"
    ).save()
    assert "headpond" not in sys.modules
    import headpond.spark

    assert headpond.spark.session(master=spark.conf.get("spark.master")) is spark, "it is taken as it is"
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
