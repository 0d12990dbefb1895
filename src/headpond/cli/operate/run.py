"""``headpond run``: the handlers of a program (docs/handlers.md), and their restart when its files change."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import time
import traceback
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated

from headpond.cli.command import Node, command
from headpond.cli.logs import LogFormatOption, LogLevelOption, start_log
from headpond.cli.options import argument, flag, wrong_use
from headpond.cli.output import note, run
from headpond.model.errors import HeadpondError

if TYPE_CHECKING:
    from headpond.app.application import App

LOOK_S = 0.5
"""How often ``--reload`` looks at the files."""

Files = dict[Path, int]
"""When each file changed last."""

_APP_HELP = "MODULE:NAME of a headpond.App, found from this folder; MODULE alone means MODULE:app."


@command()
def run_app(
    node: Node,
    place: Annotated[str, argument("MODULE:NAME", _APP_HELP)],
    reload: Annotated[bool, flag("--reload", "Restart when a .py file below this folder changes.")] = False,
    log_format: LogFormatOption = None,
    log_level: LogLevelOption = None,
) -> None:
    """Run the handlers of a program until SIGTERM or Ctrl-C, then wait for running handlers."""
    if reload:
        raise SystemExit(_run_and_watch([sys.executable, "-m", "headpond", *_without_reload(sys.argv[1:])]))
    start_log(log_format, log_level, as_json=node.as_json)
    app = _load(place)
    if app.url is None:
        app.url, app.token = node.url, node.token
    run(app.run())
    if app.unfinished:
        sys.stdout.flush()
        os._exit(1)  # Python would wait for the threads of handlers that did not finish in time


def _without_reload(arguments: list[str]) -> list[str]:
    return [each for each in arguments if each != "--reload"]


def _load(place: str) -> App:
    from headpond.app.application import App

    module, _, name = place.partition(":")
    if module.endswith(".py") or "/" in module:
        raise wrong_use("MODULE:NAME", f"{place} names a file; give its module, as in work:app for work.py")
    sys.path.insert(0, os.getcwd())
    try:
        found = getattr(_import(module), name or "app")
    except (ModuleNotFoundError, AttributeError) as error:
        raise wrong_use("MODULE:NAME", f"there is no {place} here: {error}") from None
    if not isinstance(found, App):
        raise wrong_use("MODULE:NAME", f"{place} is no headpond.App")
    return found


def _import(module: str) -> ModuleType:
    """The user's module. If it fails, the traceback shows the user's lines, without those of the command."""
    try:
        return import_module(module)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name and module.startswith(error.name):
            raise  # the module itself is not there
        trace = error.__traceback__
        while trace is not None and _is_importing(trace.tb_frame.f_code.co_filename):
            trace = trace.tb_next
        note("".join(traceback.format_exception(error.with_traceback(trace))).rstrip())
        if isinstance(error, HeadpondError):
            raise
        message = f"{module} cannot be imported: {type(error).__name__}: {error}"
        raise HeadpondError(message, hint="Correct the program where the traceback shows it.") from None


def _is_importing(path: str) -> bool:
    return path in (__file__, importlib.__file__) or path.startswith("<frozen importlib")


def _run_and_watch(arguments: list[str]) -> int:
    """Runs a process, again after each change of a file; returns its exit code when a signal ends it."""
    ended: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: ended.append(number))
    while True:
        files = find_files(Path.cwd())
        process = subprocess.Popen(arguments, start_new_session=True)  # Ctrl-C reaches it once, from here
        while not ended and find_files(Path.cwd()) == files:
            time.sleep(LOOK_S)
        code = _stop(process, ended)
        if ended:
            return code
        note("a file changed: starting again")


def _stop(process: subprocess.Popen[bytes], signals: list[int]) -> int:
    """Lets the process drain; a second signal of a person reaches it too."""
    process.send_signal(signal.SIGTERM)
    passed = len(signals)
    while True:
        try:
            return process.wait(LOOK_S)
        except subprocess.TimeoutExpired:
            if len(signals) > passed:
                passed = len(signals)
                process.send_signal(signal.SIGTERM)


def find_files(folder: Path) -> Files:
    """The .py files below a folder; hidden folders are left out."""
    found: Files = {}
    for where, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith((".", "__pycache__", "node_modules"))]
        for name in names:
            if name.endswith(".py"):
                path = Path(where, name)
                try:
                    found[path] = path.stat().st_mtime_ns
                except OSError:  # it was removed meanwhile
                    continue
    return found
