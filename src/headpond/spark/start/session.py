"""``headpond.spark.session()``: a Spark session that starts where only pip was used, and is quiet."""

from __future__ import annotations

import atexit
import logging
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headpond.model.errors import BadRequest, SparkFailed
from headpond.spark.start.class_cache import class_cache_options
from headpond.spark.start.java import find_java, java_home
from headpond.spark.start.packages import need_spark, need_worker
from headpond.spark.start.registration import TIME_TYPE, WORKER_PYTHON, registered, workers_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOPBACK = "127.0.0.1"
LOGGING = Path(__file__).with_name("log4j2.properties")
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
PROGRESS = "spark.ui.showConsoleProgress"
WAREHOUSE = "spark.sql.warehouse.dir"
_LOCAL = re.compile(r"local(?:\[(\*|[0-9]+)(?:,\s*[0-9]+)?\])?")

_given: set[str] = set()
"""The settings that Java was started with here. It keeps them, but they are for the first session alone."""


def session(
    app: str = "headpond", *, master: str | None = None, conf: Mapping[str, object] | None = None
) -> SparkSession:
    """The session of this process, or a new one if there is none.

    ``master`` is ``local[*]`` unless told, or what ``spark-submit`` said. ``conf`` goes over what that was told
    and both over the defaults. A session that is there is taken as it is: a master or a setting that it cannot
    have is an error.
    """
    need_spark()
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    _refuse_connect()
    if SparkContext._active_spark_context is not None:
        return registered(_reused(SparkSession.builder.getOrCreate(), master, conf or {}))
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # spark-submit has started Java already
    if master is None and not submitted:
        master = "local[*]"
    cores = None if master is None else local_cores(master)
    if cores is not None:
        _choose_worker()
    told = {"spark.app.name": app} | ({} if master is None else {"spark.master": master})
    told |= {name: _text(value) for name, value in (conf or {}).items()}
    _hush()
    with _launching(java=not submitted and SparkContext._gateway is None, local=cores is not None):
        _start_java(told)
        builder = SparkSession.builder
        for name, value in (_defaults(cores) | told).items():
            builder = builder.config(name, value)
        return registered(builder.getOrCreate())


def _refuse_connect() -> None:
    """A client of Spark Connect has no Java of its own, which jobs and pipelines work with."""
    from pyspark.sql.utils import is_remote

    if is_remote() or "SPARK_REMOTE" in os.environ:
        raise BadRequest(
            "this process uses Spark over Spark Connect, and a session with a Java of its own was asked for",
            hint='Read and write with your session: spark.read.format("headpond"). Jobs and pipelines need a '
            "process of their own, without SPARK_REMOTE.",
        )


def _hush() -> None:
    """Keeps pyspark from printing what it raises of a refused query: as JSON, with a page of Java's."""
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        if name not in logging.root.manager.loggerDict:  # else the program has said what it wants of it
            PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)


def _start_java(told: dict[str, str]) -> None:
    """Starts it unless it runs, with what can only be told now: its memory, its log, packages to load."""
    from pyspark import SparkConf, SparkContext

    if SparkContext._gateway is None and "PYSPARK_GATEWAY_PORT" not in os.environ:
        log = f"-Dlog4j2.configurationFile={LOGGING.as_uri()}"
        # Started from Python, Spark would take it for a shell and show progress.
        given = {PROGRESS: _text(sys.stderr.isatty())} | told
        given |= {JAVA_OPTIONS: " ".join([log, told.get(JAVA_OPTIONS, "")]).strip()}
        with _ended_if_interrupted():
            SparkContext._ensure_initialized(conf=SparkConf(loadDefaults=False).setAll(list(given.items())))
        _given.update(given)
    SparkContext._ensure_initialized()


@contextmanager
def _ended_if_interrupted() -> Iterator[None]:
    """Ends the Java that pyspark starts here if this fails, or Ctrl-C comes meanwhile.

    Java ends by itself when its stdin does, but looks at that only when it has written its port into a folder,
    which pyspark has removed by then: it would stay for good. pyspark keeps its process to itself, so what it
    starts processes with is looked at.
    """
    gateway: Any = import_module("pyspark.java_gateway")
    processes: list[subprocess.Popen[bytes]] = []
    popen = gateway.Popen

    def start(*args: Any, **options: Any) -> subprocess.Popen[bytes]:
        with _interrupt_later():
            processes.append(popen(*args, **options))
        return processes[-1]

    gateway.Popen = start
    try:
        yield
    except BaseException:
        for process in processes:
            process.kill()
            process.wait()
        raise
    finally:
        gateway.Popen = popen


