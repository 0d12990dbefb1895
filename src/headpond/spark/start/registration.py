"""Makes ``format("headpond")`` known to a session, in the right Python for the driver and for the workers.

Spark runs a Python data source in two places: on the driver's machine, where it plans and commits, and in
tasks. It runs one program for both: the driver's Python for a format that it found by itself,
``PYSPARK_PYTHON`` for a registered one. Neither works if the workers have their Python at another path, as
those that unpack an archive do. A setting names the Python of tasks alone; this module sets it.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from site import getsitepackages, getusersitepackages
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORKER_PYTHON = "spark.sql.execution.pyspark.python"
"""Spark's setting for the Python of tasks alone."""
TIME_TYPE = "spark.sql.timeType.enabled"
"""Without it Spark reads columns of the type ``time`` and refuses to count them."""


def registered(active: SparkSession) -> SparkSession:
    """Makes ``format("headpond")`` known where Spark's own search does not find it, or would not do.

    The search takes seconds and registering begins with one, so where it will succeed it is left to first use.
    """
    context = active.sparkContext
    if not context.getConf().contains(TIME_TYPE):
        active.conf.set(TIME_TYPE, "true")
    if (workers := workers_python()) is not None and active.conf.get(WORKER_PYTHON, None) is None:
        active.conf.set(WORKER_PYTHON, workers)
    # What Spark finds by itself goes without the files of --py-files, and one of them may be this package.
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
    """What ``PYSPARK_PYTHON`` says, if that is another than this one."""
    given = os.environ.get("PYSPARK_PYTHON")
    return given if given and given != sys.executable else None


def is_found() -> bool:
    """Whether the package stands where every process of this Python looks.

    Spark looks through the path of a Python that it starts, which lacks what this process has on its own.
    """
    package = find_spec("pyspark_headpond")
    if package is None or package.origin is None:
        return False
    given = [Path(place).resolve() for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    installed = [Path(place).resolve() for place in (*getsitepackages(), getusersitepackages())]
    return Path(package.origin).resolve().parents[1] in (*given, *installed)
