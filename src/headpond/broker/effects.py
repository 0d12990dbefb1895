"""What the shell does for the core, in order; some effects name the method to report to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from headpond.storage.log.marks import Stored
from headpond.storage.log.read import ReadResult
from headpond.wire.control.links import RecordHead

if TYPE_CHECKING:
    from headpond.storage.commit_lane import Committer
    from headpond.storage.log.shard_log import ShardLog


class Send(NamedTuple):
    """Write the parts, one behind the other, to a connection."""

    connection: int
    parts: list[bytes]


class Close(NamedTuple):
    """Close a connection after everything sent to it is written."""

    connection: int


class Commit(NamedTuple):
    """Take the lane's write, run it, on the loop if it is short, and report with ``NodeCore.wrote``."""

    lane: Committer


@dataclass(frozen=True, slots=True)
class Fetch:
    """Read a log in a worker thread and report with ``NodeCore.fetched``."""

    topic: bytes
    shard: int
    entry: int
    bytes_max: int
    then: Callable[[ReadResult | None], None]
    """Called with the result; None if the disk failed, or the topic is gone."""

    def run(self, log: ShardLog) -> ReadResult:
        """The read itself, for the worker thread."""
        return log.read(self.entry, self.bytes_max)


@dataclass(frozen=True, slots=True)
class PackedFetch(Fetch):
    """Reads a log for someone who understands packed records."""

    def run(self, log: ShardLog) -> ReadResult:
        return log.read(self.entry, self.bytes_max, packed=True)


@dataclass(frozen=True, slots=True)
class FindEntry(Fetch):
    """Look for a time in a log; ``next_entry`` of the result is the first entry stored then or later."""

    at_us: int = 0

    def run(self, log: ShardLog) -> ReadResult:
        return ReadResult([], log.find_time(self.at_us), [])


@dataclass(frozen=True, slots=True)
class FindSegments(Fetch):
    """Looks up admitted segments that are no longer in the marks."""

    wanted: list[tuple[bytes, int]] = field(default_factory=list)
    """Blocks and numbers."""
    found: dict[tuple[bytes, int], Stored | None] = field(default_factory=dict)
    """Filled by the read; None for a segment that no file has."""

    def run(self, log: ShardLog) -> ReadResult:
        self.found.update(log.find_segments(self.wanted))
        return ReadResult([], 0, [])


@dataclass(frozen=True, slots=True)
class HeadsFetch(Fetch):
    """Reads heads in place of records."""

    heads: list[RecordHead] = field(default_factory=list)
    """Filled by the read."""

    def run(self, log: ShardLog) -> ReadResult:
        return log.walk_heads(self.entry, self.heads)


@dataclass(frozen=True, slots=True)
class RemoveTree:
    """Close the logs and remove a folder that nothing refers to."""

    folder: str
    logs: tuple[ShardLog, ...] = ()


Effect = Send | Close | Commit | Fetch | RemoveTree
