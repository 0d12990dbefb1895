"""A pipeline as its author wrote it, in a file or in Python, and the plan that it makes."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from headpond.model.errors import BadPipeline
from headpond.spark.pipeline.faults import PlanFault, faults_of, line_of, nearest, refuse
from headpond.spark.pipeline.plan import SECTIONS, Plan, PlanTable, SparkTable, Trigger

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Function = Callable[["DataFrame"], "DataFrame"]
FILE_BYTES_MAX = 1024 * 1024
_AT = re.compile(r"^(?P<what>.*?)(?: - at `\$(?P<path>[^`]*)`)?$", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<key>[^`]*)`")
_MISSING = re.compile(r"Object missing required field `(?P<key>[^`]*)`")


@dataclass(slots=True)
class Definition:
    tables: dict[str, Any]
    """Unchecked, by the keys of a pipeline's file."""
    file: Path | None = None
    text: str | None = None
    """The file's, which faults are located in."""
    functions: dict[str, Function] = field(default_factory=dict)
    """The functions of steps that got one instead of its name, by step."""

    @classmethod
    def load(cls, path: str | Path) -> Definition:
        """Reads a file. Only ``plan`` checks its tables, and reports all their faults at once."""
        file = Path(path)
        try:
            if file.stat().st_size > FILE_BYTES_MAX:
                raise BadPipeline(f"{path} is larger than {FILE_BYTES_MAX} bytes, which no pipeline is")
            text = file.read_text(encoding="utf-8")
            tables = tomllib.loads(text)
        except OSError as error:
            raise BadPipeline(
                f"cannot read {path}: {error.strerror}", hint="Name a pipeline's file."
            ) from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise BadPipeline(f"{path} is not TOML: {error}", hint="Correct it at the place named.") from error
        name = re.sub(r"[^A-Za-z0-9_]", "_", file.stem).lstrip("0123456789_") or "pipeline"
        return cls({"name": name} | tables, file, text)

    @property
    def plan(self) -> Plan:
        """The plan, with every check that needs no Spark."""
        faults: list[PlanFault] = []
        plan = _read_plan(self.tables, faults)
        if plan is not None and not faults:
            faults += faults_of(plan)
        if faults or plan is None:
            raise self.refuse(faults)
        return plan

    @property
    def folder(self) -> Path:
        """The folder that relative paths start from: the file's, or the current one."""
        return (self.file.parent if self.file is not None else Path()).absolute()

    def refuse(self, faults: list[PlanFault]) -> BadPipeline:
        """Faults as one error, with the lines of the file."""
        located = [replace(each, line=each.line or self.line_of(each.path)) for each in faults]
        return refuse(str(self.file or self.tables["name"]), located)

    def line_of(self, path: tuple[str, ...]) -> int | None:
        """The line of a key; None without a file."""
        return None if self.text is None else line_of(self.text, path)

    def first_line_of(self, path: tuple[str, ...]) -> int | None:
        """The first line of a text: the one below its key, if the key's line ends with the opening quotes."""
        line = self.line_of(path)
        if self.text is None or line is None:
            return None
        return line + int(self.text.splitlines()[line - 1].rstrip().endswith(('"""', "'''")))


# --- tables -------------------------------------------------------------------------------------------


def _read_plan(tables: Mapping[str, Any], faults: list[PlanFault]) -> Plan | None:
    """The plan; None and an entry in ``faults`` where a part of it cannot be read."""
    parts: dict[str, Any] = {}
    for key, value in tables.items():
        if key in SECTIONS and isinstance(value, Mapping):
            parts[key] = {
                name: table
                for name, given in value.items()
                if (table := _read_table(given, SECTIONS[key], (key, name), faults)) is not None
            }
        else:
            parts[key] = value
    plan: Plan | None = _read_table(parts, Plan, (), faults)
    return plan


def _read_table(given: Any, kind: Any, path: tuple[str, ...], faults: list[PlanFault]) -> Any:
    try:
        return msgspec.convert(given, kind, from_attributes=True)
    except msgspec.ValidationError as error:
        faults.append(_fault_of(str(error), kind, path))
        return None


def _fault_of(message: str, kind: type[PlanTable], path: tuple[str, ...]) -> PlanFault:
    """The message of msgspec, with the place in the file."""
    found = _AT.match(message)
    assert found is not None
    what, below = found["what"], tuple(part for part in re.split(r"[.\[\]]+", found["path"] or "") if part)
    path = (*path, *(part for part in below if part != "..."))
    if (unknown := _UNKNOWN.search(what)) is not None:
        key = unknown["key"]
        return PlanFault((*path, key), f"there is no key {key} here", nearest(key, _keys(kind, below)))
    if (missing := _MISSING.search(what)) is not None:
        return PlanFault(
            path, f"the key {missing['key']} is missing", "docs/spark_pipelines.md lists the keys."
        )
    if "matching regex" in what:
        what = "a name is a letter, then letters, digits and _, at most 64"
    return PlanFault(path, what[0].lower() + what[1:].replace("`", ""))


def _keys(kind: type[PlanTable], below: tuple[str, ...]) -> list[str]:
    """The keys of the table that a path leads to."""
    for part in below:
        kind = _INNER.get(part, kind)
    return [field.encode_name for field in msgspec.structs.fields(kind)]


_INNER: dict[str, Any] = {"trigger": Trigger, "spark": SparkTable} | {
    name: table
    for section in SECTIONS.values()
    for name, table in (
        (field.encode_name, inner)
        for field in msgspec.structs.fields(section)
        for inner in getattr(field.type, "__args__", ())
        if isinstance(inner, type) and issubclass(inner, PlanTable)
    )
}
