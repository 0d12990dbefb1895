"""Writing topics with Spark: the two writers that ``format("penstock")`` asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.model.errors import BadRequest

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter
    from pyspark.sql.types import StructType


def batch_writer(schema: StructType, options: Mapping[str, str], overwrite: bool) -> DataSourceWriter:
    raise BadRequest("writing is not built yet")


def stream_writer(schema: StructType, options: Mapping[str, str], overwrite: bool) -> DataSourceStreamWriter:
    raise BadRequest("writing is not built yet")
