"""The faults of a pipeline: where, what, and what to do."""

from __future__ import annotations

import difflib
import tomllib
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from headpond.model.errors import BadPipeline


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
