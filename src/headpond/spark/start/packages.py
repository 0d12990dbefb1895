"""Checks of the Python packages that Spark needs, here and in its workers; an error says what is missing."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module

from headpond.model.errors import SparkMissing, SparkPackages, SparkWorker

SPARK_MAJOR_MIN = 4
PANDAS_MAJOR_MAX = 2
ANSWER_S_MAX = 60

_WORKER_PROBE = "import sys; print('%d.%d' % sys.version_info[:2]); import pyarrow, pandas, headpond"
_NOT_THERE = re.compile(r"No module named '([^']+)'")
_NO_PYTHON = re.compile(r'Cannot run program "([^"]*python[^"]*)"')


def need_spark() -> None:
    """Raises unless pyspark is installed, with a pandas and a pyarrow that it works with."""
    try:
        import pyspark
    except ImportError as error:
        raise SparkMissing(f"Spark for Python is not installed ({error})") from error
    if _major(pyspark.__version__) < SPARK_MAJOR_MIN:
        raise SparkPackages(f"pyspark is {pyspark.__version__}, and {SPARK_MAJOR_MIN}.0 or newer is needed")
    from pyspark.sql.pandas.utils import require_minimum_pandas_version, require_minimum_pyarrow_version

    try:
        import pandas

        if _major(pandas.__version__) > PANDAS_MAJOR_MAX:
            raise SparkPackages(
                f"pandas is {pandas.__version__}, and Spark works with pandas {PANDAS_MAJOR_MAX} alone",
                hint="Run pip install 'pandas<3'.",
            )
        require_minimum_pyarrow_version()
        require_minimum_pandas_version()
    except ImportError as error:
        raise SparkPackages(str(error)) from error


def need_plots() -> None:
    """Raises unless matplotlib is installed."""
    try:
        import_module("matplotlib")
    except ImportError as error:
        raise SparkPackages(f"pictures need matplotlib, and it is not installed ({error})") from error


def need_worker(python: str) -> None:
    """Raises unless this Python can run a worker: same version, with the packages."""
    try:
        done = subprocess.run(
            [python, "-c", _WORKER_PROBE],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=ANSWER_S_MAX,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SparkWorker(f"Spark's workers are to run {python} (PYSPARK_PYTHON): {error}") from error
    here = "{}.{}".format(*sys.version_info[:2])
    there = done.stdout.strip()
    if there != here:
        raise SparkWorker(
            f"Spark's workers run {python}, which is Python {there or 'of no known version'}; this is {here}",
            hint=f"Set PYSPARK_PYTHON to a Python {here}, or unset it.",
        )
    if done.returncode:
        missing = _NOT_THERE.search(done.stderr)
        what = (
            f"has no {missing[1]}"
            if missing
            else f"fails: {(done.stderr.strip().splitlines() or ['no output'])[-1]}"
        )
        raise SparkWorker(f"Spark's workers run {python}, and it {what}")


def worker_fault(text: str) -> SparkWorker | None:
    """The error for a job that failed because workers lack a package or a Python; otherwise None."""
    missing = _NOT_THERE.search(text)
    if missing is not None:
        return SparkWorker(f"the Python of Spark's workers has no {missing[1]}")
    if (program := _NO_PYTHON.search(text)) is not None:
        return SparkWorker(f"Spark's workers cannot run {program[1]}: there is no such program")
    if "PYTHON_VERSION_MISMATCH" in text:
        return SparkWorker("the Python of Spark's workers is of another version than this one")
    return None


def _major(version: str) -> int:
    return int(version.split(".", 1)[0])
