"""A writer of staged batches, and its stages."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from headpond.shapes.times import iso_time

if TYPE_CHECKING:
    from headpond.wire.control.codec import StageInfo, WriterInfo


class StageShape(TypedDict):
    stage: str
    topic: str
    rows: int
    bytes: int
    finished: bool
    opened_at: str


class WriterListed(TypedDict):
    writer: str
    batch: int | None
    committed_at: str | None
    created_at: str | None
    publishing: bool
    holder: str | None
    batches: int
    rows: int
    bytes: int
    topics: list[str]
    stages: int
    staged_bytes: int


class WriterShape(WriterListed, total=False):
    stage_list: list[StageShape]


class WriterDeletedShape(TypedDict):
    deleted: str
    stages: int


def writer_object(info: WriterInfo, *, whole: bool = False) -> WriterShape:
    """``whole`` tells of every stage, too."""
    found: WriterShape = {
        "writer": info.writer,
        "batch": info.batch,
        "committed_at": None if info.committed_at_us is None else iso_time(info.committed_at_us),
        "created_at": None if info.created_at_us is None else iso_time(info.created_at_us),
        "publishing": info.publishing,
        "holder": info.holder or None,
        "batches": info.batches,
        "rows": info.rows,
        "bytes": info.size_bytes,
        "topics": info.topics,
        "stages": info.stages,
        "staged_bytes": info.staged_bytes,
    }
    if whole:
        found["stage_list"] = [_stage(stage) for stage in info.stage_list]
    return found


def _stage(stage: StageInfo) -> StageShape:
    return {
        "stage": stage.stage.hex(),
        "topic": stage.topic,
        "rows": stage.rows,
        "bytes": stage.size_bytes,
        "finished": stage.finished,
        "opened_at": iso_time(stage.opened_at_us),
    }
