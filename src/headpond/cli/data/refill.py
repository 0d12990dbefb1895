"""``headpond refill list|show|send|drop``: messages that producers spilled to this disk."""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from headpond.cli import completion
from headpond.cli.command import command, confirm, group, need_terminal
from headpond.cli.data.refill_files import Report, all_files, find_files, read_reports, root_of
from headpond.cli.options import Token, Yes, argument, flag, option
from headpond.cli.output import Output, note, picked, print_fields, print_parts, print_report, run
from headpond.client.contexts import Contexts
from headpond.client.produce.refill_send import Sent, send_slot
from headpond.model.bounds import SECONDS_MAX
from headpond.model.errors import BadRequest, RefillInUse
from headpond.producer.refill.claims import CODE_DROPPED
from headpond.producer.refill.form import NOTE_SUFFIX
from headpond.producer.refill.refill import DestinationTally, Refill
from headpond.storage.folder_lock import LOCK_NAME, FolderLock, holder
from headpond.storage.os_disk import OsDisk

refill_app = group("Messages that producers spilled to this disk while a node was unreachable.")

STATE_HELP = "The state folder. [default: HEADPOND_STATE, else ~/.local/state/headpond]"
TARGET_HELP = "A file (path, name, or 4 digits of its block), or a slot (one topic and producer name)."
TIMEOUT_HELP = "Give up on a slot after S seconds."
DUPLICATE_HELP = "Also send files so old that the node may store their messages a second time."
LATE_HELP = "Also send files of a producer instance that another instance has replaced."
DESTINATION_HELP = "Give up only the messages for this destination; the others still get theirs."
State = Annotated[Path | None, option("--state", "DIR", STATE_HELP)]
Target = Annotated[str, argument("FILE|SLOT", TARGET_HELP, completion.slots)]


@command(refill_app, "list")
def list_(output: Output, state: State = None) -> None:
    """List refill files: their contents, the process that uses each, and what each destination still lacks."""
    root = root_of(state)
    reports = list(read_reports(all_files(root)))
    if not output.as_json and not reports:
        note(f"no refill files in {root}" if root is not None else "no refill files: nothing was spilled yet")
        return
    columns = (
        "slot block topic producer created=created_at segments rows bytes used_by=in_use_by damage late owed"
    )
    output.table([each.as_object() for each in reports], columns, [_row(each) for each in reports])
    if not output.as_json and any(each.late for each in reports):
        note("LATE: another producer instance took over; only `headpond refill send --late` sends the file")


@command(refill_app)
def show(output: Output, target: Target, state: State = None) -> None:
    """Show the details of refill files. Exits with 1 if one is damaged or unreadable."""
    reports = list(read_reports(find_files(target, state)))
    objects = [{**each.as_object(), **each.details()} for each in reports]
    whole = not any(each.damaged for each in reports)
    output.show(objects, lambda: print_parts(reports, _print), ok=whole)


@command(refill_app)
def send(
    output: Output,
    target: Annotated[
        str | None, argument("SLOT", "Only this slot. [default: all slots]", completion.slots)
    ] = None,
    timeout: Annotated[float, option("--timeout", "S", TIMEOUT_HELP, min=0.1, max=SECONDS_MAX)] = 600.0,
    may_duplicate: Annotated[bool, flag("--may-duplicate", DUPLICATE_HELP)] = False,
    late: Annotated[bool, flag("--late", LATE_HELP)] = False,
    state: State = None,
    token: Token = None,
) -> None:
    """Send refill files to their destinations. Exits with 1 unless everything arrived."""
    root = root_of(state)
    tokens = token or Contexts().tokens()  # each destination gets the token of the context with its URL
    send = partial(send_slot, token=tokens, timeout_s=timeout, may_duplicate=may_duplicate, late=late)
    results = []
    for slot in _slots_to_send(root, target):
        assert root is not None  # it has slots
        results.append(_send_one(send, root, slot, live=not output.as_json and sys.stderr.isatty()))
        _print_sent(results[-1])
    if not results and not output.as_json:
        note("nothing waits to be sent")
        return
    delivered = all(each.delivered for each in results)
    output.show([each.as_object() for each in results], lambda: None, ok=delivered)


def _slots_to_send(root: Path | None, target: str | None) -> list[str]:
    """All slots that have files, or the one that is given."""
    found = list(dict.fromkeys(path.parent.name for path in all_files(root)))
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
    note(f"{sent.slot}: delivery is not complete{why_not_delivered(sent)}; the rest stays on this disk")


