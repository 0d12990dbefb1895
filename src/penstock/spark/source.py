"""Reading topics with Spark: the schema and the two readers that ``format("penstock")`` asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.model.errors import BadRequest

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
    from pyspark.sql.types import StructType


def schema(options: Mapping[str, str]) -> StructType:
    """The columns of a DataFrame over the topics that the options name."""
    raise BadRequest("reading is not built yet")


def batch_reader(schema: StructType, options: Mapping[str, str]) -> DataSourceReader:
    raise BadRequest("reading is not built yet")


def stream_reader(schema: StructType, options: Mapping[str, str]) -> DataSourceStreamReader:
    raise BadRequest("reading is not built yet")
