"""A real group: three nodes in processes over a real NATS cluster, killed, stopped and started again."""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Self

import msgspec

from headpond.cluster.copy import LOCAL
from headpond.cluster.jetstream import JetStream
from headpond.cluster.member import AskStatus, MemberStatus
from tests.cluster.nats import NatsCluster, free_ports
from tests.fire.real_node import NODE

GROUP = "test"
WAIT_S_MAX = 60.0


class RealGroup:
    """``async with RealGroup(folder, nats) as group``: leaving the block kills all nodes."""

    def __init__(self, folder: Path, nats: NatsCluster) -> None:
        self.folder = folder
        self.members = {f"m{number + 1}": port for number, port in enumerate(free_ports(3))}
        self.url = "headpond://" + ",".join(f"127.0.0.1:{port}" for port in self.members.values())
        self._nats = nats
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._stream: JetStream | None = None

    def start(self, member: str) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        place = ["--data", str(self.data(member)), "--listen", f"127.0.0.1:{self.members[member]}"]
        cluster = ["--cluster", self._nats.url, "--group", GROUP, "--member", member]
        with (self.folder / f"{member}.log").open("ab") as log:
            self._processes[member] = subprocess.Popen([*NODE, *place, *cluster], stdout=log, stderr=log)

    def data(self, member: str) -> Path:
        return self.folder / member

    def kill(self, member: str) -> None:
        self._signal(member, signal.SIGKILL)

    def end(self, member: str) -> int:
        """A clean stop; returns the exit code."""
        return self._signal(member, signal.SIGTERM)

    def _signal(self, member: str, number: int) -> int:
        process = self._processes[member]
        process.send_signal(number)
        return process.wait(WAIT_S_MAX)

    def stop(self, member: str) -> None:
        """SIGSTOP."""
        self._processes[member].send_signal(signal.SIGSTOP)

    def resume(self, member: str) -> None:
        self._processes[member].send_signal(signal.SIGCONT)

    def lose_folder(self, member: str) -> None:
        """The disk of a member that does not run is replaced by an empty one."""
        shutil.rmtree(self.data(member))

    async def statuses(self) -> dict[str, MemberStatus]:
        assert self._stream is not None
        answers = await self._stream.ask_all(msgspec.msgpack.encode(AskStatus()), 1.0)
        found = [msgspec.msgpack.decode(each, type=MemberStatus) for each in answers]
        return {each.member: each for each in found}

    async def active(self) -> str:
        """The member that is active in the highest epoch; waits until there is one."""
        async with asyncio.timeout(WAIT_S_MAX):
            while True:
                active = [each for each in (await self.statuses()).values() if each.role == "active"]
                if active:
                    return max(active, key=lambda each: each.epoch).member

    async def all_alike(self) -> None:
        """Returns when all members have applied the same records; their folders must be the same then."""
        async with asyncio.timeout(WAIT_S_MAX):
            while True:
                statuses = (await self.statuses()).values()
                roles = sorted(each.role for each in statuses)
                if roles == ["active", "standby", "standby"] and len({each.epoch for each in statuses}) == 1:
                    folders = [self._contents(member) for member in self.members]
                    if folders[0] == folders[1] == folders[2]:
                        return

    def _contents(self, member: str) -> dict[str, bytes]:
        root = self.data(member)
        paths = [path for path in root.rglob("*") if path.is_file()]
        names = {str(path.relative_to(root)): path for path in paths}
        return {name: path.read_bytes() for name, path in names.items() if name.partition("/")[0] not in LOCAL}

    async def __aenter__(self) -> Self:
        for member in self.members:
            self.start(member)
        self._stream = await JetStream.connect(self._nats.url, GROUP, "observer")
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()
        if self._stream is not None:
            await self._stream.close()
