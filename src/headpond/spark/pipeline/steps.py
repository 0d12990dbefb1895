"""The steps of a pipeline, all but ``reorder``: DataFrames in, DataFrames out.

``sql`` is one query. Spark executes a command (``create table``, ``insert``, ``set``) when it is asked for its
columns, even if a pipeline is only checked. So ``check_query`` refuses commands before that, by their parsed
form.

``dedup`` passes each identity once, if its repeats come within a time of the first. Spark remembers an identity
until the watermark has passed it, and drops rows older than the watermark. With the time at which a row was
sent or stored that loses rows: all rows of a shard that lags behind others are late. So the default is the time
of arrival, one per micro-batch and stored in the checkpoint: it never goes back, so no row is late, and a
repeated batch has the same time. Spark takes nulls as equal; a row without an id is no repeat of another
without one, and passes.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from headpond.model.errors import BadRequest, HeadpondError
from headpond.spark.pipeline.definition import Function
from headpond.spark.pipeline.faults import REST, interval, seconds
from headpond.spark.pipeline.plan import ARRIVAL, DeadLetter, Dedup, WatermarkTable

ARRIVED = "_headpond_arrived"
NAMELESS = "_headpond_nameless"
WATERMARK_KEY = "spark.watermarkDelayMs"
REASON, STEP, ORIGIN = "headpond-reason", "headpond-step", "headpond-origin"
_WATERMARK_NODE = "EventTimeWatermark"
_PLANS = "org.apache.spark.sql.catalyst.plans.logical"
_COMMANDS = ("Command", "ParsedStatement", "InsertIntoDir", "CompoundPlanStatement")


# --- sql and route ------------------------------------------------------------------------------------


def check_query(spark: SparkSession, text: str) -> None:
    """Raises unless the text is a query; Spark's own error if it cannot be parsed."""
    jvm: Any = spark._jvm
    kinds = [jvm.java.lang.Class.forName(f"{_PLANS}.{name}") for name in _COMMANDS]
    command = _command_in(spark._jsparkSession.sessionState().sqlParser().parsePlan(text), kinds)
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
    found = (_command_in(children.apply(number), kinds) for number in range(children.size()))
    return next((command for command in found if command is not None), None)


def route(name: str, rows: DataFrame, routes: dict[str, str]) -> dict[str, DataFrame]:
    """The rows of each route, by the name of its view."""
    chosen = F.lit(REST)
    for to, predicate in reversed(routes.items()):
        chosen = F.when(F.expr(predicate), F.lit(to)).otherwise(chosen)
    return {f"{name}_{to}": rows.where(chosen == to) for to in (*routes, REST)}


# --- python -------------------------------------------------------------------------------------------


def call_function(name: str, function: Function, rows: DataFrame) -> DataFrame:
    """What the function returns for the rows; an exception of the user's code becomes ``BadRequest``."""
    try:
        result = function(rows)
    except (HeadpondError, PySparkException):
        raise
    except Exception as error:
        raise BadRequest(f"{name} raised {type(error).__name__}: {error}") from error
    if not isinstance(result, DataFrame):
        raise BadRequest(
            f"{name} returned {type(result).__name__}", hint="A step's function returns a DataFrame."
        )
    return result


def find_function(place_and_name: str, folder: Path, spark: SparkSession) -> Function:
    """The function ``package.module:function`` or ``file.py:function``.

    Looks for files in ``folder``, the pipeline's, and for modules there first. Sends a file to the workers of
    ``spark`` as well: functions in it may run there.
    """
    place, _, name = place_and_name.rpartition(":")
    module = _file(folder / place, spark) if place.endswith(".py") else _module(place, folder)
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        names = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
        raise BadRequest(
            f"{place} has no function {name}", hint=f"It has {', '.join(names[:20]) or 'no function at all'}."
        )
    function: Function = found
    return function


def _module(name: str, folder: Path) -> Any:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise BadRequest(
                f"there is no module {name}", hint="Install it, or put it beside the pipeline's file."
            ) from error
        raise BadRequest(f"module {name} does not load: {error}") from error
    except Exception as error:  # the user's code may raise anything
        raise BadRequest(f"module {name} does not load: {type(error).__name__}: {error}") from error


