"""A node whose syncs do nothing, to prove that the checks for syncing can fail.

Run as ``python node_without_sync.py node ...``.
"""

from __future__ import annotations

from headpond.cli import main
from headpond.storage.os_disk import OsDiskFile


def _pretend(self: OsDiskFile) -> None:
    """Reports every sync as done, and does nothing."""


if __name__ == "__main__":
    OsDiskFile.sync = _pretend  # type: ignore[method-assign]
    main()
