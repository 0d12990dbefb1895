"""A job on Spark: its session, its progress, and how Ctrl-C ends it.

A job uses the session of this process, or starts one and stops it afterwards. A second thread calls Spark: if
Ctrl-C interrupted a call to Java, its answer would stay on the thread's connection, and the next call would
take it for its own. The main thread only waits.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor, as_completed, wait
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, TypeVar

from headpond.model.errors import BadRequest
from headpond.spark.causes import job_errors
from headpond.spark.start.packages import need_spark
from headpond.spark.start.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


Item = TypeVar("Item")
Result = TypeVar("Result")
Progress = Callable[[str], None]
"""Called from time to time with the current activity, for a person to read."""

POLL_S = 0.5
STREAM_POLL_S = 1

SETTINGS: dict[str, object] = {
    "spark.ui.showConsoleProgress": False,
    # Spark's own default of 1 GiB makes millions of rows spill again and again; with this the whole job stays
    # below 4 GiB, Python and what Java takes beside its heap included.
    "spark.driver.memory": "2g",
    # Partitions small enough for that memory; Spark joins those with few rows.
    "spark.sql.shuffle.partitions": 32,
    "spark.sql.session.timeZone": "UTC",
}


class Work:
    """The argument of a job's body: the session, the progress report, and whether the user wants it to end."""

    def __init__(self, spark: SparkSession, progress: Progress | None) -> None:
        self.spark = spark
        self.tag = f"headpond-{uuid.uuid4()}"
        """The tag of all jobs of Spark that this job starts."""
        self.stopping = Event()
        """Set when the user wants the job to end; a stream then ends between two batches."""
        self._progress = progress
        self._phase = "starting"

    def say(self, phase: str) -> None:
        """Reports the next activity; raises ``CancelledError`` if the user wants the job to end."""
        if self.stopping.is_set():
            raise CancelledError
        self._phase = phase
        if self._progress is not None:
            self._progress(phase)

    def mark(self) -> None:
        """Tags the jobs that this thread starts, and makes the session the thread's active one.

        Spark looks up Python data sources in the active session of the thread that writes to one.
        """
        jvm = self.spark._jvm
        type(self.spark)._get_j_spark_session_class(jvm).setActiveSession(self.spark._jsparkSession)
        self.spark.sparkContext.addJobTag(self.tag)
        self.spark.sparkContext.setInterruptOnCancel(True)

    def each(self, do: Callable[[Item], None], items: Sequence[Item], at_once: int) -> None:
        """Calls ``do`` for each item, up to ``at_once`` at a time; the first error ends it."""

        def one(item: Item) -> None:
            self.mark()
            if not self.stopping.is_set():
                do(item)

        with ThreadPoolExecutor(max(1, min(at_once, len(items)))) as pool:
            try:
                for done in as_completed([pool.submit(one, item) for item in items]):
                    done.result()
            except BaseException:
                self.stopping.set()
                raise

    def await_stream(self, query: StreamingQuery) -> None:
        """Waits for the end of a stream, and stops it if the user wants the job to end."""
        try:
            while not query.awaitTermination(STREAM_POLL_S):
                if self.stopping.is_set():
                    break
        finally:
            query.stop()

    def run(self, body: Callable[[Work], Result]) -> Result:
        """Calls the body in a second thread and waits for it; Ctrl-C cancels its jobs of Spark."""

        def tagged() -> Result:
            self.mark()
            return body(self)

        with (
            repeating(None if self._progress is None else self._report_tasks, POLL_S),
            ThreadPoolExecutor(1) as pool,
        ):
            answer = pool.submit(tagged)
            try:
                return answer.result()
            except BaseException:
                self.stopping.set()
                # A query is a sequence of jobs, and between two of them there is none to cancel.
                while not wait([answer], POLL_S).done:
                    self.spark.sparkContext.cancelJobsWithTag(self.tag)
                raise

    def _report_tasks(self) -> None:
        """Reports how many tasks of the running stages are done."""
        tracker = self.spark.sparkContext.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        running = [stage for stage in stages if stage is not None and stage.numActiveTasks]
        if running and self._progress is not None:
            done = sum(stage.numCompletedTasks for stage in running)
            self._progress(f"{self._phase}: {done} of {sum(s.numTasks for s in running)} tasks")


@contextmanager
def repeating(call: Callable[[], None] | None, every_s: float) -> Iterator[None]:
    """Calls a function again and again from a separate thread while the block runs; None calls nothing."""
    if call is None:
        yield
        return
    ended = Event()

    def body() -> None:
        while not ended.wait(every_s):
            call()

    thread = Thread(target=body, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def run_job(
    name: str,
    body: Callable[[Work], Result],
    *,
    master: str | None = None,
    progress: Progress | None = None,
    conf: Mapping[str, object] = SETTINGS,
) -> Result:
    """Runs the body in the session of this process, or in a new one that it stops afterwards.

    ``conf`` is for the new session.
    """
    need_spark()
    from pyspark import SparkContext

    borrowed = SparkContext._active_spark_context is not None
    spark = session(f"headpond {name}", master=master, conf=None if borrowed else conf)
    try:
        with job_errors():
            return Work(spark, progress).run(body)
    finally:
        if not borrowed:
            spark.stop()


def check_free(folder: Path, *, overwrite: bool) -> None:
    """Raises if the folder has files that results would replace."""
    if folder.is_dir():
        if any(folder.iterdir()) and not overwrite:
            raise BadRequest(
                f"{folder} is not empty", hint="Name another folder, or add --overwrite to replace all of it."
            )
    elif folder.exists():
        raise BadRequest(f"{folder} is not a folder", hint="Name a folder; it is made if it is not there.")


@contextmanager
def results_folder(folder: Path) -> Iterator[Path]:
    """A folder to write into, which replaces ``folder`` if the block succeeds."""
    beside = folder.absolute().with_name(f".{folder.name}.{uuid.uuid4().hex}")
    try:
        beside.mkdir(parents=True)
    except OSError as error:
        raise BadRequest(f"cannot make the folder {folder}: {error.strerror}") from error
    try:
        yield beside
        if folder.exists():
            shutil.rmtree(folder)
        beside.rename(folder)
    except OSError as error:
        raise BadRequest(f"cannot write {folder}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)
