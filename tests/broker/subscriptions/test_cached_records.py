"""The node sends a record once, and then its rows one at a time, or one per key."""

from __future__ import annotations

import pytest

from headpond.storage.memory_disk import MemoryDisk
from headpond.wire.control.consuming import Deliver
from headpond.wire.expiry import with_ttl
from headpond.wire.frame import Frame, FrameType, encode
from headpond.wire.plain.columns import rows_to_batch
from headpond.wire.plain.segment import encode_plain
from headpond.wire.record import decode_record_header
from tests.broker.subscriptions.core_readers import PLAIN, KindReader, Writer, shell
from tests.fire.core_shell import CoreShell


def test_one_at_a_time_a_record_is_sent_once_and_its_rows_follow() -> None:
    it = shell(4)
    reader = KindReader(it, "shared", "resilient")
    assert len(reader.client.take(Frame)) == 1
    assert [deliver.spans for deliver in reader.client.take(Deliver)] == [[(0, 1)]]
    for entry in range(3):
        reader.settle(acked=[(entry, entry + 1)])
        (deliver,) = reader.client.take(Deliver)
        assert (deliver.records, deliver.spans) == (0, [(entry + 1, entry + 2)])
    assert reader.client.take(Frame) == []


@pytest.mark.parametrize("keeps", [True, False])
def test_of_a_key_a_record_is_read_and_sent_once_and_its_rows_follow(keeps: bool) -> None:
    rows = 100
    it = CoreShell(MemoryDisk(), seed=1, settings=PLAIN)
    writer = Writer(it)
    for _ in range(2):
        writer.write(rows, keys=[b"k"] * rows)
    reader = KindReader(it, "key_shared", "resilient", keeps=keeps)
    cursor = next(it.core.stores.subscriptions.all()).cursors[0]
    frames, reads, woken = len(reader.client.take(Frame)), 0, 0
    for entry in range(2 * rows):
        (deliver,) = reader.client.take(Deliver)
        assert deliver.spans == [(entry, entry + 1)], "one message of the key at a time, in order"
        reader.settle(acked=[(entry, entry + 1)], durable=False)
        woken = max(woken, len(cursor.ready))
        reads += len(it.pending) - 1
        it.work_all()
        frames += len(reader.client.take(Frame))
    assert reader.client.take(Deliver) == []
    assert woken <= 1, "what stands behind it stays parked"
    assert (frames, reads) == ((2, 1) if keeps else (2 * rows, 2 * rows - 1))


@pytest.mark.parametrize("kind", ["shared", "key_shared"])
def test_a_row_that_expired_meanwhile_does_not_follow_its_record(kind: str) -> None:
    it = CoreShell(MemoryDisk(), seed=1, settings=PLAIN)
    writer = Writer(it)
    mortal = with_ttl(None, 5.0)
    rows = rows_to_batch([b"v"] * 3, [b"k"] * 3, None, [None, mortal, None], [1] * 3)
    writer.client.send(encode(FrameType.SEGMENT, encode_plain(rows)))
    it.work_all()
    reader = KindReader(it, kind, "resilient", keeps=True)
    assert reader.entries() == [0]
    reader.seconds(6)
    reader.settle(acked=[(0, 1)])
    assert reader.entries() == [2]


def test_a_key_that_moves_to_another_consumer_comes_with_its_record() -> None:
    it = CoreShell(MemoryDisk(), seed=1, settings=PLAIN)
    writer = Writer(it)
    for _ in range(2):
        writer.write(60, keys=[b"%d" % (row % 20) for row in range(60)])
    readers = [KindReader(it, "key_shared", "resilient", keeps=True)]
    kept: dict[KindReader, range] = {}
    seen: list[int] = []
    while len(seen) < 120:
        delivers = [(reader, reader.client.take(Deliver)) for reader in readers]
        frames = {reader: reader.client.take(Frame) for reader in readers}
        for reader, deliver in [(reader, each) for reader, some in delivers for each in some]:
            for frame in (frames[reader].pop(0) for _ in range(deliver.records)):
                header = decode_record_header(frame.body)
                kept[reader] = range(header.first_entry, header.end_entry)
            assert all(start in kept[reader] and end - 1 in kept[reader] for start, end in deliver.spans)
            seen += [entry for start, end in deliver.spans for entry in range(start, end)]
            reader.settle(acked=deliver.spans)
        assert any(some for _, some in delivers), "something comes for as long as something is left"
        if len(readers) == 1:
            readers.append(KindReader(it, "key_shared", "resilient", keeps=True))
    assert sorted(seen) == list(range(120))
    assert len(kept) == 2, "both had something"
