"""The cause of a failed query is found in Spark's long error text."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from headpond.model.errors import EntriesMissing, HeadpondError, SparkFailed, SparkWorker
from headpond.spark.causes import cause_of, job_errors

FAILED = """[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted due to stage failure
Traceback (most recent call last):
  File "/a/worker.py", line 12, in main
    ValueError: a line of the program, not of the error
    ^^^^^^^^^^
{raised}

\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:1)
Caused by: org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed
\tat org.apache.spark.Task.run(Task.scala:1)
"""
AGAIN = """KeyError: 'customer'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/a/steps.py", line 3, in double
RuntimeError: no row"""


@pytest.mark.parametrize(
    ("raised", "kind", "message"),
    [
        ("headpond.model.errors.EntriesMissing: gone [entries-missing] Go on.", EntriesMissing, "gone"),
        ("ValueError: 5 is too many", SparkFailed, "ValueError: 5 is too many"),
        ("shop.TooMany: 5", SparkFailed, "shop.TooMany: 5"),
        (
            "ModuleNotFoundError: No module named 'headpond'",
            SparkWorker,
            "the Python of Spark's workers has no headpond",
        ),
        (AGAIN, SparkFailed, "KeyError: 'customer'"),
    ],
)
def test_an_exception_of_python_is_reported_whatever_its_name(
    raised: str, kind: type[HeadpondError], message: str
) -> None:
    cause = cause_of(RuntimeError(FAILED.format(raised=raised)))
    assert (type(cause), cause.message) == (kind, message)


def test_the_error_of_a_job_has_its_own_hint() -> None:
    raised = "headpond.model.errors.EntriesMissing: gone [entries-missing] Go on."
    with pytest.raises(EntriesMissing, match="gone") as caught, job_errors():
        raise PySparkException(FAILED.format(raised=raised))
    assert caught.value.hint == "Go on."


def test_a_machine_too_busy_to_start_python_is_reported_as_busy() -> None:
    text = "failed\n\tat a\nCaused by: org.a.SparkException: Python worker failed to connect back.\n\tat b"
    cause = cause_of(RuntimeError(text))
    assert isinstance(cause, SparkFailed) and "too busy" in cause.hint


def test_steps_that_differ_from_the_checkpoint_have_a_hint() -> None:
    text = (
        "failed\n\tat a\nCaused by: a.B: [STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE] Provided key schema\n\tat b\n"
    )
    assert "begin with a new one" in cause_of(RuntimeError(text)).hint


def test_a_session_without_the_type_time_gets_the_setting_as_a_hint() -> None:
    cause = cause_of(RuntimeError("[UNSUPPORTED_TIME_TYPE] The data type TIME is not supported."))
    assert 'spark.conf.set("spark.sql.timeType.enabled", "true")' in cause.hint


def test_files_of_a_driver_killed_at_its_first_offset_have_a_hint() -> None:
    text = (
        "[STREAM_FAILED] Query [id = 1] terminated with exception: [STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY] "
        "The checkpoint location file:/ck/offsets should be empty on batch 0\nPlease either use a new"
    )
    cause = cause_of(RuntimeError(text))
    assert isinstance(cause, SparkFailed)
    assert "If file:/ck/offsets has nothing but temporary files" in cause.hint


def test_without_python_it_is_the_innermost_cause_of_java() -> None:
    text = "failed\n\tat a\nCaused by: org.a.B: outer\n\tat b\nCaused by: java.io.C: disk\n full\n\tat c\n"
    assert cause_of(RuntimeError(text)).message == "disk full"
    assert cause_of(RuntimeError("just this\nand that")).message == "just this"