def _file(path: Path, spark: SparkSession) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise BadRequest(f"there is no file {path.name}", hint="Name it relative to the pipeline's folder.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # workers import it under this name too
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[path.stem]
        raise BadRequest(f"{path.name} does not load: {type(error).__name__}: {error}") from error
    spark.sparkContext.addPyFile(str(path))
    return module


# --- watermark and dedup ------------------------------------------------------------------------------


def watermark(rows: DataFrame, step: WatermarkTable) -> DataFrame:
    _check_unmarked(rows, f'After dedup: put the watermark before it, and set time = "{step.column}" there.')
    return rows.withWatermark(step.column, interval(step.delay))


def dedup(rows: DataFrame, step: Dedup) -> DataFrame:
    names = [step.by] if isinstance(step.by, str) else list(step.by)
    no_name = reduce(or_, (F.col(name).isNull() for name in names))
    rows = rows.withColumn(NAMELESS, F.when(no_name, F.expr("uuid()")))
    by = [*names, NAMELESS]
    if not rows.isStreaming:
        return rows.dropDuplicates(by).drop(NAMELESS)
    if step.time != ARRIVAL:
        marked = _marked_by(rows, step)
    else:
        _check_unmarked(
            rows, "Name its column in dedup as `time`; rows that come later than it are then dropped as late."
        )
        arrived = rows.withColumn(ARRIVED, F.current_timestamp())
        marked = arrived.withWatermark(ARRIVED, interval(step.within))
    return marked.dropDuplicatesWithinWatermark(by).drop(ARRIVED, NAMELESS)


def _marked_by(rows: DataFrame, step: Dedup) -> DataFrame:
    """Rows with a watermark on the column ``time``; an existing one must be long enough."""
    marks = {field.name: field.metadata.get(WATERMARK_KEY) for field in rows.schema.fields}
    found = [(name, int(delay_ms)) for name, delay_ms in marks.items() if delay_ms is not None]
    if not found:
        return rows.withWatermark(step.time, interval(step.within))
    (column, delay_ms), within_ms = found[0], round(seconds(step.within) * 1000)
    if column != step.time or delay_ms < within_ms:
        raise BadRequest(
            f"the rows have a watermark of {delay_ms / 1000:g} s on {column}, and dedup wants one of "
            f"{within_ms / 1000:g} s on {step.time}",
            hint="There is one watermark in a flow: make both the same.",
        )
    return rows


def _check_unmarked(rows: DataFrame, hint: str) -> None:
    """Raises if an earlier step set a watermark, also on a column that is gone since."""
    if _WATERMARK_NODE in rows._jdf.queryExecution().analyzed().toString():
        raise BadRequest("the rows have a watermark already, and Spark takes one in a flow", hint=hint)


# --- dead_letter --------------------------------------------------------------------------------------


def dead_letter(name: str, rows: DataFrame, step: DeadLetter) -> tuple[DataFrame, DataFrame]:
    """The rows that pass a predicate, and the others as messages with the reason."""
    keep = F.coalesce(F.expr(step.keep), F.lit(False))  # null fails
    reason = F.expr(step.reason) if step.reason is not None else F.lit(f"not ({step.keep})")
    return rows.where(keep), rows.where(~keep).select(*_message(name, rows, reason))


def _message(name: str, rows: DataFrame, reason: Column) -> list[Column]:
    """A failed row unchanged; a row without a message's value as JSON of all its columns."""
    types = {field.name: field.dataType.typeName() for field in rows.schema.fields}
    is_message = types.get("value") in ("binary", "string")
    value = F.col("value") if is_message else F.to_json(F.struct("*"))
    texts = {REASON: reason.cast("string"), STEP: F.lit(name)}
    if types.get("identity") == "string":
        texts[ORIGIN] = F.col("identity")
    added = F.create_map(*(part for key, text in texts.items() for part in (F.lit(key), text)))
    headers = added = F.map_filter(added, lambda _, text: text.isNotNull())
    if types.get("headers") == "map":
        before = F.coalesce(F.col("headers"), F.create_map().cast("map<string,string>"))
        others = F.map_filter(before, lambda key, _: ~key.isin(*texts))
        headers = F.map_concat(others, added)
    # The row of a gap (``on_gap = "report"``) has no value, but a message needs one: its headers describe it.
    value = F.coalesce(value.cast("binary"), F.lit(b""))
    columns = [value.alias("value"), headers.alias("headers")]
    columns += [F.col("key").cast("binary").alias("key")] if types.get("key") in ("binary", "string") else []
    columns += [F.col("id")] if types.get("id") == "string" else []
    return columns
