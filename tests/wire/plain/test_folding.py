"""Folded segments: used if they save enough, with the same rows, within the memory limit of a segment."""

from __future__ import annotations

import random
import struct

import pyarrow as pa
import pytest

from headpond.model.entry_set import EntrySet
from headpond.model.errors import BadSegment, SegmentTooLarge
from headpond.storage.log.rewrite import _without
from headpond.wire.expiry import expiries_us, with_ttl
from headpond.wire.frame import SEGMENT_BYTES_MAX
from headpond.wire.plain.columns import rows_to_batch
from headpond.wire.plain.few_rows import HEADER, HEADER_BYTES
from headpond.wire.plain.ipc import unfolded_bytes
from headpond.wire.plain.segment import (
    FORM_FOLDED,
    FORM_IPC,
    UNFOLDED_BYTES_MAX,
    check_state_rows,
    decode_plain,
    encode_plain,
)

NOW = 1_700_000_000_000_000


def text_rows(count: int) -> pa.RecordBatch:
    values = [b'{"order": %d, "state": "paid"}' % number for number in range(count)]
    keys = [b"k%d" % (number % 10) for number in range(count)]
    return rows_to_batch(list(values), list(keys), None, None, [NOW] * count)


def random_rows(count: int, size: int) -> pa.RecordBatch:
    noise = random.Random(count)
    return rows_to_batch([noise.randbytes(size) for _ in range(count)], None, None, None, [NOW] * count)


def test_text_becomes_smaller_and_reads_back_as_it_was() -> None:
    batch = text_rows(5000)
    data = encode_plain(batch)
    assert data[0] == FORM_FOLDED
    assert len(data) < batch.nbytes / 2
    assert decode_plain(data).equals(batch.select(["value", "key", "sent_at"]))


def test_a_slice_is_folded_without_the_rows_around_it() -> None:
    piece = text_rows(9000).slice(4000, 1000)
    data = encode_plain(piece)
    assert data[0] == FORM_FOLDED
    assert decode_plain(data).equals(piece)
    assert len(data) < len(encode_plain(text_rows(9000))) / 4


def test_random_bytes_are_left_as_they_are() -> None:
    assert encode_plain(random_rows(1000, 100))[0] == FORM_IPC


def test_rows_with_only_keys_are_folded_if_that_saves_enough() -> None:
    keys = [b"device/%06d/state" % number for number in range(3000)]
    data = encode_plain(rows_to_batch([None] * 3000, list(keys), None, None, [NOW] * 3000))
    assert data[0] == FORM_FOLDED
    assert decode_plain(data).column("key").to_pylist() == keys


def test_every_reader_accepts_a_segment_of_the_largest_size() -> None:
    size = SEGMENT_BYTES_MAX - 200
    data = encode_plain(rows_to_batch([b"x" * size], None, None, None, [NOW]))
    assert data[0] == FORM_FOLDED
    assert len(decode_plain(data).column("value")[0].as_py()) == size


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_a_bomb_is_refused_before_it_unfolds(codec: str) -> None:
    bomb = rows_to_batch([bytes(100_000_000)], None, None, None, [NOW]).select(["value", "sent_at"])
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with pa.ipc.new_stream(sink, bomb.schema, options=options) as writer:
        writer.write_batch(bomb)
    *_, last = pa.ipc.MessageReader.open_stream(sink.getvalue())
    data = HEADER.pack(FORM_FOLDED, 0b10001, 0, 0, 1) + last.serialize().to_pybytes()
    assert len(data) < SEGMENT_BYTES_MAX
    before, peak = pa.total_allocated_bytes(), pa.default_memory_pool().max_memory()
    with pytest.raises(BadSegment, match="would unfold to 100,"):
        decode_plain(data)
    assert (pa.total_allocated_bytes(), pa.default_memory_pool().max_memory()) == (before, peak)


