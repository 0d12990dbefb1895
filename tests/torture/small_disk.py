"""A disk that can be full: a small tmpfs, or a limit on the size of files where the machine lets no one mount.

``enter_namespace`` starts the program again in its own mount namespace, with its user mapped to root. Where a
container forbids that too, a node's writes fail by ``RLIMIT_FSIZE``, which needs no rights.
"""

from __future__ import annotations

import os
import random
import resource
import subprocess
import sys
from pathlib import Path

BYTES = 64 * 1024 * 1024
LEFT_BYTES_MAX = 64 * 1024
"""How much room a full disk may have left, so that writes fail at different places."""
FILE_BYTES = 4096
INSIDE = "HEADPOND_TORTURE_NAMESPACE"


def enter_namespace(module: str) -> None:
    """Starts ``python -m module`` again where it may mount; returns if that is not possible, or done."""
    if INSIDE in os.environ:
        return
    for options in ("--mount",), ("--user", "--map-root-user", "--mount"):
        try:
            done = subprocess.run(["unshare", *options, "true"], capture_output=True)
        except FileNotFoundError:
            return
        if done.returncode == 0:
            command = ["unshare", *options, sys.executable, "-m", module, *sys.argv[1:]]
            os.execvpe("unshare", command, {**os.environ, INSIDE: "1"})


class SmallDisk:
    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self._ballast = folder / "ballast"
        command = ["mount", "-t", "tmpfs", "-o", f"size={BYTES}", "headpond", str(folder)]
        self.mounted = INSIDE in os.environ and subprocess.run(command, capture_output=True).returncode == 0

    def fill(self, pid: int, chance: random.Random) -> None:
        """Leaves almost no room on the disk, or to the process."""
        if not self.mounted:
            _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (FILE_BYTES, hard))
            return
        room = os.statvfs(self.folder)
        size = room.f_bavail * room.f_frsize - chance.randrange(LEFT_BYTES_MAX)
        with self._ballast.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(size, 1))

    def free(self, pid: int) -> None:
        self._ballast.unlink(missing_ok=True)
        if not self.mounted:
            _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))

    def unmount(self) -> None:
        if self.mounted:
            subprocess.run(["umount", "--lazy", str(self.folder)], check=True)
