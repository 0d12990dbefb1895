"""The class cache: ``headpond spark prepare`` makes it once, and sessions start faster from then on.

Java spends much of a session's start on Spark's classes: it opens jars, parses and verifies. It can store the
loaded classes in a file and map that into memory the next time (class data sharing). The file is in a folder of
the user's cache, beside the options that make Java use it. The folder's name is a hash of the Java and of every
jar of Spark, so another Java or another jar means another folder.

Java checks the file as well, checksums included. It starts without it, silently, if the file is damaged, was
made by another build or for other jars, or does not fit an option (pointers that are not compressed).

A recorded session (class_recorder.py) lists the classes, Java writes the file, a second Java checks it, and one
rename puts the folder in place: a session that starts meanwhile sees all of it or nothing. If two processes
prepare at once, both work, and the folder of one of them stays.

Java omits the second mention of a jar when it writes the file but counts it when it compares. Spark mentions
one jar twice, and Java 21 would never find a match. So the class path here has every entry once, in order.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from headpond.model.errors import SparkNotPrepared
from headpond.spark.start.java import Java, StartOptions, cache_folder, find_java
from headpond.spark.start.packages import need_spark

FORMAT_VERSION = 1
FOLDER_PREFIX = "spark-start-"
CLASSES = "classes.jsa"
OPTIONS = "java.options"
METADATA = "prepared.json"

CLASS_LIST = "classes.list"
"""Of a recorded session: the classes that Java loaded."""
CLASS_PATH_GIVEN = "given"
"""Of a recorded session: the class path as Spark gave it to Java."""
CLASS_PATH_OPENED = "opened"
"""Of a recorded session: the class path as Java understood it, every jar by name."""

MAKING_PREFIX = "spark-making-"
MAKING_S_MAX = 3600
STEP_S_MAX = 1200
HEAP = "-Xmx2g"
"""On a machine with much memory Java would take a heap whose pointers are not compressed, unlike Spark's."""

Progress = Callable[[str], None]


class ClassCache(msgspec.Struct, frozen=True, kw_only=True):
    """The metadata of a class cache; in its folder as JSON."""

    java: str
    java_version: int
    spark: str
    spark_home: str
    class_path: str
    """As Spark gives it to Java."""
    classes: int
    bytes: int


def class_cache_options(java: Java, environment: Mapping[str, str] | None = None) -> StartOptions | None:
    """The options that make this Java use the cache for this Spark; None without a complete cache."""
    folder = class_cache_folder(java, environment)
    found = None if folder is None else read_class_cache(folder)
    return None if folder is None or found is None else StartOptions(found.class_path, folder / OPTIONS)


def class_cache_folder(java: Java, environment: Mapping[str, str] | None = None) -> Path | None:
    """The folder for this Java and this Spark; None if Spark's jars cannot be listed."""
    home = spark_home()
    try:
        with os.scandir(home / "jars") as entries:
            jars = sorted((entry.name, entry.stat().st_size, entry.stat().st_mtime_ns) for entry in entries)
    except OSError:
        return None
    made_from = (FORMAT_VERSION, str(java.command.absolute()), java.build, str(home), jars)
    digest = hashlib.sha256(repr(made_from).encode()).hexdigest()[:16]
    return cache_folder(environment) / f"{FOLDER_PREFIX}{digest}"


def spark_home() -> Path:
    """The Spark that pyspark starts."""
    import pyspark

    return Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)


def read_class_cache(folder: Path) -> ClassCache | None:
    """The metadata, if the folder is complete."""
    try:
        found = msgspec.json.decode((folder / METADATA).read_bytes(), type=ClassCache)
        whole = (folder / CLASSES).stat().st_size == found.bytes
    except (OSError, ValueError):  # no JSON, or JSON of another shape
        return None
    return found if whole else None


def java_options(folder: Path, class_path: str) -> str:
    """The text of the options file: Java verifies every byte and prints nothing about the cache."""
    lines = [
        "-cp",
        class_path,
        f"-XX:SharedArchiveFile={folder / CLASSES}",
        "-Xshare:auto",
        # Without this, a damaged byte in the middle of the file would end Java, not only the sharing.
        "-XX:+UnlockDiagnosticVMOptions",
        "-XX:+VerifySharedSpaces",
        "-Xlog:cds=off",
        "-Xlog:class+path=off",
    ]
    return "".join(f"{_quoted(line)}\n" for line in lines)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


# --- making it ----------------------------------------------------------------------------------------


class PrepareResult(msgspec.Struct, frozen=True, kw_only=True):
    """The class cache that sessions use now."""

    folder: str
    java: str
    java_version: int
    spark: str
    classes: int
    bytes: int
    made: bool
    """Whether this call made it; if not, it was there."""
    removed: list[str]
    """Folders for an earlier state of this Spark, or for a Spark or Java that is gone."""
    seconds: float


