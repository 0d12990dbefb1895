"""What is wrong with a pipeline: where, what, and what to do; and the checks that need no Spark.

The checks: every name is known, every table is of one kind, and no row is dropped silently.
"""

from __future__ import annotations

import difflib
import posixpath
import re
import tomllib
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from headpond.model.errors import BadPipeline, BadSetting, HeadpondError
from headpond.model.names import TopicName
from headpond.model.topic_settings import Setting, SettingKind
from headpond.spark.options import ON_GAP
from headpond.spark.pipeline.plan import Plan, SinkTable, SourceTable, StepTable, Trigger, kind_of

OUT_OF_ORDER = "out_of_order"
"""The column that ``reorder`` adds."""
REST = "rest"
"""The route of rows that match no predicate."""
MODES = ("append", "update", "complete")
ABOUT_TOPICS = (
    "subscription",
    "on_gap",
    "filter",
    "start_beyond_end",
    "min_entries_per_trigger",
    "max_trigger_delay",
    "max_entries_per_trigger",
    "max_bytes_per_trigger",
    "task_per_shard",
)
"""Keys of a source that do not apply to Parquet."""


@dataclass(frozen=True, slots=True)
class PlanFault:
    path: tuple[str, ...]
    """The place in the pipeline: ``("steps", "clean", "sql")``."""
    message: str
    hint: str = ""
    line: int | None = None
    """Of the file, where there is one."""

    @property
    def place(self) -> str:
        return ".".join(self.path)

    def __str__(self) -> str:
        where = f"line {self.line}: " if self.line is not None else ""
        return f"{where}{self.place}: {self.message}" if self.path else f"{where}{self.message}"


def refuse(name: str, faults: Iterable[PlanFault]) -> BadPipeline:
    """All faults as one error."""
    ordered = sorted(set(faults), key=lambda fault: (fault.line is None, fault.line or 0, fault.place))
    if len(ordered) == 1:
        error = BadPipeline(f"{name}: {ordered[0]}", hint=ordered[0].hint or None)
    else:
        lines = [f"  {fault}" + (f"\n    {fault.hint}" if fault.hint else "") for fault in ordered]
        error = BadPipeline("\n".join([f"{name} has {len(ordered)} faults:", *lines]))
    error.faults = ordered
    return error


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint that names the most similar known word."""
    names = list(known)
    near = difflib.get_close_matches(word, names, n=1)
    return f"Did you mean {near[0]}?" if near else f"There are: {', '.join(names) or 'none'}."


def line_of(text: str, path: Sequence[str]) -> int | None:
    """The line (from 1) on which a key or table of a TOML file begins; its nearest parent's if it is not there.

    tomllib reports no lines. But the first lines of a file either are TOML or are not, and the shortest such
    part that has the key ends with its value: so the parser itself finds the line, in every form of TOML.
    """
    lines = text.splitlines()
    for length in range(len(path), 0, -1):
        wanted = path[:length]

        def there(count: int, wanted: Sequence[str] = wanted) -> bool:
            return _has(_whole(lines, count)[1], wanted)

        ends = bisect_left(range(len(lines) + 1), True, key=there)
        if ends <= len(lines):
            return _whole(lines, ends - 1)[0] + 1
    return None


def _whole(lines: Sequence[str], count: int) -> tuple[int, dict[str, Any]]:
    """The longest beginning of at most so many lines that ends between two keys, and what it says."""
    while True:
        try:
            return count, tomllib.loads("\n".join(lines[:count]))
        except tomllib.TOMLDecodeError:
            count -= 1  # inside of a value that goes over several lines


def _has(tables: Any, path: Sequence[str]) -> bool:
    for name in path:
        if not isinstance(tables, dict) or name not in tables:
            return False
        tables = tables[name]
    return True


# --- values -------------------------------------------------------------------------------------------


def seconds(text: str) -> float:
    """A duration as a person writes it; ``BadSetting`` if it is none."""
    value = Setting(name="duration", kind=SettingKind.SECONDS).read(text)
    assert isinstance(value, float)
    return value


def interval(text: str) -> str:
    """A duration as Spark takes it."""
    return f"{round(seconds(text) * 1000)} milliseconds"


# --- checks -------------------------------------------------------------------------------------------


def views_of(name: str, step: StepTable) -> list[str]:
    """The names under which a step's rows can be taken."""
    if step.route is None:
        return [name]
    return [f"{name}_{route}" for route in (*step.route, REST)]


def dead_name(step: str) -> str:
    """The name of the query that writes a step's dead letters."""
    return f"{step}_dead"


