"""What processes did and saw: files of JSON lines, and the history that they add up to.

A line is ``[number, kind, fields]``: an event of ``headpond/sim/history.py``, numbered within its file; or
``[number, "", fields]``: more about that event. A process writes a line before it does what the line says, so
a process that is killed in between leaves the note that it may have happened.
"""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path
from typing import Any

import msgspec

from headpond.sim.history import Accounts, Batch, Delivered, Gone, History, Read, Sent, Settled

KINDS = {kind.__name__: kind for kind in (Sent, Delivered, Settled, Batch, Read, Gone, Accounts)}


class Journal(History):
    """The history of one process, on disk. It keeps the events, so that it can say what became of them."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._numbers: dict[int, int] = {}
        """By the identity of an event."""

    def add(self, event: object) -> None:
        super().add(event)
        number = self._numbers[id(event)] = len(self.events)
        values = {each.name: getattr(event, each.name) for each in fields(event)}  # type: ignore[arg-type]
        if isinstance(event, Settled):
            values["delivery"] = self._numbers[id(event.delivery)]
        self._write(number, type(event).__name__, values)

    def change(self, event: object, **fields: object) -> None:
        super().change(event, **fields)
        self._write(self._numbers[id(event)], "", fields)

    def note(self, at_s: float, text: str) -> None:
        """Nobody reads the trace of a real process."""

    def _write(self, *line: object) -> None:
        os.write(self._file, msgspec.json.encode(line) + b"\n")


def load(folder: Path, name: str = "*") -> History:
    """The events of all journals of a run, or of one program, in the order of their times."""
    events: list[Any] = []
    for path in sorted((folder / "journals").glob(f"{name}.*jsonl")):
        events += _read(path).values()
    history = History()
    for event in sorted(events, key=lambda event: getattr(event, "at_s", float("inf"))):
        history.add(event)
    return history


def _read(path: Path) -> dict[int, Any]:
    found: dict[int, Any] = {}
    for line in path.read_bytes().splitlines():
        number, kind, values = msgspec.json.decode(line)
        if not kind:
            for name, value in values.items():
                setattr(found[number], name, value)
        elif kind == "Settled":
            found[number] = Settled(found[values.pop("delivery")], **values)
        else:
            found[number] = msgspec.convert(values, KINDS[kind])
    return found
