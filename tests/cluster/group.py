"""A real group: three nodes in processes over a real NATS cluster, killed, stopped, cut off, started again."""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

import msgspec

from headpond.cluster.copy import LOCAL
from headpond.cluster.jetstream import JetStream
from headpond.cluster.journal import Unreachable
from headpond.cluster.member import AskStatus, AskSwitch, MemberStatus
from headpond.model.errors import GroupNotFound
from tests.cluster.nats import NatsCluster, free_ports
from tests.fire.real_node import NODE
from tests.torture.proxy import Proxy

GROUP = "test"
STREAM = f"HEADPOND-{GROUP}"
WAIT_S_MAX = 60.0
ANSWER_S = 0.25


class RealGroup:
    """``async with RealGroup(folder, nats) as group``: leaving the block kills all nodes."""

    def __init__(
        self, folder: Path, nats: NatsCluster, *, config: str = "", proxy: type[Proxy] | None = None
    ) -> None:
        """With a ``proxy`` the members reach the servers through proxies only."""
        self.folder = folder
        self.members = {f"m{number + 1}": port for number, port in enumerate(free_ports(3))}
        self.url = "headpond://" + ",".join(f"127.0.0.1:{port}" for port in self.members.values())
        self.nats = nats
        self.ways: dict[str, list[Proxy]] = {member: [] for member in self.members}
        """By member: its connections to the servers, if they lead through proxies."""
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._config = config
        self._proxy = proxy
        self._servers = dict.fromkeys(self.members, nats.url)
        self._stream: JetStream | None = None

    @property
    def stream(self) -> JetStream:
        """The observer's own connection to the stream."""
        assert self._stream is not None
        return self._stream

    # --- processes ----------------------------------------------------------------------------------

    def start(self, member: str) -> None:
        place = ["--data", str(self.data(member)), "--listen", f"127.0.0.1:{self.members[member]}"]
        cluster = ["--cluster", self._servers[member], "--group", GROUP, "--member", member]
        with (self.folder / f"{member}.log").open("ab") as log:
            self.processes[member] = subprocess.Popen(
                [*NODE, *place, *cluster, "--config", str(self.folder / "node.toml")], stdout=log, stderr=log
            )

    def up(self, member: str) -> bool:
        return self.processes[member].poll() is None

    def data(self, member: str) -> Path:
        return self.folder / member

    def log(self, member: str) -> str:
        return (self.folder / f"{member}.log").read_text(errors="replace")

    def kill(self, *members: str) -> None:
        for member in members:
            self.processes[member].kill()
        for member in members:
            self.processes[member].wait(WAIT_S_MAX)

    def end(self, member: str) -> int:
        """A clean stop; returns the exit code."""
        self.processes[member].terminate()
        return self.processes[member].wait(WAIT_S_MAX)

    def stop(self, member: str) -> None:
        """SIGSTOP."""
        self.processes[member].send_signal(signal.SIGSTOP)

    def resume(self, member: str) -> None:
        self.processes[member].send_signal(signal.SIGCONT)

    def lose_folder(self, member: str) -> None:
        """The disk of a member that does not run is replaced by an empty one."""
        shutil.rmtree(self.data(member))

    def cut_off(self, member: str, *, there: bool = True, back: bool = True) -> None:
        """Nothing of a member reaches the servers, or nothing of the servers the member, or both."""
        for way in self.ways[member]:
            way.hold(there=there, back=back)

    def reconnect(self, member: str) -> None:
        for way in self.ways[member]:
            way.release()

    def heal(self) -> None:
        """Everything runs again, and reaches everything."""
        for server in self.nats.servers.values():
            if server.process is None:
                server.start()
            else:
                server.signal(signal.SIGCONT)
        for member in self.members:
            self.reconnect(member)
            self.resume(member)
            if not self.up(member):
                self.start(member)

    # --- questions ----------------------------------------------------------------------------------

    async def status(self, member: str) -> MemberStatus | None:
        """None without an answer."""
        try:
            answer = await self.stream.ask(member, msgspec.msgpack.encode(AskStatus()), ANSWER_S)
        except Unreachable:
            return None
        return msgspec.msgpack.decode(answer, type=MemberStatus)

    async def statuses(self) -> dict[str, MemberStatus]:
        found = await asyncio.gather(*(self.status(member) for member in self.members))
        return {each.member: each for each in found if each is not None}

    async def active(self, *, other_than: Sequence[str] = ()) -> str:
        """The member that is active in the highest epoch; waits until there is one."""
        async with asyncio.timeout(WAIT_S_MAX):
            while True:
                active = [each for each in (await self.statuses()).values() if each.role == "active"]
                if active and (newest := max(active, key=lambda each: each.epoch)).member not in other_than:
                    return newest.member
                await asyncio.sleep(0.01)

    async def standbys(self) -> list[str]:
        """Both of them; waits until they are."""
        async with asyncio.timeout(WAIT_S_MAX):
            while True:
                found = [each.member for each in (await self.statuses()).values() if each.role == "standby"]
                if len(found) == 2:
                    return found
                await asyncio.sleep(0.05)

    async def switch(self) -> None:
        """Asks the active member to release its place."""
        await self.stream.ask(await self.active(), msgspec.msgpack.encode(AskSwitch()), WAIT_S_MAX)

    async def all_alike(self) -> None:
        """Returns when all members have applied the same records; their folders must be the same then."""
        async with asyncio.timeout(WAIT_S_MAX):
            while True:
                statuses = (await self.statuses()).values()
                roles = sorted(each.role for each in statuses)
                if roles == ["active", "standby", "standby"] and len({each.epoch for each in statuses}) == 1:
                    folders = [await asyncio.to_thread(self._contents, member) for member in self.members]
                    if folders[0] == folders[1] == folders[2]:
                        return
                await asyncio.sleep(0.2)

    def _contents(self, member: str) -> dict[str, bytes]:
        root = self.data(member)
        found: dict[str, bytes] = {}
        for path in root.rglob("*"):
            name = str(path.relative_to(root))
            if name.partition("/")[0] not in LOCAL and path.is_file():
                try:
                    found[name] = path.read_bytes()
                except FileNotFoundError:
                    found[name] = b"removed just now"
        return found

    async def __aenter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "node.toml").write_text(self._config)
        for member, ways in self.ways.items():
            if self._proxy is not None:
                ports = [server.port for server in self.nats.servers.values()]
                ways += [self._proxy(member, ("127.0.0.1", port)) for port in ports]
                self._servers[member] = "nats://" + ",".join([await way.start() for way in ways])
            self.start(member)
        while self._stream is None:
            with suppress(GroupNotFound):  # the first member creates the stream
                self._stream = await JetStream.connect(self.nats.url, GROUP, "observer", create=False)
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()
        for way in (way for ways in self.ways.values() for way in ways):
            way.close()
        if self._stream is not None:
            await self._stream.close()
