"""A node on a machine of the world: the real server and core, killed and started again."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator

from headpond.broker.core import NodeCore
from headpond.broker.effects import Commit, Effect
from headpond.broker.settings import LogSettings, Settings
from headpond.model.errors import HeadpondError
from headpond.node.data_folder import open_identity
from headpond.node.server import Server, clock_us, now_us
from headpond.sim.process import Machine, Process
from headpond.storage.memory_disk import MemoryDisk

PORT = 7411
SMALL_FILES = LogSettings(
    rotate_bytes=4096,
    preallocate_bytes=1024,
    index_every_bytes=512,
    commit_journal_bytes=8192,
    pack_segments_min=2,
)
"""A short run rotates, compacts and packs."""


class SimServer(Server):
    """A server whose process may be killed before each effect."""

    process: Process

    def _do(self, effect: Effect) -> None:
        self.process.point(f"effect {_label(effect)}")
        super()._do(effect)


def _label(effect: Effect) -> str:
    if isinstance(effect, Commit):
        return f"commit {'a log' if effect.lane.name.startswith('topic ') else effect.lane.name}"
    return type(effect).__name__.lower()


class SimNode:
    def __init__(self, machine: Machine, settings: Settings | None = None) -> None:
        self.machine = machine
        self.settings = settings or Settings(
            data="memory",
            listen=f"{machine.name}:{PORT}",
            threads=1,  # so two busy logs share a round of the commit journal
            journal_compact_bytes=2048,
            log=SMALL_FILES,
            insecure=True,
            create_on_first_use=True,
        )
        self.url = f"headpond://{machine.name}:{PORT}"
        self.process: Process | None = None
        self.server: SimServer | None = None
        self.starts = 0
        self.recoveries: list[str] = []
        """Differences between recovering once and recovering twice."""

    @property
    def up(self) -> bool:
        return self.process is not None and not self.process.killed

    @property
    def core(self) -> NodeCore:
        assert self.server is not None
        return self.server.core

    def start(self) -> asyncio.Task[None]:
        """Starts the process; it recovers what the disk has."""
        assert not self.up
        self.starts += 1
        self.server = None
        self.process = self.machine.start(f"{self.machine.name}#{self.starts}")
        return self.process.spawn(self._serve(self.process))

    async def _serve(self, process: Process) -> None:
        try:
            await self._begin(process)
        except (OSError, HeadpondError):  # the process ends with an error, and its supervisor starts another
            process.kill()

    def excesses(self, credits: dict[str, int]) -> Iterator[str]:
        """Limits that it exceeds and its own faults; ``credits`` has by subscription what a consumer grants."""
        limits, unacked = self.settings.limits, self.core.unacked_bytes
        if faults := self.core.context.counters["faults_internal"]:
            yield f"could not handle {faults} frames, by its own fault"
        if unacked > limits.staged_bytes + limits.window_bytes:
            yield f"holds {unacked} unacked bytes"
        for subscription in self.core.stores.subscriptions.all():
            for each in subscription.attachments:
                if each.credit_bytes > (granted := credits.get(subscription.name, each.credit_bytes)):
                    yield f"has {each.credit_bytes} bytes of credit of {each.name}, which grants {granted}"

    def compare_recoveries(self) -> None:
        """Recovers a copy of the disk twice; both must find the same."""
        disk = self.machine.disk.copy()
        once, twice = _digest(self.open_core(disk)), _digest(self.open_core(disk))
        if once != twice:
            self.recoveries.append(f"{self.machine.name}: {once} and then {twice}")

    def open_core(self, disk: MemoryDisk) -> NodeCore:
        """Recovers a copy of the disk without serving it."""
        disk.capacity_bytes = None
        return NodeCore(
            disk,
            self.settings,
            node="twin",
            software="simulated",
            now_us=self.machine.now_us,
            new_uuid=lambda: bytes(16),
        )

    async def _begin(self, process: Process) -> None:
        disk = process.disk
        disk.lock()
        identity = open_identity(disk, node=uuid.uuid4().hex, now_us=now_us())
        core = NodeCore(
            disk,
            self.settings,
            node=identity.node,
            software="simulated",
            now_us=now_us,
            clock_us=clock_us,
            new_uuid=lambda: uuid.uuid4().bytes,
        )
        server = SimServer(disk, core, self.settings, threads=process.executor)
        server.process = process
        await server.start()
        self.server = server

    async def stop(self) -> None:
        """A clean stop."""
        assert self.process is not None and self.server is not None
        await self.process.spawn(self.server.stop())
        self.process.disk.unlock()
        self.process.kill()


def _digest(core: NodeCore) -> object:
    """What a node knows of logs and settlements."""
    stores = core.stores
    logs = {topic.name: [shard.log.entry_durable for shard in topic.shards] for topic in stores.catalog}
    settled = {
        (subscription.topic_uuid, subscription.name): [
            (cursor.cursor, *(list(each.spans(0, each.end)) for each in (cursor.settled, cursor.dead)))
            for cursor in subscription.cursors
        ]
        for subscription in stores.subscriptions.all()
    }
    return logs, settled
