"""Messages about staged writes.

A client opens a stage by a request, fills it with STAGE frames and finishes it by a request. One more request
commits a batch of a writer, which names its stages. All of it is idempotent, so a client can repeat it after a
lost connection: a stage is identified by its uuid, a chunk by its number, a batch by writer and number.

A STAGE frame has the topic's shard and the number of the chunk in its header; its body is::

    stage: 16 bytes | a segment, self-contained: a plain topic's, or a typed topic's as it is stored

The node does not answer a STAGE frame: the answer to ``FinishStage`` reports a faulty chunk.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec

from headpond.model.bounds import NUMBER_MAX, Count, Name, Number, TimeUs, TopicText, Total, Uuid, Word
from headpond.model.errors import BadFrame
from headpond.wire.control.operation import PRODUCE, OperationOf, Rule, topic_of
from headpond.wire.frame import SEGMENT_BYTES_MAX

STAGE_BYTES = 16
"""The length of a stage's uuid."""
STAGE_FRAME_BYTES_MAX = SEGMENT_BYTES_MAX + STAGE_BYTES
STAGES_MAX = 50_000
"""Stages in one batch: one frame names them all."""
WRITER_LENGTH_MAX = 1000
BATCH_MAX = NUMBER_MAX
ON_REPEAT = ("compare", "drop")

Writer = Annotated[str, msgspec.Meta(max_length=WRITER_LENGTH_MAX, description="printable, not empty")]
Stages = Annotated[list[Uuid], msgspec.Meta(max_length=STAGES_MAX)]


class StageOpened(msgspec.Struct, frozen=True):
    chunks: Count
    """Chunks that the node has; the next chunk carries this number."""
    finished: bool
    topic_uuid: Uuid


class OpenStage(OperationOf[StageOpened], frozen=True, tag="open_stage"):
    """Begins a stage of a writer for a topic, or finds it."""

    rule: ClassVar[Rule] = Rule(PRODUCE, on=topic_of, writer=True, whole=True)

    stage: Uuid
    writer: Writer
    topic: TopicText
    create_topic: bool = True


class StageInfo(msgspec.Struct, frozen=True):
    stage: Uuid
    writer: Writer
    topic: TopicText
    rows: Total
    size_bytes: Total
    chunks: Count
    finished: bool
    opened_at_us: TimeUs


class FinishStage(OperationOf[StageInfo], frozen=True, tag="finish_stage"):
    """The client sent this many chunks; the answer is ``StageInfo`` once all are durable, or the error."""

    repeatable: ClassVar[bool] = False
    rule: ClassVar[Rule] = Rule(PRODUCE, whole=True)

    stage: Uuid
    chunks: Count
    last: bool = True
    """Whether this is the end of the stage; otherwise more chunks follow."""


class BatchInfo(msgspec.Struct, frozen=True):
    writer: Writer
    batch: Number
    outcome: Word
    """committed | duplicate"""
    recorded: Number
    """The writer's newest batch."""
    rows: Total
    """Rows that this commit published; 0 for a duplicate."""


class CommitBatch(OperationOf[BatchInfo], frozen=True, tag="commit_batch"):
    """Publishes these stages, all or none; the answer is ``BatchInfo`` once they are in their topics."""

    rule: ClassVar[Rule] = Rule(PRODUCE, writer=True, whole=True)

    writer: Writer
    batch: Number
    stages: Stages
    holder: Name = ""
    """Identifies the committer if several may use the writer's name, such as a Spark query."""
    on_repeat: Word = "compare"
    """For a batch that is already committed: ``compare`` its rows with the first ones, or ``drop`` them."""


class AbortStages(OperationOf[int], frozen=True, tag="abort_stages"):
    """Drops those of the stages that are in no batch; the answer is how many."""

    rule: ClassVar[Rule] = Rule(PRODUCE, writer=True, whole=True)

    writer: Writer
    stages: Stages


class WriterInfo(msgspec.Struct, frozen=True):
    writer: str
    batch: int | None
    """The newest recorded batch; None if the writer has only staged."""
    committed_at_us: int | None
    created_at_us: int | None
    batches: int
    rows: int
    size_bytes: int
    publishing: bool
    """Whether the node is still copying its newest batch into the topics."""
    holder: str
    """The committer of that batch; empty if it gave none."""
    topics: list[str]
    """The topics that it published to and that still exist."""
    stages: int
    """Stages that are open and in no batch."""
    staged_bytes: int
    stage_list: list[StageInfo] = []
    """Not in a list of writers; at most 1,000."""


class ListWriters(OperationOf[list[WriterInfo]], frozen=True, tag="list_writers"):
    rule: ClassVar[Rule] = Rule(PRODUCE, listing=True, whole=True)


class ShowWriter(OperationOf[WriterInfo], frozen=True, tag="show_writer"):
    rule: ClassVar[Rule] = Rule(PRODUCE, writer=True, whole=True)

    writer: Writer


class DeleteWriter(OperationOf[dict[str, Any]], frozen=True, tag="delete_writer"):
    """Forgets a writer's batches and drops its stages; published messages stay."""

    repeatable: ClassVar[bool] = False
    rule: ClassVar[Rule] = Rule(PRODUCE, writer=True, whole=True, logged=True)

    writer: Writer


def decode_chunk(body: bytes) -> tuple[bytes, bytes]:
    """The stage and the segment of a STAGE frame."""
    if len(body) <= STAGE_BYTES:
        raise BadFrame(f"a STAGE frame of {len(body)} bytes is too short")
    return body[:STAGE_BYTES], body[STAGE_BYTES:]


StagingOperation = OpenStage | FinishStage | CommitBatch | AbortStages | ListWriters | ShowWriter | DeleteWriter
