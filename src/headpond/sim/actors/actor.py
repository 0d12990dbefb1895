"""A program on its own machine, killed and started again by the world."""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod

import headpond
from headpond.client.link.dialling import Backoff
from headpond.model.errors import HeadpondError
from headpond.sim.history import History
from headpond.sim.process import Machine, Process

REST_S = 60.0
SLOW_MAX = 30.0


class Actor(ABC):
    """A program on its own machine. A killed one is started again with ``start``."""

    def __init__(self, machine: Machine, name: str, history: History, seed: str) -> None:
        self.machine = machine
        self.name = name
        self.history = history
        self.random = random.Random(f"{seed} {name}")
        self.life = 0
        self.tempo = 1.0
        self.ending = False
        """Whether the program should come to its end."""
        self.process: Process | None = None
        self.task: asyncio.Task[None] | None = None
        self.failure = ""
        """An exception that no user expects."""

    @property
    def up(self) -> bool:
        return (
            self.task is not None
            and not self.task.done()
            and self.process is not None
            and not self.process.killed
        )

    def start(self) -> None:
        if self.up:
            return
        self.life += 1
        self.process = self.machine.start(f"{self.name}#{self.life}")
        self.task = self.process.spawn(self._run())

    async def _run(self) -> None:
        process = self.process
        assert process is not None
        try:
            await self.program()
        except HeadpondError as error:
            self.note(f"ends: {error.code}: {error.message}")
        except Exception as error:
            self.failure = repr(error)
            raise
        finally:
            if not process.killed:
                process.kill()

    @abstractmethod
    async def program(self) -> None: ...

    async def rest(self, seconds: float) -> None:
        """Sleeps, but not past its end."""
        while seconds > 0 and not self.ending:
            await asyncio.sleep(min(seconds, REST_S))
            seconds -= REST_S

    def excess(self) -> str:
        """Which limit the client exceeds, if it does."""
        return ""

    def slow_s(self, seconds: float) -> float:
        """A time that is longer in a run that lasts for hours."""
        return seconds * min(self.tempo, SLOW_MAX)

    def now_s(self) -> float:
        return self.machine.loop.time()

    def note(self, text: str) -> None:
        self.history.note(self.now_s(), f"{self.name}#{self.life} {text}")

    def connect(self, url: str) -> headpond.Client:
        return headpond.connect(
            url,
            wait=False,
            connect_timeout=2.0,
            ping_after=self.slow_s(1.0),
            dead_after=self.slow_s(3.0),
            request_timeout=10.0,
            backoff=Backoff(0.02, 1.0, self.random.random),
        )


def short(value: bytes) -> str:
    """The readable begin of a value."""
    return value.partition(b":")[0].decode(errors="replace")
