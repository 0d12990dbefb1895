"""A session is quiet, local and shared, and an error says why it does not start."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pandas
import pyarrow as pa
import pytest

import headpond.spark
import headpond.sync
from headpond.model.errors import BadRequest, SparkFailed, SparkMissing, SparkPackages, SparkWorker
from headpond.spark.causes import job_errors
from headpond.spark.start.packages import need_plots, need_spark, need_worker
from headpond.spark.start.session import WORKER_PYTHON, is_found, local_cores, register_format
from tests.spark.conftest import MASTER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

START = "import headpond.spark; headpond.spark.session(master='local[1]')"


def start_elsewhere(**environment: str) -> subprocess.CompletedProcess[str]:
    """Starts a session in a separate process, which must fail."""
    names = {name: value for name, value in os.environ.items() if name not in ("PYSPARK_PYTHON", "JAVA_HOME")}
    return subprocess.run(
        [sys.executable, "-c", START], env=names | environment, capture_output=True, text=True, timeout=300
    )


# --- a session that runs ------------------------------------------------------------------------------


def test_the_session_that_is_there_is_taken(spark: SparkSession) -> None:
    assert headpond.spark.session() is spark
    assert headpond.spark.session(master=MASTER) is spark


def test_another_master_than_the_sessions_is_refused(spark: SparkSession) -> None:
    with pytest.raises(BadRequest, match=r"on local\[2, 4\] is active, and one on local\[3\]"):
        headpond.spark.session(master="local[3]")
    assert spark.range(1).count() == 1


def test_a_setting_of_the_session_can_be_changed_unless_it_is_fixed(spark: SparkSession) -> None:
    headpond.spark.session(conf={"spark.sql.shuffle.partitions": 3})
    assert spark.conf.get("spark.sql.shuffle.partitions") == "3"
    headpond.spark.session(conf={"spark.sql.shuffle.partitions": 2, "spark.ui.enabled": False})
    with pytest.raises(BadRequest, match=r"spark.ui.enabled cannot be changed"):
        headpond.spark.session(conf={"spark.ui.enabled": True})


def test_a_local_session_keeps_to_this_machine(spark: SparkSession) -> None:
    names = ("spark.driver.host", "spark.driver.bindAddress", "spark.ui.enabled")
    assert [spark.conf.get(name) for name in names] == ["127.0.0.1", "127.0.0.1", "false"]
    assert spark.sparkContext.uiWebUrl is None


def test_a_local_session_has_as_many_shuffle_partitions_as_cores_and_arrow(spark: SparkSession) -> None:
    names = ("spark.sql.shuffle.partitions", "spark.sql.execution.arrow.pyspark.enabled")
    assert [spark.conf.get(name) for name in names] == ["2", "true"]


def test_a_session_makes_no_folder_where_its_program_was_started(spark: SparkSession) -> None:
    spark.catalog.listTables()  # with the first look at the catalogue Spark makes its folder
    folder = Path(str(spark.conf.get("spark.sql.warehouse.dir")).removeprefix("file:"))
    assert folder.is_dir() and Path.cwd() not in folder.parents


def test_workers_run_this_python_with_these_packages(spark: SparkSession) -> None:
    def tell(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import headpond as there

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"python": [sys.executable], "version": [there.__version__]})

    rows = spark.range(1).mapInArrow(tell, "python string, version string").collect()
    assert [tuple(row) for row in rows] == [(sys.executable, headpond.__version__)]


@pytest.mark.parametrize(
    ("master", "cores"),
    [("local", 1), ("local[3]", 3), ("local[3,2]", 3), ("local[*]", len(os.sched_getaffinity(0)))],
)
def test_a_local_master_reports_its_cores(master: str, cores: int) -> None:
    assert local_cores(master) == cores


@pytest.mark.parametrize("master", ["yarn", "spark://127.0.0.1:7077", "local-cluster[1,1,1024]"])
def test_a_clusters_master_does_not(master: str) -> None:
    assert local_cores(master) is None


def test_the_format_is_registered_only_where_spark_would_not_find_it(monkeypatch: pytest.MonkeyPatch) -> None:
    package = find_spec("pyspark_headpond")
    assert package is not None and package.origin is not None
    monkeypatch.setenv("PYTHONPATH", str(Path(package.origin).parents[1]))
    assert is_found()
    monkeypatch.delenv("PYTHONPATH")  # these tests have the sources on another path
    assert not is_found()


def test_nothing_of_spark_is_loaded_before_it_is_used() -> None:
    code = "import sys, headpond.spark, headpond.cli; print({'pyspark', 'pandas'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == "set()"


# --- what keeps it from starting ----------------------------------------------------------------------


def test_without_pyspark_the_hint_is_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(SparkMissing) as raised:
        headpond.spark.session()
    assert raised.value.hint == "Run pip install 'headpond[spark]'."


def test_a_pandas_that_is_too_new_or_too_old_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for version in ("3.0.1", "2.1.0"):
        monkeypatch.setattr(pandas, "__version__", version)
        with pytest.raises(SparkPackages, match=version.replace(".", r"\.")):
            need_spark()


def test_a_pyarrow_that_is_too_old_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pa, "__version__", "12.0.0")
    with pytest.raises(SparkPackages, match=r"(?i)pyarrow.*12"):
        need_spark()


def test_a_spark_that_is_too_old_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import pyspark

    monkeypatch.setattr(pyspark, "__version__", "3.5.1")
    with pytest.raises(SparkPackages, match=r"3\.5\.1"):
        need_spark()


def test_without_matplotlib_there_are_no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(SparkPackages, match="matplotlib"):
        need_plots()


def test_a_worker_without_packages_is_refused_before_java_starts(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path], check=True, timeout=300)
    python = str(tmp_path / "bin" / "python")
    with pytest.raises(SparkWorker, match=f"{python}, and it has no pyarrow") as raised:
        need_worker(python)
    assert "PYSPARK_PYTHON" in raised.value.hint
    done = start_elsewhere(PYSPARK_PYTHON=python, PATH=str(tmp_path))
    assert "SparkWorker: " in done.stderr
    assert "has no pyarrow" in done.stderr


def test_a_worker_that_is_no_python_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SparkWorker, match="gone"):
        need_worker(str(tmp_path / "gone"))
    with pytest.raises(SparkWorker, match="of no known version"):
        need_worker("/bin/false")


def test_a_java_that_cannot_run_spark_is_refused(tmp_path: Path, path_without_java: str) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text('#!/bin/sh\necho \'openjdk version "17.0.1"\' >&2\n[ "$1" = -version ]\n')
    java.chmod(0o755)
    done = start_elsewhere(PATH=path_without_java, JAVA_HOME=str(tmp_path), XDG_CACHE_HOME=str(tmp_path))
    assert done.returncode == 1
    assert "SparkFailed: Spark did not start" in done.stderr


# --- jobs that fail -----------------------------------------------------------------------------------


def import_what_is_not_there(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches
    raise ModuleNotFoundError("No module named 'turbine'")


def fail(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches
    raise ValueError("the pipe burst")


def test_a_package_that_a_worker_lacks_is_named(spark: SparkSession) -> None:
    with pytest.raises(SparkWorker, match="has no turbine"), job_errors():
        spark.range(1).mapInArrow(import_what_is_not_there, "id long").collect()


def read_a_message(spark: SparkSession, url: str, topic: str) -> DataFrame:
    with headpond.sync.connect(url) as client, client.producer(topic) as producer:
        producer.send(b"a message")
    return spark.read.format("headpond").options(url=url, topic=topic).load()


def test_a_worker_without_packages_is_named(
    spark: SparkSession, shared_url: str, topic: str, tmp_path: Path
) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path], check=True, timeout=300)
    other = spark.newSession()
    other.conf.set(WORKER_PYTHON, str(tmp_path / "bin" / "python"))
    rows = read_a_message(other, shared_url, topic)
    with pytest.raises(SparkWorker, match="has no pyarrow"), job_errors():
        rows.collect()


def test_this_python_makes_plans_and_tasks_run_in_pyspark_python(
    spark: SparkSession, shared_url: str, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = str(tmp_path / "there" / "python")
    monkeypatch.setenv("PYSPARK_PYTHON", elsewhere)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", elsewhere)
    monkeypatch.setattr(spark.sparkContext, "_python_includes", ["headpond.zip"])
    rows = read_a_message(register_format(spark.newSession()), shared_url, topic)
    with pytest.raises(SparkWorker, match="there/python: there is no such program"), job_errors():
        rows.collect()
    assert spark.sparkContext.pythonExec == elsewhere


def test_a_job_that_fails_is_an_error_of_the_catalogue(spark: SparkSession) -> None:
    with pytest.raises(SparkFailed, match="a job of Spark failed: ValueError: the pipe burst"), job_errors():
        spark.range(1).mapInArrow(fail, "id long").collect()
