"""A node that confirms before it writes, to prove that the checks can fail.

Run as ``python broken_node.py WORD node ...``. A function with the word in its name is called at once where it
should wait for the disk: ``durable`` acknowledges messages, ``_send_settled`` confirms settlements.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Sequence
from typing import Any

from headpond.cli import main
from headpond.storage.commit_lane import CommitLane, Waiter
from headpond.storage.os_disk import OsDiskFile

SLOW_S_MAX = 0.1

if __name__ == "__main__":
    word = sys.argv.pop(1)
    wait, write_at = CommitLane.wait, OsDiskFile.write_at

    def confirm_early(lane: CommitLane, waiter: Waiter, **options: Any) -> None:
        if word in getattr(waiter, "func", waiter).__name__:
            waiter(None)
            waiter = lambda _: None  # noqa: E731
        wait(lane, waiter, **options)

    def write_late(file: OsDiskFile, offset: int, parts: Sequence[bytes]) -> int:
        time.sleep(random.random() * SLOW_S_MAX)
        return write_at(file, offset, parts)

    CommitLane.wait = confirm_early  # type: ignore[assignment,method-assign]
    OsDiskFile.write_at = write_late  # type: ignore[assignment,method-assign]
    main()
