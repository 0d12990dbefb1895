"""A pipeline's file, or what a Python program says, made a plan; each fault with its line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from headpond.model.errors import BadPipeline
from headpond.spark.pipeline.faults import Fault, line_of, nearest, refuse
from headpond.spark.pipeline.flow import check_flow
from headpond.spark.pipeline.plan import SECTIONS, Cluster, Plan, Table, Trigger

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headpond.spark.pipeline.running import Run

Function = Callable[["DataFrame"], "DataFrame"]
FILE_BYTES_MAX = 1024 * 1024
_AT = re.compile(r"^(?P<what>.*?)(?: - at `\$(?P<path>[^`]*)`)?$", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<key>[^`]*)`")
_MISSING = re.compile(r"Object missing required field `(?P<key>[^`]*)`")


class Pipeline:
    """Sources, steps and sinks under a name. Each step knows those that were said before it."""

    def __init__(
        self,
        name: str,
        *,
        checkpoint: str | Path | None = None,
        url: str | None = None,
        token: str | None = None,
        trigger: Mapping[str, Any] | None = None,
        master: str | None = None,
        conf: Mapping[str, Any] | None = None,
    ) -> None:
        told = {"name": name, "url": url, "token": token, "trigger": trigger}
        told["checkpoint"] = None if checkpoint is None else str(checkpoint)
        self._said: dict[str, Any] = {key: value for key, value in told.items() if value is not None}
        self._said["spark"] = {"conf": dict(conf or {})} | ({} if master is None else {"master": master})
        self._said |= {section: {} for section in SECTIONS}
        self._text: str | None = None
        self.file: Path | None = None
        """Where it was read from."""
        self.functions: dict[str, Function] = {}
        """Of steps that were given a function instead of its name."""

    @classmethod
    def load(cls, path: str | Path) -> Pipeline:
        """Reads a file; what is wrong in it is told by ``plan``, all at once."""
        file = Path(path)
        try:
            if file.stat().st_size > FILE_BYTES_MAX:
                raise BadPipeline(f"{path} is larger than {FILE_BYTES_MAX} bytes, which no pipeline is")
            text = file.read_text(encoding="utf-8")
            said = tomllib.loads(text)
        except OSError as error:
            raise BadPipeline(
                f"cannot read {path}: {error.strerror}", hint="Name a pipeline's file."
            ) from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise BadPipeline(f"{path} is not TOML: {error}", hint="Correct it at the place named.") from error
        pipeline = cls(file.stem)
        pipeline._said = {"name": _named_by(file)} | said
        pipeline._text, pipeline.file = text, file
        return pipeline

    # --- in Python ----------------------------------------------------------------------------------

    def source(self, name: str, **table: Any) -> Pipeline:
        return self._add("sources", name, table)

    def step(self, name: str, *, python: str | Function | None = None, **table: Any) -> Pipeline:
        """``from_`` stands for ``from``; ``python`` may be the function itself."""
        if callable(python):
            self.functions[name] = python
            python = f"{python.__module__}:{getattr(python, '__qualname__', 'function')}"
        return self._add("steps", name, table if python is None else table | {"python": python})

    def sink(self, name: str, **table: Any) -> Pipeline:
        return self._add("sinks", name, table)

    def _add(self, section: str, name: str, table: dict[str, Any]) -> Pipeline:
        if name in self._said[section]:
            raise BadPipeline(f"{section} has {name} twice", hint="Give each a name of its own.")
        if "from_" in table:
            table["from"] = table.pop("from_")
        self._said[section][name] = table
        return self

    def set_trigger(self, **trigger: Any) -> None:
        """In place of what was said, for all sinks."""
        self._said["trigger"] = trigger
        for sink in self._said.get("sinks", {}).values():
            if isinstance(sink, dict):
                sink.pop("trigger", None)

    # --- the plan -----------------------------------------------------------------------------------

    @property
    def plan(self) -> Plan:
        """What it says, checked as far as that goes without Spark."""
        faults: list[Fault] = []
        plan = _read_plan(self._said, faults)
        if plan is not None and not faults:
            faults += check_flow(plan)
        if faults or plan is None:
            raise self.refuse(faults)
        return plan

    def refuse(self, faults: list[Fault]) -> BadPipeline:
        """Faults as one error, with the lines of the file."""
        return refuse(str(self.file or self._said["name"]), [self._placed(fault) for fault in faults])

    def _placed(self, fault: Fault) -> Fault:
        if self._text is None or fault.line is not None:
            return fault
        return replace(fault, line=line_of(self._text, fault.path))

    def line_of(self, path: tuple[str, ...]) -> int | None:
        return None if self._text is None else line_of(self._text, path)

    def leading_lines(self, line: int) -> int:
        """How far below its key a text begins: a line, if the key's line ends with the opening quotes."""
        return int((self._text or "").splitlines()[line - 1].rstrip().endswith(('"""', "'''")))

    @property
    def folder(self) -> Path:
        """What relative paths start from: the file's folder, or the current one."""
        return (self.file.parent if self.file is not None else Path()).absolute()

    def check(self, spark: SparkSession | None = None) -> None:
        """Tries all of it on Spark without running it; raises ``BadPipeline`` with every fault found."""
        from headpond.spark.pipeline.running import analyse

        analyse(self, spark)

    def start(self, spark: SparkSession | None = None) -> Run:
        """Starts a query a sink."""
        from headpond.spark.pipeline.running import start

        return start(self, spark)


