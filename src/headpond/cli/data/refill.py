"""``headpond refill list|show|send|drop``: messages that producers spilled to this disk."""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from headpond.cli import completion
from headpond.cli.data.refill_files import Report, all_files, find_files, read_reports, root_of, short_topic
from headpond.cli.options import DEFAULT_URL, AsJson, Token, UnusedToken, UnusedUrl, Yes
from headpond.cli.output import (
    EXIT_ERROR,
    note,
    print_fields,
    print_json,
    print_table,
    reports_errors,
    run,
)
from headpond.client.contexts import Contexts
from headpond.client.produce.refill_send import Sent, send_slot
from headpond.model.bounds import SECONDS_MAX
from headpond.model.errors import BadRequest, RefillInUse
from headpond.producer.refill.claims import CODE_DROPPED
from headpond.producer.refill.folder import files, slots
from headpond.producer.refill.form import NOTE_SUFFIX
from headpond.producer.refill.refill import Refill, Tally
from headpond.storage.folder_lock import LOCK_NAME, FolderLock, holder
from headpond.storage.os_disk import OsDisk

refill_app = typer.Typer(
    help="Messages that producers spilled to this disk while a node was unreachable.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

State = Annotated[
    Path | None,
    typer.Option(
        "--state",
        metavar="DIR",
        help="The state folder. [default: HEADPOND_STATE, else ~/.local/state/headpond]",
        show_default=False,
    ),
]
Target = Annotated[
    str,
    typer.Argument(
        metavar="FILE|SLOT",
        help="A file (path, name, or 4 digits of its block), or a slot (one topic and producer name).",
        autocompletion=completion.slots,
    ),
]


@refill_app.command("list")
@reports_errors
def list_(
    state: State = None, url: UnusedUrl = DEFAULT_URL, token: UnusedToken = None, as_json: AsJson = False
) -> None:
    """List refill files: their contents, the process that uses each, and what each destination still lacks."""
    root = root_of(state)
    reports = list(read_reports(all_files(root)))
    if as_json:
        print_json([each.as_object() for each in reports])
        return
    if not reports:
        note(f"no refill files in {root}" if root is not None else "no refill files: nothing was spilled yet")
        return
    print_table(
        (
            "SLOT",
            "BLOCK",
            "TOPIC",
            "PRODUCER",
            "CREATED",
            "SEGMENTS",
            "ROWS",
            "BYTES",
            "USED BY",
            "DAMAGE",
            "LATE",
            "OWED",
        ),
        [_row(each) for each in reports],
    )
    if any(each.late for each in reports):
        note("LATE: another producer instance took over; only `headpond refill send --late` sends the file")


@refill_app.command()
@reports_errors
def show(
    target: Target,
    state: State = None,
    url: UnusedUrl = DEFAULT_URL,
    token: UnusedToken = None,
    as_json: AsJson = False,
) -> None:
    """Show the details of refill files. Exits with 1 if one is damaged or unreadable."""
    reports = list(read_reports(find_files(target, state)))
    if as_json:
        print_json([{**each.as_object(), **each.details()} for each in reports])
    else:
        for number, report in enumerate(reports):
            if number:
                print()
            _print(report)
    if any(each.damaged for each in reports):
        raise typer.Exit(EXIT_ERROR)


@refill_app.command()
@reports_errors
def send(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="SLOT",
            help="Only this slot. [default: all slots]",
            show_default=False,
            autocompletion=completion.slots,
        ),
    ] = None,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout", metavar="S", min=0.1, max=SECONDS_MAX, help="Give up on a slot after S seconds."
        ),
    ] = 600.0,
    may_duplicate: Annotated[
        bool,
        typer.Option(
            "--may-duplicate",
            help="Also send files so old that the node may store their messages a second time.",
            show_default=False,
        ),
    ] = False,
    late: Annotated[
        bool,
        typer.Option(
            "--late",
            help="Also send files of a producer instance that another instance has replaced.",
            show_default=False,
        ),
    ] = False,
    state: State = None,
    url: UnusedUrl = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Send refill files to their destinations. Exits with 1 unless everything arrived."""
    root = root_of(state)
    tokens = token or Contexts().tokens()  # each destination gets the token of the context with its URL
    send = partial(send_slot, token=tokens, timeout_s=timeout, may_duplicate=may_duplicate, late=late)
    results = []
    for slot in _slots_to_send(root, target):
        assert root is not None  # it has slots
        results.append(_send_one(send, root, slot, live=not as_json and sys.stderr.isatty()))
        _print_sent(results[-1])
    if as_json:
        print_json([each.as_object() for each in results])
    elif not results:
        note("nothing waits to be sent")
    if not all(each.delivered for each in results):
        raise typer.Exit(EXIT_ERROR)


def _slots_to_send(root: Path | None, target: str | None) -> list[str]:
    """All slots that have files, or the one that is given."""
    disk = OsDisk(root) if root is not None else None
    found = [slot for slot in slots(disk) if files(disk, slot)] if disk is not None else []
    if target is None:
        return found
    name = Path(target).name
    if name not in found:
        hint = "`headpond refill list` lists the slots."
        raise BadRequest(f"there is no slot {target} with refill files", hint=hint)
    return [name]


def _send_one(send: Callable[..., Coroutine[Any, Any, Sent]], root: Path, slot: str, *, live: bool) -> Sent:
    """Sends a slot, unless a running producer uses it; ``live`` shows the progress on the terminal."""
    pid = holder(root / slot)
    if pid is not None:
        sent = Sent(slot, error=RefillInUse(f"{slot} is in use by process {pid}, which sends it"))
        sent.bytes_left = sent.bytes_before = 1
        return sent

    def show(left: int, before: int) -> None:
        if live:
            print(f"\r{slot}: {left:,} of {before:,} bytes left ", end="", file=sys.stderr, flush=True)

    sent = run(send(root, slot, on_progress=show))
    if live:
        print("\r\033[K", end="", file=sys.stderr)
    return sent


def _print_sent(sent: Sent) -> None:
    if sent.delivered:
        note(f"{sent.slot}: delivered {sent.bytes_before:,} bytes of {sent.topic}")
        return
    why = ""
    if sent.error is not None:
        why = f": {sent.error.message}"
    elif sent.unreachable:
        why = f": no node answers at {', '.join(sent.unreachable)}"
    elif sent.lost:
        why = f": {'; '.join(sent.lost)}"
    note(f"{sent.slot}: delivery is not complete{why}; the rest stays on this disk")


@refill_app.command()
@reports_errors
def drop(
    target: Target,
    destination: Annotated[
        str | None,
        typer.Option(
            "--destination",
            metavar="URL",
            help="Give up only the messages for this destination; the others still get theirs.",
            show_default=False,
        ),
    ] = None,
    yes: Yes = False,
    state: State = None,
    url: UnusedUrl = DEFAULT_URL,
    token: UnusedToken = None,
    as_json: AsJson = False,
) -> None:
    """Delete refill files, delivered or not. This cannot be undone."""
    paths = find_files(target, state)
    with _held(paths):
        reports = list(read_reports(paths))
        if destination is not None:
            reports = _claimed_by(destination, reports)
        dropped = [_dropped(each, destination) for each in reports]
        if not yes:
            _confirm(dropped, destination)
        for report in reports:
            _drop(report, destination)
    if as_json:
        print_json({"destination": destination, "dropped": dropped})
        return
    for each in dropped:
        print(f"dropped {_dropped_text(each, destination)}")


@contextmanager
def _held(paths: list[Path]) -> Iterator[None]:
    """Locks the slots of these files; ``RefillInUse`` names a process that uses one."""
    with ExitStack() as stack:
        for folder in sorted({path.parent for path in paths}):
            if (folder / LOCK_NAME).exists():  # otherwise the file is a copy outside of a slot
                stack.enter_context(FolderLock.take(folder))
        yield


def _claimed_by(destination: str, reports: list[Report]) -> list[Report]:
    known = {name for each in reports if each.refill is not None for name in each.refill.destinations}
    if destination not in known:
        hint = (
            f"They are for {', '.join(sorted(known))}." if known else "`headpond refill show` shows the fault."
        )
        raise BadRequest(f"none of the files is for {destination}", hint=hint)
    return [each for each in reports if each.refill is not None and destination in each.refill.destinations]


def _dropped(report: Report, destination: str | None) -> dict[str, Any]:
    """What a drop deletes: a whole file, or only what one destination still lacks."""
    refill = report.refill
    found: dict[str, Any] = {"file": str(report.path), "segments": None, "rows": None, "bytes": report.bytes}
    if refill is None:
        return {**found, "undelivered": None}
    if destination is None:
        return {
            **found,
            "segments": refill.index.count,
            "rows": refill.index.rows,
            "undelivered": report.undelivered,
        }
    tally = refill.tally(destination)
    totals = [refill.index.totals(*run) for run in refill.pending_runs(destination)]
    return {
        "file": str(report.path),
        "segments": tally.pending + tally.lost,
        "rows": sum(rows for rows, _ in totals),
        "bytes": sum(size for _, size in totals),
        "undelivered": tally.pending + tally.lost,
    }


def _dropped_text(dropped: dict[str, Any], destination: str | None) -> str:
    if dropped["segments"] is None:
        return f"{dropped['file']}: {dropped['bytes']:,} bytes that cannot be read"
    sizes = f"{dropped['segments']:,} segments, {dropped['rows']:,} rows, {dropped['bytes']:,} bytes"
    if destination is not None:
        return f"what {dropped['file']} holds for {destination}: {sizes}"
    return f"{dropped['file']}: {sizes}; {dropped['undelivered']:,} segments undelivered"


def _confirm(dropped: list[dict[str, Any]], destination: str | None) -> None:
    """Asks a person; a script has to give ``--yes``."""
    if not sys.stdin.isatty():
        raise typer.BadParameter("there is no terminal to ask at; give --yes", param_hint="'--yes'")
    for each in dropped:
        note(_dropped_text(each, destination))
    if not typer.confirm("Delete this? It cannot be undone.", err=True):
        note("nothing was dropped")
        raise typer.Exit(EXIT_ERROR)


def _drop(report: Report, destination: str | None) -> None:
    disk = OsDisk(report.path.parent)
    if destination is None:
        for name in (report.path.name + NOTE_SUFFIX, report.path.name):
            if disk.exists(name):
                disk.remove(name)
        disk.sync_folder("")
        return
    refill = Refill.open(disk, report.path.name)
    refill.refuse_pending(destination, CODE_DROPPED, "dropped by `headpond refill drop`")
    # A block that could be continued still can.
    refill.close(refill.closed)


def _row(report: Report) -> tuple[object, ...]:
    refill = report.refill
    if refill is None:
        assert report.fault is not None
        unknown = (None,) * 2
        place = (report.slot, report.path.name, *unknown, report.created_at, *unknown)
        return (*place, report.bytes, report.in_use_by, "unreadable", None, report.fault.message)
    owed = ((name, refill.tally(name)) for name in refill.destinations)
    return (
        report.slot,
        refill.block.hex()[:8],
        short_topic(refill.title.topic),
        refill.title.producer or None,
        report.created_at,
        refill.index.count,
        refill.index.rows,
        report.bytes,
        report.in_use_by,
        f"{len(refill.damage)} places" if refill.damage else None,
        report.late,
        "; ".join(f"{name} {t.pending:,} ({_rest(t)})" for name, t in owed),
    )


def _rest(tally: Tally) -> str:
    lost = f", {tally.lost:,} lost" if tally.lost else ""
    return f"{tally.acked:,} acked, {tally.refused:,} refused{lost}"


def _print(report: Report) -> None:
    refill = report.refill
    fields: list[tuple[str, object]] = [
        ("file", report.path),
        ("bytes", report.bytes),
        ("created", report.created_at),
    ]
    if refill is None:
        assert report.fault is not None
        print_fields([*fields, ("used by", report.in_use_by), ("unreadable", report.fault.message)])
        return
    fields += [
        ("topic", refill.title.topic),
        ("producer", refill.title.producer or None),
        ("block", refill.block.hex()),
        ("segments", refill.index.count),
        ("rows", refill.index.rows),
        ("used by", report.in_use_by),
        ("continuable", refill.continuable or f"no: {refill.why_not_continuable}"),
    ]
    if report.late:
        fields.append(("late", "yes: another instance took over; only `headpond refill send --late` sends it"))
    if refill.torn_bytes:
        fields.append(("torn", f"{refill.torn_bytes:,} bytes at the end: an unfinished write"))
    print_fields(fields)
    print()
    rows = [(name, *refill.tally(name)) for name in refill.destinations]
    print_table(("DESTINATION", "PENDING", "ACKED", "REFUSED", "LOST"), rows)
    if refill.index.count:
        print()
        shards = report.details()["shard_list"]
        print_table(
            ("SHARD", "SEGMENTS", "ROWS", "BYTES"),
            [(each["shard"], _runs(each["segments"]), each["rows"], each["bytes"]) for each in shards],
        )
    if refill.claims.refusals:
        print()
        print_table(
            ("REFUSED BY", "SHARD", "SEGMENTS", "CODE", "WHY"),
            [
                (r.destination, r.shard, _runs([[r.first, r.end]]), r.code, r.message)
                for r in refill.claims.refusals
            ],
        )
    for damage in refill.damage:
        print(f"\nDAMAGED: {damage}")


def _runs(runs: list[list[int]], runs_max: int = 8) -> str:
    shown = [f"{first}–{end - 1}" if end - first > 1 else str(first) for first, end in runs[:runs_max]]
    return ", ".join(shown) + (f" and {len(runs) - runs_max} more runs" if len(runs) > runs_max else "")
