"""Typed segments: whoever has the snapshot at k reads k, k + 1, … as they were encoded; state stays bounded."""

from __future__ import annotations

import contextlib
import struct
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.errors import BadSegment, SchemaMismatch, SegmentTooLarge, SnapshotNeeded
from penstock.model.identity import SegmentKey
from penstock.wire import typed, typed_form
from penstock.wire.frame import SEGMENT_BYTES_MAX
from penstock.wire.typed import PLAIN, Decoder, Encoder, Redundant, Segment, Snapshot
from tests.wire.mutations import mutations

SCHEMA = pa.schema(
    [
        pa.field("host", pa.string()),
        pa.field("labels", pa.map_(pa.string(), pa.string())),
        pa.field("value", pa.float64(), nullable=False),
        pa.field("inner", pa.struct([("text", pa.string()), ("list", pa.list_(pa.string()))])),
        pa.field("region", pa.string(), nullable=False, metadata={"unit": "none"}),
    ],
    metadata={"owner": "tests"},
)
Rows = list[list[dict[str, Any]]]
"""The rows of some batches."""

WORD = st.text(st.characters(codec="utf-8"), max_size=4)
LABELS = st.dictionaries(WORD, st.none() | WORD, max_size=3).map(lambda labels: list(labels.items()))
ROWS = st.fixed_dictionaries(
    {
        "host": st.none() | WORD,
        "labels": st.none()
        | st.dictionaries(WORD, st.none() | WORD, max_size=3).map(lambda d: list(d.items())),
        "value": st.floats(allow_nan=False),
        "inner": st.none()
        | st.fixed_dictionaries({"text": st.none() | WORD, "list": st.none() | st.lists(WORD, max_size=2)}),
        "region": WORD,
    }
)
BATCHES = st.lists(st.lists(ROWS, min_size=1, max_size=6), min_size=1, max_size=6)


