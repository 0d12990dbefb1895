"""Runs the blocks of a page in their order: Python in one namespace, commands in one shell, both in one folder.

The addresses of a page become those of nodes on free ports. The page's first node runs already, unless a block
of the page starts it.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
import trustme
from typer.testing import CliRunner

import headpond
from headpond.cli.app import app
from headpond.otel import HeadpondInstrumentor
from tests.cluster.nats import free_ports
from tests.documents.blocks import Block, blocks, printed
from tests.fire.real_node import RealNode
from tests.root import ROOT

WAIT_S = 400.0
ADDRESS = re.compile(r"\b(127\.0\.0\.1|0\.0\.0\.0|a|b|west):(\d{4,5})\b")
LOCAL = ("127.0.0.1", "0.0.0.0")
NODE = ("127.0.0.1", "7411")
STARTS_NODE = re.compile(r"^(?:\$ )?headpond node (?!.*--listen)", re.MULTILINE)
SHELL = """
set -eo pipefail
while read -r -u 9 mode file; do
  if [ "$mode" = strict ]; then . "$file" </dev/null 9<&- 8>&-; else . "$file" </dev/null 9<&- 8>&- || :; fi
  echo >&8
done
"""
ON_SPARK = re.compile(r"^(headpond spark .*)\n?", re.MULTILINE)
TOO_LATE = "did not come up in time"
"""Of Python processes, to which Spark gives 10 seconds: on a busy machine the hint says to run it again."""
COMMANDS = {"headpond": "-m headpond", "python": "", "python3": ""}


def run_page(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, first: str | None = None) -> None:
    """``first``: the address of the page's first node."""
    found = blocks(page)
    running = [block for block in found if block.runs]
    with contextlib.ExitStack() as stack:
        addresses = _Addresses(stack, folder, first)
        if not any(STARTS_NODE.search(block.text) for block in running):
            addresses.start(NODE)
        monkeypatch.setenv("HEADPOND_URL", f"headpond://{addresses.of(NODE)}")
        monkeypatch.setenv("HEADPOND_LISTEN", addresses.of(NODE))
        monkeypatch.setenv("XDG_DATA_HOME", str(folder / "home"))
        monkeypatch.setattr(sys, "argv", [page.name])
        here = folder / "here"
        here.mkdir()
        monkeypatch.chdir(here)
        monkeypatch.syspath_prepend(str(here))
        stack.callback(lambda: [sys.modules.pop(file.stem, None) for file in here.glob("*.py")])
        programs = stack.enter_context(_programs())
        shell: _Shell | None = None
        output = ""
        for block in found:
            text = addresses.put_into(block.text)
            if block.file is not None and "not run" not in block.marks:
                with (here / block.file).open("a") as file:
                    file.write(text)
            elif "prints" in block.marks:
                assert printed(text).fullmatch(output.rstrip("\n") + "\n"), (
                    f"{block}: the block before printed\n{output}"
                )
            elif block.runs:
                if "before" in block.marks:
                    programs.run(block, addresses.put_into(block.marks["before"]))
                if block.language == "python":
                    output = programs.run(block, text, until=block.marks.get("until"))
                    continue
                shell = shell or stack.enter_context(_shell(folder, here))
                if block.language == "sh":
                    parts = [part for part in ON_SPARK.split(text) if part.strip()]
                    output = "".join(
                        _run_on_spark(block, part)
                        if ON_SPARK.match(part)
                        else shell.run(block, part, strict=True)
                        for part in parts
                    )
                else:
                    for command, expected in block.steps:
                        command, said = addresses.put_into(command), printed(addresses.put_into(expected))
                        if ON_SPARK.match(command):
                            output = _run_on_spark(block, command)
                            assert said.fullmatch(output), f"{block}: {command}\nprinted\n{output}"
                        else:
                            shell.run(block, command, until=said)


class _Addresses:
    """What stands for the addresses of a page."""

    def __init__(self, stack: contextlib.ExitStack, folder: Path, first: str | None) -> None:
        self._stack = stack
        self._folder = folder
        self._known = {} if first is None else {NODE: first}

    def start(self, address: tuple[str, str]) -> None:
        listen = self._known.get(address, "127.0.0.1:0")
        node = self._stack.enter_context(RealNode(self._folder / "-".join(address), listen=listen))
        self._known[address] = node.url.removeprefix("headpond://")

    def of(self, address: tuple[str, str]) -> str:
        host, _ = address
        if host == "a":  # the first node of a page about several
            address = NODE
        if address not in self._known:
            if host in LOCAL:
                self._known[address] = _free_address(host)
            else:
                self.start(address)
        return self._known[address]

    def put_into(self, text: str) -> str:
        return ADDRESS.sub(lambda found: self.of((found[1], found[2])), text)


def _free_address(host: str) -> str:
    return f"{host}:{free_ports(1)[0]}"


