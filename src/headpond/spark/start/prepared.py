"""What ``headpond spark prepare`` made, found again at the start of a session.

Java spends much of a session's start on Spark's classes: it opens jars, parses and verifies. It can keep what
came of that in a file and map it into memory the next time (class data sharing). That file stands in a folder
of the cache, beside the options that make Java use it. The folder's name is a hash of all that it was made
from: the Java, and every jar of Spark. Another Java or another jar is another name, where there is nothing.

Java looks at the file as well, checksums included. It starts without it and says nothing if it is damaged, was
made by another build or for other jars, or does not go with an option (pointers that are not compressed).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from headpond.spark.start.java import Java, Start, cache_folder

FORM = 1
FOLDER_PREFIX = "spark-start-"
CLASSES = "classes.jsa"
OPTIONS = "java.options"
TOLD = "prepared.json"

CLASS_LIST = "classes.list"
"""What a rehearsal leaves: the classes that were loaded;"""
GIVEN = "given"
"""the class path as Spark gave it to Java;"""
OPENED = "opened"
"""and as Java understood it, every jar by name."""


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a start that was prepared; in the folder as JSON."""

    java: str
    java_version: int
    spark: str
    spark_home: str
    class_path: str
    """As Spark gives it to Java."""
    classes: int
    bytes: int


def prepared_start(java: Java, environment: Mapping[str, str] | None = None) -> Start | None:
    """What was prepared for this Java and this Spark, if it is there and whole."""
    folder = start_folder(java, environment)
    found = None if folder is None else read_prepared(folder)
    return None if folder is None or found is None else Start(found.class_path, folder / OPTIONS)


def start_folder(java: Java, environment: Mapping[str, str] | None = None) -> Path | None:
    """Where it belongs; None if Spark's jars cannot be looked at."""
    home = spark_home()
    try:
        with os.scandir(home / "jars") as entries:
            jars = sorted((entry.name, entry.stat().st_size, entry.stat().st_mtime_ns) for entry in entries)
    except OSError:
        return None
    made_from = (FORM, str(java.command.absolute()), java.build, str(home), jars)
    return (
        cache_folder(environment)
        / f"{FOLDER_PREFIX}{hashlib.sha256(repr(made_from).encode()).hexdigest()[:16]}"
    )


def spark_home() -> Path:
    """The Spark that pyspark starts."""
    import pyspark

    return Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)


def read_prepared(folder: Path) -> Prepared | None:
    try:
        found = msgspec.json.decode((folder / TOLD).read_bytes(), type=Prepared)
        whole = (folder / CLASSES).stat().st_size == found.bytes
    except (OSError, ValueError):  # what is no JSON, or JSON of something else, is a ValueError
        return None
    return found if whole else None


def java_options(folder: Path, class_path: str) -> str:
    """The file of options that Java is given: quiet whatever the matter, and sure of every byte."""
    lines = [
        "-cp",
        class_path,
        f"-XX:SharedArchiveFile={folder / CLASSES}",
        "-Xshare:auto",
        # Without this, a byte that went wrong in the middle of the file would end Java, not just the sharing.
        "-XX:+UnlockDiagnosticVMOptions",
        "-XX:+VerifySharedSpaces",
        "-Xlog:cds=off",
        "-Xlog:class+path=off",
    ]
    return "".join(f"{_quoted(line)}\n" for line in lines)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