def faults_of(plan: Plan) -> Iterator[PlanFault]:
    """All faults that can be found without Spark."""
    if not plan.sources:
        yield PlanFault(("sources",), "there is no source", "Add a table like [sources.orders] with topic = …")
    if not plan.sinks:
        yield PlanFault(
            ("sinks",), "there is no sink", "Add a table like [sinks.out] with from = … and topic = …"
        )
    known: dict[str, tuple[str, ...]] = {}
    for name, source in plan.sources.items():
        yield from _source_faults(name, source)
        yield from _taken(("sources", name), name, known)
        known[name] = ("sources", name)
    for name, step in plan.steps.items():
        yield from _step_faults(name, step, known)
        for view in views_of(name, step):
            yield from _taken(("steps", name), view, known)
            known[view] = ("steps", name)
    for name, sink in plan.sinks.items():
        yield from _sink_faults(name, sink, known)
    yield from _dropped(plan)
    yield from _outlets(plan)
    yield from _trigger_faults(("trigger",), plan.trigger)
    yield from _endless(plan)
    yield from _divided(plan)


def _taken(path: tuple[str, str], name: str, known: dict[str, tuple[str, ...]]) -> Iterator[PlanFault]:
    """Names are views of Spark, which ignores case: in SQL the second would replace the first."""
    for other, where in known.items():
        if other.lower() == name.lower():
            yield PlanFault(path, f"the name {name} is taken by {'.'.join(where)}", "Choose another.")


def _one_kind(path: tuple[str, str], table: SourceTable | StepTable | SinkTable) -> Iterator[PlanFault]:
    kinds = kind_of(table)
    if len(kinds) != 1:
        given = " and ".join(kinds) if kinds else "none"
        yield PlanFault(path, f"it must have one of {', '.join(table.KINDS)}; it has {given}")


def _misplaced(
    path: tuple[str, str], table: SourceTable | SinkTable, keys: Iterable[str], about: str
) -> Iterator[PlanFault]:
    for key in keys:
        if getattr(table, key) not in (None, []):
            yield PlanFault((*path, key), f"{key} is about {about}")


# --- sources ------------------------------------------------------------------------------------------


def _source_faults(name: str, source: SourceTable) -> Iterator[PlanFault]:
    path = ("sources", name)
    yield from _one_kind(path, source)
    if source.parquet is not None:
        yield from _misplaced(path, source, ABOUT_TOPICS, "topics, and this is Parquet")
    elif source.stream is False:
        yield PlanFault((*path, "stream"), "a topic is always read as a stream", "Leave it out.")
    if source.on_gap is not None and source.on_gap not in ON_GAP:
        yield PlanFault((*path, "on_gap"), f"on_gap is one of {', '.join(ON_GAP)}")
    if source.watermark is not None:
        yield from _duration((*path, "watermark", "delay"), source.watermark.delay)
        if not source.streams:
            yield PlanFault((*path, "watermark"), "a batch read has no watermark", "Set stream = true.")


# --- steps --------------------------------------------------------------------------------------------


def _step_faults(name: str, step: StepTable, known: dict[str, tuple[str, ...]]) -> Iterator[PlanFault]:
    path = ("steps", name)
    yield from _one_kind(path, step)
    if step.from_ is None and step.sql is None:
        yield PlanFault(path, "the key from is missing", f"It is one of {', '.join(known) or 'none yet'}.")
    elif step.from_ is not None:
        yield from _known((*path, "from"), step.from_, known)
    if step.python is not None and ":" not in step.python:
        yield PlanFault((*path, "python"), f"{step.python!r} names no function", "Write module:function.")
    for key, duration in (("watermark", "delay"), ("dedup", "within"), ("reorder", "wait")):
        if (table := getattr(step, key)) is not None:
            yield from _duration((*path, key, duration), getattr(table, duration))
    if step.route is not None:
        if not step.route:
            yield PlanFault((*path, "route"), "a route needs at least one name and its predicate")
        if REST in step.route:
            yield PlanFault((*path, "route", REST), f"{REST} is the name of the other rows", "Rename it.")
    elif step.drop_rest:
        yield PlanFault((*path, "drop_rest"), "drop_rest is about a route")


def _dropped(plan: Plan) -> Iterator[PlanFault]:
    """The rows of every route must reach a sink, or the plan must say that it drops them."""
    taken = _taken_on(plan)
    for name, step in plan.steps.items():
        if step.route is None:
            continue
        for view in views_of(name, step):
            if view in taken or (step.drop_rest and view == f"{name}_{REST}"):
                continue
            hint = f"Take {view} into a step or a sink"
            hint += ", or set drop_rest = true." if view == f"{name}_{REST}" else ", or leave that route out."
            yield PlanFault(("steps", name, "route"), f"no step or sink takes the rows of {view}", hint)


def _taken_on(plan: Plan) -> set[str]:
    """The names whose rows reach a sink, or a step's dead letters, over any number of steps."""
    taken = {sink.from_ for sink in plan.sinks.values()}
    views = [view for name, step in plan.steps.items() for view in views_of(name, step)]
    for name, step in reversed(plan.steps.items()):
        if step.dead_letter is None and taken.isdisjoint(views_of(name, step)):
            continue
        if step.from_ is not None:
            taken.add(step.from_)
        if step.sql is not None:
            words = {word.lower() for word in re.findall(r"\w+", step.sql)}
            taken |= {view for view in views if view.lower() in words}
    return taken


