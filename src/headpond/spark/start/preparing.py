"""``headpond spark prepare``: makes the file that Spark's classes are mapped from (prepared.py).

A rehearsal tells which classes, Java writes the file, Java is asked whether it takes it, and the folder is put
in its place in one step: a session that starts meanwhile sees all of it or nothing. If two prepare at once,
both work, and one of the two stays.

Java leaves a second mention of a jar out as it writes the file and counts it as it compares: Spark mentions one
twice, and Java 21 would never find a match. So the class path has every entry once, in the order that it had.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from headpond.model.errors import SparkNotPrepared
from headpond.spark.start.java import Java, find_java
from headpond.spark.start.packages import need_spark
from headpond.spark.start.prepared import (
    CLASS_LIST,
    CLASSES,
    FOLDER_PREFIX,
    GIVEN,
    OPENED,
    OPTIONS,
    TOLD,
    Prepared,
    java_options,
    read_prepared,
    spark_home,
    start_folder,
)

MAKING_PREFIX = "spark-making-"
MAKING_S_MAX = 3600
STEP_S_MAX = 1200
HEAP = "-Xmx2g"
"""On a machine with much memory Java would take a heap whose pointers are not compressed, unlike Spark's."""

Progress = Callable[[str], None]


class PrepareResult(msgspec.Struct, frozen=True, kw_only=True):
    """What is there now."""

    folder: str
    java: str
    java_version: int
    spark: str
    classes: int
    bytes: int
    made: bool
    """Whether it was made now; if not, it was there."""
    removed: list[str]
    """Folders that served an earlier state of this Spark, or one that is gone."""
    seconds: float


def prepare(*, again: bool = False, progress: Progress | None = None) -> PrepareResult:
    """Makes sessions of this Java and Spark start faster, unless that was done; ``again`` does it anyway."""
    began = time.monotonic()
    need_spark()
    java = find_java()
    folder = start_folder(java)
    if folder is None:
        raise SparkNotPrepared(f"there are no jars of Spark in {spark_home() / 'jars'}")
    found = None if again else read_prepared(folder)
    made = found is None
    if found is None:
        try:
            found = _make(java, folder, progress or (lambda _: None))
        except OSError as error:
            raise SparkNotPrepared(f"{error.filename or folder}: {error.strerror or error}") from error
    return PrepareResult(
        folder=str(folder),
        java=found.java,
        java_version=found.java_version,
        spark=found.spark,
        classes=found.classes,
        bytes=found.bytes,
        made=made,
        removed=_remove_others(folder, found),
        seconds=time.monotonic() - began,
    )


def _make(java: Java, folder: Path, progress: Progress) -> Prepared:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=MAKING_PREFIX, dir=folder.parent) as making:
        progress("a session of Spark tells which classes it needs")
        # A cache folder of its own: this session is to start without what was prepared before.
        environment = os.environ | {"XDG_CACHE_HOME": making}
        rehearsal = [sys.executable, "-m", "headpond.spark.start.rehearsal", making]
        _step("a session of Spark", rehearsal, environment)
        return write_start(java, Path(making), folder, progress)


def write_start(java: Java, rehearsed: Path, folder: Path, progress: Progress) -> Prepared:
    """Makes the folder from what a rehearsal left in another one, on the same file system."""
    import pyspark

    done = rehearsed / "done"
    done.mkdir()
    class_path = os.pathsep.join(dict.fromkeys((rehearsed / OPENED).read_text().split(os.pathsep)))
    options = done / OPTIONS
    options.write_text(java_options(done, class_path))
    progress("Java writes them down as it holds them in memory")
    listing = rehearsed / CLASS_LIST
    command = [str(java.command), f"@{options}", HEAP]
    _step("Java", [*command, "-Xshare:dump", f"-XX:SharedClassListFile={listing}"])
    progress("Java is asked whether it takes them")
    _step("Java", [*command, "-Xshare:on", "-version"])
    options.write_text(java_options(folder, class_path))
    with listing.open() as lines:
        classes = sum(1 for line in lines if line[:1] not in "#@")
    made = Prepared(
        java=str(java.command),
        java_version=java.version,
        spark=pyspark.__version__,
        spark_home=str(spark_home()),
        class_path=(rehearsed / GIVEN).read_text(),
        classes=classes,
        bytes=(done / CLASSES).stat().st_size,
    )
    (done / TOLD).write_bytes(msgspec.json.encode(made))
    return _put(done, folder, made)


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
        said = done.stdout.strip().splitlines() or ["it says nothing"]
        raise SparkNotPrepared(f"{what} failed: {said[-1]}")


def _put(done: Path, folder: Path, made: Prepared) -> Prepared:
    """In one step. One that is there may be damaged; it goes."""
    if folder.exists():
        os.replace(folder, done.with_name("old"))
    try:
        os.replace(done, folder)
    except OSError:
        there = read_prepared(folder)  # another process was faster
        if there is None:
            raise
        return there
    return made


def _remove_others(folder: Path, kept: Prepared) -> list[str]:
    """What served this Spark before it changed, a Spark or a Java that is gone, or was left half made."""
    removed = []
    for other in sorted(folder.parent.glob(f"{FOLDER_PREFIX}*")):
        told = read_prepared(other)
        superseded = told is not None and (told.spark_home, told.java) == (kept.spark_home, kept.java)
        gone = told is None or not (Path(told.spark_home).exists() and Path(told.java).exists())
        if other != folder and (superseded or gone):
            shutil.rmtree(other, ignore_errors=True)
            removed.append(str(other))
    for other in folder.parent.glob(f"{MAKING_PREFIX}*"):
        with contextlib.suppress(FileNotFoundError):  # its owner has just ended
            if time.time() - other.stat().st_mtime > MAKING_S_MAX:
                shutil.rmtree(other, ignore_errors=True)
    return removed
