"""Long jobs on files: a worker thread runs them in steps, so that no sync has to wait for them.

The shell treats ``LongWork`` like a lane: it takes a step, runs it and reports its end. Jobs take turns; jobs
of one shard run one after the other, so that none reads a file that another replaces.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from headpond.storage.disk import Disk

ShardPlace = tuple[bytes, int]
"""A topic's uuid and the number of a shard."""


class LongJob(Protocol):
    place: ShardPlace

    def run(self, disk: Disk) -> None:
        """One step, of a bounded size, in a worker thread."""

    def done(self, error: OSError | None) -> bool:
        """A step ended; called in the owning thread. Returns whether another step follows."""


class LongWork:
    name = "old files"

    def __init__(self) -> None:
        self.stopped = False
        """Whether the node stops: no further step begins."""
        self._jobs: deque[LongJob] = deque()
        self._under_way: LongJob | None = None

    def add(self, job: LongJob) -> None:
        self._jobs.append(job)

    @property
    def due(self) -> bool:
        return bool(self._jobs) and self._under_way is None and not self.stopped

    @property
    def busy(self) -> bool:
        """Whether a step is under way."""
        return self._under_way is not None

    def take(self) -> LongJob:
        assert self._under_way is None
        self._under_way = self._jobs[0]
        return self._under_way

    def done(self, job: LongJob, error: OSError | None) -> None:
        """A step ended. An unfinished job goes to the end of the queue, but before others of its shard."""
        assert job is self._under_way
        self._under_way = None
        self._jobs.remove(job)
        if job.done(error):
            behind = [each for each in self._jobs if each.place == job.place]
            others = [each for each in self._jobs if each.place != job.place]
            self._jobs = deque([*others, job, *behind])

    def has(self, place: ShardPlace) -> bool:
        return any(job.place == place for job in self._jobs)

    def drop(self, topic: bytes) -> None:
        """A topic is gone: ends its jobs; one whose step is under way ends after that step."""
        gone = [job for job in self._jobs if job.place[0] == topic and job is not self._under_way]
        self._jobs = deque(job for job in self._jobs if job not in gone)
        for job in gone:
            job.done(FileNotFoundError(2, "the topic was deleted"))

    def concerns(self, topic: bytes) -> bool:
        """Whether a step is under way on a topic's files."""
        return self._under_way is not None and self._under_way.place[0] == topic

    def __len__(self) -> int:
        return len(self._jobs)
