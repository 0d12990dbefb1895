"""Pipelines: topics and Parquet in, steps in SQL, Python and delivery terms, topics and Parquet out.

In reading order::

    plan         what a file says, as values
    faults       what is wrong with it, with the line
    reading      a file or a Python program made a plan
    functions    a step's Python function, found by its name
    flow         what flows into what, and nothing dropped unseen
    frames       the plan as Spark's DataFrames
    steps        the delivery steps, one per file
    outlets      rows made ready for their sink
    running      one query per sink, started and stopped together
    progress     what a query says of itself: numbers, metrics, the screen
"""

from headpond.spark.pipeline.reading import Pipeline

__all__ = ["Pipeline"]
