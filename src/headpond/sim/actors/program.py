"""A program that uses the client, and notes what it does and sees.

It knows nothing of the simulator: the same programs run as real processes (tests/torture).
"""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from typing import Any

import headpond
from headpond.client.link.dialling import Backoff
from headpond.sim.history import History

Tokens = dict[str, tuple[str, str]]

REST_S = 60.0
SLOW_MAX = 30.0


class Role:
    """What the processes of a program have in common; they follow one another."""

    ending = False
    """Whether the programs should come to their end."""
    calm = False
    """Whether the programs should do nothing that delays others."""

    def __init__(
        self, name: str, history: History, chance: random.Random, tokens: Tokens, tempo: float = 1.0
    ) -> None:
        self.name = name
        self.history = history
        self.random = chance
        self.tokens = tokens
        """By the name of a program: the id and the secret of its token; empty if nodes ask for none."""
        self.tempo = tempo
        """By how much a run takes longer than a dense one."""


class Program(ABC):
    """One process of a role."""

    def __init__(self, role: Role, life: int) -> None:
        self.role = role
        self.life = life
        """Counts the processes of the role."""
        self.name = role.name
        self.history = role.history
        self.random = role.random

    def __str__(self) -> str:
        return f"{self.name}#{self.life}"

    @abstractmethod
    async def run(self) -> None: ...

    def excess(self) -> str:
        """Which limit the client exceeds, if it does."""
        return ""

    async def rest(self, seconds: float) -> None:
        """Sleeps, but not past its end."""
        while seconds > 0 and not self.role.ending:
            await asyncio.sleep(min(seconds, REST_S))
            seconds -= REST_S

    def slow_s(self, seconds: float) -> float:
        """A time that is longer in a run that lasts for hours."""
        return seconds * min(self.role.tempo, SLOW_MAX)

    def now_s(self) -> float:
        return asyncio.get_running_loop().time()

    def note(self, text: str) -> None:
        self.history.note(self.now_s(), f"{self} {text}")

    @property
    def token(self) -> str:
        """The id of its token."""
        return self.role.tokens.get(self.name, ("", ""))[0]

    def connect(self, urls: str | list[str]) -> headpond.Client:
        tokens = self.role.tokens
        return headpond.connect(
            urls,
            token=tokens[self.name][1] if tokens else None,
            wait=False,
            connect_timeout=2.0,
            ping_after=self.slow_s(1.0),
            dead_after=self.slow_s(3.0),
            request_timeout=10.0,
            backoff=Backoff(0.02, self.slow_s(1.0), self.random.random),
        )


def value_of(message: headpond.Message[Any]) -> bytes:
    """The value that a program sent; typed topics have it in a column."""
    value = message.value
    return value["text"] if isinstance(value, dict) else bytes(value or b"")


def short(value: bytes) -> str:
    """The readable begin of a value."""
    return value.partition(b":")[0].decode(errors="replace")
