"""A node that confirms before it writes, to prove that the checks can fail.

Run as ``python broken_node.py WHAT node ...``: of ``messages`` or ``settlements``.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

from headpond.cli import main
from headpond.storage.commit_lane import CommitLane, Waiter
from headpond.storage.os_disk import OsDiskFile

SLOW_S = 0.5
BREAKS = {"messages": ("durable", "topics/"), "settlements": ("_send_settled", "settlements/")}
"""The function that is called at once where it should wait, and the folder that gets its bytes late."""

if __name__ == "__main__":
    name, folder = BREAKS[sys.argv.pop(1)]
    wait, write_at = CommitLane.wait, OsDiskFile.write_at

    def confirm_early(lane: CommitLane, waiter: Waiter, **options: Any) -> None:
        if getattr(waiter, "func", waiter).__name__ == name:
            waiter(None)
            waiter = lambda _: None  # noqa: E731
        wait(lane, waiter, **options)

    def write_late(file: OsDiskFile, offset: int, parts: Sequence[bytes]) -> int:
        if file.path.startswith(folder):
            time.sleep(SLOW_S)
        return write_at(file, offset, parts)

    CommitLane.wait = confirm_early  # type: ignore[assignment,method-assign]
    OsDiskFile.write_at = write_late  # type: ignore[assignment,method-assign]
    main()
