"""``headpond.spark.session()``: a Spark session that starts where only pip was used, and is quiet.

It also knows ``format("headpond")``, in the right Python. Spark runs a Python data source in two places: on
the driver's machine, where it plans and commits, and in tasks. It runs one program for both: the driver's
Python for a format that it found by itself, ``PYSPARK_PYTHON`` for a registered one. Neither works if the
workers have their Python at another path, as those that unpack an archive do. A setting names the Python of
tasks alone; ``register_format`` sets it.
"""

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
from importlib.util import find_spec
from pathlib import Path
from site import getsitepackages, getusersitepackages
from typing import TYPE_CHECKING, Any

from headpond.client import tracing
from headpond.model.errors import BadRequest, SparkFailed
from headpond.spark.start.class_cache import class_cache_options
from headpond.spark.start.java import find_java, java_home
from headpond.spark.start.packages import need_spark, need_worker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOPBACK = "127.0.0.1"
LOGGING = Path(__file__).with_name("log4j2.properties")
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
PROGRESS = "spark.ui.showConsoleProgress"
WAREHOUSE = "spark.sql.warehouse.dir"
WORKER_PYTHON = "spark.sql.execution.pyspark.python"
"""Spark's setting for the Python of tasks alone."""
TIME_TYPE = "spark.sql.timeType.enabled"
"""Without it Spark reads columns of the type ``time`` and refuses to count them."""
_LOCAL = re.compile(r"local(?:\[(\*|[0-9]+)(?:,\s*[0-9]+)?\])?")

_given: set[str] = set()
"""The settings that this process started Java with: Java keeps them, but they are for its first session."""


def session(
    app: str = "headpond", *, master: str | None = None, conf: Mapping[str, object] | None = None
) -> SparkSession:
    """The session of this process, or a new one if there is none.

    The default of ``master`` is that of ``spark-submit``, else ``local[*]``. ``conf`` overrides the settings of
    ``spark-submit``, and both override the defaults. An existing session is returned as it is: a different
    master, or a setting that cannot change in it, is an error.
    """
    need_spark()
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    _refuse_connect()
    if SparkContext._active_spark_context is not None:
        return register_format(_reuse(SparkSession.builder.getOrCreate(), master, conf or {}))
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # spark-submit has started Java already
    if master is None and not submitted:
        master = "local[*]"
    cores = None if master is None else local_cores(master)
    if cores is not None:
        # Workers on this machine run this Python, or the one of PYSPARK_PYTHON once that is checked.
        python = os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        if python != sys.executable:
            need_worker(python)
    settings = {"spark.app.name": app} | ({} if master is None else {"spark.master": master})
    settings |= {name: _text(value) for name, value in (conf or {}).items()}
    _hush()
    with _launching(java=not submitted and SparkContext._gateway is None, local=cores is not None):
        _start_java(settings)
        builder = SparkSession.builder
        for name, value in (_defaults(cores) | settings).items():
            builder = builder.config(name, value)
        return register_format(builder.getOrCreate())


def _refuse_connect() -> None:
    """A client of Spark Connect has no Java in its process, which jobs and pipelines need."""
    from pyspark.sql.utils import is_remote

    if is_remote() or "SPARK_REMOTE" in os.environ:
        raise BadRequest(
            "this process uses Spark over Spark Connect, and session() needs a Java in the process",
            hint='Read and write with your session: spark.read.format("headpond"). Run jobs and pipelines in a '
            "separate process, without SPARK_REMOTE.",
        )


def _hush() -> None:
    """Keeps pyspark from also printing the errors that it raises, as JSON with a page of Java's trace."""
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        if name not in logging.root.manager.loggerDict:  # else the program has configured it
            PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)


def _start_java(settings: dict[str, str]) -> None:
    """Starts Java unless it runs, with the settings that only a start can take: memory, log, packages."""
    from pyspark import SparkConf, SparkContext

    if SparkContext._gateway is None and "PYSPARK_GATEWAY_PORT" not in os.environ:
        log = f"-Dlog4j2.configurationFile={LOGGING.as_uri()}"
        # Started from Python, Spark would take it for a shell and show progress.
        given = {PROGRESS: _text(sys.stderr.isatty())} | settings
        given |= {JAVA_OPTIONS: " ".join([log, settings.get(JAVA_OPTIONS, "")]).strip()}
        with _ended_if_interrupted():
            SparkContext._ensure_initialized(conf=SparkConf(loadDefaults=False).setAll(list(given.items())))
        _given.update(given)
    SparkContext._ensure_initialized()


