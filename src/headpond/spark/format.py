"""``format("headpond")``: one name for reading and writing, in batches and in streams.

Spark makes one of these for every use, in processes of its own, and asks it for a reader or a writer. Options
are looked at by whoever uses them: source.py and its neighbours read, sink.py writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

FORMAT = "headpond"


class HeadpondSource(DataSource):
    """What Spark knows Headpond by."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        from headpond.spark.source.source import schema

        return schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        from headpond.spark.source.source import batch_reader

        return batch_reader(schema, self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from headpond.spark.source.source import stream_reader

        return stream_reader(schema, self.options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from headpond.spark.sink.sink import batch_writer

        return batch_writer(schema, self.options, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from headpond.spark.sink.sink import stream_writer

        return stream_writer(schema, self.options, overwrite)
