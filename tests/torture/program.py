"""A program of the simulator as a process: ``python -m tests.torture.program KIND FOLDER JSON LIFE URL...``.

It runs until it is killed, or until SIGTERM ends it in good order. It works in its own folder, which has its
refill. Once ``FOLDER/calm`` exists, consumers refuse nothing.
"""

from __future__ import annotations

import asyncio
import logging
import random
import signal
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec

import headpond
from headpond.model.errors import HeadpondError
from headpond.sim.actors.consumer import ConsumerProgram
from headpond.sim.actors.producer import ProducerProgram
from headpond.sim.actors.program import Program, Role
from headpond.sim.actors.writer import DriverProgram, finish
from headpond.sim.history import Batch
from tests.torture.cast import Sender, Stager, Taker
from tests.torture.journal import Journal, load

LOOK_S = 0.2
KINDS: dict[str, type[Sender | Taker | Stager]] = {"Sender": Sender, "Taker": Taker, "Stager": Stager}


async def main(kind: str, folder: Path, spec: str, life: int, urls: list[str]) -> int:
    plan = msgspec.json.decode(spec, type=KINDS[kind])
    before = list(load(folder, plan.name).of(Batch))
    journal = Journal(folder / "journals" / f"{plan.name}.{life}.jsonl")
    role = Role(plan.name, journal, random.Random(f"{plan.name} {life}"), tokens={})
    running = asyncio.create_task(program(role, life, plan, urls, before).run())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, setattr, role, "ending", True)
    while not running.done():
        role.calm = (folder / "calm").exists()
        await asyncio.wait([running], timeout=LOOK_S)
    try:
        await running
    except HeadpondError as error:
        print(f"life {life} ends: {error.code}: {error.message}", file=sys.stderr)
    return 0


class StagerProgram(DriverProgram):
    """Its tasks run beside it; it repeats the batch at which the process before it was killed."""

    def __init__(self, role: Role, life: int, plan: Stager, url: str, before: list[Batch]) -> None:
        super().__init__(role, life, plan.plan, url, tasks=None)
        self._before = before
        self._running: set[asyncio.Task[None]] = set()

    def batches(self) -> list[Batch]:
        return [*super().batches(), *self._before]

    def batch_of(self, number: int) -> Batch:
        batch = super().batch_of(number)
        if any(batch is each for each in self._before):
            batch = replace(batch)
            self.history.add(batch)
        return batch

    def start_task(self, rows: list[bytes], done: asyncio.Future[headpond.Stage]) -> None:
        task = asyncio.create_task(self.task(rows, partial(finish, done)))
        self._running.add(task)
        task.add_done_callback(self._running.discard)


def program(
    role: Role, life: int, plan: Sender | Taker | Stager, urls: list[str], before: list[Batch]
) -> Program:
    if isinstance(plan, Sender):
        return ProducerProgram(role, life, plan.plan, urls, plan.typed)
    if isinstance(plan, Stager):
        return StagerProgram(role, life, plan, urls[0], before)
    service = urls if plan.reads == "any" else urls[:1]
    copies = urls[1:] if plan.reads == "all" else []
    return ConsumerProgram(role, life, plan.plan, service, lambda: 0, copies)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)  # what the client logs under faults is no news
    _, kind, folder, spec, life, *urls = sys.argv
    sys.exit(asyncio.run(main(kind, Path(folder), spec, int(life), urls)))
