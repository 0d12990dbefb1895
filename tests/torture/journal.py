"""What processes did and saw: files of JSON lines, and the history that they add up to.

A line is ``[number, kind, fields]``: an event of ``headpond/sim/history.py``, numbered within its file; or
``[number, "", fields]``: more about that event. A process writes a line before it does what the line says, so
a process that is killed in between leaves the note that it may have happened.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from headpond.sim.history import Accounts, Batch, Delivered, Gone, History, Read, Sent, Settled

KINDS = {kind.__name__: kind for kind in (Sent, Delivered, Settled, Batch, Read, Gone, Accounts)}


class Journal:
    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._number = 0

    def add(self, kind: type, **fields: object) -> int:
        """Writes an event; returns its number. A settlement refers to its delivery by number."""
        self._number += 1
        self._write(self._number, kind.__name__, fields)
        return self._number

    def change(self, number: int, **fields: object) -> None:
        """Writes what became of an event."""
        self._write(number, "", fields)

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
        number, kind, fields = msgspec.json.decode(line)
        if not kind:
            for name, value in fields.items():
                setattr(found[number], name, value)
        elif kind == "Settled":
            found[number] = Settled(found[fields.pop("delivery")], **fields)
        else:
            found[number] = msgspec.convert(fields, KINDS[kind])
    return found