# --- Python -------------------------------------------------------------------------------------------


class _Programs:
    """The Python blocks of a page: one namespace, one event loop for what awaits at the top level."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.names: dict[str, Any] = {"__name__": "__main__", "certificate": certificate}
        self._loop = loop

    def run(self, block: Block, text: str, until: str | None = None) -> str:
        code = _compiled(text, str(block))
        with contextlib.redirect_stdout(io.StringIO()) as said:
            try:
                self._execute(code, until)
            except Exception as error:
                raise AssertionError(f"{block}: {error!r}\n{text}") from error
        return said.getvalue()

    def _execute(self, code: CodeType, until: str | None) -> None:
        if until is None:
            made = eval(code, self.names)
            if inspect.iscoroutine(made):
                self._loop.run_until_complete(asyncio.wait_for(made, WAIT_S))
        else:
            self._loop.run_until_complete(self._execute_until(code, _compiled(until, "until", "eval")))

    async def _execute_until(self, code: CodeType, condition: CodeType) -> None:
        task = asyncio.ensure_future(eval(code, self.names))
        async with asyncio.timeout(WAIT_S):
            while not task.done() and not eval(condition, self.names):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def _compiled(text: str, name: str, mode: str = "exec") -> CodeType:
    compiled = compile(text, name, mode, ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    assert isinstance(compiled, CodeType)
    return compiled


@contextlib.contextmanager
def _programs() -> Iterator[_Programs]:
    loop = asyncio.new_event_loop()
    programs = _Programs(loop)
    try:
        yield programs
    finally:
        for client in [each for each in programs.names.values() if isinstance(each, headpond.Client)]:
            loop.run_until_complete(client.close())
        HeadpondInstrumentor().uninstrument()  # the page about tracing turns it on
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def _run_on_spark(block: Block, command: str) -> str:
    """Runs ``headpond spark ...`` in this process, whose Spark session it uses: starting one takes seconds."""
    from pyspark.sql import SparkSession

    master = str(SparkSession.active().sparkContext.master)
    words = [*shlex.split(command, comments=True)[1:], "--master", master]
    done = CliRunner().invoke(app, words)
    if TOO_LATE in done.output:
        done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, f"{block}: {command}\n{done.output}"
    return done.stdout + done.stderr  # the notes of a job come last


def certificate() -> None:
    """Makes ``node.pem`` and ``node.key`` for this machine, and ``ca.pem``."""
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    issued.cert_chain_pems[0].write_to_path("node.pem")
    issued.private_key_pem.write_to_path("node.key")
    authority.cert_pem.write_to_path("ca.pem")


# --- the shell ----------------------------------------------------------------------------------------


class _Shell:
    def __init__(
        self, process: subprocess.Popen[bytes], to: int, done: int, output: Path, folder: Path
    ) -> None:
        self._process = process
        self._to = to
        self._done = done
        self._output = output
        self._script = folder / "block.sh"
        self._read = 0

    def run(
        self, block: Block, text: str, *, strict: bool = False, until: re.Pattern[str] | None = None
    ) -> str:
        """Returns the output; with ``until`` once it fits, which a job in the background may complete."""
        self._script.write_text(text + "\n")
        os.write(self._to, f"{'strict' if strict else 'any'} {self._script}\n".encode())
        deadline = time.monotonic() + WAIT_S
        ended = False
        while True:
            said = self._output.read_bytes()[self._read :].decode()
            if ended and (
                until is None or until.fullmatch(said if said.endswith("\n") or not said else said + "\n")
            ):
                self._read += len(said.encode())
                return said
            assert self._process.poll() is None, f"{block}: a command failed\n{text}\n{said}"
            assert time.monotonic() < deadline, f"{block}: {text}\nprinted\n{said}"
            with contextlib.suppress(BlockingIOError):
                ended = bool(os.read(self._done, 1)) or ended
            time.sleep(0.01)


@contextlib.contextmanager
def _shell(folder: Path, here: Path) -> Iterator[_Shell]:
    """One bash, whose variables and jobs last from block to block."""
    tools = folder / "tools"
    tools.mkdir()
    for name, options in COMMANDS.items():
        (tools / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {options} "$@"\n')
        (tools / name).chmod(0o755)
    places = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": places}
    from_us, to = os.pipe()
    done, to_us = os.pipe()
    os.set_blocking(done, False)
    output = folder / "output"
    bash = shutil.which("bash")
    assert bash is not None
    redirected = f"exec 9<&{from_us} 8>&{to_us} {from_us}<&- {to_us}>&-\n{SHELL}"
    with output.open("ab") as sink:
        process = subprocess.Popen(
            [bash, "-c", redirected],
            cwd=here,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            pass_fds=(from_us, to_us),
            start_new_session=True,
        )
    os.close(from_us)
    os.close(to_us)
    try:
        yield _Shell(process, to, done, output, folder)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(to)
        os.close(done)
