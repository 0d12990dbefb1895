"""A running pipeline on a terminal: a line a sink, renewed in place; elsewhere, a line now and then."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table
from rich.text import Text

from headpond.spark.pipeline.progress import Sample

_HEADINGS = ("SINK", "BATCH", "ROWS", "IN/S", "DONE/S", "LAG", "BATCH S", "STATE", "LATE", "DOING")


def table(samples: Iterable[tuple[str, Sample | None, str]]) -> Table:
    """The sinks as they stand: (name, its last batch, what it does)."""
    shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in _HEADINGS:
        left = heading in ("SINK", "DOING")
        shown.add_column(heading, justify="left" if left else "right", no_wrap=True, overflow="ellipsis")
    for name, sample, doing in samples:
        cells = ("-",) * 8 if sample is None else _cells(sample)
        shown.add_row(name, *cells, Text(doing, style="dim"))
    return shown


def _cells(sample: Sample) -> tuple[str, ...]:
    return (
        f"{sample.batch:,}",
        f"{sample.rows_all:,}",
        f"{sample.rows_per_s:,.0f}",
        f"{sample.done_per_s:,.0f}",
        "-" if sample.lag is None else f"{sample.lag:,}",
        f"{sample.batch_s:.2f}",
        f"{sample.state_rows:,}" if sample.state_rows else "-",
        f"{sample.late_rows_all:,}" if sample.late_rows_all else "-",
    )


def line(sample: Sample) -> str:
    """One batch, for a log."""
    told = [f"{sample.sink}: batch {sample.batch}", f"{sample.rows:,} rows in {sample.batch_s:.2f} s"]
    told += [] if sample.lag is None else [f"lag {sample.lag:,}"]
    told += [f"state {sample.state_rows:,} rows"] if sample.state_rows else []
    told += [f"late {sample.late_rows_all:,}"] if sample.late_rows_all else []
    return ", ".join(told)
