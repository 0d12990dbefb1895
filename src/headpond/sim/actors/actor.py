"""A program on a machine: killed, stopped, started again, or run twice at a time."""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import Callable

import headpond
from headpond.client.link.dialling import Backoff
from headpond.model.errors import HeadpondError
from headpond.sim.history import History
from headpond.sim.process import Machine, Process

Tokens = dict[str, tuple[str, str]]

REST_S = 60.0
SLOW_MAX = 30.0


class Actor:
    """Starts the processes of a program, which follow one another; ``twin`` starts one beside another."""

    def __init__(
        self,
        machine: Machine,
        name: str,
        history: History,
        seed: str,
        program: Callable[[Actor, Process, int], Program],
        tokens: Tokens,
        tempo: float = 1.0,
    ) -> None:
        self.machine = machine
        self.name = name
        self.history = history
        self.random = random.Random(f"{seed} {name}")
        self.tokens = tokens
        """By the name of a program: the id and the secret of its token; empty if nodes ask for none."""
        self.tempo = tempo
        """By how much a run takes longer than a dense one."""
        self.ending = False
        """Whether the programs should come to their end."""
        self.calm = False
        """Whether the programs should do nothing that delays others."""
        self.failure = ""
        """An exception that no user expects."""
        self.lives = 0
        self._program = program
        self._running: list[Program] = []

    @property
    def running(self) -> list[Program]:
        """The programs that run, oldest first."""
        self._running = [program for program in self._running if program.up]
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
        process = self.machine.start(f"{self.name}#{self.lives}")
        program = self._program(self, process, self.lives)
        program.task = process.spawn(program.main())
        self._running.append(program)


class Program(ABC):
    """One process of an actor."""

    task: asyncio.Task[None]

    def __init__(self, actor: Actor, process: Process, life: int) -> None:
        self.actor = actor
        self.process = process
        self.life = life
        self.name = actor.name
        self.history = actor.history
        self.random = actor.random

    @property
    def up(self) -> bool:
        return not self.task.done() and not self.process.killed

    async def main(self) -> None:
        try:
            await self.run()
        except HeadpondError as error:
            self.note(f"ends: {error.code}: {error.message}")
        except Exception as error:
            self.actor.failure = repr(error)
            raise
        finally:
            if not self.process.killed:
                self.process.kill()

    @abstractmethod
    async def run(self) -> None: ...

    def excess(self) -> str:
        """Which limit the client exceeds, if it does."""
        return ""

    async def rest(self, seconds: float) -> None:
        """Sleeps, but not past its end."""
        while seconds > 0 and not self.actor.ending:
            await asyncio.sleep(min(seconds, REST_S))
            seconds -= REST_S

    def slow_s(self, seconds: float) -> float:
        """A time that is longer in a run that lasts for hours."""
        return seconds * min(self.actor.tempo, SLOW_MAX)

    def now_s(self) -> float:
        return asyncio.get_running_loop().time()

    def note(self, text: str) -> None:
        self.history.note(self.now_s(), f"{self.process} {text}")

    @property
    def token(self) -> str:
        """The id of its token."""
        return self.actor.tokens.get(self.name, ("", ""))[0]

    def connect(self, url: str) -> headpond.Client:
        tokens = self.actor.tokens
        return headpond.connect(
            url,
            token=tokens[self.name][1] if tokens else None,
            wait=False,
            connect_timeout=2.0,
            ping_after=self.slow_s(1.0),
            dead_after=self.slow_s(3.0),
            request_timeout=10.0,
            backoff=Backoff(0.02, 1.0, self.random.random),
        )


def value_of(message: headpond.Message) -> bytes:
    """The value that a program sent; typed topics have it in a column."""
    value = message.value
    return value["text"] if isinstance(value, dict) else bytes(value or b"")


def short(value: bytes) -> str:
    """The readable begin of a value."""
    return value.partition(b":")[0].decode(errors="replace")
