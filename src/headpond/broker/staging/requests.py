"""Questions about writers, and their deletion."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headpond.broker.staging.stages import StageState
from headpond.broker.staging.writers import Writer, WriterDeleted
from headpond.model.errors import HeadpondError, WriterNotFound
from headpond.wire.control.codec import Operation
from headpond.wire.control.staging import DeleteWriter, ListWriters, ShowWriter, StageInfo, WriterInfo

if TYPE_CHECKING:
    from headpond.broker.core import NodeCore

STAGES_SHOWN_MAX = 1000

Answer = Callable[[Any], None]
Refuse = Callable[[HeadpondError], None]


class WriterRequests:
    def __init__(self, node: NodeCore, shown_topic: Callable[[bytes], str | None]) -> None:
        self._stores = node.stores.staging
        self._shown_topic = shown_topic

    def on_request(self, operation: Operation, answer: Answer, refuse: Refuse) -> bool:
        """Carries out an operation; False if it is none of these."""
        if isinstance(operation, ListWriters):
            names = {writer.name for writer in self._stores.writers} | set(self._stores.stages.writers())
            answer([self._info(name) for name in sorted(names)])
        elif isinstance(operation, ShowWriter):
            self._check_known(operation.writer)
            answer(self._info(operation.writer, with_stages=True))
        elif isinstance(operation, DeleteWriter):
            self._delete(operation.writer, answer, refuse)
        else:
            return False
        return True

    def _check_known(self, name: str) -> None:
        if self._stores.writers.get(name) is None and not self._stores.stages.count_of(name):
            raise WriterNotFound(f"there is no writer {name!r}")

    def _delete(self, name: str, answer: Answer, refuse: Refuse) -> None:
        self._check_known(name)
        writer = self._stores.writers.get(name)
        if writer is not None and writer.pending is not None:  # what is recorded is published first
            writer.waiting.append(lambda: self._delete_again(name, answer, refuse))
            return
        dropped = self._stores.drop_stages([stage.uuid for stage in self._stores.stages.of_writer(name)])
        result = {"writer": name, "deleted": True, "stages": len(dropped)}
        if writer is None:
            answer(result)
        else:
            self._stores.record(WriterDeleted(name, writer.uuid), lambda error: answer(result))

    def _delete_again(self, name: str, answer: Answer, refuse: Refuse) -> None:
        try:
            self._delete(name, answer, refuse)
        except HeadpondError as error:
            refuse(error)

    # --- what is told -------------------------------------------------------------------------------

    def _info(self, name: str, *, with_stages: bool = False) -> WriterInfo:
        writer = self._stores.writers.get(name)
        stages = [stage for stage in self._stores.stages.of_writer(name) if not stage.claimed]
        return WriterInfo(
            writer=name,
            batch=writer.batch if writer is not None else None,
            committed_at_us=writer.at_us if writer is not None else None,
            created_at_us=writer.created_us if writer is not None else None,
            batches=writer.batches if writer is not None else 0,
            rows=writer.rows if writer is not None else 0,
            size_bytes=writer.size_bytes if writer is not None else 0,
            publishing=writer is not None and writer.pending is not None,
            holder=writer.holder if writer is not None else "",
            topics=self._topics(writer),
            stages=len(stages),
            staged_bytes=sum(stage.bytes for stage in stages),
            stage_list=[self.stage_info(stage) for stage in stages[:STAGES_SHOWN_MAX]] if with_stages else [],
        )

    def _topics(self, writer: Writer | None) -> list[str]:
        uuids = {topic for topic, _ in writer.next} if writer is not None else set()
        names = (self._shown_topic(uuid) for uuid in uuids)
        return sorted(name for name in names if name is not None)

    def stage_info(self, stage: StageState) -> StageInfo:
        return StageInfo(
            stage=stage.uuid,
            writer=stage.writer,
            topic=self._shown_topic(stage.topic) or "",
            rows=stage.rows,
            size_bytes=stage.bytes,
            chunks=len(stage.chunks),
            finished=stage.finished,
            opened_at_us=stage.opened_us,
        )
