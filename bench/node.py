"""A node in a process of its own, and what the system says that it uses."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_NODE = """
import os, sys, threading
from headpond.storage import os_disk
from headpond.node.process import run
from headpond.broker.settings import Settings

count = os.open(sys.argv[3], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
sync, sync_entries = os_disk.OsDiskFile.sync, os_disk._sync_entries

def counted(call):
    def run(*arguments):
        os.write(count, b".")
        return call(*arguments)
    return run

os_disk.OsDiskFile.sync = counted(sync)
os_disk._sync_entries = counted(sync_entries)
# Whoever measures may be killed: its end is the node's.
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(1)), daemon=True).start()
settings = Settings.load(sys.argv[2], {"data": sys.argv[1], "listen": "127.0.0.1:0"})
run(settings, lambda url, http_url: print(url, flush=True))
"""
"""The node as it is, but for a byte to a file at each sync of a file or a folder."""

_SCHEDULED_CPU = 2


@dataclass(frozen=True, slots=True)
class Node:
    url: str
    pid: int
    syncs_path: Path

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.url.removeprefix("headpond://").rpartition(":")
        return host, int(port)

    def syncs(self) -> int:
        """How many there were since it was started."""
        return self.syncs_path.stat().st_size

    def cpu_s(self) -> float:
        """What all its threads used, to the nanosecond (clock_getcpuclockid(3))."""
        return time.clock_gettime((~self.pid << 3) | _SCHEDULED_CPU)

    def resident_bytes(self) -> int:
        return self._status("VmRSS")

    def resident_bytes_max(self) -> int:
        """The most that it ever had."""
        return self._status("VmHWM")

    def _status(self, name: str) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
        raise AssertionError(f"/proc says nothing of {name}")


@contextmanager
def running_node(folder: Path, settings: str = "") -> Iterator[Node]:
    """A node on ``folder`` for as long as the block; ``settings`` is TOML."""
    config, syncs = folder / "node.toml", folder / "syncs"
    config.write_text(settings)
    command = [sys.executable, "-c", _NODE, str(folder / "data"), str(config), str(syncs)]
    with (folder / "node.log").open("ab") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True
        )
    assert process.stdin is not None and process.stdout is not None
    try:
        url = process.stdout.readline().decode().strip()
        assert url, (folder / "node.log").read_text()
        yield Node(url, process.pid, syncs)
    finally:
        process.terminate()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def raise_file_limit(wanted: int = 8192) -> None:
    """For a process that holds a thousand connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))
