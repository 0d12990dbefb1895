"""A producer and a consumer of one topic that work through every failure, and what became of their messages."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random

import headpond
from headpond.model.errors import HeadpondError
from tests.cluster.group import RealGroup

BURST = 10
PAUSE_S = 0.01
REST_S_MAX = 120.0


@dataclass(frozen=True)
class Outcome:
    pause_s: float
    """The longest time without an acknowledgement."""
    acknowledged: int
    refused: int
    lost: int
    altered: int
    twice: int
    unordered: int
    unflagged: int
    """Repeats that came as first attempts."""

    @property
    def sound(self) -> bool:
        return not (self.lost or self.altered or self.twice or self.unordered or self.unflagged)


def value_of(number: int) -> bytes:
    return b"%d:" % number + Random(number).randbytes(number % 700).hex().encode()


class Traffic:
    def __init__(self, group: RealGroup, topic: str) -> None:
        self._group = group
        self._topic = topic
        self._sent = itertools.count()
        self.acknowledged: list[int] = []
        self.refused: list[int] = []
        self.acknowledged_s: list[float] = []
        self.received: dict[bytes, list[int]] = {}
        """The attempts of each value."""
        self._ending = False
        self._ended_s = 0.0

    def client(self) -> headpond.Client:
        return headpond.connect(
            self._group.url, wait=False, connect_timeout=2.0, ping_after=2.0, dead_after=5.0
        )

    async def run(self, failures: Callable[[], Awaitable[None]]) -> None:
        async with self.client() as client:
            await client.admin.create_topic(self._topic, shards=1)
            producing = asyncio.create_task(self._produce(client))
            consuming = asyncio.create_task(self._consume(client))
            try:
                await failures()
            finally:
                self._ending = True
            try:
                await asyncio.wait_for(asyncio.gather(producing, consuming), REST_S_MAX)
            finally:
                self._ended_s = asyncio.get_running_loop().time()

    async def _produce(self, client: headpond.Client) -> None:
        loop = asyncio.get_running_loop()
        async with client.producer(self._topic, name="till", refill=None) as producer:
            while not self._ending:
                numbers = list(itertools.islice(self._sent, BURST))
                promises = [producer.post(value_of(number)) for number in numbers]
                for number, promise in zip(numbers, promises, strict=True):
                    try:
                        stored = (await promise).stored
                    except HeadpondError:
                        stored = False
                    if stored:
                        self.acknowledged.append(number)
                        self.acknowledged_s.append(loop.time())
                    else:
                        self.refused.append(number)
                await asyncio.sleep(PAUSE_S)

    async def _consume(self, client: headpond.Client) -> None:
        async with client.consumer(self._topic, subscription="s", start="earliest") as consumer:
            while not self._ending or len(self.received) < len(self.acknowledged):
                message = await consumer.receive(timeout=1.0)
                if message is not None:
                    self.received.setdefault(bytes(message.value or b""), []).append(message.attempt)
                    await consumer.ack(message)

    async def outcome(self) -> Outcome:
        stored: list[bytes] = []
        async with self.client() as client, client.reader(self._topic) as reader:
            (ends,) = await reader.ends()
            async for part in reader.read(0, 0, ends.entry_next):
                stored += [bytes(message.value) for batch in part.batches for message in batch.messages()]
        known = {value_of(number): number for number in (*self.acknowledged, *self.refused)}
        numbers = [known[value] for value in stored if value in known]
        return Outcome(
            pause_s=max(b - a for a, b in itertools.pairwise([*self.acknowledged_s, self._ended_s])),
            acknowledged=len(self.acknowledged),
            refused=len(self.refused),
            lost=len(set(self.acknowledged) - set(numbers)),
            altered=sum(value not in known for value in (*stored, *self.received)),
            twice=sum(count > 1 for count in Counter(stored).values()),
            unordered=sum(b < a for a, b in itertools.pairwise(numbers)),
            unflagged=sum(attempts.count(1) > 1 for attempts in self.received.values()),
        )
