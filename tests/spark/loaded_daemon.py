"""Spark's daemon of Python processes, with the modules loaded that each forked process would load.

Every plan, task and commit of a test is such a process. Spark's own daemon loads nothing before it forks; it
runs in sessions that these tests start in other programs.
"""

from __future__ import annotations

import contextlib
import importlib
import runpy

LOADED = (
    "pandas",
    "pyarrow.compute",
    "pyspark.worker",
    "pyspark.sql.worker.plan_data_source_read",
    "headpond.spark.sink",
    "headpond.spark.source.stream",
)

if __name__ == "__main__":
    for name in LOADED:
        with contextlib.suppress(ImportError):  # a test may run it in a Python that lacks packages
            importlib.import_module(name)
    runpy.run_module("pyspark.daemon", run_name="__main__", alter_sys=True)
