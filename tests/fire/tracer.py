"""A small system call tracer: the order in which a process writes, syncs and answers, as the kernel saw it.

Run as a program it starts a command, follows all its threads and children with ptrace, and leaves a line of
JSON for each call of interest::

    python tracer.py TRACE -- COMMAND ...

SIGTERM and SIGINT are passed on to the command; when the tracer itself dies the kernel kills what it traced
(``PTRACE_O_EXITKILL``). Only python is needed. Calls are read with ``PTRACE_GET_SYSCALL_INFO`` (Linux 5.3), so
nothing here knows a register; the numbers of the calls are those of x86_64 and aarch64.

Why the order can be trusted: a thread stands still at the entry of a call until the tracer lets it go, and at
the exit until the tracer has noted the result. So a send noted as entered after a sync was noted as returned
began after that sync had ended.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

DATA_BYTES_MAX = 256 * 1024
"""How many bytes of each write are recorded."""

_NAMES_X86_64 = {
    1: "write",
    18: "pwrite64",
    20: "writev",
    44: "sendto",
    46: "sendmsg",
    74: "fsync",
    75: "fdatasync",
    296: "pwritev",
    328: "pwritev2",
}
_NAMES_AARCH64 = {
    64: "write",
    66: "writev",
    68: "pwrite64",
    70: "pwritev",
    82: "fsync",
    83: "fdatasync",
    206: "sendto",
    211: "sendmsg",
    287: "pwritev2",
}
_VECTORS = frozenset(("writev", "pwritev", "pwritev2"))
_PLAIN = frozenset(("write", "pwrite64", "sendto"))


class Call(msgspec.Struct, frozen=True):
    """One system call. ``entered`` and ``returned`` are places in one order of all events of the trace."""

    thread: int
    name: str
    fd: int
    path: str
    """The file of the descriptor: a path, or ``socket:[NUMBER]``."""
    result: int
    """Its result; the negative errno of a failure."""
    entered: int
    returned: int
    data: bytes
    """The first bytes to write."""
    offset: int = -1
    """The offset in the file, if the call names one."""


def read_trace(path: Path) -> list[Call]:
    """The calls of a trace, in the order of entering."""
    calls = [msgspec.json.decode(line, type=Call) for line in path.read_bytes().splitlines()]
    return sorted(calls, key=lambda call: call.entered)


# --- ptrace -----------------------------------------------------------------------------------------

_CONT, _SYSCALL, _SEIZE, _INTERRUPT, _LISTEN, _GET_SYSCALL_INFO = 7, 24, 0x4206, 0x4207, 0x4208, 0x420E
_SYSGOOD, _FORK, _VFORK, _CLONE, _EXEC, _EXITKILL = 0x1, 0x2, 0x4, 0x8, 0x10, 0x100000
_OPTIONS = _SYSGOOD | _FORK | _VFORK | _CLONE | _EXEC | _EXITKILL
_EVENT_STOP = 128
_WALL = 0x40000000
_AT_ENTRY, _AT_EXIT = 1, 2
_STOPPING = frozenset((signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU))


class _SyscallInfo(ctypes.Structure):
    _fields_ = (
        ("op", ctypes.c_uint8),
        ("pad", ctypes.c_uint8 * 3),
        ("arch", ctypes.c_uint32),
        ("instruction_pointer", ctypes.c_uint64),
        ("stack_pointer", ctypes.c_uint64),
        ("number_or_result", ctypes.c_int64),
        ("arguments", ctypes.c_uint64 * 6),
        ("spare", ctypes.c_uint64 * 2),
    )


_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
_libc.ptrace.restype = ctypes.c_long


def _ptrace(request: int, thread: int, address: int = 0, data: int = 0) -> int:
    result = int(_libc.ptrace(request, thread, address, data))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


class _Entered(NamedTuple):
    name: str
    fd: int
    path: str
    at: int
    data: bytes
    offset: int


class Tracer:
    """Starts a command and notes its calls until its last thread has ended."""

    def __init__(self, command: list[str]) -> None:
        machine = platform.machine()
        self._names = _NAMES_AARCH64 if machine in ("aarch64", "arm64") else _NAMES_X86_64
        self._info = _SyscallInfo()
        self._clock = 0
        self._inside: dict[int, _Entered] = {}
        self.calls: list[Call] = []
        self.status = 0
        self.child = self._start(command)

    def _start(self, command: list[str]) -> int:
        """The child waits until it is seized, so that no call is missed."""
        gate_out, gate_in = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(gate_in)
            os.read(gate_out, 1)
            try:
                os.execvp(command[0], command)
            finally:
                os._exit(127)
        os.close(gate_out)
        try:
            _ptrace(_SEIZE, child, 0, _OPTIONS)
            _ptrace(_INTERRUPT, child)
        except OSError:
            os.kill(child, signal.SIGKILL)
            raise
        finally:
            os.close(gate_in)
        return child

    def run(self) -> int:
        """Returns the exit code of the command, as a shell reports it."""
        while True:
            try:
                thread, status = os.waitpid(-1, _WALL)
            except ChildProcessError:
                return self.status
            if os.WIFSTOPPED(status):
                try:
                    self._on_stop(thread, status)
                except OSError as error:
                    if error.errno != errno.ESRCH:  # it was killed while it was stopped
                        raise
            else:
                self._inside.pop(thread, None)
                if thread == self.child:
                    code = os.waitstatus_to_exitcode(status)
                    self.status = code if code >= 0 else 128 - code

    def pass_on(self, number: int) -> None:
        """Sends the command a signal."""
        try:
            os.kill(self.child, number)
        except ProcessLookupError:
            return

    def _on_stop(self, thread: int, status: int) -> None:
        number, event = os.WSTOPSIG(status), status >> 16
        if number == signal.SIGTRAP | 0x80:
            self._on_syscall(thread)
            _ptrace(_SYSCALL, thread)
        elif event == _EVENT_STOP and number in _STOPPING:
            _ptrace(_LISTEN, thread)
        else:
            _ptrace(_SYSCALL, thread, 0, 0 if event else number)

    def _on_syscall(self, thread: int) -> None:
        info = self._info
        _ptrace(_GET_SYSCALL_INFO, thread, ctypes.sizeof(info), ctypes.addressof(info))
        if info.op == _AT_ENTRY:
            name = self._names.get(info.number_or_result)
            if name is not None:
                self._enter(thread, name, list(info.arguments))
        elif info.op == _AT_EXIT:
            entered = self._inside.pop(thread, None)
            if entered is not None:
                self._leave(thread, entered, info.number_or_result)

    def _enter(self, thread: int, name: str, arguments: list[int]) -> None:
        fd = arguments[0] & 0xFFFFFFFF
        try:
            path = os.readlink(f"/proc/{thread}/fd/{fd}")
        except OSError:
            path = ""
        offset = arguments[3] if name.startswith("pwrite") else -1
        data = self._written(thread, name, arguments)
        self._clock += 1
        self._inside[thread] = _Entered(name, fd, path, self._clock, data, offset)

    def _leave(self, thread: int, entered: _Entered, result: int) -> None:
        self._clock += 1
        name, fd, path, at, data, offset = entered
        self.calls.append(Call(thread, name, fd, path, result, at, self._clock, data, offset))

    def _written(self, thread: int, name: str, arguments: list[int]) -> bytes:
        if name in ("fsync", "fdatasync"):
            return b""
        try:
            memory = os.open(f"/proc/{thread}/mem", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # killed in the meantime
            return b""
        try:
            if name in _PLAIN:
                return os.pread(memory, min(arguments[2], DATA_BYTES_MAX), arguments[1])
            if name in _VECTORS:
                return _gather(memory, arguments[1], arguments[2])
            # sendmsg: in a msghdr the pairs' address stands at byte 16, their number at 24.
            ((at, count),) = _pairs(os.pread(memory, 16, arguments[1] + 16))
            return _gather(memory, at, count)
        except OSError:  # an address that is not there: the call itself will fail
            return b""
        finally:
            os.close(memory)


def _gather(memory: int, vectors_at: int, count: int) -> bytes:
    """The buffers of a gathering write: ``count`` pairs of address and length."""
    vectors = os.pread(memory, 16 * min(count, 1024), vectors_at)
    pieces: list[bytes] = []
    left = DATA_BYTES_MAX
    for address, size in _pairs(vectors):
        pieces.append(os.pread(memory, min(size, left), address))
        left -= len(pieces[-1])
        if left <= 0:
            break
    return b"".join(pieces)


def _pairs(vectors: bytes) -> Iterator[tuple[int, int]]:
    numbers = memoryview(vectors).cast("Q").tolist()
    return zip(numbers[::2], numbers[1::2], strict=True)


def main(arguments: list[str]) -> int:
    trace, separator, *command = arguments
    if separator != "--" or not command:
        sys.exit(str(__doc__))
    tracer = Tracer(command)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _frame: tracer.pass_on(number))
    try:
        return tracer.run()
    finally:
        with open(trace, "wb") as file:
            file.writelines(msgspec.json.encode(call) + b"\n" for call in tracer.calls)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
