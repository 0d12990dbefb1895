"""Headpond and Spark. Nothing here loads pyspark before it is used.

In reading order::

    start          a session that starts anywhere
    connection     the connection of a source or a sink to its node
    options        the options of a source and of a sink, declared and read
    format         ``format("headpond")``
    source         reading topics
    sink           writing topics, exactly once
    checkpoints    a query's checkpoint, checked before Spark reads it
    batch_spans    spans of the batches of queries
    causes         why a query or a job failed, in words
    pipeline       a file run as queries
    jobs           audit, archive, compact, replay, reshard
    sweep          the lab's grid
    seeds          the simulation's seeds
"""

from headpond.spark.source.offset import lag
from headpond.spark.start.session import session

__all__ = ["lag", "session"]
