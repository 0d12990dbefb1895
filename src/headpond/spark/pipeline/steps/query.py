"""``sql`` and ``route``: one query, and rows divided by predicates.

Spark executes a command (``create table``, ``insert``, ``set``) when it is asked for its columns, even if a
pipeline is only checked. So ``check_query`` refuses commands before that, by their parsed form.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headpond.model.errors import BadRequest
from headpond.spark.pipeline.flow import REST

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_PLANS = "org.apache.spark.sql.catalyst.plans.logical"
_KINDS = ("Command", "ParsedStatement", "InsertIntoDir", "CompoundPlanStatement")


def check_query(spark: SparkSession, text: str) -> None:
    """Raises unless the text is a query; Spark's own error if it cannot be parsed."""
    jvm: Any = spark._jvm
    kinds = [jvm.java.lang.Class.forName(f"{_PLANS}.{name}") for name in _KINDS]
    plan = spark._jsparkSession.sessionState().sqlParser().parsePlan(text)
    command = _command_in(plan, kinds)
    if command is not None:
        raise BadRequest(
            f"a step's SQL is a query, and this is a command ({command})",
            hint="Run it before the pipeline, in another program; a step selects.",
        )


def _command_in(plan: Any, kinds: list[Any]) -> str | None:
    """The command that a plan is or contains."""
    if any(kind.isInstance(plan) for kind in kinds):
        return str(plan.nodeName())
    children = plan.children()
    for number in range(children.size()):
        if (found := _command_in(children.apply(number), kinds)) is not None:
            return found
    return None


def route(name: str, rows: DataFrame, routes: dict[str, str]) -> dict[str, DataFrame]:
    """The rows of each route, by the name of its view."""
    from pyspark.sql import functions as F

    chosen = F.lit(REST)
    for to, predicate in reversed(routes.items()):
        chosen = F.when(F.expr(predicate), F.lit(to)).otherwise(chosen)
    return {f"{name}_{to}": rows.where(chosen == to) for to in (*routes, REST)}
