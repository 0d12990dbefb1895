"""``penstock.spark.session()``: a Spark session that starts where only pip was used, and is quiet."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from site import getsitepackages, getusersitepackages
from typing import TYPE_CHECKING

from penstock.model.errors import BadRequest, SparkFailed
from penstock.spark.java import find_java, java_home
from penstock.spark.packages import need_spark, need_worker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOPBACK = "127.0.0.1"
LOGGING = Path(__file__).with_name("log4j2.properties")
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_LOCAL = re.compile(r"local(?:\[(\*|[0-9]+)(?:,\s*[0-9]+)?\])?")


def session(
    app: str = "penstock", *, master: str | None = None, conf: Mapping[str, object] | None = None
) -> SparkSession:
    """The session of this process, or a new one if there is none.

    ``master`` is ``local[*]`` unless told, or what ``spark-submit`` said. ``conf`` goes over the defaults. A
    session that is there is taken as it is: a master or a setting that it cannot have is an error.
    """
    need_spark()
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is not None:
        return _registered(_reused(SparkSession.builder.getOrCreate(), master, conf or {}))
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # spark-submit has started Java already
    if master is None and not submitted:
        master = "local[*]"
    cores = None if master is None else local_cores(master)
    if cores is not None:
        _choose_worker()
    builder = SparkSession.builder.appName(app)
    if master is not None:
        builder = builder.master(master)
    for name, value in _settings(cores, conf or {}).items():
        builder = builder.config(name, value)
    with _launching(java=not submitted and SparkContext._gateway is None, local=cores is not None):
        return _registered(builder.getOrCreate())


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


def _settings(cores: int | None, conf: Mapping[str, object]) -> dict[str, str]:
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": _text(sys.stderr.isatty()),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # A worker on a busy machine may take longer to come up than the 15 s that Spark gives it.
        "spark.python.authenticate.socketTimeout": "120s",
    }
    if cores is not None:
        settings |= {
            # Nobody else is to reach a session that one program runs for itself.
            "spark.driver.host": LOOPBACK,
            "spark.driver.bindAddress": LOOPBACK,
            "spark.sql.shuffle.partitions": str(cores),
        }
    told = {name: _text(value) for name, value in conf.items()}
    logging = f"-Dlog4j2.configurationFile={LOGGING.as_uri()}"
    return settings | told | {JAVA_OPTIONS: " ".join([logging, told.get(JAVA_OPTIONS, "")]).strip()}


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
        names["JAVA_HOME"] = str(java_home(find_java()))
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


def _registered(active: SparkSession) -> SparkSession:
    """Makes ``format("penstock")`` known also where Spark's own search for it does not find the package.

    The search takes seconds and registering begins with one, so where it will succeed it is left to first use.
    """
    if not _is_found():
        from penstock.spark.format import PenstockSource

        active.dataSource.register(PenstockSource)
    return active


def _is_found() -> bool:
    """Whether the package stands where every process of this Python looks.

    Spark looks through the path of the workers' Python, which lacks what this process has on its own.
    """
    package = find_spec("pyspark_penstock")
    if package is None or package.origin is None:
        return False
    told = [Path(place).resolve() for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    installed = [Path(place).resolve() for place in (*getsitepackages(), getusersitepackages())]
    return Path(package.origin).resolve().parents[1] in (*told, *installed)


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
