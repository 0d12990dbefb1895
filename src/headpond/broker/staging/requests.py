"""Writers: listed, shown, deleted."""

from __future__ import annotations

from typing import Any

from headpond.broker.session import Session
from headpond.broker.staging.stages import StageState
from headpond.broker.staging.writers import WriterDeleted, WriterState
from headpond.broker.steps import Steps, Wait, on_disk
from headpond.broker.stores import Stores
from headpond.model.errors import WriterNotFound
from headpond.wire.control.staging import DeleteWriter, ListWriters, ShowWriter, StageInfo, WriterInfo

STAGES_SHOWN_MAX = 1000


class WriterRequests:
    def __init__(self, stores: Stores) -> None:
        self._stores = stores
        self._writers = stores.writers
        self._stages = stores.stages

    def idle(self, name: str) -> Steps[None]:
        """Waits until no batch of a writer is being published."""
        while (writer := self._writers.get(name)) is not None and writer.pending is not None:
            wait: Wait[None] = Wait()
            writer.waiting.append(wait)
            yield wait

    def list_writers(self, session: Session, ask: ListWriters) -> list[WriterInfo]:
        names = {writer.name for writer in self._writers} | set(self._stages.writers())
        return [self._info(name) for name in sorted(names)]

    def show_writer(self, session: Session, ask: ShowWriter) -> WriterInfo:
        self._check_known(ask.writer)
        return self._info(ask.writer, with_stages=True)

    def _check_known(self, name: str) -> None:
        if self._writers.get(name) is None and not self._stages.count_of(name):
            raise WriterNotFound(f"there is no writer {name!r}")

    def delete_writer(self, session: Session, ask: DeleteWriter) -> Steps[dict[str, Any]]:
        name = ask.writer
        self._check_known(name)
        yield from self.idle(name)
        self._check_known(name)
        writer = self._writers.get(name)
        dropped = self._stages.drop([stage.uuid for stage in self._stages.of_writer(name)])
        if writer is not None:
            self._stores.writers_journal.note(WriterDeleted(name, writer.uuid))
            yield on_disk(self._stores.writers_journal.lane)
        return {"writer": name, "deleted": True, "stages": dropped}

    # --- showing ------------------------------------------------------------------------------------

    def _info(self, name: str, *, with_stages: bool = False) -> WriterInfo:
        writer = self._writers.get(name)
        stages = [stage for stage in self._stages.of_writer(name) if not stage.claimed]
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

    def _topics(self, writer: WriterState | None) -> list[str]:
        uuids = {topic for topic, _ in writer.next} if writer is not None else set()
        return sorted(name for name in map(self._stores.catalog.name_of, uuids) if name is not None)

    def stage_info(self, stage: StageState) -> StageInfo:
        return StageInfo(
            stage=stage.uuid,
            writer=stage.writer,
            topic=self._stores.catalog.name_of(stage.topic) or "",
            rows=stage.rows,
            size_bytes=stage.bytes,
            chunks=len(stage.chunks),
            finished=stage.finished,
            opened_at_us=stage.opened_us,
        )
