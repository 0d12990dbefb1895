"""The tracer records every call of every thread in order, with results, and outlives the traced process."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from tests.fire.tracer import Call, read_trace

TRACER = Path(__file__).with_name("tracer.py")

THREADS = """
import os, socket, sys, threading
here, there = socket.socketpair()
handle = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
def work(number):
    os.pwritev(handle, [b"one", b"two%d" % number], number * 10)
    os.fdatasync(handle)
    here.sendmsg([b"done ", b"%d" % number])
for number in range(3):
    thread = threading.Thread(target=work, args=(number,))
    thread.start()
    thread.join()
try:
    os.fsync(99)
except OSError:
    pass
sys.exit(7)
"""
KILLED = "import os, signal, sys; os.write(1, b'last words'); os.kill(os.getpid(), signal.SIGKILL)"


def trace_of(folder: Path, program: str, *arguments: str) -> tuple[int, list[Call]]:
    trace = folder / "trace"
    command = [sys.executable, str(TRACER), str(trace), "--", sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, capture_output=True, timeout=60)
    return done.returncode, read_trace(trace)


def test_calls_of_all_threads_are_noted_in_order_with_what_they_wrote(tmp_path: Path) -> None:
    file = tmp_path / "file"
    code, calls = trace_of(tmp_path, THREADS, str(file))
    assert code == 7
    seen = [call for call in calls if call.path == str(file) or call.path.startswith("socket:")]
    assert [call.name.removesuffix("2") for call in seen] == ["pwritev", "fdatasync", "sendmsg"] * 3
    assert len({call.thread for call in seen}) == 3
    assert [call.data for call in seen[:3]] == [b"onetwo0", b"", b"done 0"]
    assert [call.offset for call in seen if call.name.startswith("pwritev")] == [0, 10, 20]
    times = [time for call in seen for time in (call.entered, call.returned)]
    assert times == sorted(times)


def test_a_call_that_fails_is_noted_with_its_error(tmp_path: Path) -> None:
    _, calls = trace_of(tmp_path, THREADS, str(tmp_path / "file"))
    (failed,) = [call for call in calls if call.name == "fsync"]
    assert (failed.fd, failed.result) == (99, -9)


def test_a_program_that_is_killed_leaves_its_trace(tmp_path: Path) -> None:
    code, calls = trace_of(tmp_path, KILLED)
    assert code == 128 + signal.SIGKILL
    assert b"last words" in [call.data for call in calls]
