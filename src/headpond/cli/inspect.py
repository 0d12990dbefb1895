"""``headpond inspect FILE``: what stands in a frame file, and what is wrong with it.

It only reads, so it may look at the files of a running node; what is being written then shows as a torn tail.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headpond.cli.options import DEFAULT_URL, AsJson, UnusedToken, UnusedUrl
from headpond.cli.output import EXIT_ERROR, print_fields, print_json, print_table, reports_errors
from headpond.model.errors import BadFrame, BadRequest

if TYPE_CHECKING:
    from headpond.cli.findings import Findings
    from headpond.cli.refill_findings import RefillFindings
    from headpond.files.disk import DiskFile
    from headpond.files.seal import SealedFile


@reports_errors
def inspect(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A log, journal, index or refill file.")],
    records: Annotated[
        int, typer.Option("--records", min=0, metavar="N", help="How many records to list.")
    ] = 20,
    url: UnusedUrl = DEFAULT_URL,
    token: UnusedToken = None,
    as_json: AsJson = False,
) -> None:
    """Show what a file holds, its checksums verified; exits with 1 if it is damaged."""
    findings = _look(file, records)
    if as_json:
        print_json(findings.as_object())
    else:
        _print(findings)
    if findings.damage:
        raise typer.Exit(EXIT_ERROR)


def _look(path: Path, records_max: int) -> Findings | RefillFindings:
    from headpond.cli.refill_findings import RefillFindings, is_refill
    from headpond.io.os_disk import OsDisk
    from headpond.transport.refill_form import read_note

    if not path.is_file():
        kind = "is a folder; name a file in it" if path.is_dir() else "does not exist or is not a file"
        raise BadRequest(
            f"{path} {kind}", hint="Logs are in DATA/…/*.log, journals in *.journal, refills in *.refill."
        )
    try:
        file = OsDisk(path.parent).open(path.name)
        sealed = _sealed(path)
    except OSError as error:
        hint = "Run as the user that runs the node."
        raise BadRequest(f"cannot read {path}: {error.strerror}", hint=hint) from error
    try:
        if is_refill(file, path.name):
            note = read_note(OsDisk(path.parent), path.name)
            findings: Findings | RefillFindings = RefillFindings(str(path), file, records_max, note)
        else:
            findings = _scan(path, file, records_max, sealed)
    finally:
        file.close()
    if not findings.frames and findings.bytes:
        raise BadFrame(
            f"no frame was found in the {findings.bytes:,} bytes of {path}",
            hint="It is not a log, journal, index or refill file, or all of it is damaged.",
        )
    return findings


def _sealed(path: Path) -> SealedFile | None:
    """What the seal of the last clean stop says of a file, if it lies in a data folder that has one."""
    from headpond.files.seal import read_seal
    from headpond.io.os_disk import OsDisk
    from headpond.node.data_folder import NODE_FILE

    place = path.resolve()
    for folder in place.parents:
        if (folder / NODE_FILE).is_file():
            return read_seal(OsDisk(folder)).get(place.relative_to(folder).as_posix())
    return None


def _scan(path: Path, file: DiskFile, records_max: int, sealed: SealedFile | None) -> Findings:
    from headpond.cli.findings import Findings
    from headpond.files.frame_file import Bad, Found, looks_torn, scan

    findings = Findings(str(path), file.size(), records_max, _next_file_entry(path), sealed)
    item: Bad | Found | None = None
    for item in scan(file):
        if isinstance(item, Bad):
            findings.take_bad(item, looks_torn=looks_torn(file, item))
        else:
            findings.take(item)
    torn = isinstance(item, Bad) and looks_torn(file, item, last=True)
    findings.finish(tail_looks_torn=torn)
    return findings


def _next_file_entry(path: Path) -> int | None:
    """The first entry of the log file that follows this one; None for the last, or for another kind of file."""
    from headpond.node.core.log_file import parse_name

    mine = parse_name(path.name)
    if mine is None:
        return None
    firsts = (parse_name(each.name) for each in path.parent.iterdir())
    return min((first for first in firsts if first is not None and first > mine), default=None)


def _print(findings: Findings | RefillFindings) -> None:
    fields: list[tuple[str, object]] = [("file", findings.path), ("bytes", findings.bytes)]
    fields += [(name.replace("_", " "), _text(value)) for name, value in findings.facts.items()]
    fields.append(("frames", _text(findings.frames) or "none"))
    if findings.reserved_bytes:
        fields.append(("reserved", f"{findings.reserved_bytes:,} bytes of zeros at the end"))
    print_fields(fields)
    _print_records(findings)
    for bad in findings.torn:
        place = f"bytes {bad.offset:,}–{bad.end - 1:,}"
        print(f"\ntorn tail: {place} lie past the last recorded sync: cut short, or being written now")
    for bad in findings.damage:
        print(f"\nDAMAGED: bytes {bad.offset:,}–{bad.end - 1:,}, {bad.entries_text}")
    if not findings.damage:
        print("\nevery checksum holds")


def _print_records(findings: Findings | RefillFindings) -> None:
    if not findings.records:
        return
    print()
    # Columns that no record fills are left out: a journal has no entries.
    columns = [name for name in findings.records[0] if any(each[name] is not None for each in findings.records)]
    rows = [[_short(record[name]) for name in columns] for record in findings.records]
    print_table([name.replace("_", " ").upper() for name in columns], rows)
    left = findings.records_total - len(findings.records)
    if left:
        print(f"… and {left:,} more; --records {findings.records_total} lists all")


def _text(value: Any) -> Any:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, dict):
        return ", ".join(f"{name.replace('_', ' ')} {_text(each)}" for name, each in value.items())
    return f"{value:,}" if isinstance(value, int) else value


def _short(value: Any) -> Any:
    return f"{value[:8]}…" if isinstance(value, str) and len(value) == 32 else value
