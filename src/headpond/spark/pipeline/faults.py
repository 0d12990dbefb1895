"""What is wrong with a pipeline: where, what, and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

from headpond.model.errors import BadPipeline


@dataclass(frozen=True, slots=True)
class Fault:
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


def refuse(name: str, faults: Iterable[Fault]) -> BadPipeline:
    """All of them as one error."""
    told = sorted(set(faults), key=lambda fault: (fault.line is None, fault.line or 0, fault.place))
    if len(told) == 1:
        error = BadPipeline(f"{name}: {told[0]}", hint=told[0].hint or None)
    else:
        lines = [f"  {fault}" + (f"\n    {fault.hint}" if fault.hint else "") for fault in told]
        error = BadPipeline("\n".join([f"{name} has {len(told)} faults:", *lines]))
    error.faults = told
    return error


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint that names what was probably meant."""
    names = list(known)
    near = difflib.get_close_matches(word, names, n=1)
    return f"Did you mean {near[0]}?" if near else f"There are: {', '.join(names) or 'none'}."
