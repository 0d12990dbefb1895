"""The tables of a pipeline's file, one struct each, with the names of the file.

msgspec reports a fault in a value, with its place.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,63}$")]
Text = Annotated[str, msgspec.Meta(min_length=1, max_length=100_000)]
Duration = Annotated[str, msgspec.Meta(min_length=1, max_length=32)]
"""As everywhere in Headpond: ``30s``, ``5m``, ``1.5h``, ``7d``."""
ARRIVAL = "arrival"
"""The time at which a row came to Spark, one a micro-batch: it never goes back, so nothing is ever late."""
Count = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]


class PlanTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table of the file; a key that it does not know is a fault."""


# --- sources ------------------------------------------------------------------------------------------


class WatermarkTable(PlanTable, frozen=True):
    """How late rows may come; steps with state drop older rows and count them as late."""

    delay: Duration
    column: Text = "stored_at"


class SourceTable(PlanTable, frozen=True):
    """Rows from topics, or from a folder of Parquet files."""

    topic: Text | None = None
    topics: list[Text] | None = None
    topic_pattern: Text | None = None
    parquet: Text | None = None
    stream: bool | None = None
    """Whether to read it as a stream: always for a topic; for Parquet only if true."""
    schema: Text | None = None
    """Of Parquet read as a stream, where the folder has no file yet: ``id bigint, name string``."""
    start: str | int | None = None
    subscription: Text | None = None
    on_gap: str | None = None
    columns: list[Text] | None = None
    filter: Text | None = None
    start_beyond_end: str | None = None
    min_entries_per_trigger: Count | None = None
    max_trigger_delay: Duration | None = None
    max_entries_per_trigger: Count | None = None
    max_bytes_per_trigger: Count | None = None
    max_files_per_trigger: Count | None = None
    min_partitions: Count | None = None
    task_per_shard: bool | None = None
    watermark: WatermarkTable | None = None
    url: Text | None = None
    token: Text | None = None
    """Of the node at ``url``; the pipeline's own goes there only if the URL is the same."""

    KINDS = ("topic", "topics", "topic_pattern", "parquet")

    @property
    def streams(self) -> bool:
        return bool(self.stream) if self.parquet is not None else True


# --- steps --------------------------------------------------------------------------------------------


class Dedup(PlanTable, frozen=True):
    """Each identity (or id, or whatever ``by`` names) once, as long as repeats come within the time."""

    within: Duration
    by: Text | list[Text] = "identity"
    time: Text = ARRIVAL
    """The column whose watermark the time is measured by; rows older than it are dropped as late."""


class Reorder(PlanTable, frozen=True):
    """Rows of a group in the order of their index; one that comes early waits for those before it."""

    index: Text
    wait: Duration
    """How long to wait for a gap; then the order continues behind it."""
    by: Text | list[Text] = msgspec.field(default_factory=lambda: ["producer", "shard"])
    first: Annotated[int, msgspec.Meta(ge=0)] | None = 0
    """The index a group begins with; none: whatever comes first."""
    held_max: Count = 100_000
    """Rows of one group that may wait; beyond it the lowest are released."""


class DeadLetter(PlanTable, frozen=True):
    """Rows that fail a predicate go to a topic with the reason; the others pass."""

    keep: Text
    topic: Text
    reason: Text | None = None
    """In SQL; default: the predicate itself."""


class StepTable(PlanTable, frozen=True):
    """One change of rows; exactly one of its kinds is set."""

    from_: Name | None = msgspec.field(name="from", default=None)
    sql: Text | None = None
    python: Text | None = None
    watermark: WatermarkTable | None = None
    dedup: Dedup | None = None
    reorder: Reorder | None = None
    route: dict[Name, Text] | None = None
    dead_letter: DeadLetter | None = None
    drop_rest: bool = False
    """Of a route: whether rows that match nothing may go nowhere."""

    KINDS = ("sql", "python", "watermark", "dedup", "reorder", "route", "dead_letter")


# --- sinks --------------------------------------------------------------------------------------------


class Trigger(PlanTable, frozen=True):
    every: Duration | None = None
    available_now: bool = False
    """Processes the rows that are there, then ends."""


class SinkTable(PlanTable, frozen=True):
    """Where rows go: one query of Spark, with its own checkpoint."""

    from_: Name = msgspec.field(name="from")
    topic: Text | None = None
    """The topic of all rows."""
    topics: bool = False
    """Whether the column ``topic`` of each row names its topic."""
    parquet: Text | None = None
    console: bool = False
    key: Text | None = None
    """In SQL, where the rows have no such column; likewise value, id and headers."""
    value: Text | None = None
    id: Text | None = None
    headers: Text | None = None
    shard: Text | None = None
    """In SQL; a column of this name is not taken, since it is the source's."""
    sink_id: Text | None = None
    on_repeat: Text | None = None
    by_date: Text | None = None
    """Of Parquet: the column of times whose date the folders are named by."""
    partition_by: list[Text] = msgspec.field(default_factory=list)
    mode: str = "append"
    trigger: Trigger | None = None
    url: Text | None = None
    token: Text | None = None
    """Of the node at ``url``; the pipeline's own goes there only if the URL is the same."""

    KINDS = ("topic", "topics", "parquet", "console")


# --- the whole ----------------------------------------------------------------------------------------


class SparkTable(PlanTable, frozen=True):
    """The Spark that runs the pipeline."""

    master: Text | None = None
    conf: dict[str, str | int | float | bool] = msgspec.field(default_factory=dict)


class Plan(PlanTable, frozen=True):
    """A pipeline. Sources, steps and sinks are in the file's order: each can name only those above it."""

    name: Name
    sources: dict[Name, SourceTable]
    sinks: dict[Name, SinkTable]
    steps: dict[Name, StepTable] = msgspec.field(default_factory=dict)
    checkpoint: Text | None = None
    url: Text | None = None
    token: Text | None = None
    trigger: Trigger = Trigger()
    spark: SparkTable = SparkTable()

    @property
    def reorders(self) -> bool:
        return any(step.reorder is not None for step in self.steps.values())


def kind_of(table: SourceTable | StepTable | SinkTable) -> list[str]:
    """The kinds that a table sets: exactly one in a valid table."""
    return [name for name in table.KINDS if getattr(table, name) not in (None, False)]


SECTIONS: dict[str, Any] = {"sources": SourceTable, "steps": StepTable, "sinks": SinkTable}