@contextmanager
def _ended_if_interrupted() -> Iterator[None]:
    """Ends the Java that pyspark starts in the block if the block fails or Ctrl-C interrupts it.

    Java exits when its stdin ends, but checks that only after it has written its port into a folder, which
    pyspark has removed by then: it would stay for good. pyspark does not return its process, so this replaces
    the function with which it starts processes.
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
    """Delays Ctrl-C until the block ends: interrupted in its middle, a new process would be lost."""
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
    """How many cores a local master has; None for a cluster."""
    found = _LOCAL.fullmatch(master)
    if found is None:
        return None
    if found[1] != "*":
        return int(found[1] or 1)
    # The cores that this process may use.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _defaults(cores: int | None) -> dict[str, str]:
    """The settings that ``conf``, ``spark-submit`` and ``spark-defaults.conf`` leave open."""
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
            # No other machine may reach a session that one program runs for itself.
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

    Spark makes the folder with the first use of its catalogue, by default where the program was started. The
    catalogue is in memory, so such tables end with the session; their files stay.
    """
    folder = tempfile.mkdtemp(prefix="headpond-warehouse-")

    def remove_empty() -> None:
        with suppress(OSError):
            os.rmdir(folder)

    atexit.register(remove_empty)
    return Path(folder).as_uri()


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@contextmanager
def _launching(*, java: bool, local: bool) -> Iterator[None]:
    """Sets the environment for the start of Java, and raises its failures as ``SparkFailed``.

    It restores the environment afterwards, for other programs that this process starts.
    """
    names: dict[str, str] = {}
    if java:
        found = find_java()
        names["JAVA_HOME"] = str(java_home(found, start=class_cache_options(found)))
        if workers_python() is not None:
            names["PYSPARK_DRIVER_PYTHON"] = sys.executable  # this Python makes plans, whatever workers run
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


def _reuse(active: SparkSession, master: str | None, conf: Mapping[str, object]) -> SparkSession:
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
                f"a Spark session is active, and {name} cannot be changed in it",
                hint="Stop it first (its `stop()`), or leave that setting out.",
            )
    return active


# --- the format ---------------------------------------------------------------------------------------


def register_format(active: SparkSession) -> SparkSession:
    """Registers ``format("headpond")`` where Spark's own search does not find it, or finds too little, and
    traces the session's queries if the program wants that.

    The search takes seconds, and registering starts one, so this leaves a search that will succeed to first
    use.
    """
    if tracing.active is not None:
        from headpond.spark.batch_spans import trace_batches

        trace_batches(active, tracing.active)
    context = active.sparkContext
    if not context.getConf().contains(TIME_TYPE):
        active.conf.set(TIME_TYPE, "true")
    if (workers := workers_python()) is not None and active.conf.get(WORKER_PYTHON, None) is None:
        active.conf.set(WORKER_PYTHON, workers)
    # A format that Spark finds by itself runs without the files of --py-files, and one may be this package.
    if context._python_includes or not is_found():
        from headpond.spark.format import HeadpondSource

        before = context.pythonExec
        context.pythonExec = before if workers is None else sys.executable
        try:
            active.dataSource.register(HeadpondSource)
        finally:
            context.pythonExec = before
    return active


def workers_python() -> str | None:
    """The Python of ``PYSPARK_PYTHON``, if it is not this one."""
    given = os.environ.get("PYSPARK_PYTHON")
    return given if given and given != sys.executable else None


def is_found() -> bool:
    """Whether every process of this Python finds the package.

    Spark searches the path of a Python that it starts, which lacks entries that only this process has.
    """
    package = find_spec("pyspark_headpond")
    if package is None or package.origin is None:
        return False
    given = [Path(place).resolve() for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    installed = [Path(place).resolve() for place in (*getsitepackages(), getusersitepackages())]
    return Path(package.origin).resolve().parents[1] in (*given, *installed)