def _named_by(file: Path) -> str:
    return re.sub(r"[^A-Za-z0-9_]", "_", file.stem).lstrip("0123456789_") or "pipeline"


# --- tables -------------------------------------------------------------------------------------------


def _read_plan(said: Mapping[str, Any], faults: list[Fault]) -> Plan | None:
    """The plan, or None where a part of it cannot be read; then ``faults`` tells."""
    parts: dict[str, Any] = {}
    for key, value in said.items():
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


def _read_table(given: Any, kind: Any, path: tuple[str, ...], faults: list[Fault]) -> Any:
    try:
        return msgspec.convert(given, kind, from_attributes=True)
    except msgspec.ValidationError as error:
        faults.append(_fault_of(str(error), kind, path))
        return None


def _fault_of(message: str, kind: type[Table], path: tuple[str, ...]) -> Fault:
    """msgspec's sentence, with the place in the file instead of its own."""
    found = _AT.match(message)
    assert found is not None
    what, below = found["what"], tuple(part for part in re.split(r"[.\[\]]+", found["path"] or "") if part)
    path = (*path, *(part for part in below if part != "..."))
    if (unknown := _UNKNOWN.search(what)) is not None:
        key = unknown["key"]
        return Fault((*path, key), f"there is no key {key} here", nearest(key, _keys(kind, below)))
    if (missing := _MISSING.search(what)) is not None:
        return Fault(path, f"the key {missing['key']} is missing", "docs/spark_pipelines.md lists the keys.")
    if "matching regex" in what:
        what = "a name is a letter, then letters, digits and _, at most 64"
    return Fault(path, what[0].lower() + what[1:].replace("`", ""))


def _keys(kind: type[Table], below: tuple[str, ...]) -> list[str]:
    """The keys of the table that a path leads to."""
    for part in below:
        kind = _INNER.get(part, kind)
    return [field.encode_name for field in msgspec.structs.fields(kind)]


_INNER: dict[str, Any] = {"trigger": Trigger, "spark": Cluster} | {
    name: table
    for section in SECTIONS.values()
    for name, table in (
        (field.encode_name, inner)
        for field in msgspec.structs.fields(section)
        for inner in getattr(field.type, "__args__", ())
        if isinstance(inner, type) and issubclass(inner, Table)
    )
}