# --- sinks --------------------------------------------------------------------------------------------


def _sink_faults(name: str, sink: SinkTable, known: dict[str, tuple[str, ...]]) -> Iterator[PlanFault]:
    path = ("sinks", name)
    yield from _one_kind(path, sink)
    yield from _known((*path, "from"), sink.from_, known)
    if sink.mode not in MODES:
        yield PlanFault((*path, "mode"), f"mode is one of {', '.join(MODES)}")
    elif sink.mode != "append" and not sink.console:
        yield PlanFault(
            (*path, "mode"), f"only the console can take {sink.mode}", "A topic and Parquet only grow."
        )
    if sink.parquet is None:
        yield from _misplaced(path, sink, ("by_date", "partition_by"), "Parquet")
    if sink.topic is None and not sink.topics:
        keys = ("key", "value", "id", "headers", "shard", "sink_id", "on_repeat")
        yield from _misplaced(path, sink, keys, "topics")
    if sink.trigger is not None:
        yield from _trigger_faults((*path, "trigger"), sink.trigger)


def _outlets(plan: Plan) -> Iterator[PlanFault]:
    """Each query needs its own name and its own place to count batches.

    If two count in one place, the node or Spark's log of files drops batches as written already.
    """
    names = {dead_name(name): name for name, step in plan.steps.items() if step.dead_letter is not None}
    places: dict[tuple[str, ...], str] = {}
    for name, sink in plan.sinks.items():
        if name in names:
            message = f"the name {name} is taken by the dead letters of steps.{names[name]}"
            yield PlanFault(("sinks", name), message, "Choose another.")
        key, place = _counted(plan, sink)
        if key is not None and (other := places.setdefault(place, name)) != name:
            message = f"it counts its batches where sinks.{other} does, and each would drop the other's rows"
            hint = "Name another folder." if key == "parquet" else "Name another sink_id, or leave it out."
            yield PlanFault(("sinks", name, key), message, hint)


def _counted(plan: Plan, sink: SinkTable) -> tuple[str | None, tuple[str, ...]]:
    """Where a sink's batches are counted, if another sink could count there too: the key, and the place."""
    if sink.parquet is not None:
        return "parquet", ("parquet", posixpath.normpath(sink.parquet))
    if sink.sink_id is not None:
        topic = sink.topic or ""
        with suppress(HeadpondError):  # opening the topic reports a bad name
            topic = str(TopicName.parse(topic))
        return "sink_id", (sink.url or plan.url or "", sink.sink_id, topic)
    return None, ()


def _trigger_faults(path: tuple[str, ...], trigger: Trigger) -> Iterator[PlanFault]:
    if trigger.every is not None:
        yield from _duration((*path, "every"), trigger.every)
        if trigger.available_now:
            yield PlanFault(path, "every and available_now exclude each other")


def _endless(plan: Plan) -> Iterator[PlanFault]:
    """Spark keeps making batches for the timers of ``reorder``, so ``available_now`` would never end."""
    if not plan.reorders:
        return
    triggers: dict[tuple[str, ...], Trigger | None] = {("trigger",): plan.trigger}
    triggers |= {("sinks", name, "trigger"): sink.trigger for name, sink in plan.sinks.items()}
    for path, trigger in triggers.items():
        if trigger is not None and trigger.available_now:
            hint = "Set every = …; `headpond spark run --idle 30s` ends the run when no rows come."
            yield PlanFault(path, "available_now does not work with reorder, which waits", hint)


def _divided(plan: Plan) -> Iterator[PlanFault]:
    """Two sinks process shared rows twice, and a row may be late for one and in time for the other."""
    if not plan.reorders:
        return
    for name, step in plan.steps.items():
        tests = [] if step.dead_letter is None else [step.dead_letter.keep]
        tests += (step.route or {}).values()
        if any(re.search(rf"\b{OUT_OF_ORDER}\b", test, re.IGNORECASE) for test in tests):
            text = f"a row may be {OUT_OF_ORDER} in one query and not in another, and go to neither or to both"
            hint = f"Take both into one sink: topics = true, `case when {OUT_OF_ORDER} then … end as topic`."
            yield PlanFault(("steps", name, *kind_of(step)), text, hint)


def _known(path: tuple[str, ...], name: str, known: dict[str, tuple[str, ...]]) -> Iterator[PlanFault]:
    if name not in known:
        hint = nearest(name, known)
        if path[0] == "steps":
            hint += " A step takes from sources, and from steps above it."
        yield PlanFault(path, f"nothing above is called {name}", hint)


def _duration(path: tuple[str, ...], text: str) -> Iterator[PlanFault]:
    try:
        if seconds(text) <= 0:
            yield PlanFault(path, "it must be longer than 0")
    except BadSetting:
        yield PlanFault(path, f"{text!r} is not a duration", "Write it as 30s, 5m, 1.5h or 7d.")
