"""``headpond refill send``: slot by slot, with progress on a terminal."""

from __future__ import annotations

import sys
from pathlib import Path

from headpond.cli.data.refill_place import root_of
from headpond.cli.output import note, run
from headpond.client.connect import Tokens
from headpond.client.contexts import Contexts
from headpond.client.produce.refill_send import Sent, send_slot
from headpond.model.errors import BadRequest, RefillInUse
from headpond.producer.refill.folder import files, slots
from headpond.storage.folder_lock import holder
from headpond.storage.os_disk import OsDisk


def send_all(
    target: str | None,
    state: Path | None,
    token: Tokens,
    timeout_s: float,
    may_duplicate: bool,
    late: bool,
    *,
    progress: bool,
) -> list[Sent]:
    """Sends every slot that has files, or the one named; each that is used by a live process is told.

    Where no token is given, each destination gets that of the context with its URL.
    """
    root = root_of(state)
    token = token or Contexts().tokens()
    disk = OsDisk(root) if root is not None else None
    found = [slot for slot in slots(disk) if files(disk, slot)] if disk is not None else []
    if target is not None:
        name = Path(target).name
        if name not in found:
            raise BadRequest(
                f"there is no slot {target} with refill files", hint="`headpond refill list` shows them."
            )
        found = [name]
    if root is None:
        return []
    return [_send(root, slot, token, timeout_s, may_duplicate, late, progress) for slot in found]


def _send(
    root: Path,
    slot: str,
    token: Tokens,
    timeout_s: float,
    may_duplicate: bool,
    late: bool,
    progress: bool,
) -> Sent:
    pid = holder(root / slot)
    if pid is not None:
        sent = Sent(slot, error=RefillInUse(f"{slot} is used by process {pid}, which sends it itself"))
        sent.bytes_left = sent.bytes_before = 1
        _tell(sent)
        return sent
    live = progress and sys.stderr.isatty()

    def show(left: int, before: int) -> None:
        if live:
            print(f"\r{slot}: {left:,} of {before:,} bytes left ", end="", file=sys.stderr, flush=True)

    sent = run(
        send_slot(
            root,
            slot,
            token=token,
            timeout_s=timeout_s,
            may_duplicate=may_duplicate,
            late=late,
            on_progress=show,
        )
    )
    if live:
        print("\r\033[K", end="", file=sys.stderr)
    _tell(sent)
    return sent


def _tell(sent: Sent) -> None:
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
    note(f"{sent.slot}: not all is delivered{why}; what is left stays on this disk")
