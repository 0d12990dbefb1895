"""The messages that did not arrive exactly once, and the folder of results with its picture."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from headpond.spark.jobs.audit.figures import AuditPart, of_kind
from headpond.spark.jobs.audit.sides import missing, repeated, stranger

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pyspark.sql import DataFrame

WHOLE = "#1f77b4"
SHARE = "#ff7f0e"
WRONG = "#d62728"
QUIET = "#c9d3dd"
STEPS_MARKED_MAX = 120
"""More windows than this are drawn as a line without a mark each."""
_TABLES = {"all": "summary", "producer": "producers", "shard": "shards", "window": "windows"}
FATES = ("missing", "repeated", "strangers")
FIRST_MAX = 10


def not_exactly_once(matched: DataFrame, names: DataFrame) -> DataFrame:
    """One row per message that did not arrive exactly once; ``fate`` is one of ``FATES``."""
    from pyspark.sql import functions as F

    fate: Any = F.lit(None)
    for name, condition in zip(FATES, (missing(), repeated(), stranger()), strict=True):
        fate = F.when(condition, name).otherwise(fate)
    odd = matched.withColumn("fate", fate).where(F.col("fate").isNotNull())
    return odd.join(F.broadcast(names), "part", "left").select(
        "fate",
        F.col("k").alias("message"),
        "producer",
        "topic",
        "shard",
        "copies",
        F.timestamp_micros("at").alias("sent_at"),
        F.timestamp_micros("stored_us").alias("first_stored_at"),
    )


def first_of(odd: DataFrame) -> dict[str, list[dict[str, Any]]]:
    """The first few of each fate, by when they were sent."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    number = F.row_number().over(Window.partitionBy("fate").orderBy("sent_at", "message"))
    rows = odd.withColumn("number", number).where(F.col("number") <= FIRST_MAX).toArrow()
    found: dict[str, list[dict[str, Any]]] = {}
    for row in (
        rows.sort_by([("fate", "ascending"), ("number", "ascending")]).drop_columns("number").to_pylist()
    ):
        found.setdefault(row.pop("fate"), []).append(row)
    return found


def write_tables(folder: Path, groups: pa.Table, odd: DataFrame, routes: DataFrame | None) -> None:
    """Writes the figures, the lists of messages and the orders as Parquet files."""
    for kind, name in _TABLES.items():
        pq.write_table(of_kind(groups, kind), folder / f"{name}.parquet")
    _write_lists(odd, folder)
    if routes is not None:
        pq.write_table(routes.toArrow(), folder / "orders.parquet")


def _write_lists(odd: DataFrame, folder: Path) -> None:
    """Writes one folder of Parquet files per fate; an empty one has a file without rows."""
    place = folder / "odd"
    odd.write.partitionBy("fate").parquet(str(place))
    for fate in FATES:
        written = place / f"fate={fate}"
        if written.exists():
            written.rename(folder / fate)
        else:
            (folder / fate).mkdir()
            pq.write_table(_no_rows(odd), folder / fate / "none.parquet")
    for rest in place.iterdir():
        rest.unlink()
    place.rmdir()


def _no_rows(odd: DataFrame) -> pa.Table:
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = to_arrow_schema(odd.drop("fate").schema, timezone="UTC")
    return schema.empty_table()


# --- the picture: R and UR over time, and below them the messages sent and missing -------------------------


def draw(windows: list[AuditPart], window_s: float, title: str, path: Path) -> None:
    """Writes the picture; windows without a time are left out."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
    from matplotlib.figure import Figure

    timed = [part for part in windows if part.name["window"] is not None]
    figure = Figure(figsize=(11, 6.5), layout="constrained")
    shares, counts = figure.subplots(2, 1, sharex=True, height_ratios=[3, 2])
    figure.suptitle(title)
    _draw_shares(shares, timed)
    _draw_counts(counts, timed, window_s)
    locator = AutoDateLocator()  # type: ignore[no-untyped-call]
    counts.xaxis.set_major_locator(locator)
    counts.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    figure.savefig(path, dpi=120)


def _draw_shares(axes: Axes, windows: list[AuditPart]) -> None:
    marker = "o" if len(windows) <= STEPS_MARKED_MAX else ""
    times: Any = [_time(part) for part in windows]
    for name, colour, words in (
        ("R", WHOLE, "R: of the messages sent, the share that arrived"),
        ("UR", SHARE, "UR: of the copies received, the share that was no repeat"),
    ):
        values = [float("nan") if (value := getattr(part, name)) is None else value for part in windows]
        axes.plot(times, values, color=colour, marker=marker, markersize=4, label=words)
    low = min((value for part in windows for value in (part.R, part.UR) if value is not None), default=0.0)
    # From the lowest to one, so that the smallest loss can be seen.
    span = (1 - low) or 0.1
    axes.set_ylim(low - 0.1 * span, 1 + 0.05 * span)
    axes.ticklabel_format(axis="y", useOffset=False)
    axes.grid(alpha=0.3)
    axes.legend(loc="best")


def _draw_counts(axes: Axes, windows: list[AuditPart], window_s: float) -> None:
    times: Any = [_time(part) for part in windows]
    width: Any = timedelta(seconds=window_s * 0.9)
    axes.bar(times, [part.sent for part in windows], width=width, color=QUIET, label="sent")
    lost = [part.missing for part in windows]
    if any(lost):
        axes.bar(times, lost, width=width, color=WRONG, label="missing")
    most = max((part.sent for part in windows), default=0)
    axes.set_ylim(0, 1.35 * max(most, 1))  # with room for the legend
    axes.set_ylabel(f"messages a window of {window_s:g} s")
    axes.set_xlabel("sent at (UTC)")
    axes.grid(alpha=0.3, axis="y")
    axes.legend(loc="upper left", ncols=2)


def _time(part: AuditPart) -> datetime:
    return datetime.fromtimestamp(part.name["window"] / 1e6, UTC)
