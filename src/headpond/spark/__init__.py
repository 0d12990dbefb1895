"""Headpond and Spark. Nothing here loads pyspark before it is used.

In reading order::

    start          a session that starts anywhere
    options        how source and sink declare and read options
    connection     the options that both share, and the connection to the node
    format         ``format("headpond")``
    source         reading topics
    sink           writing topics
    checkpoints    a query's checkpoint, checked before Spark reads it
    causes         why a query or a job failed, in words
    pipeline       a file run as queries
    jobs           audit, archive, compact, replay, reshard
    sweep          the lab's grid
"""

from headpond.spark.source.offset import lag
from headpond.spark.start.session import session

__all__ = ["lag", "session"]
