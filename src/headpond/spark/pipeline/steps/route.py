"""``route``: every row to the first route whose predicate holds; what matches none is the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headpond.spark.pipeline.flow import REST

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def route(name: str, rows: DataFrame, routes: dict[str, str]) -> dict[str, DataFrame]:
    """The rows of each route, by the name of its view."""
    from pyspark.sql import functions as F

    chosen = F.lit(REST)
    for to, predicate in reversed(routes.items()):
        chosen = F.when(F.expr(predicate), F.lit(to)).otherwise(chosen)
    return {f"{name}_{to}": rows.where(chosen == to) for to in (*routes, REST)}
