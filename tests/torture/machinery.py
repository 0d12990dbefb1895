"""Nodes, programs and Spark's driver as processes: started, killed, and started again when they have ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

import headpond
from headpond.client.connect import Client
from headpond.sim.observer import create_topic
from tests.fire.forked import Forked
from tests.fire.real_node import NodeDidNotStart, RealNode
from tests.root import ROOT
from tests.torture.cast import Link, Part, Sender, Stager, Taker
from tests.torture.group import Group
from tests.torture.proxy import Proxy
from tests.torture.small_disk import INSIDE, SmallDisk
from tests.torture.victim import Victim

CONFIG = """\
journal_compact_bytes = 65536
[log]
rotate_bytes = 262144
preallocate_bytes = 65536
commit_journal_bytes = 1048576
[limits]
free_bytes_min = 1
"""
"""A short run rotates and compacts; a full disk is really full."""
PRODUCER_LEASE_S = 5.0


class Node(Victim):
    def __init__(self, name: str, folder: Path, command: Sequence[str]) -> None:
        super().__init__(name)
        self.disk = SmallDisk(folder / "disks" / name)
        self.real = RealNode(folder / "nodes" / name, config=CONFIG, command=command)
        self.real.data = folder / "disks" / name / "data"
        self._pid_file = folder / f"{name}.pid"

    @property
    def process(self) -> subprocess.Popen[bytes] | Forked | None:
        return self.real.process

    async def start(self) -> None:
        """A node that is killed meanwhile, or finds its disk full, may end before it is ready."""
        with contextlib.suppress(NodeDidNotStart):
            await asyncio.to_thread(self.real.restart)
            self._pid_file.write_text(str(self.real.pid))

    def failure(self) -> str:
        code = self.process.poll() if self.process is not None else -signal.SIGKILL
        return "" if code == -signal.SIGKILL else f"{self.name} ended with {code}: {self.real.errors[-2000:]}"

    def connect(self) -> Client:
        """The observer's way, which no fault touches."""
        return headpond.connect(self.real.url, request_timeout=30.0)

    @property
    def addresses(self) -> list[tuple[str, int]]:
        return [self.real.address]


class Worker(Victim):
    """A producer or a consumer."""

    def __init__(self, folder: Path, plan: Sender | Taker | Stager, urls: Sequence[str]) -> None:
        super().__init__(plan.name)
        self.plan = plan
        self.folder = folder / "programs" / plan.name
        if (
            isinstance(plan, Sender) and plan.plan.refill and INSIDE in os.environ
        ):  # a limit would stop its journal too
            self.disk = SmallDisk(self.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._process: Forked | None = None
        self._lives = 0
        self._errors = folder / f"{plan.name}.err"
        self.urls = list(urls)
        self._arguments = [type(plan).__name__, str(folder)]

    @property
    def process(self) -> Forked | None:
        return self._process

    async def start(self) -> None:
        self._lives += 1
        nothing = os.open(os.devnull, os.O_RDWR)
        errors = os.open(self._errors, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._process = Forked(
            [*self._arguments, msgspec.json.encode(self.plan).decode(), str(self._lives), *self.urls],
            {**os.environ, "HEADPOND_STATE": str(self.folder)},
            (nothing, os.dup(errors), errors),
            module="tests.torture.program",
            folder=self.folder,
        )

    def failure(self) -> str:
        code = self.process.poll() if self.process is not None else 0
        known = code in (0, -signal.SIGKILL, -signal.SIGTERM)  # asked to end before it could listen
        return "" if known else f"{self.name} ended with {code}: {self._errors.read_text()[-2000:]}"


class Driver(Victim):
    """Spark's driver, with its executor and Python workers: a process group."""

    def __init__(self, folder: Path, url: str, topics: tuple[str, str]) -> None:
        super().__init__("driver")
        self.folder = folder
        self._command = [sys.executable, "-m", "tests.torture.spark_driver", str(folder), url, *topics]
        self._process: subprocess.Popen[bytes] | None = None
        (folder / "fuses").mkdir()

    @property
    def process(self) -> subprocess.Popen[bytes] | None:
        return self._process

    async def start(self) -> None:
        self._process = self._launch()
        (self.folder / "driver.pid").write_text(str(self._process.pid))

    def _launch(self) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        with (self.folder / "driver.log").open("ab") as log:
            return subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


class Troupe:
    """A part of the cast, as processes, with proxies between them."""

    def __init__(
        self, part: Part, folder: Path, seed: int, command: Sequence[str], *, flooded: bool = False
    ) -> None:
        self.part = part
        self.folder = folder
        self.chance = random.Random(f"{seed} {part.name}")
        self.groups = {name: Group(folder / name, flooded) for name in part.nodes if part.grouped}
        self.hosts = {name: Node(name, folder, command) for name in part.nodes if not part.grouped}
        self.nodes: dict[str, Node | Group] = {**self.hosts, **self.groups}
        """What programs connect to."""
        self.workers: list[Worker] = []
        self.driver: Driver | None = None
        self.proxies: list[Proxy] = []
        self.faults: Counter[str] = Counter()
        self.violations: list[str] = []
        self.counts: dict[str, int] = {}
        self.settled_before_move = 0
        """By the follower's copy, when a consumer moved to it."""

    @property
    def victims(self) -> list[Victim]:
        members = [each for group in self.groups.values() for each in (*group.members, *group.servers)]
        return [*self.hosts.values(), *members, *self.workers, *([self.driver] if self.driver else [])]

    async def start(self) -> None:
        part = self.part
        for node in self.nodes.values():
            await node.start()
        for link in part.links:
            await self._link(link)
        for node in self.nodes.values():
            async with node.connect() as client:
                for topic in part.topics.values():
                    await create_topic(client, topic, PRODUCER_LEASE_S)
        for plan in part.programs:
            urls = [await self._proxy(plan.name, name) for name in plan.nodes]
            self.workers.append(Worker(self.folder, plan, urls))
        if part.spark is not None:
            self.driver = Driver(self.folder, await self._proxy("spark", part.nodes[0]), part.spark)

    async def _proxy(self, user: str, node: str) -> str:
        proxies = [Proxy(user, address) for address in self.nodes[node].addresses]
        self.proxies += proxies
        return "headpond://" + ",".join([await proxy.start() for proxy in proxies])

    async def _link(self, link: Link) -> None:
        url = await self._proxy(link.name, link.source)
        async with self.nodes[link.reader].connect() as client:
            topics = list(self.part.topics)
            await client.admin.add_peer(url, topics, name=link.name, subscriptions=link.subscriptions)

    async def keep_up(self, victim: Victim) -> None:
        """Starts it again when it has ended, some time later."""
        while True:
            await asyncio.sleep(self.chance.random())
            async with victim.held:
                if victim.up or victim.ending:
                    continue
                if why := victim.failure():
                    self.violations.append(f"unhandled: {why}")
                await victim.start()

    def heal(self) -> None:
        for proxy in self.proxies:
            proxy.release()

    def kill(self) -> None:
        for victim in self.victims:
            victim.ending = True
            victim.kill()
        for group in self.groups.values():
            group.end_flood()

    async def close(self) -> None:
        for group in self.groups.values():
            await group.close()

    def unmount(self, keep: Path | None) -> None:
        """Gives the disks back, after their files were copied if they are worth it."""
        for victim in self.victims:
            if victim.disk is not None:
                if keep is not None:
                    shutil.copytree(victim.disk.folder, keep / victim.name)
                victim.disk.unmount()
