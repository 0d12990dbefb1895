"""A pipeline tried on Spark without running it: schemas, SQL, functions, sinks."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.pipeline.frames import Frames, Node
    from penstock.spark.pipeline.reading import Pipeline


def analyse(pipeline: Pipeline, spark: SparkSession | None = None, *, node: Node | None = None) -> Frames:
    """The plan as DataFrames; raises ``BadPipeline`` with every fault that Spark or the node found."""
    from penstock.spark.pipeline.running import prepare

    frames = prepare(pipeline, spark, node=node)
    if frames.faults:
        raise pipeline.refuse(frames.faults)
    return frames
