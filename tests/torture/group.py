"""A group in a run: its members and servers as victims, and a pulse that notices takeovers."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import time
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import headpond
from headpond.cluster.journal import Unreachable
from headpond.model.errors import HeadpondError
from tests.cluster.group import RealGroup
from tests.cluster.nats import NatsCluster, NatsServer
from tests.torture.flood import SOFT_TTL_S, TOPIC, Flood
from tests.torture.proxy import Proxy
from tests.torture.victim import Victim

CONFIG = """\
journal_compact_bytes = 65536
stream_bytes = 67108864
[log]
rotate_bytes = 262144
[limits]
free_bytes_min = 1
"""
"""A short run rotates, compacts and trims."""
PULSE_S = 0.05
AFTERMATH_S = 15.0
"""For so long a failure may cause a takeover after it is healed."""


class Member(Victim):
    def __init__(self, name: str, real: RealGroup) -> None:
        super().__init__(name)
        self.real = real

    @property
    def process(self) -> subprocess.Popen[bytes] | None:
        return self.real.processes.get(self.name)

    async def start(self) -> None:
        self.real.start(self.name)

    def failure(self) -> str:
        code = self.process.poll() if self.process is not None else -signal.SIGKILL
        log = self.real.log(self.name)[-2000:]
        return "" if code == -signal.SIGKILL else f"{self.name} ended with {code}: {log}"


class Server(Victim):
    def __init__(self, real: NatsServer) -> None:
        super().__init__(real.name)
        self.real = real

    @property
    def process(self) -> subprocess.Popen[bytes] | None:
        return self.real.process

    async def start(self) -> None:
        self.real.kill()
        self.real.start()

    def kill(self) -> None:
        self.real.kill()


class Group:
    def __init__(self, folder: Path, flooded: bool) -> None:
        """A flooded one has full load, and reaches its servers without proxies."""
        self.flood: Flood | None = None
        self._flooded = flooded
        self._folder = folder
        self.nats = NatsCluster(folder / "nats")
        self.real = RealGroup(folder / "members", self.nats, config=CONFIG, proxy=None if flooded else Proxy)
        self.members = [Member(name, self.real) for name in self.real.members]
        self.servers = [Server(each) for each in self.nats.servers.values()]
        self.addresses = [("127.0.0.1", port) for port in self.real.members.values()]
        self.takeovers_s: list[float] = []
        """How long the pulse stood still at each takeover."""
        self.needless = 0
        """Takeovers without a failure before them."""
        self.happening = 0
        """Failures that happen now."""
        self.healed_s = float("-inf")
        """When the last failure was healed."""
        self._stack = AsyncExitStack()
        self._pulse: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self._stack.enter_async_context(self.nats)
        await self._stack.enter_async_context(self.real)
        await self.real.active()
        self._pulse = asyncio.create_task(self._beat())
        if self._flooded:
            async with self.connect() as client:
                await client.admin.create_topic(TOPIC, settings={"soft_ttl": SOFT_TTL_S})
            self.flood = Flood(self._folder, self.real.url)

    def end_flood(self) -> None:
        if self.flood is not None:
            self.flood.kill()

    async def end_pulse(self) -> None:
        pulse, self._pulse = self._pulse, None
        if pulse is not None:
            pulse.cancel()
            with suppress(asyncio.CancelledError):
                await pulse

    async def close(self) -> None:
        await self.end_pulse()
        await self._stack.aclose()

    def connect(self) -> headpond.Client:
        """The observer's way, which no fault touches."""
        return headpond.connect(self.real.url, wait=False, request_timeout=30.0)

    def member(self, name: str) -> Member:
        return next(each for each in self.members if each.name == name)

    async def _beat(self) -> None:
        """Sends messages, one after another, and looks who answers."""
        async with self.connect() as client, client.producer("pulse", refill=None) as producer:
            epoch, last_s = await self._epoch(), time.monotonic()
            while True:
                before_s = last_s
                with suppress(HeadpondError):
                    await producer.send(b"pulse")
                    last_s = time.monotonic()
                now = await self._epoch()
                if now > epoch:
                    self.takeovers_s.append(last_s - before_s)
                    calm = not self.happening and before_s - self.healed_s > AFTERMATH_S
                    self.needless += (now - epoch) if calm else 0
                    epoch = now
                await asyncio.sleep(PULSE_S)

    async def _epoch(self) -> int:
        with suppress(Unreachable):
            return max((each.epoch for each in (await self.real.statuses()).values()), default=0)
        return 0