def prepare(*, again: bool = False, progress: Progress | None = None) -> PrepareResult:
    """Makes the class cache for this Java and Spark if it is not there; ``again`` replaces it."""
    began = time.monotonic()
    need_spark()
    java = find_java()
    folder = class_cache_folder(java)
    if folder is None:
        raise SparkNotPrepared(f"there are no jars of Spark in {spark_home() / 'jars'}")
    found = None if again else read_class_cache(folder)
    made = found is None
    if found is None:
        try:
            found = _make(java, folder, progress or (lambda _: None))
        except OSError as error:
            raise SparkNotPrepared(f"{error.filename or folder}: {error.strerror or error}") from error
    return PrepareResult(
        folder=str(folder),
        **{name: getattr(found, name) for name in ("java", "java_version", "spark", "classes", "bytes")},
        made=made,
        removed=_remove_others(folder, found),
        seconds=time.monotonic() - began,
    )


def _make(java: Java, folder: Path, progress: Progress) -> ClassCache:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=MAKING_PREFIX, dir=folder.parent) as making:
        progress("recording the classes that a session of Spark loads")
        # With an empty cache folder, so that the session starts without an earlier class cache.
        environment = os.environ | {"XDG_CACHE_HOME": making}
        recorder = [sys.executable, "-m", "headpond.spark.start.class_recorder", making]
        _step("a session of Spark", recorder, environment)
        return write_class_cache(java, Path(making), folder, progress)


def write_class_cache(java: Java, recorded: Path, folder: Path, progress: Progress) -> ClassCache:
    """Makes the folder from the files of a recorded session, which are on the same file system."""
    import pyspark

    done = recorded / "done"
    done.mkdir()
    class_path = os.pathsep.join(dict.fromkeys((recorded / CLASS_PATH_OPENED).read_text().split(os.pathsep)))
    options = done / OPTIONS
    options.write_text(java_options(done, class_path))
    progress("Java writes the classes to a file")
    listing = recorded / CLASS_LIST
    command = [str(java.command), f"@{options}", HEAP]
    _step("Java", [*command, "-Xshare:dump", f"-XX:SharedClassListFile={listing}"])
    progress("Java checks the file")
    _step("Java", [*command, "-Xshare:on", "-version"])
    options.write_text(java_options(folder, class_path))
    with listing.open() as lines:
        classes = sum(1 for line in lines if line[:1] not in "#@")
    made = ClassCache(
        java=str(java.command),
        java_version=java.version,
        spark=pyspark.__version__,
        spark_home=str(spark_home()),
        class_path=(recorded / CLASS_PATH_GIVEN).read_text(),
        classes=classes,
        bytes=(done / CLASSES).stat().st_size,
    )
    (done / METADATA).write_bytes(msgspec.json.encode(made))
    return _put_in_place(done, folder, made)


def _step(what: str, command: Sequence[str], environment: dict[str, str] | None = None) -> None:
    try:
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=STEP_S_MAX,
        )
    except subprocess.TimeoutExpired as error:
        raise SparkNotPrepared(f"{what} did not end in {STEP_S_MAX} s") from error
    if done.returncode:
        said = done.stdout.strip().splitlines() or ["no output"]
        raise SparkNotPrepared(f"{what} failed: {said[-1]}")


def _put_in_place(done: Path, folder: Path, made: ClassCache) -> ClassCache:
    """Puts the folder in place with one rename. One that is there may be damaged, and is removed."""
    if folder.exists():
        os.replace(folder, done.with_name("old"))
    try:
        os.replace(done, folder)
    except OSError:
        there = read_class_cache(folder)  # another process put one there first
        if there is None:
            raise
        return there
    return made


def _remove_others(folder: Path, current: ClassCache) -> list[str]:
    """Removes unfinished caches, and those for an earlier state of this Spark or for one that is gone."""
    removed = []
    for other in sorted(folder.parent.glob(f"{FOLDER_PREFIX}*")):
        cache = read_class_cache(other)
        superseded = cache is not None and (cache.spark_home, cache.java) == (current.spark_home, current.java)
        gone = cache is None or not (Path(cache.spark_home).exists() and Path(cache.java).exists())
        if other != folder and (superseded or gone):
            shutil.rmtree(other, ignore_errors=True)
            removed.append(str(other))
    for other in folder.parent.glob(f"{MAKING_PREFIX}*"):
        with contextlib.suppress(FileNotFoundError):  # another process has just removed it
            if time.time() - other.stat().st_mtime > MAKING_S_MAX:
                shutil.rmtree(other, ignore_errors=True)
    return removed
