"""Machines and the processes on them: what can be killed, stopped, cut off from power, and started again.

A process reaches its machine's disk through ``ProcessDisk``, so that a killed process writes nothing, whatever
its ``finally`` blocks try. Every disk operation and every effect of a node is a *point*: a process can be
killed before each of them.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

from headpond.model.errors import DataLocked, RefillInUse
from headpond.sim.loop import SimLoop
from headpond.sim.network import Listener, Network
from headpond.storage.disk import DiskFile
from headpond.storage.folder_lock import LOCK_NAME
from headpond.storage.memory_disk import Keep, MemoryDisk

Result = TypeVar("Result")
Paths = list[str]

EPOCH_US = 1_700_000_000_000_000
"""The time of day on a machine with a right clock when a run begins."""


class Killed(BaseException):
    """The process is gone: nothing that it would still do happens."""


@dataclass(slots=True)
class Trap:
    """Where the next process of a machine ends."""

    label: str
    """The begin of the names of its points; empty: any."""
    after: int
    """How many of these points it has left."""
    keep: Keep | None
    """What the disk keeps of unsynced bytes if the machine loses its power there; None: the process ends."""


class Machine:
    """A disk and a clock. They outlive the processes."""

    def __init__(
        self, loop: SimLoop, network: Network, name: str, seed: str, work_s_max: float = 0.002
    ) -> None:
        self.loop = loop
        self.network = network
        self.name = name
        self.random = random.Random(f"{seed} {name}")
        self.disk = MemoryDisk(self.random.randrange(1 << 32))
        self.skew_us = 0
        """By how much the time of day is wrong; the monotonic clock never is."""
        self.work_s_max = work_s_max
        """How long a disk's work takes at most."""
        self.trap: Trap | None = None
        self.kill_at: list[str] = []
        """Kinds of points: the next process that comes to the first one is killed there, and so on."""
        self.points: Counter[str] = Counter()
        """How often its processes came to each kind of point."""
        self.processes: list[Process] = []
        self.locks: dict[str, Process] = {}

    def start(self, name: str) -> Process:
        process = Process(self, name, self.random.randrange(1 << 62))
        self.processes.append(process)
        return process

    def cut_power(self, keep: Keep) -> None:
        """Kills every process; connections fall silent instead of ending, and unsynced bytes are lost."""
        for process in self.processes:
            process.kill(silently=True)
        self.disk.crash(keep=keep)

    def has_point(self, begin: str) -> bool:
        """Whether its processes came to a point whose name begins so."""
        return any(label.startswith(begin) for label in self.points)

    def now_us(self) -> int:
        return EPOCH_US + self.skew_us + round(self.loop.time() * 1e6)


