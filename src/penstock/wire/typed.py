"""A typed topic's segments: rows of a schema, their texts dictionary-encoded over the life of an encoder.

The **encoder's state** is a growing dictionary for each leaf (see leaves). A ``Segment`` carries what the
dictionaries gained, then the rows as indices into them; ``Redundant`` is how long they were before it. Since
they only grow, the ``Snapshot`` at segment k is the dictionaries cut to their length before k, and whoever has
it can decode k, k + 1, …. The bytes are in typed_form.

**Bounds.** A leaf has at most 64 Ki values and 1 MiB, all leaves of an encoder 6 MiB, so that a snapshot fits
into a frame. A leaf that would pass them **goes plain for good**: from that segment on its texts travel as they
are. (The encoder keeps what it knew, for snapshots at earlier segments.) A new block begins with empty
dictionaries. The decoder holds the same bounds against what arrives.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from penstock.model.errors import BadSegment, SchemaMismatch, SegmentTooLarge, SnapshotNeeded
from penstock.model.identity import SegmentKey
from penstock.wire.frame import SEGMENT_BYTES_MAX
from penstock.wire.leaves import (
    INDEX,
    TEXT,
    Leaf,
    leaf_array,
    replace_leaves,
    wire_schema,
)
from penstock.wire.typed_form import (
    ARROW_FAULTS,
    DECODED_BYTES_MAX,
    FILLER,
    FORM_TYPED,
    HEADER,
    LEAF_BYTES_MAX,
    LEAF_VALUES_MAX,
    OFFSET_BYTES,
    PLAIN,
    PLAIN_BASE,
    STATE_BYTES_MAX,
    Form,
    Redundant,
    Segment,
    Snapshot,
    check_messages,
    checked_dictionary,
    dictionary_bytes,
    null_fault,
    pack_header,
    read_snapshot,
    shown,
)

__all__ = ["PLAIN", "Decoder", "Encoder", "Redundant", "Segment", "Snapshot"]


# --- encoding ---------------------------------------------------------------------------------------


class _Words:
    """The growing dictionary of one leaf, as its encoder knows it."""

    __slots__ = ("bytes", "places", "plain")

    def __init__(self) -> None:
        self.places: dict[str, int] = {}
        self.bytes = 0
        self.plain = False


@dataclass(frozen=True, slots=True)
class _Gain:
    """What one segment does to a leaf; nothing of it has happened yet."""

    plain: bool
    added: list[str]
    bytes: int
    array: pa.Array


class Encoder:
    """Encodes the rows of one shard; its segments are numbered 0, 1, 2, …"""

    def __init__(self, schema: pa.Schema, shard: int) -> None:
        self._form = Form(schema)
        self.schema = schema
        self.shard = shard
        self.last_segment = -1
        """The number of the segment encoded last; -1 before the first."""
        self._leaves = self._form.leaves
        self._has_labels = any(leaf.part != "column" for leaf in self._leaves)
        self._words = [_Words() for _ in self._leaves]

    @property
    def state_bytes(self) -> int:
        """The bytes of all dictionaries in use."""
        return sum(words.bytes for words in self._words if not words.plain)

    def encode(self, rows: pa.RecordBatch) -> tuple[Segment, Redundant]:
        """The next segment. A fault (wrong columns, too large) leaves the encoder as it was."""
        rows = self._checked(rows)
        gains = self._gains(rows)
        before = Redundant(self.last_segment + 1, tuple(self._lengths()))
        plain = [gain.plain for gain in gains]
        wire = wire_schema(self.schema, plain)
        replaced = {leaf: gain.array for leaf, gain in zip(self._leaves, gains, strict=True) if not gain.plain}
        messages = self._form.write_segment(replace_leaves(rows, wire, replaced), plain)
        lengths = [PLAIN if gain.plain else length for gain, length in zip(gains, before.lengths, strict=True)]
        body = pack_header(lengths, rows.num_rows) + messages
        if len(body) > SEGMENT_BYTES_MAX:
            raise SegmentTooLarge(
                f"a segment of {len(body):,} bytes; at most {SEGMENT_BYTES_MAX:,} are allowed"
            )
        for words, gain in zip(self._words, gains, strict=True):
            words.plain = gain.plain
            if not gain.plain:
                words.places.update(zip(gain.added, range(len(words.places), LEAF_VALUES_MAX), strict=False))
                words.bytes += gain.bytes
        self.last_segment += 1
        return Segment(SegmentKey(self.shard, self.last_segment), body), before

    def snapshot(self, redundants: Sequence[Redundant]) -> Snapshot:
        """The snapshot at the first of ``redundants``, which are those of k, k + 1, …, ``last_segment``.

        With none of them it is the present state: the snapshot at the segment that comes next.
        """
        first = self.last_segment + 1 - len(redundants)
        if [redundant.segment for redundant in redundants] != list(range(first, self.last_segment + 1)):
            raise ValueError(f"a snapshot takes the redundants of k to {self.last_segment} without a gap")
        lengths = redundants[0].lengths if redundants else self._lengths()
        plain = [length == PLAIN for length in lengths]
        known = {
            leaf: pa.array(list(words.places)[:length], TEXT)
            for leaf, words, length in zip(self._leaves, self._words, lengths, strict=True)
            if length != PLAIN
        }
        return Snapshot(first, self._form.write_snapshot(plain, known))

    def _lengths(self) -> list[int]:
        return [PLAIN if words.plain else len(words.places) for words in self._words]

    def _checked(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        if not rows.schema.equals(self.schema):
            raise SchemaMismatch(f"rows of {shown(rows.schema)}; the topic has {shown(self.schema)}")
        if rows.num_rows == 0:
            raise BadSegment("a segment without rows")
        if rows.nbytes > DECODED_BYTES_MAX:
            raise SegmentTooLarge(f"rows of {rows.nbytes:,} bytes; at most {DECODED_BYTES_MAX:,} are allowed")
        try:
            rows.validate(full=True)
        except pa.ArrowInvalid as error:
            raise BadSegment(f"rows that are not valid Arrow: {error}") from error
        fault = null_fault(rows, self.schema)
        if fault:
            raise SchemaMismatch(fault)
        # Through IPC a slice of labels is cut to its own rows; a leaf must not learn its neighbours' words.
        return pa.ipc.read_record_batch(rows.serialize(), self.schema) if self._has_labels else rows

    def _gains(self, rows: pa.RecordBatch) -> list[_Gain]:
        total = self.state_bytes
        gains: list[_Gain] = []
        for leaf, words in zip(self._leaves, self._words, strict=True):
            gain = _gain(words, leaf_array(rows, leaf), STATE_BYTES_MAX - total)
            total += -words.bytes if gain.plain and not words.plain else gain.bytes
            gains.append(gain)
        return gains


def _gain(words: _Words, texts: pa.Array, room: int) -> _Gain:
    """The texts as indices into the leaf's dictionary and what it must learn; plain, if that is too much."""
    stays_plain = _Gain(True, [], 0, texts)
    if words.plain:
        return stays_plain
    coded = texts.dictionary_encode()
    known, base = words.places, len(words.places)
    distinct = coded.dictionary.to_pylist()
    added = [text for text in distinct if text not in known]
    new = pa.array(added, TEXT)
    size = (pc.sum(pc.binary_length(new)).as_py() or 0) + OFFSET_BYTES * len(added)
    if base + len(added) > LEAF_VALUES_MAX or words.bytes + size > LEAF_BYTES_MAX or size > room:
        return stays_plain
    fresh = dict(zip(added, range(base, base + len(added)), strict=True))
    places = pa.array([fresh[text] if text in fresh else known[text] for text in distinct], INDEX)
    indices = places.take(coded.indices)
    # The indices speak of the whole dictionary, of which only the new part travels: Arrow must not compare.
    array = pa.DictionaryArray.from_arrays(indices, pa.concat_arrays([FILLER, new]), safe=False)
    return _Gain(False, added, size, array)


