"""What was prepared is used where it fits, and nothing else of a session changes, whatever became of it."""

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
from headpond.spark.start import preparing
from headpond.spark.start.java import Java, find_java, java_home
from headpond.spark.start.prepared import (
    CLASS_LIST,
    CLASSES,
    GIVEN,
    OPENED,
    OPTIONS,
    TOLD,
    prepared_start,
    read_prepared,
    spark_home,
    start_folder,
)
from headpond.spark.start.preparing import prepare, write_start
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
    """The package's: it has no shared classes of its own, and is strict about a jar that is named twice."""
    return find_java({"PATH": ""})


@pytest.fixture(scope="module")
def class_path() -> str:
    """As Spark gives it: a folder that is not there, a jar named twice, and after it one that is used."""
    (twice,) = (spark_home() / "jars").glob("slf4j-api-*.jar")
    (jar,) = (spark_home() / "jars").glob("spark-launcher_*.jar")
    return os.pathsep.join(map(str, (spark_home() / "no-conf", twice, twice, jar)))


def rehearsed(folder: Path, class_path: str) -> Path:
    """What a rehearsal leaves, of one class of Spark."""
    folder.mkdir(parents=True)
    (folder / CLASS_LIST).write_text(f"java/lang/Object\n{MAIN.replace('.', '/')}\n")
    (folder / GIVEN).write_text(class_path)
    (folder / OPENED).write_text(class_path)
    return folder


@pytest.fixture(scope="module")
def cache(java: Java, class_path: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder, with a space and quotes in its name, in which a start was prepared."""
    cache = tmp_path_factory.mktemp("a 'cache'")
    folder = start_folder(java, {"XDG_CACHE_HOME": str(cache)})
    assert folder is not None
    folder.parent.mkdir()
    write_start(java, rehearsed(cache / "making", class_path), folder, silent)
    return cache


@pytest.fixture
def start(java: Java, cache: Path) -> Callable[[str], str]:
    """Starts Java as Spark does, and tells all that it says."""

    def starting(class_path: str) -> str:
        environment = {"XDG_CACHE_HOME": str(cache)}
        home = java_home(java, environment, start=prepared_start(java, environment))
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


def test_java_takes_classes_from_what_was_prepared(start: Callable[[str], str], class_path: str) -> None:
    assert start(class_path).endswith(SHARED)


def test_another_class_path_is_left_as_it_is(start: Callable[[str], str], class_path: str) -> None:
    assert SHARED not in start(class_path.partition(os.pathsep)[2])


def test_a_folder_that_has_come_to_the_class_path_is_used_and_nothing_prepared(
    java: Java, class_path: str, tmp_path: Path
) -> None:
    jars = class_path.partition(os.pathsep)[2]
    conf, folder = tmp_path / "conf", tmp_path / "start"
    write_start(java, rehearsed(tmp_path / "making", f"{conf}{os.pathsep}{jars}"), folder, silent)
    conf.mkdir()
    (conf / "log4j2.properties").touch()
    command = [str(java.command), f"@{folder / OPTIONS}", "-Xshare:on", "-version"]
    assert subprocess.run(command, capture_output=True, timeout=60).returncode == 1
    command[2] = "-Xshare:auto"
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("damage", ["middle", "header", "short", "empty", "gone", "nothing told"])
def test_a_damaged_one_is_not_used_and_not_spoken_of(
    java: Java, cache: Path, class_path: str, start: Callable[[str], str], damage: str
) -> None:
    folder = start_folder(java, {"XDG_CACHE_HOME": str(cache)})
    assert folder is not None
    file = folder / (TOLD if damage == "nothing told" else CLASSES)
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


def test_a_script_whose_options_are_gone_starts_java_without(
    java: Java, cache: Path, class_path: str, tmp_path: Path
) -> None:
    environment = {"XDG_CACHE_HOME": str(cache)}
    prepared = prepared_start(java, environment)
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


def test_a_session_starts_the_java_that_uses_it(
    java: Java, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setenv("JAVA_HOME", str(java.command.parents[1]))
    folder = start_folder(find_java())
    assert folder is not None
    with _launching(java=True, local=False):
        script = Path(os.environ["JAVA_HOME"], "bin", "java").read_text()
    assert "-cp" in script
    assert folder.name in script


def test_another_build_of_java_or_another_jar_is_another_place(
    java: Java, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jars = tmp_path / "jars"
    jars.mkdir()
    (jars / "a.jar").write_bytes(b"a")
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    places = [start_folder(java), start_folder(Java(java.command, java.version, java.origin, "21.0.99"))]
    (jars / "b.jar").touch()
    places.append(start_folder(java))
    (jars / "a.jar").write_bytes(b"another")
    places.append(start_folder(java))
    assert len(set(places)) == 4
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "nowhere"))
    assert start_folder(java) is None


# --- making it ----------------------------------------------------------------------------------------


@pytest.fixture
def quick_rehearsal(monkeypatch: pytest.MonkeyPatch, java: Java, class_path: str) -> None:
    """Preparing with the package's Java and one class instead of a session of Spark."""
    real = preparing._step

    def step(what: str, command: list[str], environment: dict[str, str] | None = None) -> None:
        if environment is None:
            real(what, command)
        else:
            folder = Path(command[-1])
            rehearsed(folder / "quick", class_path)
            for file in (folder / "quick").iterdir():
                file.rename(folder / file.name)

    monkeypatch.setattr(preparing, "_step", step)
    monkeypatch.setenv("JAVA_HOME", str(java.command.parents[1]))


@pytest.mark.usefixtures("quick_rehearsal")
def test_it_is_made_once_and_what_it_replaces_is_removed(
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
        "it was there, and sessions use it; --again makes it anew",
        f"to be rid of it: rm -r {folder}",
    ]
    assert prepare(again=True).made is True
    (folder / TOLD).write_text("{}")
    assert prepare().made is True
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


@pytest.mark.usefixtures("quick_rehearsal")
def test_two_that_prepare_at_once_leave_one_that_is_whole(
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
    assert read_prepared(Path(folders[0])) is not None


@pytest.mark.usefixtures("quick_rehearsal")
def test_a_cache_that_cannot_be_written_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(SparkNotPrepared, match="file"):
        prepare()


def test_what_java_refuses_is_told_and_leaves_nothing(java: Java, class_path: str, tmp_path: Path) -> None:
    folder = rehearsed(tmp_path / "making", class_path)
    (folder / CLASS_LIST).unlink()
    with pytest.raises(SparkNotPrepared, match="Java failed: "):
        write_start(java, folder, tmp_path / "start", silent)
    assert not (tmp_path / "start").exists()


def test_the_rehearsal_runs_on_this_spark(spark: SparkSession, tmp_path: Path) -> None:
    from headpond.spark.start import rehearsal

    spark.dataSource.register(rehearsal.Rehearsed)
    gateway: Any = spark.sparkContext._gateway
    rehearsal._write_class_paths(gateway.jvm, tmp_path)
    rehearsal._queries(spark, tmp_path)
    rehearsal._streams(spark, tmp_path)
    assert (tmp_path / GIVEN).read_text().endswith(f"jars{os.sep}*")
    assert f"{os.pathsep}{spark_home() / 'jars'}{os.sep}" in (tmp_path / OPENED).read_text()