def batch_of(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def some_rows(number: int, count: int = 10) -> pa.RecordBatch:
    return batch_of(
        [
            {
                "host": None if n % 5 == 4 else f"host-{(n + number) % 7}",
                "labels": None if n % 4 == 3 else [("job", f"job-{number}"), ("ü", "x")][: n % 3],
                "value": float(n),
                "inner": {"text": f"t{n}", "list": ["a", None]},
                "region": "north",
            }
            for n in range(count)
        ]
    )


def texts(*values: str | None) -> pa.RecordBatch:
    return pa.record_batch({"text": pa.array(values, pa.string())})


TEXTS = texts("x").schema


def encode_all(batches: list[pa.RecordBatch]) -> tuple[Encoder, list[Segment], list[Redundant]]:
    encoder = Encoder(batches[0].schema, 3)
    pairs = [encoder.encode(batch) for batch in batches]
    return encoder, [segment for segment, _ in pairs], [redundant for _, redundant in pairs]


def messages_of(segment: Segment) -> bytes:
    """The Arrow messages of a segment: what stands behind its header."""
    (leaves,) = struct.unpack_from("<H", segment.body, 2)
    start = 8 + 4 * leaves
    return segment.body[start + -start % 8 :]


# --- reading back -----------------------------------------------------------------------------------


@given(BATCHES)
@settings(max_examples=60, deadline=None)
def test_a_decoder_from_the_snapshot_at_any_segment_reads_on_from_there(
    rows: Rows,
) -> None:
    batches = [batch_of(part) for part in rows]
    encoder, segments, redundants = encode_all(batches)
    for k in range(len(batches) + 1):
        decoder = Decoder.from_snapshot(encoder.snapshot(redundants[k:]), SCHEMA)
        assert decoder.next_segment == k
        for segment, batch in zip(segments[k:], batches[k:], strict=True):
            decoded = decoder.decode(segment)
            assert decoded.equals(batch)
            assert decoded.schema.equals(SCHEMA, check_metadata=True)
        assert decoder.state_bytes == encoder.state_bytes


@given(BATCHES)
@settings(max_examples=30, deadline=None)
def test_a_decoder_without_a_snapshot_starts_at_segment_0(rows: Rows) -> None:
    batches = [batch_of(part) for part in rows]
    _, segments, _ = encode_all(batches)
    decoder = Decoder(SCHEMA)
    assert [decoder.decode(segment) for segment in segments] == batches


@given(BATCHES)
@settings(max_examples=30, deadline=None)
def test_undoing_segments_gives_the_snapshot_that_was_true_before_them(
    rows: Rows,
) -> None:
    encoder = Encoder(SCHEMA, 0)
    taken, redundants = [], []
    for part in rows:
        taken.append(encoder.snapshot([]))
        redundants.append(encoder.encode(batch_of(part))[1])
    assert [encoder.snapshot(redundants[k:]) for k in range(len(rows))] == taken


def test_segments_are_numbered_from_0_in_their_shard() -> None:
    encoder, segments, redundants = encode_all([some_rows(n) for n in range(3)])
    assert [segment.key for segment in segments] == [SegmentKey(3, 0), SegmentKey(3, 1), SegmentKey(3, 2)]
    assert [redundant.segment for redundant in redundants] == [0, 1, 2]
    assert encoder.last_segment == 2
    assert Encoder(SCHEMA, 3).last_segment == -1


def test_a_text_travels_once() -> None:
    encoder = Encoder(TEXTS, 0)
    first, _ = encoder.encode(texts("a long text that comes again"))
    again, redundant = encoder.encode(texts("a long text that comes again"))
    assert b"a long text" in first.body
    assert b"a long text" not in again.body
    assert redundant.lengths == (1,)


def test_label_names_and_texts_travel_once() -> None:
    encoder, segments, _ = encode_all([some_rows(7), some_rows(7)])
    assert b"job-7" in segments[0].body
    assert b"job-7" not in segments[1].body
    assert encoder.snapshot([]).body.count(b"job-7") == 1


def test_a_slice_teaches_only_its_own_words() -> None:
    batch = batch_of(
        [
            {"host": w, "labels": [(w, w)], "value": 0.0, "inner": None, "region": w}
            for w in ("aaaa", "bbbb", "cccc")
        ]
    )
    for piece in (batch.slice(1, 1), batch.slice(0, 1)):
        encoder = Encoder(SCHEMA, 0)
        segment, _ = encoder.encode(piece)
        assert Decoder(SCHEMA).decode(segment).equals(piece)
        assert b"cccc" not in segment.body + encoder.snapshot([]).body


def test_a_schema_without_texts_needs_no_state() -> None:
    batch = pa.record_batch({"n": pa.array([1, 2, 3])})
    encoder, segments, redundants = encode_all([batch])
    assert (encoder.state_bytes, redundants[0].lengths) == (0, ())
    assert Decoder.from_snapshot(encoder.snapshot(redundants)).decode(segments[0]).equals(batch)


def test_a_snapshot_and_its_segments_are_an_arrow_stream() -> None:
    batches = [some_rows(n) for n in range(4)]
    encoder, segments, redundants = encode_all(batches)
    stream = encoder.snapshot(redundants[1:]).body + b"".join(messages_of(segment) for segment in segments[1:])
    read = [batch.column("host").cast(pa.string()) for batch in pa.ipc.open_stream(stream)]
    assert read == [batch.column("host") for batch in batches[1:]]


def test_a_snapshot_asks_for_the_redundants_up_to_the_last_segment() -> None:
    encoder, _, redundants = encode_all([some_rows(n) for n in range(3)])
    for wrong in (redundants[:2], redundants[:1], [redundants[0], redundants[2]], [*redundants, redundants[2]]):
        with pytest.raises(ValueError, match="without a gap"):
            encoder.snapshot(wrong)


# --- bounds -----------------------------------------------------------------------------------------


@pytest.fixture
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds that a test reaches in a few rows, for both sides."""
    for module in (typed, typed_form):
        monkeypatch.setattr(module, "LEAF_VALUES_MAX", 8)
        monkeypatch.setattr(module, "LEAF_BYTES_MAX", 100)
        monkeypatch.setattr(module, "STATE_BYTES_MAX", 150, raising=False)


@pytest.mark.usefixtures("small_bounds")
@pytest.mark.parametrize("word", ["{}", "{:040d}"], ids=["values", "bytes"])
def test_a_leaf_that_passes_its_bound_goes_plain_for_good(word: str) -> None:
    batches = [texts(word.format(n), word.format(n + 1), None) for n in range(0, 24, 2)] + [texts("0")]
    encoder, segments, redundants = encode_all(batches)
    assert redundants[-1].lengths == (PLAIN,)
    assert redundants[0].lengths == (0,)
    plain_from = [redundant.lengths for redundant in redundants].index((PLAIN,))
    assert all(redundant.lengths == (PLAIN,) for redundant in redundants[plain_from:])
    assert encoder.state_bytes == 0
    for k in range(len(batches) + 1):
        decoder = Decoder.from_snapshot(encoder.snapshot(redundants[k:]))
        assert [decoder.decode(segment) for segment in segments[k:]] == batches[k:]
        assert decoder.state_bytes == 0


@pytest.mark.usefixtures("small_bounds")
@given(BATCHES)
@settings(max_examples=60, deadline=None)
def test_leaves_that_go_plain_one_by_one_are_read_from_any_snapshot(rows: Rows) -> None:
    batches = [batch_of(part) for part in rows]
    encoder, segments, redundants = encode_all(batches)
    for k in range(len(batches) + 1):
        decoder = Decoder.from_snapshot(encoder.snapshot(redundants[k:]), SCHEMA)
        assert [decoder.decode(segment) for segment in segments[k:]] == batches[k:]
        assert decoder.state_bytes <= 150


@pytest.mark.usefixtures("small_bounds")
def test_all_leaves_together_have_a_bound() -> None:
    schema = pa.schema([(name, pa.string()) for name in "abcd"])
    batch = pa.RecordBatch.from_pylist([dict.fromkeys("abcd", "x" * 60)], schema=schema)
    encoder = Encoder(schema, 0)
    _, _ = encoder.encode(batch)
    _, redundant = encoder.encode(batch)
    assert redundant.lengths == (1, 1, PLAIN, PLAIN)


def test_a_full_dictionary_has_64_ki_values() -> None:
    encoder = Encoder(TEXTS, 0)
    first, _ = encoder.encode(texts(*map(str, range(65_536))))
    second, redundant = encoder.encode(texts("65535", "0"))
    assert redundant.lengths == (65_536,)
    _, redundant = encoder.encode(texts("one more"))
    _, after = encoder.encode(texts("0"))
    assert (redundant.lengths, after.lengths) == ((65_536,), (PLAIN,))
    decoder = Decoder(TEXTS)
    assert decoder.decode(first).num_rows == 65_536
    assert decoder.decode(second).column(0).to_pylist() == ["65535", "0"]
    assert decoder.state_bytes <= typed_form.LEAF_BYTES_MAX


def test_a_snapshot_of_full_dictionaries_fits_into_a_frame() -> None:
    schema = pa.schema([(f"c{n}", pa.string()) for n in range(12)])
    encoder = Encoder(schema, 0)
    words = [f"{n:011d}" for n in range(60_000)]
    for name in schema.names:
        columns = [words if name == other else [None] * len(words) for other in schema.names]
        encoder.encode(pa.RecordBatch.from_arrays([pa.array(c, pa.string()) for c in columns], schema=schema))
    snapshot = encoder.snapshot([])
    assert encoder.state_bytes > 4 * 1024 * 1024
    assert len(snapshot.body) < SEGMENT_BYTES_MAX
    assert Decoder.from_snapshot(snapshot).state_bytes == encoder.state_bytes


# --- faults of the producer -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("batch", "error"),
    [
        (some_rows(9).slice(0, 0), BadSegment),
        (some_rows(9).drop_columns("host"), SchemaMismatch),
        (texts("x"), SchemaMismatch),
        (some_rows(9).set_column(4, SCHEMA.field(4), pa.nulls(10, pa.string())), SchemaMismatch),
        (
            batch_of(
                [
                    {
                        "host": "new",
                        "labels": None,
                        "value": 0.0,
                        "inner": {"text": "x" * 9_000_000},
                        "region": "new",
                    }
                ]
            ),
            SegmentTooLarge,
        ),
        (
            batch_of([{"host": "n" * 900_000, "labels": [("new", "new")], "value": 0.0, "region": "new"}] * 40),
            SegmentTooLarge,
        ),
    ],
    ids=["no-rows", "column-missing", "other-columns", "null", "too-large", "unfolds"],
)
def test_a_failed_encode_leaves_the_encoder_as_it_was(batch: pa.RecordBatch, error: type[Exception]) -> None:
    encoder = Encoder(SCHEMA, 3)
    encoder.encode(some_rows(1))
    before = encoder.snapshot([])
    with pytest.raises(error):
        encoder.encode(batch)
    assert encoder.snapshot([]) == before
    assert encoder.last_segment == 0
    decoder = Decoder.from_snapshot(before)
    assert decoder.decode(encoder.encode(some_rows(2))[0]).equals(some_rows(2))


@pytest.mark.parametrize(
    "kind",
    [
        pa.dictionary(pa.int32(), pa.string()),
        pa.list_(pa.dictionary(pa.int8(), pa.string())),
        pa.run_end_encoded(pa.int32(), pa.string()),
        pa.list_view(pa.int8()),
        pa.null(),
        pa.uuid(),
    ],
    ids=str,
)
def test_a_schema_that_cannot_be_carried_is_refused(kind: pa.DataType) -> None:
    with pytest.raises(SchemaMismatch):
        Encoder(pa.schema([("a", kind)]), 0)
    with pytest.raises(SchemaMismatch):
        Decoder(pa.schema([("a", kind)]))


# --- faults of what arrives -------------------------------------------------------------------------


ENCODER, SEGMENTS, REDUNDANTS = encode_all([some_rows(n) for n in range(3)])
SNAPSHOTS = [ENCODER.snapshot(REDUNDANTS[k:]) for k in range(3)]


def test_a_segment_out_of_order_asks_for_a_snapshot_and_changes_nothing() -> None:
    decoder = Decoder(SCHEMA)
    decoder.decode(SEGMENTS[0])
    for wrong in (SEGMENTS[0], SEGMENTS[2]):
        with pytest.raises(SnapshotNeeded):
            decoder.decode(wrong)
    assert decoder.decode(SEGMENTS[1]).equals(some_rows(1))


def test_a_segment_that_comes_again_asks_for_a_snapshot_though_no_dictionary_tells_them_apart() -> None:
    _, segments, _ = encode_all([texts("a")] * 3)
    decoder = Decoder(TEXTS)
    for segment in segments[:2]:
        decoder.decode(segment)
    with pytest.raises(SnapshotNeeded):
        decoder.decode(segments[1])


def test_a_segment_of_another_state_asks_for_a_snapshot() -> None:
    decoder = Decoder(SCHEMA)
    with pytest.raises(SnapshotNeeded):
        decoder.decode(replace(SEGMENTS[1], key=SegmentKey(3, 0)))


def test_a_snapshot_of_another_schema_is_a_mismatch() -> None:
    with pytest.raises(SchemaMismatch):
        Decoder.from_snapshot(SNAPSHOTS[0], TEXTS)


def test_a_failed_decode_leaves_the_decoder_as_it_was() -> None:
    decoder = Decoder.from_snapshot(SNAPSHOTS[1])
    before = decoder.state_bytes
    body = bytearray(SEGMENTS[1].body)
    at = body.index(b"job-1")
    body[at] = 0xFF
    with pytest.raises(BadSegment):
        decoder.decode(replace(SEGMENTS[1], body=bytes(body)))
    assert decoder.state_bytes == before
    assert decoder.decode(SEGMENTS[1]).equals(some_rows(1))


def segment_of(batch: pa.RecordBatch, *, base: int = 0, skip: int = 1, **options: Any) -> Segment:
    """A segment of one leaf around any stream; ``skip`` messages of the stream are left out."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_batch(batch)
    messages = [
        message.serialize().to_pybytes() for message in pa.ipc.MessageReader.open_stream(sink.getvalue())
    ]
    header = struct.pack("<BBHII4x", 3, 0, 1, batch.num_rows, base)
    return Segment(SegmentKey(0, 0), header + b"".join(messages[skip:]))


CODED = pa.DictionaryArray.from_arrays(pa.array([0, 0], pa.uint16()), pa.array(["a", "b"]))


@pytest.mark.parametrize(
    "segment",
    [
        segment_of(pa.record_batch({"text": CODED})),  # replaces the dictionary, where only deltas may come
        segment_of(pa.record_batch({"text": CODED}), skip=0),  # a schema
        segment_of(pa.record_batch({"text": CODED}), skip=2),  # indices into nothing
        segment_of(pa.record_batch({"text": CODED}), skip=3),  # no batch
        segment_of(pa.record_batch({"text": pa.array(["a" * 99] * 99)}), base=2**32 - 1, compression="zstd"),
        segment_of(pa.record_batch({"text": pa.array([1])}), base=2**32 - 1),
        replace(SEGMENTS[0], body=b""),
        replace(SEGMENTS[0], body=SEGMENTS[0].body + b"\0" * 8),
    ],
    ids=["replacement", "schema", "no-dictionary", "no-batch", "compressed", "ints", "empty", "trailing"],
)
def test_a_malformed_segment_is_refused(segment: Segment) -> None:
    with pytest.raises(BadSegment):
        Decoder(TEXTS).decode(segment)


def test_a_plain_leaf_around_any_stream_is_taken() -> None:
    batch = texts("a", None)
    assert Decoder(TEXTS).decode(segment_of(batch, base=2**32 - 1)).equals(batch)


def test_a_few_indices_that_unfold_to_gigabytes_are_refused_before_they_do() -> None:
    encoder = Encoder(TEXTS, 0)
    long = "x" * 1_000_000
    first, _ = encoder.encode(texts(long))
    second, _ = encoder.encode(texts(*[long] * 30))
    decoder = Decoder(TEXTS)
    decoder.decode(first)
    many = pa.DictionaryArray.from_arrays(pa.array([0] * 100_000, pa.uint16()), pa.array([long]))
    bomb = replace(segment_of(pa.record_batch({"text": many}), base=1, skip=2), key=SegmentKey(0, 1))
    peak = pa.default_memory_pool().max_memory()
    with pytest.raises(BadSegment, match="unfolds"):
        decoder.decode(bomb)
    assert pa.default_memory_pool().max_memory() - peak < 10_000_000
    assert decoder.decode(second).num_rows == 30


@pytest.mark.parametrize("body", [SNAPSHOTS[2].body[:-8], SNAPSHOTS[2].body * 2, b"", b"\0" * 64])
def test_a_malformed_snapshot_is_refused(body: bytes) -> None:
    with pytest.raises(BadSegment):
        Decoder.from_snapshot(Snapshot(0, body))


@pytest.mark.parametrize("offsets", [(0, 2**31 - 1, 4, 6), (0, -9, 4, 6), (0, 2, 4, 2**30), (0, 5, 3, 6)])
def test_a_snapshot_with_wild_offsets_is_refused(offsets: tuple[int, ...]) -> None:
    encoder, _, _ = encode_all([texts("aa", "bb", "cc")])
    body = encoder.snapshot([]).body
    good = struct.pack("<4i", 0, 2, 4, 6)
    assert body.count(good) == 1
    with pytest.raises(BadSegment):
        Decoder.from_snapshot(Snapshot(0, body.replace(good, struct.pack("<4i", *offsets))))


def test_a_snapshot_above_the_bounds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder, _, _ = encode_all([texts(*map(str, range(100)))])
    monkeypatch.setattr(typed_form, "LEAF_VALUES_MAX", 99)
    with pytest.raises(BadSegment):
        Decoder.from_snapshot(encoder.snapshot([]))
    monkeypatch.undo()
    monkeypatch.setattr(typed, "LEAF_BYTES_MAX", 99)
    with pytest.raises(BadSegment):
        Decoder.from_snapshot(encoder.snapshot([]))


POOL = [segment.body for segment in SEGMENTS] + [snapshot.body for snapshot in SNAPSHOTS]


@given(k=st.integers(0, 2), body=mutations(POOL))
@settings(max_examples=1000, deadline=None)
def test_an_altered_segment_is_valid_rows_or_a_fault_of_the_catalogue(k: int, body: bytes) -> None:
    decoder = Decoder.from_snapshot(SNAPSHOTS[k], SCHEMA)
    with contextlib.suppress(BadSegment, SnapshotNeeded):
        decoder.decode(Segment(SegmentKey(3, k), body)).to_pylist()


@given(k=st.integers(0, 2), body=mutations(POOL))
@settings(max_examples=500, deadline=None)
def test_an_altered_snapshot_is_a_decoder_or_a_fault_of_the_catalogue(k: int, body: bytes) -> None:
    with contextlib.suppress(BadSegment, SchemaMismatch, SnapshotNeeded):
        Decoder.from_snapshot(Snapshot(k, body)).decode(SEGMENTS[k]).to_pylist()
