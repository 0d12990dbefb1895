"""Packs the small segments of a closed file: writes it again with packed records (rewrite.py).

A probe of the beginning decides whether that is worth it: most of its bytes must be small segments that can be
packed. Every other file is left alone, and so is a damaged one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator
from contextlib import suppress

from headpond.model.entry_set import EntrySet
from headpond.storage.disk import Disk, open_salvaged
from headpond.storage.frame_file import Bad, scan
from headpond.storage.log.batch import MEAN_BYTES_MAX
from headpond.storage.log.read import ClosedFile
from headpond.storage.log.rewrite import Rewrite, may_join
from headpond.storage.log.shard_log import ShardLog
from headpond.storage.long_work import ShardPlace
from headpond.wire.frame import FrameType
from headpond.wire.record import RECORD_HEADER_BYTES

PROBE_BYTES = 256 * 1024


class PackJob:
    """A job: probes one closed file, writes it again, and replaces it."""

    def __init__(
        self,
        place: ShardPlace,
        log: ShardLog,
        closed: ClosedFile,
        *,
        exists: Callable[[], bool],
        counters: Counter[str],
        then: Callable[[], None],
    ) -> None:
        """``exists`` says whether the topic is still there."""
        self.place = place
        self.log = log
        self.closed = closed
        self._exists = exists
        self._counters = counters
        self._then = then
        self.failed = False
        """Whether an error of the disk ended it: a later attempt may succeed."""
        self._worth = False
        self._steps = self._work()
        self._step = next(self._steps)

    def run(self, disk: Disk) -> None:
        self._step(disk)

    def done(self, error: OSError | None) -> bool:
        if not self._exists():
            self._steps.close()
            self._then()
            return False
        with suppress(StopIteration):
            self._step = self._steps.send(error)
            return True
        self._counters["packs_failed"] += self.failed
        self._then()
        return False

    def _work(self) -> Generator[Callable[[Disk], None], OSError | None, None]:
        log, file = self.log, self.closed.file
        error = yield self._probe
        if error is not None or not self._worth or not log.has_files([file]):
            self.failed = error is not None and log.has_files([file])
            return
        rewrite = Rewrite(log.place, [self.closed], EntrySet())
        try:
            while not rewrite.finished and error is None:
                error = yield rewrite.run
        finally:
            rewrite.close()
        if rewrite.unsound:
            self._counters["packs_unsound"] += 1
            return
        if error is None and rewrite.segments_packed:
            error = yield rewrite.swap
            if error is None and log.has_files([file]):  # else retention dropped it meanwhile
                self._replace(rewrite)
                yield rewrite.remove_old
                return
        self.failed = error is not None and log.has_files([file])  # else retention dropped it
        yield rewrite.remove_new

    def _probe(self, disk: Disk) -> None:
        small = small_bytes = read = 0
        with open_salvaged(disk, self.log.place.path(*self.closed.file.id)) as file:
            for item in scan(file, shard=self.log.place.shard, chunk_bytes=PROBE_BYTES):
                if isinstance(item, Bad):
                    self._worth = True  # the rewrite finds the damage, and it is counted
                    return
                if item.frame.type != FrameType.SEGMENT:
                    continue  # the head alone may be longer than the probe
                read += item.size
                if may_join(item.frame.body[RECORD_HEADER_BYTES:]):
                    small, small_bytes = small + 1, small_bytes + item.size
                if read >= PROBE_BYTES:
                    break
        enough = small >= self.log.place.pack_segments_min
        self._worth = enough and 2 * small_bytes >= read and small_bytes <= MEAN_BYTES_MAX * small

    def _replace(self, rewrite: Rewrite) -> None:
        log, file = self.log, self.closed.file
        log.replace([file], file._replace(bytes=rewrite.bytes, generation=rewrite.id.generation))
        self._counters["files_packed"] += 1
        self._counters["segments_packed"] += rewrite.segments_packed
