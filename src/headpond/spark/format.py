"""``format("headpond")``: one name for reading and writing, in batches and in streams.

Spark makes one of these for every use, in separate processes, and asks it for a reader or a writer, which check
their options.
"""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

FORMAT = "headpond"


class HeadpondSource(DataSource):
    """The data source that Spark finds or that a session registers."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        from headpond.spark.source.batch import schema

        return schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        from headpond.spark.source.batch import batch_reader

        return batch_reader(schema, self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from headpond.spark.source.stream import StreamReader

        return StreamReader(schema, self.options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from headpond.spark.sink import batch_writer

        return batch_writer(schema, self.options, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from headpond.spark.sink import stream_writer

        return stream_writer(schema, self.options, overwrite)
