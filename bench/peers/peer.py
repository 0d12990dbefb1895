"""What a broker has to do here: start in its durable configuration, take messages, give them to consumers.

A client is used as its own documentation recommends for speed. Every method of a producer returns once the
broker has confirmed that the messages are on its disk, as far as the broker can promise that.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from bench.peers.server import Server


class PeerProducer(ABC):
    """One connection to one topic."""

    @abstractmethod
    async def publish(self, values: Iterable[bytes]) -> None:
        """One call per message; many may be unconfirmed at a time."""

    @abstractmethod
    async def publish_batch(self, batches: Iterable[list[bytes]]) -> None:
        """One call per batch, or the client's pipeline."""

    @abstractmethod
    async def send(self, value: bytes) -> None:
        """One message, confirmed."""


class PeerConsumer(ABC):
    """One connection that reads one subscription from its first message on."""

    @abstractmethod
    async def consume(self, count: int, each: Callable[[bytes], object]) -> None:
        """Passes ``count`` messages to ``each``, acknowledges each of them on its own, and flushes."""


@dataclass(frozen=True)
class Peer(ABC):
    """A broker at a port. It can be sent to other processes, which connect to it."""

    folder: Path
    port: int

    name: ClassVar[str]
    install: ClassVar[str]
    """The command that makes it available."""

    @classmethod
    @abstractmethod
    def is_installed(cls) -> bool: ...

    @abstractmethod
    def start(self) -> Server: ...

    @abstractmethod
    async def create(self, topic: str, subscriptions: Sequence[str]) -> None:
        """The topic, and subscriptions that get everything sent to it from now on."""

    @abstractmethod
    async def delete(self, topic: str, subscriptions: Sequence[str]) -> None: ...

    @abstractmethod
    def producer(self, topic: str) -> AbstractAsyncContextManager[PeerProducer]: ...

    @abstractmethod
    def consumer(self, topic: str, subscription: str) -> AbstractAsyncContextManager[PeerConsumer]: ...

    @abstractmethod
    def blocking_sender(self, topic: str) -> AbstractContextManager[Callable[[bytes], object]]:
        """A function of the blocking client that returns once one message is confirmed."""
