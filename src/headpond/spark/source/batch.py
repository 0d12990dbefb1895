"""Reading topics with ``spark.read``: their columns, and the tasks that read what is stored now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from headpond.spark.connection import errors_with_hints
from headpond.spark.source.options import SourceOptions, read_options
from headpond.spark.source.plan import (
    plan_schema,
    plan_tasks,
    plan_versions,
    resolve,
    there,
    topic_names,
)
from headpond.spark.source.read import ReadTask, Span, connect, read_task

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


def schema(options: Mapping[str, str]) -> StructType:
    """The columns of a DataFrame over the topics that the options name."""
    with errors_with_hints():
        settings = read_options(options)
        with connect(settings, patient=False) as client:
            return plan_schema(client, settings)


def batch_reader(schema: StructType, options: Mapping[str, str]) -> DataSourceReader:
    with errors_with_hints():
        return BatchReader(schema, read_options(options, streaming=False))


class BatchReader(DataSourceReader):
    """What is stored when the plan is made, or a part of it."""

    def __init__(self, schema: StructType, options: SourceOptions) -> None:
        self._schema = schema
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        with errors_with_hints(), connect(options, patient=False) as client:
            names = topic_names(client, options)
            ends = there(client.admin.ends(names)) if names else []
            # In this order: no row of the range is of a newer schema than the one that is read.
            versions = plan_versions(client, options, self._schema)
            spans: list[Span] = []
            for each in ends:
                assert each.uuid is not None
                starts = resolve(client, options, each, options.start, "start")
                stops = resolve(client, options, each, options.end, "end")
                spans += [
                    Span(
                        each.topic, each.uuid, versions.get(each.topic), number, shard.incarnation, start, stop
                    )
                    for number, (shard, start, stop) in enumerate(zip(each.shards, starts, stops, strict=True))
                    if options.reads(each.topic, number)
                ]
            return plan_tasks(spans, ends, options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, ReadTask):  # Spark makes one where there are none
            return iter(())
        return read_task(self._options, self._schema, partition)
