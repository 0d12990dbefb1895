"""What the machine itself can do, measured in the same run: the yardsticks beside every figure."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

KIB = 1024
MIB = 1024 * KIB
STEP_BYTES = 8 * MIB
"""Room is reserved in steps of this size, as the node does."""

_SEND = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as peer:
    piece = bytes(512 * 1024)
    for _ in range(int(sys.argv[2])):
        peer.sendall(piece)
"""


@dataclass(frozen=True, slots=True)
class Limits:
    small_syncs_per_s: float
    """Appends of 4 KiB into preallocated room, each followed by fdatasync."""
    large_syncs_per_s: float
    """The same with 512 KiB."""
    loopback_mb_per_s: float
    """Bytes from one process to another over TCP on 127.0.0.1."""
    memcpy_mb_per_s: float

    @property
    def disk_mb_per_s(self) -> float:
        """Bytes a second that are durable, in writes of a segment's size."""
        return self.large_syncs_per_s * 512 * KIB / 1e6

    @property
    def pipe_mb_per_s(self) -> float:
        """What bounds a durable stream of bytes: the slower of loopback and disk."""
        return min(self.loopback_mb_per_s, self.disk_mb_per_s)


def measure(folder: Path, seconds: float = 1.5) -> Limits:
    """Takes about four times ``seconds``."""
    return Limits(
        small_syncs_per_s=syncs_per_s(folder, 4 * KIB, seconds),
        large_syncs_per_s=syncs_per_s(folder, 512 * KIB, seconds),
        loopback_mb_per_s=loopback_mb_per_s(1024),
        memcpy_mb_per_s=memcpy_mb_per_s(),
    )


def syncs_per_s(folder: Path, size: int, seconds: float) -> float:
    """How often a second ``size`` bytes are appended and synced, one after the other.

    Like a log: always into blocks that were never written, which costs several times an overwrite.
    """
    path = folder / f"sync-{size}"
    data = os.urandom(size)
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        count, room, began = 0, 0, time.perf_counter()
        while (spent := time.perf_counter() - began) < seconds:
            if (count + 1) * size > room:
                os.posix_fallocate(handle, room, STEP_BYTES)
                room += STEP_BYTES
            os.pwrite(handle, data, count * size)
            os.fdatasync(handle)
            count += 1
        return count / spent
    finally:
        os.close(handle)
        path.unlink()


def loopback_mb_per_s(pieces: int) -> float:
    """``pieces`` of 512 KiB from a second process, read into one buffer."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        sender = subprocess.Popen([sys.executable, "-c", _SEND, str(port), str(pieces)])
        try:
            peer, _ = listener.accept()
            with peer:
                buffer = bytearray(MIB)
                total, began = 0, time.perf_counter()
                while count := peer.recv_into(buffer):
                    total += count
                return total / (time.perf_counter() - began) / 1e6
        finally:
            sender.kill()
            sender.wait()


def memcpy_mb_per_s(rounds: int = 20) -> float:
    source = memoryview(os.urandom(64 * MIB))
    target = bytearray(64 * MIB)
    target[:] = source
    began = time.perf_counter()
    for _ in range(rounds):
        target[:] = source
    return rounds * len(source) / (time.perf_counter() - began) / 1e6
