"""A process to which faults happen."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from abc import ABC, abstractmethod

from tests.fire.forked import Forked
from tests.torture.small_disk import SmallDisk

END_S_MAX = 20.0


class Victim(ABC):
    disk: SmallDisk | None = None

    def __init__(self, name: str) -> None:
        self.name = name
        self.held = asyncio.Lock()
        """Held while it must not be started."""
        self.ending = False
        """Whether it should come to its end, and not be started again."""

    @property
    @abstractmethod
    def process(self) -> subprocess.Popen[bytes] | Forked | None: ...

    @property
    def up(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @abstractmethod
    async def start(self) -> None: ...

    def kill(self) -> None:
        if (process := self.process) is not None:
            process.kill()
            process.wait(END_S_MAX)

    def end(self) -> None:
        """Asks it to end in good order."""
        self.ending = True
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)

    def failure(self) -> str:
        """Why it ended, if no fault ended it."""
        return ""