# --- decoding ---------------------------------------------------------------------------------------


class Decoder:
    """Decodes the segments of one block and shard in order, from segment 0 or from a snapshot."""

    def __init__(self, schema: pa.Schema) -> None:
        self._form = Form(schema)
        self.schema = schema
        self.next_segment = 0
        self._leaves = self._form.leaves
        self._known: list[pa.Array | None] = [pa.array([], TEXT) for _ in self._leaves]
        """Each leaf's dictionary; None once it is plain."""

    @classmethod
    def from_snapshot(cls, snapshot: Snapshot, schema: pa.Schema | None = None) -> Decoder:
        """A decoder that begins at the snapshot's segment; ``schema`` is the topic's, to compare."""
        try:
            form, plain, known = read_snapshot(snapshot.body, schema)
        except ARROW_FAULTS as error:
            raise BadSegment(f"a snapshot that cannot be read: {error}") from error
        decoder = cls(form.schema)
        decoder.next_segment = snapshot.segment
        decoder._known = [None if is_plain else known.pop(0) for is_plain in plain]
        decoder._check_bounds(decoder._known)
        return decoder

    @property
    def state_bytes(self) -> int:
        """The bytes of all dictionaries held."""
        return sum(dictionary_bytes(known) for known in self._known if known is not None)

    def decode(self, segment: Segment) -> pa.RecordBatch:
        """The rows of the segment that comes next. A fault leaves the decoder as it was."""
        if segment.key.segment != self.next_segment:
            raise SnapshotNeeded(f"segment {segment.key.segment} came where {self.next_segment} comes next")
        if len(segment.body) > SEGMENT_BYTES_MAX:
            raise SegmentTooLarge(f"a segment of {len(segment.body):,} bytes")
        try:
            rows, plain = self._read_header(segment.body)
            batch, known = self._read(segment.body, rows, plain)
            batch.validate(full=True)
        except ARROW_FAULTS as error:
            raise BadSegment(f"a segment that cannot be read: {error}") from error
        fault = null_fault(batch, self.schema)
        if fault:
            raise BadSegment(fault)
        self._known = known
        self.next_segment += 1
        return batch

    def _read_header(self, body: bytes) -> tuple[int, list[bool]]:
        """The row count, and which leaves are plain in this segment."""
        form, zero, count, rows = HEADER.unpack_from(body)
        if form != FORM_TYPED or zero or count != len(self._leaves):
            raise BadSegment(
                f"a segment of form {form} with {count} dictionaries; the schema has {len(self._leaves)}"
            )
        if not 0 < rows <= 8 * len(body):
            raise BadSegment(f"a segment of {len(body):,} bytes with {rows:,} rows")
        bases = struct.unpack_from(f"<{count}I", body, HEADER.size)
        for base, known in zip(bases, self._known, strict=True):
            if base != PLAIN_BASE and (known is None or base != len(known)):
                raise SnapshotNeeded("a segment whose dictionaries are not those of the segment before it")
        return rows, [base == PLAIN_BASE for base in bases]

    def _read(self, body: bytes, rows: int, plain: list[bool]) -> tuple[pa.RecordBatch, list[pa.Array | None]]:
        start = HEADER.size + 4 * len(plain)
        start += -start % 8
        messages = pa.py_buffer(body).slice(start)
        check_messages(messages, plain.count(False), rows)
        _, beginning = self._form.beginning(plain)
        stream = pa.ipc.open_stream(pa.py_buffer(beginning + body[start:]))
        stream.read_next_batch()
        batch = stream.read_next_batch()
        batch.validate()
        known = self._learn(batch, plain)
        return replace_leaves(batch, self.schema, self._texts(batch, known)), known

    def _learn(self, batch: pa.RecordBatch, plain: list[bool]) -> list[pa.Array | None]:
        """Each leaf's dictionary with what the segment adds to it, within the bounds."""
        known: list[pa.Array | None] = []
        for leaf, before, is_plain in zip(self._leaves, self._known, plain, strict=True):
            if is_plain:
                known.append(None)
                continue
            added = checked_dictionary(leaf_array(batch, leaf))[len(FILLER) :]
            known.append(pa.concat_arrays([before, added]) if len(added) else before)
        self._check_bounds(known)
        return known

    def _texts(self, batch: pa.RecordBatch, known: list[pa.Array | None]) -> dict[Leaf, pa.Array]:
        """The leaves' texts, after adding up how many bytes they will be."""
        coded = [
            (leaf, leaf_array(batch, leaf).indices, words)
            for leaf, words in zip(self._leaves, known, strict=True)
            if words is not None
        ]
        size = sum(pc.sum(pc.binary_length(words).take(indices)).as_py() or 0 for _, indices, words in coded)
        if size > DECODED_BYTES_MAX:
            raise BadSegment(
                f"a segment that unfolds to {size:,} bytes; at most {DECODED_BYTES_MAX:,} are allowed"
            )
        return {leaf: words.take(indices) for leaf, indices, words in coded}

    def _check_bounds(self, known: list[pa.Array | None]) -> None:
        sizes = [dictionary_bytes(words) for words in known if words is not None]
        if any(words is not None and len(words) > LEAF_VALUES_MAX for words in known):
            raise BadSegment(f"a dictionary of more than {LEAF_VALUES_MAX:,} values")
        if max(sizes, default=0) > LEAF_BYTES_MAX or sum(sizes) > STATE_BYTES_MAX:
            raise BadSegment(f"dictionaries of {sum(sizes):,} bytes are above the bounds")
