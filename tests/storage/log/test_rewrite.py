"""A rewritten file holds what was durable, and nothing of a write that failed."""

from __future__ import annotations

import errno
import random

import pytest

from headpond.model.entry_set import EntrySet
from headpond.storage.frame_file import Found, scan
from headpond.storage.log.format import BlockEnded, decode_event
from headpond.storage.log.rewrite import Rewrite
from headpond.storage.memory_disk import MemoryDisk
from headpond.wire.frame import FrameType
from tests.storage.log.logs import BLOCKS, FOLDER, LogWriter, log_files, open_log, read_all, readable


def test_an_event_behind_a_record_that_was_never_durable_is_not_copied() -> None:
    disk = MemoryDisk()
    writer = LogWriter(open_log(disk), random.Random(4))
    log = writer.log
    writer.append(size=40, count=1)
    writer.commit(disk)
    writer.append(size=40, count=1)
    log.append_end(BLOCKS[1], writer.clock_us)
    write = log.take()
    assert write is not None
    disk.fail_next("sync", errno.EIO, 1, FOLDER)
    with pytest.raises(OSError, match="Input/output"):
        write.run(disk)
    log.failed(write)
    writer.staged = []
    writer.append(size=40, count=1)  # in a new file, since nothing is known of the end of the other
    writer.commit(disk)

    rewrite = Rewrite(log.place, log.closed_files(), EntrySet(), frozenset(BLOCKS))
    while not rewrite.finished:
        rewrite.run(disk)
    assert not rewrite.unsound
    rewrite.swap(disk)
    rewrite.remove_old(disk)

    found = [item.frame for item in scan(disk.open(log_files(disk)[0])) if isinstance(item, Found)]
    events = [decode_event(frame.body) for frame in found if frame.type == FrameType.RECORD]
    assert not [event for event in events if isinstance(event, BlockEnded)]
    assert read_all(open_log(disk)) == (readable(writer.durable), [])
