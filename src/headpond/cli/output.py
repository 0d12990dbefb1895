"""Text and JSON on stdout, errors on stderr, and the exit codes.

0: success. 1: an error, on stderr with a hint. 2: wrong usage. 130: Ctrl-C. If the reader of stdout closes the
pipe (``| head``), the command ends quietly with 0; if the reader of stderr does, it continues.
"""

from __future__ import annotations

import codecs
import io
import os
import re
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import typer

from headpond.model.errors import BadRequest, BadTopicName, HeadpondError
from headpond.model.grant import redacted
from headpond.model.names import TopicName
from headpond.shapes.convert import error_object
from headpond.shapes.convert import iso_time as iso_time

if TYPE_CHECKING:
    from rich.console import Console

EXIT_ERROR = 1
EXIT_INTERRUPTED = 130

_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")

Object = Mapping[str, Any]
Result = TypeVar("Result")
Part = TypeVar("Part")


@contextmanager
def errors_reported(*, as_json: bool) -> Iterator[None]:
    """Prints the errors of a command, and turns them into its exit code."""
    try:
        with pipe_may_close():
            yield
    except HeadpondError as error:
        print_error(error, as_json=as_json)
        raise typer.Exit(EXIT_ERROR) from None
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        hint = "Check that the file or stream exists and that you may use it."
        print_error(HeadpondError(f"{place}{error.strerror or error}", hint=hint), as_json=as_json)
        _discard(sys.stdout)
        raise typer.Exit(EXIT_ERROR) from None
    except UnicodeEncodeError as error:  # Python passes on the bytes of an argument that is no text
        message = f"{error.object!a:.80} is not UTF-8 text"
        print_error(BadRequest(message, hint="Write names and values in UTF-8."), as_json=as_json)
        raise typer.Exit(EXIT_ERROR) from None
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None


def check_streams() -> None:
    if sys.stdin is None or sys.stdout is None:
        raise BadRequest("stdin or stdout is closed", hint="Redirect it from or to /dev/null instead.")


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """Runs the asynchronous part of a command."""
    import uvloop

    result: Result = uvloop.run(main)
    return result


def prepare_streams() -> None:
    """Opens /dev/null in place of a closed stdin, stdout or stderr, so that no socket gets its number.

    A terminal without UTF-8 gets ``?`` for what it cannot show.
    """
    if isinstance(sys.stdout, io.TextIOWrapper) and codecs.lookup(sys.stdout.encoding).name != "utf-8":
        sys.stdout.reconfigure(errors="replace")
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115  # for as long as the process lives


@contextmanager
def pipe_may_close() -> Iterator[None]:
    """Ends the command with 0 if the reader of stdout closes the pipe."""
    try:
        yield
        _flush()
    except BrokenPipeError:
        raise typer.Exit(0) from None
    finally:
        try:
            _flush()
        except OSError:
            _discard(sys.stdout)


def _flush() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()


def _discard(stream: TextIO) -> None:
    """Discards the rest of a stream, so that the last flush of the interpreter does not fail too."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def make_console(**options: Any) -> Console:
    """A console of ``rich`` that treats a closed pipe as all other output does."""
    from rich.console import Console

    class PipeConsole(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    return PipeConsole(highlight=False, **options)


@contextmanager
def live_line(text: Callable[[], str]) -> Iterator[None]:
    """Shows a text on one line of the terminal, and asks for it again four times a second."""
    from rich.live import Live
    from rich.text import Text

    class Line:
        def __rich__(self) -> Text:
            return Text(text())

    with Live(Line(), console=make_console(stderr=True), refresh_per_second=4, transient=True):
        yield


@contextmanager
def progress_line(first: str) -> Iterator[Callable[[str], None] | None]:
    """A function that shows the progress on one line of the terminal; None if there is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    last = deque([first], maxlen=1)
    with live_line(lambda: last[0]):
        yield last.append


def print_error(error: HeadpondError, *, as_json: bool) -> None:
    note(json_text(error_object(error)) if as_json else redacted(f"error: {error.message}\nhint: {error.hint}"))


