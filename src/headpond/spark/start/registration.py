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


def register_format(active: SparkSession) -> SparkSession:
    """Registers ``format("headpond")`` where Spark's own search does not find it, or finds too little.

    The search takes seconds, and registering starts one, so this leaves a search that will succeed to first
    use.
    """
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
