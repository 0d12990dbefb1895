"""The part of the conversation that is about staged writes.

A stage is opened by a request, filled by STAGE frames and finished by a request; a batch of a writer then names
the stages that count, in one request. All of it may be said again after a lost connection: a stage goes by its
uuid, what it holds by number, a batch by writer and number.

A STAGE frame has the topic's shard and the number of the chunk in its header; its body is::

    stage: 16 bytes | a segment, self-contained: a plain topic's, or a typed topic's as it is stored

It is not answered for itself: what was wrong with a chunk is the answer to ``FinishStage``.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from google_crc32c import extend, value

from headpond.model.bounds import NUMBER_MAX, Count, Name, Number, TimeUs, TopicText, Total, Uuid, Word
from headpond.model.errors import BadFrame
from headpond.wire.control.greeting import Control
from headpond.wire.frame import HEADER, SEGMENT_BYTES_MAX, TRAILER, FrameType

STAGE_BYTES = 16
"""A stage's uuid."""
STAGE_FRAME_BYTES_MAX = SEGMENT_BYTES_MAX + STAGE_BYTES
STAGES_MAX = 50_000
"""Stages in one batch: they are named in one frame."""
WRITER_LENGTH_MAX = 1000
BATCH_MAX = NUMBER_MAX
ON_REPEAT = ("compare", "drop")

Writer = Annotated[str, msgspec.Meta(max_length=WRITER_LENGTH_MAX, description="printable, not empty")]
Stages = Annotated[list[Uuid], msgspec.Meta(max_length=STAGES_MAX)]


class OpenStage(Control, frozen=True, tag="open_stage"):
    """Begins a stage of a writer for a topic, or finds it as it is; answered with ``StageOpened``."""

    stage: Uuid
    writer: Writer
    topic: TopicText
    create_topic: bool = True


class FinishStage(Control, frozen=True, tag="finish_stage"):
    """So many chunks were sent: answered with ``StageInfo`` once all are durable, or with what was wrong."""

    stage: Uuid
    chunks: Count
    last: bool = True
    """Whether nothing follows; without it the stage goes on."""


class CommitBatch(Control, frozen=True, tag="commit_batch"):
    """Publishes these stages, all or none; answered with ``BatchInfo`` once they are in their topics."""

    writer: Writer
    batch: Number
    stages: Stages
    holder: Name = ""
    """Who commits, if several may use the writer's name: a query of Spark's."""
    on_repeat: Word = "compare"
    """A batch that was committed before: whether its rows are compared with those, or it is dropped unseen."""


class AbortStages(Control, frozen=True, tag="abort_stages"):
    """Drops stages that no batch has; others, and unknown ones, are left alone. Answered with their number."""

    writer: Writer
    stages: Stages


class ListWriters(Control, frozen=True, tag="list_writers"):
    pass


class ShowWriter(Control, frozen=True, tag="show_writer"):
    writer: Writer


class DeleteWriter(Control, frozen=True, tag="delete_writer"):
    """Forgets a writer's batches and drops its stages; what it published stays."""

    writer: Writer


class StageOpened(msgspec.Struct, frozen=True):
    chunks: Count
    """How many the node has: the next one carries this number."""
    finished: bool
    topic_uuid: Uuid


class StageInfo(msgspec.Struct, frozen=True):
    stage: Uuid
    writer: Writer
    topic: TopicText
    rows: Total
    size_bytes: Total
    chunks: Count
    finished: bool
    opened_at_us: TimeUs


class BatchInfo(msgspec.Struct, frozen=True):
    writer: Writer
    batch: Number
    outcome: Word
    """committed | duplicate"""
    recorded: Number
    """The writer's newest batch."""
    rows: Total
    """What this commit published; 0 of a duplicate."""


class WriterInfo(msgspec.Struct, frozen=True):
    writer: str
    batch: int | None
    """The newest one recorded; None of a writer that has only staged."""
    committed_at_us: int | None
    created_at_us: int | None
    batches: int
    rows: int
    size_bytes: int
    publishing: bool
    """Whether its newest batch is on its way into the topics."""
    holder: str
    """Who committed it; empty where nobody said."""
    topics: list[str]
    """Those that it published to and that are still there."""
    stages: int
    """Opened and in no batch."""
    staged_bytes: int
    stage_list: list[StageInfo] = []
    """Not in a list of writers; at most 1,000."""


def chunk_parts(stage: bytes, shard: int, number: int, segment: bytes) -> list[bytes]:
    """The STAGE frame of a segment, in pieces, so that the segment is not copied."""
    lead = HEADER.pack(FrameType.STAGE, shard, number, STAGE_BYTES + len(segment)) + stage
    return [lead, segment, TRAILER.pack(extend(value(lead), segment))]


def encode_chunk(stage: bytes, shard: int, number: int, segment: bytes) -> bytes:
    """The same as one piece."""
    return b"".join(chunk_parts(stage, shard, number, segment))


def decode_chunk(body: bytes) -> tuple[bytes, bytes]:
    """The stage and the segment of a STAGE frame."""
    if len(body) <= STAGE_BYTES:
        raise BadFrame(f"a STAGE frame of {len(body)} bytes is too short")
    return body[:STAGE_BYTES], body[STAGE_BYTES:]
