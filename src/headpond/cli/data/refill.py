"""``headpond refill list|show|send|drop``: what producers keep on this disk for destinations that were away."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headpond.cli.completion import slots
from headpond.cli.options import DEFAULT_URL, AsJson, Token, UnusedToken, UnusedUrl, Yes
from headpond.cli.output import (
    EXIT_ERROR,
    iso_time,
    note,
    print_fields,
    print_json,
    print_table,
    reports_errors,
)
from headpond.client.produce.slot import LeaseNote, lease_file_of
from headpond.model.bounds import SECONDS_MAX
from headpond.model.errors import BadRequest, HeadpondError
from headpond.model.names import TopicName
from headpond.producer.refill.folder import FileName
from headpond.producer.refill.losses import Damage
from headpond.producer.refill.refill import Refill
from headpond.storage.folder_lock import holder
from headpond.storage.os_disk import OsDisk

if TYPE_CHECKING:
    from headpond.producer.refill.refill import Tally


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
        autocompletion=slots,
    ),
]


@refill_app.command("list")
@reports_errors
def list_(
    state: State = None, url: UnusedUrl = DEFAULT_URL, token: UnusedToken = None, as_json: AsJson = False
) -> None:
    """List refill files: their contents, the process that uses each, and what each destination still lacks."""
    from headpond.cli.data.refill_place import all_files, root_of

    root = root_of(state)
    reports = list(_read(all_files(root)))
    if as_json:
        print_json([each.as_object() for each in reports])
        return
    if not reports:
        note(f"no refill files in {root}" if root is not None else "no refill files: nothing was ever spilled")
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
        note("late: kept by an instance that was taken over; `headpond refill send --late` sends it")


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
    from headpond.cli.data.refill_place import find_files

    reports = list(_read(find_files(target, state)))
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
            autocompletion=slots,
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
    from headpond.cli.data.refill_send import send_all

    results = send_all(target, state, token, timeout, may_duplicate, late, progress=not as_json)
    if as_json:
        print_json([each.as_object() for each in results])
    elif not results:
        note("nothing waits to be sent")
    if not all(each.delivered for each in results):
        raise typer.Exit(EXIT_ERROR)


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
    from headpond.cli.data.refill_place import find_files

    paths = find_files(target, state)
    with _held(paths):
        reports = list(_read(paths))
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
        print(f"dropped {_told(each, destination)}")


def _read(paths: list[Path]) -> Iterator[Report]:
    from headpond.cli.data.refill import read_report

    for path in paths:
        try:
            yield read_report(path)
        except FileNotFoundError:  # delivered and removed meanwhile
            continue


@contextmanager
def _held(paths: list[Path]) -> Iterator[None]:
    """Keeps producers out of the slots of these files; ``RefillInUse`` names a process that is in one."""
    from headpond.storage.folder_lock import LOCK_NAME, FolderLock

    with ExitStack() as stack:
        for folder in sorted({path.parent for path in paths}):
            if (folder / LOCK_NAME).exists():  # else it is a copy somewhere
                stack.enter_context(FolderLock.take(folder))
        yield


def _claimed_by(destination: str, reports: list[Report]) -> list[Report]:
    known = {name for each in reports if each.refill is not None for name in each.refill.destinations}
    if destination not in known:
        hint = f"They are for {', '.join(sorted(known))}." if known else "`headpond refill show` tells why."
        raise BadRequest(f"none of the files is for {destination}", hint=hint)
    return [each for each in reports if each.refill is not None and destination in each.refill.destinations]


def _dropped(report: Report, destination: str | None) -> dict[str, Any]:
    """What a drop takes away: of a file all of it, of a destination what it has not got."""
    refill = report.refill
    told: dict[str, Any] = {"file": str(report.path), "segments": None, "rows": None, "bytes": report.bytes}
    if refill is None:
        return {**told, "undelivered": None}
    if destination is None:
        return {
            **told,
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


def _told(dropped: dict[str, Any], destination: str | None) -> str:
    if dropped["segments"] is None:
        return f"{dropped['file']}: {dropped['bytes']:,} bytes that cannot be read"
    sizes = f"{dropped['segments']:,} segments, {dropped['rows']:,} rows, {dropped['bytes']:,} bytes"
    if destination is not None:
        return f"what {dropped['file']} holds for {destination}: {sizes}"
    return f"{dropped['file']}: {sizes}; {dropped['undelivered']:,} segments undelivered"


def _confirm(dropped: list[dict[str, Any]], destination: str | None) -> None:
    """Asks a person; a script has to say ``--yes``."""
    if not sys.stdin.isatty():
        raise typer.BadParameter("there is no terminal to ask at; say --yes", param_hint="'--yes'")
    for each in dropped:
        note(_told(each, destination))
    if not typer.confirm("Drop this for good?", err=True):
        note("nothing was dropped")
        raise typer.Exit(EXIT_ERROR)


def _drop(report: Report, destination: str | None) -> None:
    from headpond.producer.refill.claims import CODE_DROPPED
    from headpond.producer.refill.form import NOTE_SUFFIX
    from headpond.producer.refill.refill import Refill
    from headpond.storage.os_disk import OsDisk

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
    from headpond.cli.data.refill import short_topic

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
        fields.append(("torn", f"{refill.torn_bytes:,} bytes at the end: a write that was never finished"))
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


Object = dict[str, Any]


@dataclass
class Report:
    """One file, read through."""

    path: Path
    bytes: int
    refill: Refill | None
    """Released: what it knows can be asked, its segments cannot be read."""
    fault: HeadpondError | None
    """Why it cannot be read at all."""
    in_use_by: int | None
    late: bool = False
    """Kept by an instance that another one took over from: only ``refill send --late`` sends it."""

    @property
    def slot(self) -> str:
        return self.path.parent.name

    @property
    def created_at(self) -> str | None:
        name = FileName.parse(self.path.name)
        return None if name is None else iso_time(name.created_us)

    @property
    def damaged(self) -> bool:
        return self.refill is None or bool(self.refill.damage)

    @property
    def undelivered(self) -> int:
        """Segments that at least one destination has neither confirmed nor refused, readable or not."""
        return 0 if self.refill is None else self.refill.undelivered

    def as_object(self) -> Object:
        """What ``list --json`` prints; every key is there for every file."""
        refill = self.refill
        title = refill.title if refill is not None else None
        return {
            "file": str(self.path),
            "slot": self.slot,
            "topic": title.topic if title is not None else None,
            "producer": (title.producer or None) if title is not None else None,
            "block": refill.block.hex() if refill is not None else None,
            "created_at": self.created_at,
            "segments": refill.index.count if refill is not None else None,
            "rows": refill.index.rows if refill is not None else None,
            "bytes": self.bytes,
            "destinations": _destinations(refill) if refill is not None else [],
            "in_use_by": self.in_use_by,
            "continuable": refill.continuable if refill is not None else False,
            "torn_bytes": refill.torn_bytes if refill is not None else 0,
            "damage": [damage_object(each) for each in refill.damage] if refill is not None else [],
            "error": self.fault.message if self.fault is not None else None,
            "late": self.late,
        }

    def details(self) -> Object:
        """What ``show --json`` adds."""
        refill = self.refill
        if refill is None:
            return {}
        return {
            "typed": refill.typed,
            "shards": 1 << refill.shard_power,
            "why_not_continuable": refill.why_not_continuable or None,
            "closed": refill.closed is not None,
            "segments_next": {str(shard): number for shard, number in refill.segments_next.items()},
            "shard_list": [_shard(refill, shard) for shard in refill.index.shards],
            "refusals": [
                {
                    "destination": each.destination,
                    "shard": each.shard,
                    "segments": [each.first, each.end],
                    "code": each.code,
                    "message": each.message,
                }
                for each in refill.claims.refusals
            ],
        }


def read_report(path: Path) -> Report:
    """Reads a file that exists, whatever state it is in; it is not changed."""
    refill = fault = None
    try:
        refill = Refill.open(OsDisk(path.parent), path.name)
        refill.release()
    except HeadpondError as error:
        fault = error
    late = refill is not None and _is_late(path, refill)
    return Report(path, path.stat().st_size, refill, fault, holder(path.parent), late)


def _is_late(path: Path, refill: Refill) -> bool:
    """As far as is known on this machine; the next producer asks the node too."""
    note = LeaseNote(lease_file_of(path.parent))
    return note.is_late(refill.title.epoch, refill.block, note.last)


def short_topic(topic: str) -> str:
    try:
        return TopicName.parse(topic).short
    except HeadpondError:  # a name of another time
        return topic


def damage_object(damage: Damage) -> Object:
    segments = None if damage.shard is None else [damage.first, damage.segments_end]
    return {
        "offset": damage.offset,
        "end": damage.end,
        "why": damage.why,
        "shard": damage.shard,
        "segments": segments,
        "unnamed": damage.unnamed,
    }


def _destinations(refill: Refill) -> list[Object]:
    return [{"destination": name, **refill.tally(name)._asdict()} for name in refill.destinations]


def _shard(refill: Refill, shard: int) -> Object:
    held = list(refill.index.held(shard))
    rows, size = refill.index.totals(shard, 0, held[-1][1]) if held else (0, 0)
    return {
        "shard": shard,
        "segments": [list(run) for run in held],
        "snapshots": list(refill.index.snapshots(shard)),
        "rows": rows,
        "bytes": size,
    }
