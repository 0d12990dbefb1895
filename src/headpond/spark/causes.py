"""Why a query or a job failed: the error that Headpond raised inside of Spark, else Spark's innermost cause."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from headpond.model.errors import CATALOGUE, HeadpondError, SparkFailed
from headpond.spark.start.packages import worker_fault
from headpond.spark.start.session import TIME_TYPE

MESSAGE_MAX = 2000
_OURS = re.compile(r"headpond\.[\w.]*?(?P<kind>[A-Z]\w+): (?P<message>[^\n]*)")
_PYTHON = re.compile(
    r"Traceback \(most recent call last\):\n(?:[ \t]+[^\n]*\n)+(?P<what>[A-Za-z_][\w.]*(?:: [^\n]*)?)$",
    re.MULTILINE,
)
"""The line behind the first traceback, for an exception of any name."""
_JAVA = re.compile(r"^Caused by: [\w.$]+: (?P<what>.*?)(?=^\s+at |\Z)", re.MULTILINE | re.DOTALL)
_TOO_LATE = "Python worker failed to connect back"
_TOO_LATE_HINT = "Spark gives it 10 seconds: the machine is too busy. Run it again; it continues where it was."
_CHANGED = re.compile(r"\[(?:STATE_STORE_\w*SCHEMA\w*|STREAMING_STATEFUL_OPERATOR_\w+)[\].]")
_CHANGED_HINT = "Put the steps with state back as the checkpoint has them, or begin with a new one."
_NO_TIME = "[UNSUPPORTED_TIME_TYPE]"
_NO_TIME_HINT = f'Set {TIME_TYPE}: spark.conf.set("{TIME_TYPE}", "true").'
_NOT_EMPTY = re.compile(r"\[STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY\] [\w ]+ (?P<folder>\S+) should be empty")
_NOT_EMPTY_HINT = (
    "If {folder} has nothing but temporary files (.0.….tmp), a driver was killed before its first batch: "
    "remove them and start again; no row was read or written. If other folders of the checkpoint have "
    "files, it lost its offsets: put them back, or begin with a new checkpoint."
)
_KINDS = {kind.__name__: kind for kind in CATALOGUE.values()}


@contextmanager
def job_errors() -> Iterator[None]:
    """Raises the errors of failed jobs of Spark as errors of the catalogue."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        cause = cause_of(error)
        if isinstance(cause, SparkFailed):
            cause = SparkFailed(f"a job of Spark failed: {cause.message}", hint=cause.hint)
        raise cause from error


def cause_of(error: Any) -> HeadpondError:
    """The error of the catalogue for an error of Spark, whose text quotes the cause."""
    text = f"{error}\n{getattr(error, '_stackTrace', '')}"
    for found in _OURS.finditer(text):
        if (kind := _KINDS.get(found["kind"])) is not None:
            message, _, hint = found["message"].strip().partition(f" [{kind.code}] ")
            return kind(message, hint=hint or None)
    if (lacking := worker_fault(text)) is not None:
        return lacking
    if _TOO_LATE in text:
        return SparkFailed("a Python process that Spark started did not come up in time", hint=_TOO_LATE_HINT)
    if (raised := _PYTHON.search(text)) is not None:
        return SparkFailed(raised["what"][:MESSAGE_MAX])
    hint = _hint_of(text)
    if causes := _JAVA.findall(text):
        return SparkFailed(" ".join(causes[-1].split())[:MESSAGE_MAX], hint=hint)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return SparkFailed((lines or ["it ended without a message"])[0][:MESSAGE_MAX], hint=hint)


def _hint_of(text: str) -> str | None:
    """What to do about an error of Spark, where there is a better way than the one it names."""
    if (left := _NOT_EMPTY.search(text)) is not None:
        return _NOT_EMPTY_HINT.format(folder=left["folder"])
    if _CHANGED.search(text):
        return _CHANGED_HINT
    return _NO_TIME_HINT if _NO_TIME in text else None
