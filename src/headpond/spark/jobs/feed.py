"""The inputs of a job: a topic, a folder of Parquet files, or a DataFrame.

As text, ``topic:NAME`` and ``parquet:PATH`` say which. Other text is a path if it starts with ``/``, ``./``,
``../`` or ``~``, ends with ``/`` or ``.parquet``, or contains ``://``; otherwise it is a topic.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import headpond.sync
from headpond.client.contexts import service_in_use
from headpond.model.errors import BadRequest
from headpond.model.names import TopicName
from headpond.spark.connection import NO_TOKEN
from headpond.wire.control.catalog import TopicInfo

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader

FORMAT = "headpond"
_PATH_STARTS = ("/", "./", "../", "~")


class FeedKind(StrEnum):
    TOPIC = "topic"
    PARQUET = "parquet"
    FRAME = "frame"


@dataclass(frozen=True, slots=True)
class Feed:
    """One input of a job, or the topic that it writes."""

    kind: FeedKind
    name: str
    """The topic's full name, the folder as given, or the name of a DataFrame in messages."""
    url: str = ""
    """The node of a topic."""
    token: str | None = field(default=None, repr=False, compare=False)
    frame: DataFrame | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return self.name if self.kind is FeedKind.FRAME else f"{self.kind}:{self.name}"

    def options(self) -> dict[str, str]:
        """The options of ``format("headpond")`` for a topic."""
        return {"url": self.url, "token": self.token or NO_TOKEN, "topic": self.name}

    def connect(self) -> headpond.sync.Client:
        return headpond.sync.connect(self.url, token=self.token)

    def show(self) -> TopicInfo:
        """The topic; raises if the node cannot be reached or does not have it."""
        with self.connect() as client:
            return client.admin.show_topic(self.name)

    def check(self) -> None:
        """Raises if there is no such topic or folder of Parquet files, before Spark starts."""
        if self.kind is FeedKind.TOPIC:
            self.show()
        elif self.kind is FeedKind.PARQUET and "://" not in self.name:
            path = Path(self.name).expanduser()
            if not path.exists():
                hint = "Name a folder of Parquet files, or a topic as topic:NAME."
                raise BadRequest(f"there is no {path}", hint=hint)
            if path.is_dir() and not any(_parquet_files(path)):
                hint = "Name the folder that the Parquet files are in."
                raise BadRequest(f"{path} holds no Parquet files", hint=hint)


Source = str | os.PathLike[str]
"""What a caller may name; functions that also take a DataFrame say so."""


def feed_of(source: Source | DataFrame, what: str, url: str | None = None, token: str | None = None) -> Feed:
    """The input that a caller names; ``what`` is its name in messages, ``url`` and ``token`` are of a topic.

    Without ``url``, a topic is at the service in use: HEADPOND_URL, else the context's.
    """
    if isinstance(source, str):
        kind, name = _from_text(source, what)
        if kind is not FeedKind.TOPIC:
            return Feed(kind, name)
        if url is None:
            service = service_in_use()
            url, token = service.url, token or service.token
        return Feed(kind, name, url, token)
    if isinstance(source, os.PathLike):
        return Feed(FeedKind.PARQUET, os.fspath(source))
    if hasattr(source, "schema") and hasattr(source, "selectExpr"):
        return Feed(FeedKind.FRAME, what, frame=source)
    raise BadRequest(
        f"{what} is {type(source).__name__}", hint="Name a topic, a folder of Parquet files, or a DataFrame."
    )


def topic_of(source: Source, what: str, hint: str, url: str | None, token: str | None) -> Feed:
    """The topic that a caller names; anything else is an error with this hint."""
    feed = feed_of(source, what, url, token)
    if feed.kind is not FeedKind.TOPIC:
        raise BadRequest(f"{feed} is not a topic", hint=hint)
    return feed


def _from_text(text: str, what: str) -> tuple[FeedKind, str]:
    kind, colon, rest = text.partition(":")
    if colon and kind in (FeedKind.TOPIC, FeedKind.PARQUET):
        if not rest:
            raise BadRequest(f"{what} is {text!r}, without a name", hint=f"Write {kind}:NAME.")
        return FeedKind(kind), str(TopicName.parse(rest)) if kind == FeedKind.TOPIC else rest
    if not text:
        raise BadRequest(f"{what} is empty", hint="Name a topic or a folder of Parquet files.")
    if text.startswith(_PATH_STARTS) or text.endswith(("/", ".parquet")) or "://" in text or text == ".":
        return FeedKind.PARQUET, text
    return FeedKind.TOPIC, str(TopicName.parse(text))


def _parquet_files(folder: Path) -> Iterable[Path]:
    """The files that Spark would read: it skips files and folders that start with ``_`` or ``.``."""
    for path in folder.rglob("*.parquet"):
        if not any(part.startswith(("_", ".")) for part in path.relative_to(folder).parts):
            yield path


def read(spark: SparkSession, feed: Feed, **options: str | None) -> DataFrame:
    """The rows of a feed; options go to a topic's source, and only there."""
    if feed.frame is not None:
        return feed.frame
    if feed.kind is FeedKind.PARQUET:
        # Files may have different columns. By default Spark takes the columns of one file and drops the others.
        path = str(Path(feed.name).expanduser()) if "://" not in feed.name else feed.name
        return spark.read.option("mergeSchema", True).parquet(path)
    return _load(spark.read, feed, options)


def read_stream(spark: SparkSession, feed: Feed, **options: str | None) -> DataFrame:
    """The rows of a topic as a stream."""
    return _load(spark.readStream, feed, options)


def _load(reader: DataFrameReader | DataStreamReader, feed: Feed, options: dict[str, str | None]) -> DataFrame:
    given = {name: value for name, value in options.items() if value is not None}
    return reader.format(FORMAT).options(**feed.options(), **given).load()


def need_columns(frame: DataFrame, names: Iterable[str], what: str) -> None:
    """Raises unless the rows have these columns."""
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise BadRequest(
            f"{what} has no column {', '.join(missing)}; its columns are {', '.join(frame.columns)}",
            hint="Name another input, or name a message in both sides with `by`.",
        )


def summed(rows: DataFrame, by: tuple[str, ...], *sums: str) -> DataFrame:
    """The rows grouped by columns, with sums in SQL."""
    from pyspark.sql import functions as F

    return rows.groupBy(*by).agg(*map(F.expr, sums))


def counted(rows: DataFrame) -> tuple[DataFrame, Callable[[], int]]:
    """The rows, and a function that returns how many of them were written."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    seen = Observation()
    return rows.observe(seen, F.count("*").alias("rows")), lambda: int(seen.get["rows"])
