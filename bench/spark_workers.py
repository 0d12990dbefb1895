"""Which of Spark's Python workers a job runs in.

Headpond's source and sink make a worker lighter (``headpond.spark.connection``), also for whoever runs in it
next. A limit that is to be what it is without Headpond therefore needs workers of its own. Spark keeps
workers apart by their environment, and this setting, which only shortens error messages, is part of that.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTING = "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled"


@contextmanager
def workers_apart(spark: SparkSession) -> Iterator[None]:
    """Jobs in here run in workers that no other job runs in."""
    short = spark.conf.get(SETTING) == "true"
    spark.conf.set(SETTING, not short)
    try:
        yield
    finally:
        spark.conf.set(SETTING, short)
