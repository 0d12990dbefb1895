"""Text and JSON on stdout, errors on stderr, and the exit codes.

0: success. 1: an error, on stderr with a hint. 2: wrong usage. 130: Ctrl-C. If the reader of stdout closes the
pipe (``| head``), the command ends quietly with 0; if the reader of stderr does, it continues.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ParamSpec, TextIO, TypeVar

import typer

from headpond.model.errors import BadRequest, HeadpondError
from headpond.model.grant import redacted
from headpond.shapes.convert import error_object
from headpond.shapes.convert import iso_time as iso_time

if TYPE_CHECKING:
    from rich.console import Console

EXIT_ERROR = 1
EXIT_INTERRUPTED = 130

_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def reports_errors(command: Callable[Parameters, None]) -> Callable[Parameters, None]:
    """Prints the errors that a command raises, and turns them into its exit code."""

    @functools.wraps(command)
    def reporting(*args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        try:
            if sys.stdin is None or sys.stdout is None:
                raise BadRequest("stdin or stdout is closed", hint="Redirect it from or to /dev/null instead.")
            with pipe_may_close():
                command(*args, **kwargs)
        except HeadpondError as error:
            print_error(error, as_json=bool(kwargs.get("as_json")))
            raise typer.Exit(EXIT_ERROR) from None
        except OSError as error:
            place = f"{error.filename}: " if error.filename else ""
            failed = HeadpondError(
                f"{place}{error.strerror or error}",
                hint="Check that the file or stream exists and that you may use it.",
            )
            print_error(failed, as_json=bool(kwargs.get("as_json")))
            _discard(sys.stdout)
            raise typer.Exit(EXIT_ERROR) from None
        except UnicodeEncodeError as error:  # Python passes on the bytes of an argument that is no text
            failed = BadRequest(
                f"{error.object!a:.80} is not UTF-8 text", hint="Write names and values in UTF-8."
            )
            print_error(failed, as_json=bool(kwargs.get("as_json")))
            raise typer.Exit(EXIT_ERROR) from None
        except KeyboardInterrupt:
            raise typer.Exit(EXIT_INTERRUPTED) from None

    return reporting


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """Runs the asynchronous part of a command."""
    import uvloop

    result: Result = uvloop.run(main)
    return result


def fill_closed_streams() -> None:
    """Opens /dev/null in place of a closed stdin, stdout or stderr, so that no socket gets its number."""
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


def print_error(error: HeadpondError, *, as_json: bool) -> None:
    note(json_text(error_object(error)) if as_json else redacted(f"error: {error.message}\nhint: {error.hint}"))


def note(text: str) -> None:
    """Prints a message for a person on stderr."""
    try:
        print(text, file=sys.stderr, flush=True)
    except BrokenPipeError:
        _discard(sys.stderr)


def print_json(value: Any) -> None:
    print(json_text(value))


def print_result(value: Any, text: str, *, as_json: bool) -> None:
    """The result of a command as one JSON value, or as text for a person."""
    print(json_text(value) if as_json else text)


def json_text(value: Any) -> str:
    import msgspec

    return msgspec.json.encode(value).decode()


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


def print_fields(fields: Sequence[tuple[str, object]]) -> None:
    """One name and its value per line."""
    width = max((len(name) for name, _ in fields), default=0)
    for name, value in fields:
        print(f"{name.ljust(width)}  {_cell(value)}".rstrip())


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