class Process:
    def __init__(self, machine: Machine, name: str, seed: int) -> None:
        self.machine = machine
        self.loop = machine.loop
        self.network = machine.network
        self.place = machine.name
        self.name = name
        self.random = random.Random(seed)
        self.killed = False
        self.stopped = False
        self.disk = ProcessDisk(self, machine.disk)
        self.kill_after: int | None = None
        """How many points it has left."""
        self.killed_at = ""
        self._missed: list[asyncio.Handle] = []
        self._free_at_s: dict[int, float] = {}
        """By executor with one thread: when it has done its jobs."""

    def __repr__(self) -> str:
        return self.name

    # --- life ---------------------------------------------------------------------------------------

    def spawn(self, work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        """Runs a coroutine in this process."""
        before, self.loop.process = self.loop.process, self
        try:
            return self.loop.create_task(work)
        finally:
            self.loop.process = before

    def may_run(self, handle: asyncio.Handle) -> bool:
        if self.stopped and not self.killed:
            self._missed.append(handle)
        return not (self.killed or self.stopped)

    def kill(self, *, silently: bool = False) -> None:
        """SIGKILL. ``silently``: its peers are not informed that its connections ended (the machine is off)."""
        if self.killed:
            return
        self.killed = True
        self._missed.clear()
        for folder, owner in list(self.machine.locks.items()):
            if owner is self:
                del self.machine.locks[folder]
        self.network.process_ended(self, silently=silently)

    def stop(self) -> None:
        """SIGSTOP."""
        self.stopped = True

    def resume(self) -> None:
        """SIGCONT: it continues as if no time had passed."""
        self.stopped = False
        missed, self._missed = self._missed, []
        self.loop.hold(self, missed)

    def point(self, label: str) -> None:
        """A place where the process may be killed."""
        if self.killed:
            raise Killed
        self.machine.points[label] += 1
        if [label] == self.machine.kill_at[:1]:
            del self.machine.kill_at[0]
            self._end_at(label, None)
        if self.kill_after is not None:
            self.kill_after -= 1
            if self.kill_after < 0:
                self._end_at(label, None)
        trap = self.machine.trap
        if trap is not None and label.startswith(trap.label):
            trap.after -= 1
            if trap.after < 0:
                self.machine.trap = None
                self._end_at(label, trap.keep)

    def _end_at(self, label: str, keep: Keep | None) -> NoReturn:
        self.killed_at = label
        if keep is None:
            self.kill()
        else:
            self.machine.cut_power(keep)
        raise Killed

    def disk_at(self, folder: str) -> ProcessDisk:
        return ProcessDisk(self, self.machine.disk, folder)

    async def dial(
        self, factory: Callable[[], asyncio.Protocol], host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        return await self.network.dial(self, factory, (host, port))

    def listen(self, factory: Callable[[], asyncio.Protocol], host: str, port: int) -> Listener:
        return self.network.listen(self, factory, (host, port))

    # --- threads ------------------------------------------------------------------------------------

    def work(
        self, executor: Executor | None, func: Callable[..., Result], *args: Any
    ) -> asyncio.Future[Result]:
        """Does a thread's job at some later time, and gives its result later still."""
        future: asyncio.Future[Result] = self.loop.create_future()

        def run() -> None:
            result: Result | None = None
            failure: BaseException | None = None
            try:
                result = func(*args)
            except Killed:
                return
            except Exception as error:  # noqa: BLE001  # the waiter gets it
                failure = error
            self.loop.call_later(self._delay_s(), finish, result, failure)

        def finish(result: Any, failure: BaseException | None) -> None:
            if future.done():
                return
            if failure is not None:
                future.set_exception(failure)
            else:
                future.set_result(result)

        self._schedule(executor, run)
        return future

    def executor(self, threads: int, thread_name_prefix: str = "") -> SimExecutor:
        return SimExecutor(self)

    def _schedule(self, executor: object, run: Callable[[], None]) -> None:
        start_s = self.loop.time() + self._delay_s()
        if executor is not None and getattr(executor, "_max_workers", 0) == 1:
            start_s = max(start_s, self._free_at_s.get(id(executor), 0.0))
            self._free_at_s[id(executor)] = start_s
        self.loop.call_at(start_s, run)

    def submit(self, job: Callable[..., Any], *args: Any) -> None:
        """A job whose result nobody takes."""

        def run() -> None:
            with suppress(Killed):
                job(*args)

        self._schedule(None, run)

    def _delay_s(self) -> float:
        return self.random.random() * self.machine.work_s_max


class SimExecutor(Executor):
    """The threads of a node."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Nobody takes the result: the job reports to the loop itself."""
        self._process.submit(fn, *args)
        return Future()


class ProcessDisk:
    """A folder of the machine's disk as one process has it; the ``MeasuredDisk`` protocol."""

    ordered = False

    def __init__(self, process: Process, disk: MemoryDisk, folder: str = "") -> None:
        self._process = process
        self._disk = disk
        self._folder = f"{folder.strip('/')}/" if folder else ""

    def _changing(self, operation: str, path: str) -> str:
        """The whole path of a file that is changed now."""
        path = self._folder + path
        self._process.point(f"disk {operation} {kind_of(path)}")
        return path

    def _path(self, path: str) -> str:
        if self._process.killed:
            raise Killed
        return self._folder + path

    def create(self, path: str) -> ProcessFile:
        return ProcessFile(self._process, self._disk.create(self._changing("create", path)))

    def open(self, path: str, *, writable: bool = False) -> ProcessFile:
        return ProcessFile(self._process, self._disk.open(self._path(path), writable=writable))

    def list(self, folder: str) -> list[str]:
        return self._disk.list(self._path(folder))

    def exists(self, path: str) -> bool:
        return self._disk.exists(self._path(path))

    def rename(self, path: str, new_path: str) -> None:
        self._disk.rename(self._changing("rename", path), self._folder + new_path)

    def remove(self, path: str) -> None:
        self._disk.remove(self._changing("remove", path))

    def remove_tree(self, folder: str) -> None:
        self._disk.remove_tree(self._changing("remove", folder))

    def sync_folder(self, folder: str) -> None:
        self._disk.sync_folder(self._changing("sync_folder", folder))

    def free_bytes(self) -> int:
        return self._disk.free_bytes()

    def measure(self, after_s: float = 0.0) -> None:
        """Its free room needs no measuring."""

    def when_durable(self, then: Callable[[OSError | None], None]) -> None:
        then(None)

    def paths(self) -> Paths:
        return [path[len(self._folder) :] for path in self._disk.paths() if path.startswith(self._folder)]

    def lock(self) -> None:
        owner = self._process.machine.locks.setdefault(self._folder, self._process)
        if owner is not self._process:
            raise DataLocked(f"{owner} uses the folder")

    def unlock(self) -> None:
        self._process.machine.locks.pop(self._folder, None)

    def lock_folder(self, folder: str) -> FolderHeld:
        path = self._path(folder)
        owner = self._process.machine.locks.setdefault(path, self._process)
        if owner is not self._process:
            raise RefillInUse(f"{owner} uses the folder")
        if not self._disk.exists(f"{path}/{LOCK_NAME}"):
            self._disk.create(f"{path}/{LOCK_NAME}").close()
        return FolderHeld(self._process, path)


class FolderHeld:
    def __init__(self, process: Process, path: str) -> None:
        self._process = process
        self._path = path

    def release(self) -> None:
        if not self._process.killed:
            self._process.machine.locks.pop(self._path, None)


class ProcessFile:
    """An open file of a process."""

    __slots__ = ("_file", "_process", "path")

    def __init__(self, process: Process, file: DiskFile) -> None:
        self._process = process
        self._file = file
        self.path = file.path

    def _point(self, operation: str) -> None:
        self._process.point(f"disk {operation} {kind_of(self.path)}")

    def size(self) -> int:
        return self._file.size()

    def read_at(self, offset: int, size: int) -> bytes:
        if self._process.killed:
            raise Killed
        return self._file.read_at(offset, size)

    def write_at(self, offset: int, parts: Sequence[bytes]) -> int:
        self._point("write")
        return self._file.write_at(offset, parts)

    def preallocate(self, size: int) -> None:
        self._point("preallocate")
        self._file.preallocate(size)

    def truncate(self, size: int) -> None:
        self._point("truncate")
        self._file.truncate(size)

    def sync(self) -> None:
        self._point("sync")
        self._file.sync()

    def close(self) -> None:
        self._file.close()


def kind_of(path: str) -> str:
    """What a file is: its folder, without the names and numbers that differ from run to run."""
    head, _, rest = path.partition("/")
    suffix = rest.rpartition(".")[2]
    return f"{head}/*{f'.{suffix}' if suffix.isalpha() and suffix != rest else ''}" if rest else head
