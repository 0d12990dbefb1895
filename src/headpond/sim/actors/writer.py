"""A driver and its tasks: they stage rows and commit batches as Spark's streaming sink does.

The rows of a batch follow from its number, so a driver that starts again repeats the batch that it may have
committed. A task may run twice at a time; the driver commits the stage that comes first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import pyarrow as pa

import headpond
from headpond.model.errors import BatchDiffers, BatchOutOfTurn, HeadpondError
from headpond.sim.actors.program import Program, Role
from headpond.sim.history import Batch, Broken
from headpond.sim.loop import SimLoop
from headpond.sim.plan import WriterPlan
from headpond.sim.process import Machine

TIMEOUT_S = 15.0
"""How long a driver waits for a task, before it starts it again."""


class DriverProgram(Program):
    def __init__(self, role: Role, life: int, plan: WriterPlan, url: str, tasks: Machine | None) -> None:
        """``tasks``: where its tasks run; None if they run beside it."""
        super().__init__(role, life)
        self.plan = plan
        self.url = url
        self._tasks = tasks

    async def run(self) -> None:
        number = self._checkpoint()
        async with self.connect(self.url) as client, client.writer(self.plan.name, timeout=30.0) as writer:
            while not self.role.ending:
                number += 1
                batch = self.batch_of(number)
                await self._commit(writer, batch)
                self.history.change(batch, noted=True)
                await self.rest(self.random.random() * self.plan.pause_s)

    def _checkpoint(self) -> int:
        """The last batch that a driver has noted as done, on a disk that no fault touches."""
        return max((batch.number for batch in self.batches() if batch.noted), default=0)

    def batches(self) -> list[Batch]:
        return [batch for batch in self.history.of(Batch) if batch.writer == self.name]

    async def _commit(self, writer: headpond.Writer, batch: Batch) -> None:
        number = batch.number
        stages = await asyncio.gather(*(self._stage(rows) for rows in batch.rows))
        await self.rest(self.random.random() * self.plan.think_s)
        self.note(f"commits batch {number}")
        done = await writer.commit(number, stages)
        self.history.change(batch, committed=True)
        self.note(f"batch {number} is {done.outcome}")
        if self.random.random() < 0.2:  # it crashed before it noted that, and repeats the batch
            stages = await asyncio.gather(*(self._stage(rows) for rows in batch.rows))
            self.note(f"repeats batch {number}: {(await writer.commit(number, stages)).outcome}")
        if self.plan.other_rows and self.random.random() < self.plan.other_rows:
            await self._commit_others(writer, number, sum(map(len, batch.rows)))

    async def _commit_others(self, writer: headpond.Writer, number: int, rows: int) -> None:
        """The node must refuse the batch: it has another one under this number."""
        stage = await self._stage([b"other rows"] * rows)
        try:
            done = await writer.commit(number, [stage])
        except (BatchDiffers, BatchOutOfTurn) as refused:
            self.note(f"batch {number} with other rows: {refused.code}")
        else:
            self.history.add(Broken(f"batch {number} of {self.name} with other rows is {done.outcome}"))

    def batch_of(self, number: int) -> Batch:
        for batch in self.batches():
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
        done: asyncio.Future[headpond.Stage] = asyncio.get_running_loop().create_future()
        while not done.done():
            for _ in range(2 if self.random.random() < self.plan.speculation else 1):
                self.start_task(rows, done)
            await asyncio.wait([done], timeout=TIMEOUT_S)
        return done.result()

    def start_task(self, rows: list[bytes], done: asyncio.Future[headpond.Stage]) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop) and self._tasks is not None
        process = self._tasks.start(f"{self.name} task")
        process.spawn(self.task(rows, partial(loop.call_in, loop.process, 0.0, finish, done)))
        process.kill_after = 1 if self.random.random() < self.plan.lost_tasks else None

    async def task(self, rows: list[bytes], report: Callable[[headpond.Stage], object]) -> None:
        try:
            async with self.connect(self.url) as client, client.writer(self.name, timeout=10.0) as writer:
                stage = await writer.stage(self.plan.topic, pa.table({"value": pa.array(rows, pa.binary())}))
        except HeadpondError as error:
            self.note(f"a task failed: {error.code}")
            return
        report(stage)


def finish(done: asyncio.Future[headpond.Stage], stage: headpond.Stage) -> None:
    if not done.done():
        done.set_result(stage)
