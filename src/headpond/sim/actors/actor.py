"""A role on a machine: its processes are killed, stopped, started again, or run twice at a time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import NamedTuple

from headpond.model.errors import HeadpondError
from headpond.sim.actors.program import Program, Role, Tokens
from headpond.sim.history import History
from headpond.sim.process import Machine, Process


class Running(NamedTuple):
    program: Program
    process: Process
    task: asyncio.Task[None]


class Actor(Role):
    """Starts the processes of a role, which follow one another; ``twin`` starts one beside another."""

    def __init__(
        self,
        machine: Machine,
        name: str,
        history: History,
        seed: str,
        program: Callable[[Role, int], Program],
        tokens: Tokens,
        tempo: float = 1.0,
    ) -> None:
        super().__init__(name, history, random.Random(f"{seed} {name}"), tokens, tempo)
        self.machine = machine
        self.failure = ""
        """An exception that no user expects."""
        self.lives = 0
        self.done = False
        """Whether a program came to its end without an error since the last one began."""
        self._program = program
        self._running: list[Running] = []

    @property
    def running(self) -> list[Running]:
        """The programs that run, oldest first."""
        self._running = [each for each in self._running if not each.task.done() and not each.process.killed]
        return self._running

    @property
    def up(self) -> bool:
        return bool(self.running)

    @property
    def process(self) -> Process | None:
        """The newest one that runs."""
        return self.running[-1].process if self.running else None

    def start(self) -> None:
        if not self.up:
            self.twin()

    def twin(self) -> None:
        """Starts a process, also beside one that runs."""
        self.lives += 1
        self.done = False
        program = self._program(self, self.lives)
        process = self.machine.start(str(program))
        self._running.append(Running(program, process, process.spawn(self._run(program, process))))

    async def _run(self, program: Program, process: Process) -> None:
        try:
            await program.run()
            self.done = True
        except HeadpondError as error:
            program.note(f"ends: {error.code}: {error.message}")
        except Exception as error:
            self.failure = repr(error)
            raise
        finally:
            if not process.killed:
                process.kill()
