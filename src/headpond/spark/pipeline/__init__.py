"""Pipelines: topics and Parquet in, steps in SQL, Python and delivery terms, topics and Parquet out.

In reading order::

    plan         the tables of a pipeline's file, one struct each
    faults       what is wrong with a pipeline, with the line in its file; checks without Spark
    definition   a file or a Python program read as a plan
    steps        ``sql``, ``route``, ``python``, ``watermark``, ``dedup`` and ``dead_letter``
    reorder      ``reorder``: the rows of a group in the order of their index
    outlets      rows made ready for their sink
    frames       the plan as DataFrames of Spark
    progress     the numbers of each batch: samples, metrics, the screen
    run          one query per sink, started and stopped together
    pipeline     ``Pipeline``, the public class
"""

from headpond.spark.pipeline.pipeline import Pipeline

__all__ = ["Pipeline"]
