"""A driver and its tasks: they stage rows and commit batches as Spark's streaming sink does.

The rows of a batch follow from its number, so a driver that starts again repeats the batch that it may have
committed. A task may run twice at a time; the driver commits the stage that comes first.
"""

from __future__ import annotations

import asyncio

import pyarrow as pa

import headpond
from headpond.model.errors import HeadpondError
from headpond.sim.actors.actor import Actor, Program
from headpond.sim.history import Batch
from headpond.sim.plan import WriterPlan
from headpond.sim.process import Machine, Process

TIMEOUT_S = 15.0
"""How long a driver waits for a task, before it starts it again."""


class DriverProgram(Program):
    def __init__(
        self, actor: Actor, process: Process, life: int, plan: WriterPlan, url: str, tasks: Machine
    ) -> None:
        super().__init__(actor, process, life)
        self.plan = plan
        self.url = url
        self._tasks = tasks

    async def run(self) -> None:
        number = self._checkpoint()
        async with self.connect(self.url) as client, client.writer(self.plan.name, timeout=30.0) as writer:
            while not self.actor.ending:
                number += 1
                batch = self._batch_of(number)
                await self._commit(writer, batch)
                batch.noted = True
                await self.rest(self.random.random() * self.plan.pause_s)

    def _checkpoint(self) -> int:
        """The last batch that a driver has noted as done, on a disk that no fault touches."""
        return max((batch.number for batch in self._batches() if batch.noted), default=0)

    def _batches(self) -> list[Batch]:
        return [batch for batch in self.history.of(Batch) if batch.writer == self.name]

    async def _commit(self, writer: headpond.Writer, batch: Batch) -> None:
        number = batch.number
        stages = await asyncio.gather(*(self._stage(rows) for rows in batch.rows))
        self.note(f"commits batch {number}")
        done = await writer.commit(number, stages)
        batch.committed = True
        self.note(f"batch {number} is {done.outcome}")
        if self.random.random() < 0.2:  # it crashed before it noted that, and repeats the batch
            stages = await asyncio.gather(*(self._stage(rows) for rows in batch.rows))
            self.note(f"repeats batch {number}: {(await writer.commit(number, stages)).outcome}")

    def _batch_of(self, number: int) -> Batch:
        for batch in self._batches():
            if batch.number == number:
                return batch
        rows = [
            [
                f"{self.name}.{number}.{task}.{row}:".encode()
                for row in range(self.random.randint(1, self.plan.rows))
            ]
            for task in range(1, self.plan.tasks + 1)
        ]
        batch = Batch(self.plan.topic, self.plan.node, self.name, number, rows)
        self.history.add(batch)
        return batch

    async def _stage(self, rows: list[bytes]) -> headpond.Stage:
        """The stage of a task; a task that is lost or slow is run again, perhaps beside the first."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[headpond.Stage] = loop.create_future()
        while not done.done():
            for _ in range(2 if self.random.random() < self.plan.speculation else 1):
                process = self._tasks.start(f"{self.name} task")
                process.spawn(self._task(rows, done))
                process.kill_after = 1 if self.random.random() < self.plan.lost_tasks else None
            await asyncio.wait([done], timeout=TIMEOUT_S)
        return done.result()

    async def _task(self, rows: list[bytes], done: asyncio.Future[headpond.Stage]) -> None:
        try:
            async with self.connect(self.url) as client, client.writer(self.name, timeout=10.0) as writer:
                stage = await writer.stage(self.plan.topic, pa.table({"value": pa.array(rows, pa.binary())}))
        except HeadpondError as error:
            self.note(f"a task failed: {error.code}")
            return
        self.process.loop.call_in(self.process, 0.0, _finish, done, stage)


def _finish(done: asyncio.Future[headpond.Stage], stage: headpond.Stage) -> None:
    if not done.done():
        done.set_result(stage)
