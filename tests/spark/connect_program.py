"""A client of Spark Connect: reads topic ``a``, writes it to ``b`` as a batch and to ``c`` as a stream.

What it says in the end, as JSON: the rows of each, and the answer of ``headpond.spark.session``.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import DataFrame, SparkSession


def main(url: str, checkpoint: str) -> None:
    spark = SparkSession.builder.remote("local[1]").getOrCreate()

    def rows(topic: str) -> DataFrame:
        return spark.read.format("headpond").options(url=url, topic=topic).load()

    rows("a").select("key", "value").write.format("headpond").options(url=url, topic="b").mode("append").save()
    stream = spark.readStream.format("headpond").options(url=url, topic="a").load().select("key", "value")
    query = (
        stream.writeStream.format("headpond")
        .options(url=url, topic="c", checkpointLocation=checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert "headpond" not in sys.modules
    import headpond.spark
    from headpond.errors import BadRequest

    try:
        answer = repr(headpond.spark.session())
    except BadRequest as error:
        answer = error.message
    counts = {topic: rows(topic).count() for topic in "abc"}
    said = {"session": answer, "of": type(spark).__module__, "lag": headpond.spark.lag(query)}
    print(json.dumps(counts | said))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
