"""Real nats-servers in separate processes: a cluster of three, or one alone."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Self
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

from headpond.cluster.local import find_nats_server, server_config

READY_S_MAX = 60.0
POLL_S = 0.02
PORTS = range(15_000, 32_000)
"""Below those that the kernel gives to connections, so a server that restarts finds its own free."""

_http = build_opener(ProxyHandler({}))


class NatsServer:
    """One server, on the same ports and folder for all its runs."""

    def __init__(self, name: str, folder: Path, ports: tuple[int, int, int]) -> None:
        self.name = name
        self.folder = folder
        self.port, self.route_port, self.monitor_port = ports
        self.process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True)

    def configure(self, others: list[NatsServer], extra: str) -> None:
        routes = [other.route_port for other in others]
        config = server_config(self.name, self.folder / "store", self.port, self.route_port, routes)
        (self.folder / "server.conf").write_text(f'{config}http: "127.0.0.1:{self.monitor_port}"\n{extra}\n')

    def start(self) -> None:
        """Returns before the server can serve."""
        assert self.process is None, "it runs already"
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [find_nats_server(), "--config", str(self.folder / "server.conf")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def signal(self, number: int) -> None:
        assert self.process is not None, "it does not run"
        self.process.send_signal(number)

    def kill(self) -> None:
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.wait()

    def monitor(self, path: str) -> Any:
        """An answer of the server's monitoring port; None if it does not answer."""
        try:
            with _http.open(f"http://127.0.0.1:{self.monitor_port}/{path}", timeout=2) as answer:
                return json.load(answer)
        except (URLError, OSError, ValueError):
            return None

    @property
    def log(self) -> str:
        return (self.folder / "server.log").read_text(errors="replace")


class NatsCluster:
    """``with NatsCluster(folder) as cluster`` or ``async with``: leaving the block kills all servers.

    Servers are n1, n2 and n3. With ``size=1`` it is one server that is no cluster. ``config`` is added to the
    configuration of each. All methods block; a test with an event loop calls those that wait in a thread.
    """

    def __init__(self, folder: Path, *, size: int = 3, config: str = "") -> None:
        names = [f"n{number + 1}" for number in range(size)]
        ports = iter(free_ports(3 * size))
        self.servers = {
            name: NatsServer(name, folder / name, (next(ports), next(ports), next(ports))) for name in names
        }
        for server in self.servers.values():
            server.configure([other for other in self.servers.values() if other is not server], config)

    @property
    def url(self) -> str:
        return "nats://" + ",".join(f"127.0.0.1:{server.port}" for server in self.servers.values())

    @property
    def running(self) -> list[NatsServer]:
        return [server for server in self.servers.values() if server.process is not None]

    def start(self, name: str) -> None:
        self.servers[name].start()

    def kill(self, name: str) -> None:
        """Kills a server (SIGKILL)."""
        self.servers[name].kill()

    def stop(self, name: str) -> None:
        """Stops a server's process (SIGSTOP): its connections stay open, and nothing is answered."""
        self.servers[name].signal(signal.SIGSTOP)

    def resume(self, name: str) -> None:
        self.servers[name].signal(signal.SIGCONT)

    def restart(self, name: str) -> None:
        self.kill(name)
        self.start(name)

    def wait_ready(self) -> None:
        """Returns when each server that runs serves its streams, and knows the leader of JetStream."""
        for server in self.running:
            self._wait_for(f"{server.name} is ready", partial(self._is_ready, server))

    def leader_of(self, stream: str) -> str:
        """The server that leads a stream, as most servers say; waits until there is one."""
        found = self._wait_for(f"{stream} has a leader", lambda: self._leader_of(stream))
        assert isinstance(found, str)
        return found

    def close(self) -> None:
        for server in self.servers.values():
            server.kill()

    def __enter__(self) -> Self:
        try:
            for server in self.servers.values():
                server.start()
            self.wait_ready()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)

    def _is_ready(self, server: NatsServer) -> bool:
        if server.monitor("healthz") != {"status": "ok"}:
            return False
        if len(self.servers) == 1:
            return True
        meta = (server.monitor("jsz") or {}).get("meta_cluster", {})
        return bool(meta.get("leader")) and meta.get("cluster_size") == len(self.servers)

    def _leader_of(self, stream: str) -> str | None:
        """A server that was stopped or cut off may still name itself."""
        answers = [server.monitor("jsz?streams=true") for server in self.running]
        leaders = [leader for answer in answers for leader in leaders_in(answer, stream)]
        if len(self.servers) == 1:
            return next(iter(self.servers)) if leaders else None
        return next((name for name in self.servers if leaders.count(name) > len(self.servers) // 2), None)

    def _wait_for(self, what: str, condition: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + READY_S_MAX
        while not (found := condition()):
            if time.monotonic() > deadline:
                logs = "\n".join(f"--- {server.name}\n{server.log[-2000:]}" for server in self.servers.values())
                raise AssertionError(f"not within {READY_S_MAX:g} s: {what}\n{logs}")
            time.sleep(POLL_S)
        return found


def leaders_in(answer: Any, stream: str) -> Iterator[str]:
    """Who leads the stream, as one server says; empty text if the server is no cluster."""
    for account in (answer or {}).get("account_details", []):
        for detail in account.get("stream_detail", []):
            if detail["name"] == stream:
                yield detail.get("cluster", {}).get("leader", "")


def free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        found: list[int] = []
        while len(found) < count:
            port = random.choice(PORTS)
            place = held.enter_context(socket.socket())
            place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                place.bind(("127.0.0.1", port))
            except OSError:
                continue
            found.append(port)
        return found