@contextmanager
def _interrupt_later() -> Iterator[None]:
    """Ctrl-C waits until the block ends: in the middle of a process's start nobody would know the process."""
    if threading.current_thread() is not threading.main_thread():  # others are never interrupted
        yield
        return
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _frame: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came:
            signal.raise_signal(signal.SIGINT)


def local_cores(master: str) -> int | None:
    """How many cores a master on this machine has; None if it is a cluster's."""
    found = _LOCAL.fullmatch(master)
    if found is None:
        return None
    told = found[1] or "1"
    return _cores() if told == "*" else int(told)


def _cores() -> int:
    """Those that this process may use, where the system tells."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _defaults(cores: int | None) -> dict[str, str]:
    """What is set unless ``conf``, ``spark-submit`` or ``spark-defaults.conf`` says otherwise."""
    from pyspark import SparkConf

    settings = {
        "spark.ui.enabled": "false",
        PROGRESS: _text(sys.stderr.isatty()),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        TIME_TYPE: "true",
        # A worker on a busy machine may take longer to come up than the 15 s that Spark gives it.
        "spark.python.authenticate.socketTimeout": "120s",
    }
    if (workers := workers_python()) is not None:
        settings[WORKER_PYTHON] = workers
    if cores is not None:
        settings |= {
            # Nobody else is to reach a session that one program runs for itself.
            "spark.driver.host": LOOPBACK,
            "spark.driver.bindAddress": LOOPBACK,
            "spark.sql.shuffle.partitions": str(cores),
        }
    elsewhere = {name for name, _ in SparkConf().getAll()} - _given
    if WAREHOUSE not in elsewhere:
        settings[WAREHOUSE] = _warehouse()
    return {name: value for name, value in settings.items() if name not in elsewhere}


def _warehouse() -> str:
    """A folder of this process alone, for tables that are saved without a path.

    Spark makes it with the first look at its catalogue: unless told where, in the folder that the program was
    started in. The catalogue is in memory, so such tables end with the session; their files are left alone.
    """
    folder = tempfile.mkdtemp(prefix="headpond-warehouse-")
    atexit.register(_remove_empty, folder)
    return Path(folder).as_uri()


def _remove_empty(folder: str) -> None:
    with suppress(OSError):
        os.rmdir(folder)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _choose_worker() -> None:
    """Workers on this machine run this Python unless told, and what was told is looked at first."""
    told = os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if told != sys.executable:
        need_worker(told)


@contextmanager
def _launching(*, java: bool, local: bool) -> Iterator[None]:
    """The environment that Java is started in, and what went wrong in words.

    It is put back afterwards: other programs that this process starts have nothing to do with Spark.
    """
    names: dict[str, str] = {}
    if java:
        found = find_java()
        names["JAVA_HOME"] = str(java_home(found, start=class_cache_options(found)))
        if workers_python() is not None:
            names["PYSPARK_DRIVER_PYTHON"] = sys.executable  # plans are made here, whatever workers run
    if local and "SPARK_LOCAL_IP" not in os.environ:
        names["SPARK_LOCAL_IP"] = LOOPBACK
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(names)
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise SparkFailed(f"Spark did not start: {str(error).strip().splitlines()[0]}") from error
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _reused(active: SparkSession, master: str | None, conf: Mapping[str, object]) -> SparkSession:
    there = active.conf.get("spark.master")
    if master is not None and master != there:
        raise BadRequest(
            f"a Spark session on {there} is active, and one on {master} was asked for",
            hint="Stop the other one first (its `stop()`), or leave `master` out.",
        )
    for name, value in conf.items():
        if active.conf.isModifiable(name):
            active.conf.set(name, _text(value))
        elif active.conf.get(name, None) != _text(value):
            raise BadRequest(
                f"a Spark session is active, and {name} cannot be changed in it any more",
                hint="Stop it first (its `stop()`), or leave that setting out.",
            )
    return active
