"""Pipelines: topics and Parquet in, steps in SQL, Python and delivery terms, topics and Parquet out.

In the order a pipeline meets them: plan (what a file says, as values), places (on which line it says so),
reading (a file or a Python program made a plan, every fault with its line), flow (what flows into what, and
nothing dropped unseen), frames (the plan as Spark's DataFrames; steps/ has one file a delivery step), outlets
and console (where rows go), running (tried, then one query a sink, started, stopped, waited for),
progress (what a query says of itself, in numbers), screen and metrics (the same for a person and for a
monitor).
"""

from headpond.spark.pipeline.reading import Pipeline

__all__ = ["Pipeline"]