def why_not_delivered(sent: Sent) -> str:
    """The end of a sentence; empty if the reason is unknown."""
    if sent.error is not None:
        return f": {sent.error.message}"
    if sent.unreachable:
        return f": no node answers at {', '.join(sent.unreachable)}"
    return f": {'; '.join(sent.lost)}" if sent.lost else ""


@command(refill_app)
def drop(
    output: Output,
    target: Target,
    destination: Annotated[str | None, option("--destination", "URL", DESTINATION_HELP)] = None,
    yes: Yes = False,
    state: State = None,
) -> None:
    """Delete refill files, delivered or not. This cannot be undone."""
    paths = find_files(target, state)
    with _held(paths):
        reports = list(read_reports(paths))
        if destination is not None:
            reports = _claimed_by(destination, reports)
        dropped = [_dropped(each, destination) for each in reports]
        texts = [_dropped_text(each, destination) for each in dropped]
        if not yes:
            need_terminal()
            for text in texts:
                note(text)
            confirm("Delete this? It cannot be undone.", refused="nothing was dropped")
        for report in reports:
            _drop(report, destination)
    done = "\n".join(f"dropped {text}" for text in texts)
    output.show({"destination": destination, "dropped": dropped}, done)


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
    shown, refill = report.as_object(), report.refill
    found = {name: shown[name] for name in ("file", "segments", "rows", "bytes")}
    if refill is None or destination is None:
        return {**found, "undelivered": None if refill is None else refill.undelivered}
    tally = refill.tally(destination)
    totals = [refill.index.totals(*run) for run in refill.pending_runs(destination)]
    lacking = tally.pending + tally.lost
    rows, size = sum(rows for rows, _ in totals), sum(size for _, size in totals)
    return {**found, "segments": lacking, "rows": rows, "bytes": size, "undelivered": lacking}


def _dropped_text(dropped: dict[str, Any], destination: str | None) -> str:
    if dropped["segments"] is None:
        return f"{dropped['file']}: {dropped['bytes']:,} bytes that cannot be read"
    sizes = f"{dropped['segments']:,} segments, {dropped['rows']:,} rows, {dropped['bytes']:,} bytes"
    if destination is not None:
        return f"what {dropped['file']} holds for {destination}: {sizes}"
    return f"{dropped['file']}: {sizes}; {dropped['undelivered']:,} segments undelivered"


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


def _row(report: Report) -> dict[str, Any]:
    """A file as ``list`` shows it to a person."""
    shown, refill = report.as_object(), report.refill
    if refill is None:
        name = report.path.name
        return {**shown, "block": name, "damage": "unreadable", "late": None, "owed": shown["error"]}
    owed = ((name, refill.tally(name)) for name in refill.destinations)
    return {
        **shown,
        "block": refill.block.hex()[:8],
        "damage": f"{len(refill.damage)} places" if refill.damage else None,
        "owed": "; ".join(f"{name} {t.pending:,} ({_rest(t)})" for name, t in owed),
    }


def _rest(tally: DestinationTally) -> str:
    lost = f", {tally.lost:,} lost" if tally.lost else ""
    return f"{tally.acked:,} acked, {tally.refused:,} refused{lost}"


def _print(report: Report) -> None:
    shown, refill = report.as_object(), report.refill
    if refill is None:
        print_fields(picked(shown, "file bytes created=created_at used_by=in_use_by unreadable=error"))
        return
    shown["continuable"] = refill.continuable or f"no: {refill.why_not_continuable}"
    names = "file bytes created=created_at topic producer block segments rows used_by=in_use_by continuable"
    fields = picked(shown, names)
    if report.late:
        fields.append(("late", "yes: another instance took over; only `headpond refill send --late` sends it"))
    if refill.torn_bytes:
        fields.append(("torn", f"{refill.torn_bytes:,} bytes at the end: an unfinished write"))
    details = report.details()
    shards = [{**each, "segments": _runs(each["segments"])} for each in details["shard_list"]]
    refusals = [{**each, "segments": _runs([each["segments"]])} for each in details["refusals"]]
    print_report(
        fields,
        (shown["destinations"], "destination pending acked refused lost"),
        (shards, "shard segments rows bytes"),
        (refusals, "refused_by=destination shard segments code why=message"),
    )
    for damage in refill.damage:
        print(f"\nDAMAGED: {damage}")


def _runs(runs: list[list[int]], runs_max: int = 8) -> str:
    shown = [f"{first}–{end - 1}" if end - first > 1 else str(first) for first, end in runs[:runs_max]]
    return ", ".join(shown) + (f" and {len(runs) - runs_max} more runs" if len(runs) > runs_max else "")