def note(text: str) -> None:
    """Prints a message for a person on stderr."""
    try:
        print(text, file=sys.stderr, flush=True)
    except BrokenPipeError:
        _discard(sys.stderr)


def json_text(value: Any) -> str:
    import msgspec

    return msgspec.json.encode(value).decode()


@dataclass(frozen=True)
class Output:
    """Prints the result of a command: one JSON value for a program, or text for a person."""

    as_json: bool

    def show(self, value: Any, text: str | Callable[[], None], *, ok: bool = True) -> None:
        """Prints ``value`` as JSON; or ``text``, which can also be a function that prints it.

        Ends the command with exit code 1 unless the result is ``ok``.
        """
        if self.as_json:
            print(json_text(value))
        elif isinstance(text, str):
            print(text)
        else:
            text()
        if not ok:
            raise typer.Exit(EXIT_ERROR)

    def table(self, objects: Sequence[Object], columns: str, rows: Sequence[Object] | None = None) -> None:
        """Prints objects as a JSON list, or as a table; ``rows`` if the table has other values."""
        self.show(objects, lambda: print_objects(objects if rows is None else rows, columns))


def picked(value: Object, names: str) -> list[tuple[str, object]]:
    """Values of an object with their titles: a word is a key, or TITLE=KEY; a ``_`` in a title is a space."""
    words = [word.partition("=") for word in names.split()]
    return [(title.replace("_", " "), _shown(key or title, value[key or title])) for title, _, key in words]


def _shown(key: str, value: object) -> object:
    """A topic as people name it; other values as they are."""
    if key != "topic" or not isinstance(value, str):
        return value
    try:
        return TopicName.parse(value).short
    except BadTopicName:  # a damaged file names it
        return value


def print_objects(objects: Sequence[Object], columns: str) -> None:
    """A table of the values that ``columns`` names, as ``picked`` reads it."""
    headings = [word.partition("=")[0].replace("_", " ").upper() for word in columns.split()]
    print_table(headings, [[cell for _, cell in picked(each, columns)] for each in objects])


def print_table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Columns that line up and that ``awk`` can read: numbers to the right, no rules or frames."""
    cells = [[_cell(value) for value in row] for row in rows]
    right = [bool(rows) and all(_is_number(row[at]) for row in rows) for at in range(len(headings))]
    widths = [max(len(line[at]) for line in (headings, *cells)) for at in range(len(headings))]
    for line in (headings, *cells):
        shown = (
            text.rjust(width) if to_right else text.ljust(width)
            for text, width, to_right in zip(line, widths, right, strict=True)
        )
        print("  ".join(shown).rstrip())


def print_parts(parts: Iterable[Part], print_part: Callable[[Part], None]) -> None:
    """Prints the parts of a report with an empty line between them."""
    for number, part in enumerate(parts):
        if number:
            print()
        print_part(part)


def print_report(fields: Sequence[tuple[str, object]], *tables: tuple[Sequence[Object], str]) -> None:
    """Fields, then each table that has rows: objects and their columns, as ``picked`` reads them."""
    print_fields(fields)
    for objects, columns in tables:
        if objects:
            print()
            print_objects(objects, columns)


def print_fields(fields: Sequence[tuple[str, object]]) -> None:
    """One name and its value per line."""
    width = max((len(name) for name, _ in fields), default=0)
    for name, value in fields:
        print(f"{name.ljust(width)}  {_cell(value)}".rstrip())


def size(value: float | None) -> str:
    """A number of bytes in at most nine characters."""
    if value is None:
        return "-"
    for unit, step in (("B", 1), ("KiB", 2**10), ("MiB", 2**20), ("GiB", 2**30), ("TiB", 2**40)):
        if value < step * 1000 or unit == "TiB":
            scaled = value / step
            return f"{scaled:.0f} {unit}" if unit == "B" or scaled >= 100 else f"{scaled:.1f} {unit}"
    raise AssertionError("every size has a unit")


def _is_number(value: object) -> bool:
    """Whether the column of this value is aligned to the right: a number, a bound, or none."""
    if isinstance(value, str):
        return value[:1] in ("≥", "≤") or value == "-"
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    # A name comes from another person: it must not control this terminal.
    return "-" if value is None else _CONTROL.sub("?", str(value))
