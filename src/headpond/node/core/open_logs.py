"""Which logs keep their file open: those that were written to lately.

Opening a file again costs a few microseconds, in a worker thread; a file held open costs a handle, of which a
process has thousands and a node may have tens of thousands of shards.
"""

from __future__ import annotations

from headpond.node.core.log import ShardLog


class OpenLogs:
    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._logs: dict[ShardLog, None] = {}
        """The one that was written to longest ago first."""

    def wrote(self, log: ShardLog) -> None:
        """A log was written to: it is the last to be closed."""
        self._logs.pop(log, None)
        self._logs[log] = None
        while len(self._logs) > self._count_max:
            oldest = next(iter(self._logs))
            del self._logs[oldest]
            oldest.release()  # where a write is under way it comes back here behind it

    def forget(self, log: ShardLog) -> None:
        self._logs.pop(log, None)

    def __len__(self) -> int:
        return len(self._logs)