def folded_by_a_note(batch: pa.RecordBatch) -> bytes:
    """A message as Arrow 0.17 wrote it: its metadata says that it is compressed."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4", metadata_version=pa.ipc.MetadataVersion.V4)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch, custom_metadata={"ARROW:experimental_compression": "lz4"})
    *_, last = pa.ipc.MessageReader.open_stream(sink.getvalue())
    message = bytearray(last.serialize())
    data = memoryview(message)[8:]
    (root,) = struct.unpack_from("<I", data)
    at = root + struct.unpack_from("<H", data, root - struct.unpack_from("<i", data, root)[0] + 8)[0]
    table = at + struct.unpack_from("<I", data, at)[0]
    struct.pack_into("<H", data, table - struct.unpack_from("<i", data, table)[0] + 10, 0)
    return bytes(message)


def test_a_bomb_that_is_folded_by_a_note_is_refused() -> None:
    bomb = rows_to_batch([bytes(30_000_000)], None, None, None, [NOW])
    message = folded_by_a_note(bomb)
    assert pa.ipc.read_record_batch(pa.py_buffer(message), bomb.schema).nbytes > 30_000_000, "Arrow goes by it"
    with pytest.raises(BadSegment, match=r"Arrow 0\.17"):
        decode_plain(HEADER.pack(FORM_IPC, 0b10001, 0, 0, 1) + message)
    with pytest.raises(BadSegment, match=r"Arrow 0\.17"):
        unfolded_bytes(pa.ipc.read_message(message))


def test_a_form_that_its_batch_does_not_have_is_refused() -> None:
    folded, plain = encode_plain(text_rows(5000)), encode_plain(random_rows(1000, 100))
    for data, form in ((folded, FORM_IPC), (plain, FORM_FOLDED)):
        with pytest.raises(BadSegment):
            decode_plain(bytes((form,)) + data[1:])


def test_any_damage_of_the_folded_bytes_is_found_or_harmless() -> None:
    data = encode_plain(text_rows(2000))
    rows = decode_plain(data)
    noise = random.Random(7)
    for _ in range(300):
        altered = bytearray(data)
        altered[noise.randrange(HEADER_BYTES, len(data))] ^= 1 << noise.randrange(8)
        try:
            read = decode_plain(bytes(altered))
        except BadSegment:
            continue
        assert read.num_rows == rows.num_rows
        assert read.schema == rows.schema


def test_a_time_to_live_is_found_where_its_name_is_folded() -> None:
    headers = [with_ttl({"kind": "order"}, 5) if number % 2 else {"kind": "note"} for number in range(2000)]
    data = encode_plain(rows_to_batch([b"x" * 20] * 2000, None, None, list(headers), [NOW] * 2000))
    assert data[0] == FORM_FOLDED
    expiries = expiries_us(data, None, NOW)
    assert expiries is not None
    assert (expiries[0], expiries[1]) == (None, NOW + 5_000_000)


def test_the_message_limit_applies_to_folded_messages() -> None:
    data = encode_plain(rows_to_batch([b"x" * 100_000], [b"k"], None, None, [NOW]))
    assert len(data) < 10_000
    with pytest.raises(SegmentTooLarge, match="100,000 bytes; the topic takes at most 10,000"):
        check_state_rows(data, state=False, message_bytes_max=10_000)
    deletes = encode_plain(
        rows_to_batch([None] * 3000, [b"k%d" % n for n in range(3000)], None, None, [NOW] * 3000)
    )
    assert check_state_rows(deletes, state=True, message_bytes_max=10) == 3000


def test_rows_that_grow_by_bitmaps_after_compaction_still_make_a_segment() -> None:
    rows = 270_000
    whole = rows_to_batch([b"v" * 8] * rows, [b"%06d" % row for row in range(rows)], None, None, [NOW] * rows)
    batch = whole.slice(0, rows * SEGMENT_BYTES_MAX // whole.nbytes - 1)
    data = encode_plain(batch)
    assert check_state_rows(data, state=True) == batch.num_rows
    gone = EntrySet.of_entries([1])
    assert decode_plain(_without(data, 0, gone, None)).column("key").null_count == 1


def test_a_node_refuses_rows_above_the_segment_limit_that_readers_would_accept() -> None:
    batch = rows_to_batch([bytes(SEGMENT_BYTES_MAX + 5000)], None, None, None, [NOW])
    with pytest.raises(SegmentTooLarge):
        encode_plain(batch)
    with pytest.raises(SegmentTooLarge):
        check_state_rows(encode_plain(batch, UNFOLDED_BYTES_MAX), state=False)
