"""Targets for bytes that come over a connection. Only the errors that a target names may come out of it."""

from __future__ import annotations

from contextlib import suppress

import pyarrow as pa

from headpond.model.errors import BadFilter, BadFrame, BadSegment, HeadpondError, SchemaMismatch
from headpond.model.identity import SegmentKey
from headpond.node.http.bodies import ARROW, JSON, NDJSON, RAW, RawMessage, Rows, read_body
from headpond.pipes.machines.packet import Kind, Packet, decode_packet, encode_packet
from headpond.wire.connection import FROM_CLIENT, ClientSide, ConnectionFault, ConnectionState, NodeSide
from headpond.wire.control.codec import CONTROL_TYPES, decode_control, encode_control, read_misfit
from headpond.wire.control.greeting import Hello, Welcome
from headpond.wire.filter import Filter
from headpond.wire.frame import HEADER_BYTES, TRAILER, FrameReader, FrameType, encode
from headpond.wire.plain.columns import PLAIN_SCHEMA, rows_to_batch, table_to_batches
from headpond.wire.plain.segment import check_state_rows, decode_plain, encode_plain
from headpond.wire.title import Title, decode_title, encode_title
from headpond.wire.typed.codec import RowDecoder
from headpond.wire.typed.form import Snapshot, TypedSegment
from headpond.wire.typed.record import encode_typed_record, fill_messages, stored_rows
from headpond.wire.typed.rows import message_schema, messages_of
from headpond.wire.typed.schema import decode_schema, encode_schema, width_bytes
from headpond.wire.typed.versions import SchemaVersions
from tests.fuzz.alter import with_checksums
from tests.wire.samples import MESSAGES
from tests.wire.typed.samples import SCHEMA, encode_all, some_rows

HELLO = encode_control(Hello([1], "fuzz"))
WELCOME = encode_control(Welcome(1, "n", "s", 1, 1, 1))
KINDS = [FrameType.TITLE, *CONTROL_TYPES.values()]
ENCODER, SEGMENTS, REDUNDANTS = encode_all([some_rows(number) for number in range(3)])
SNAPSHOTS = [ENCODER.snapshot(REDUNDANTS[number:]) for number in range(3)]
VERSIONS = SchemaVersions([encode_schema(SCHEMA)])
MEDIA = [JSON, NDJSON, RAW, ARROW, "text/csv"]
POOL_BYTES_MAX = 256 * 1024 * 1024
PLAIN_ROWS = rows_to_batch([b"v", None, b""], [b"k"] * 3, ["i", None, "j"], [{"a": "ü"}, None, None], [1, 2, 3])
TYPED_ROWS = pa.RecordBatch.from_pylist(
    [{"sent_at": 1, "key": b"k", "value": row} for row in some_rows(0).to_pylist()],
    schema=message_schema(SCHEMA),
)
COLUMNS = {name: PLAIN_ROWS.column(name) for name in PLAIN_SCHEMA.names} | {"value": TYPED_ROWS["value"][:3]}


def frames(data: bytes) -> None:
    """A stream gives the same frames and the same fault however it is cut, and then nothing more."""
    lead, stream = data[0] if data else 0, data[1:]
    step = 1 + lead % 64
    if lead & 0x80:
        stream = with_checksums(stream)
    pieces = [stream[at : at + step] for at in range(0, len(stream), step)]
    whole, cut = FrameReader(FROM_CLIENT), FrameReader(FROM_CLIENT)
    found = whole.feed(stream)
    assert [frame for piece in pieces for frame in cut.feed(piece)] == found
    assert type(cut.fault) is type(whole.fault)
    sent = b"".join(encode(type_, body, shard=shard, segment=number) for type_, shard, number, body, _ in found)
    assert stream.startswith(sent)
    assert whole.fault is not None or whole.partial_bytes == len(stream) - len(sent)
    node, client = NodeSide(node="n", software="s", window_bytes_max=1), ClientSide(client="c")
    for side, greeting in ((node, HELLO), (client, WELCOME)):
        if lead & 0x40:
            side.receive(greeting)
        events = [event for piece in pieces for event in side.receive(piece)]
        faults = [event for event in events if isinstance(event, ConnectionFault)]
        assert faults == events[-1:] if side.state is ConnectionState.CLOSED else not faults


def control(data: bytes) -> None:
    """A body is a message that is encoded to itself, or a BadFrame, which the node may refuse by its number."""
    kind, body = KINDS[data[0] % len(KINDS)] if data else KINDS[0], data[1:]
    try:
        if kind == FrameType.TITLE:
            title = decode_title(body)
            assert decode_title(encode_title(*title)) == title
            return
        message = decode_control(kind, body)
    except BadFrame:
        read_misfit(kind, body)
        return
    sent = encode_control(message)
    assert encode_control(decode_control(kind, sent[HEADER_BYTES : -TRAILER.size])) == sent


def packet(data: bytes) -> None:
    """A packet of a pipe that is encoded to itself, or none."""
    found = decode_packet(data)
    assert found is None or decode_packet(encode_packet(found)) == found


def plain_segment(data: bytes) -> None:
    """Rows that are encoded to the same rows, or a BadSegment."""
    with suppress(BadSegment):
        batch = decode_plain(data)
        batch.to_pydict()
        again = decode_plain(encode_plain(batch))
        assert fill_messages(again, PLAIN_SCHEMA).equals(fill_messages(batch, PLAIN_SCHEMA))
    for state in (True, False):
        with suppress(HeadpondError):
            check_state_rows(data, state=state, message_bytes_max=1)


def typed_segment(data: bytes) -> None:
    """Rows of the schema, or a fault that changes nothing."""
    number, body = data[0] % 3 if data else 0, data[1:]
    decoder = RowDecoder.from_snapshot(SNAPSHOTS[number], SCHEMA)
    before = decoder.state_bytes
    try:
        rows = decoder.decode(TypedSegment(SegmentKey(3, number), body))
    except HeadpondError:
        assert (decoder.next_segment, decoder.state_bytes) == (number, before)
        assert decoder.decode(SEGMENTS[number]).equals(some_rows(number))
    else:
        check_rows(rows)


def snapshot(data: bytes) -> None:
    """A decoder, or an error."""
    with suppress(HeadpondError):
        number = data[0] % 3 if data else 0
        check_rows(RowDecoder.from_snapshot(Snapshot(number, data[1:]), SCHEMA).decode(SEGMENTS[number]))


def typed_record(data: bytes) -> None:
    """Rows of the schema, or an error."""
    with suppress(HeadpondError):
        stored_rows(data, VERSIONS).validate(full=True)


def check_rows(rows: pa.RecordBatch) -> None:
    rows.validate(full=True)
    rows.to_pylist()
    assert rows.schema.equals(SCHEMA)


def schema(data: bytes) -> None:
    """A schema whose rows have a bounded width, or a SchemaMismatch."""
    with suppress(SchemaMismatch):
        found = decode_schema(data)
        assert sum(width_bytes(kind) for kind in found.types) < 2**17
        assert all(inner.name for field in found for inner in field.flatten())


def row_filter(data: bytes) -> None:
    """A mask without nulls, or a BadFilter that says what is wrong."""
    try:
        mask = Filter(data.decode(errors="replace")).mask(COLUMNS)
    except BadFilter as error:
        assert "filter" in error.message
    else:
        assert len(mask) == 3 and mask.null_count == 0


def http_body(data: bytes) -> None:
    """Messages or an error, whatever the media type; a hostile Arrow stream costs bounded memory."""
    lead = data[0] if data else 0
    plain = bool(lead & 0x80)
    with suppress(HeadpondError):
        found = read_body(MEDIA[lead % 0x80 % len(MEDIA)], data[1:], RawMessage(), {})
        if isinstance(found, Rows):
            found.to_batch(None if plain else SCHEMA, 1)
        elif plain:
            table_to_batches(found, 1, 2**20)
        else:
            messages_of(found, SCHEMA, 1)
    assert pa.default_memory_pool().max_memory() < POOL_BYTES_MAX


# --- seeds --------------------------------------------------------------------------------------------


def _stream(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


_CONTROL = [encode_control(message) for message in MESSAGES]
_TITLE = encode_title(bytes(16), 2, Title("a/b/c/d", b"u" * 16, "p", 1, b"s"))
_JSON = (
    b'{"value": "v", "key": "k", "id": "i", "headers": {"a": "b"}, "sent_at": "2026-01-01T00:00:00Z", "ttl": 1}'
)
_ROW = b'{"value": {"host": "h", "labels": {"a": "b"}, "value": 1.5, "region": "r"}}'
_STREAMS = [b"\3" + _stream(some_rows(1)), b"\x83" + _stream(PLAIN_ROWS)]
SEEDS = {
    frames: [b"\xc7" + b"".join(_CONTROL), b"\x87" + HELLO, b"\xc1" + encode(FrameType.TITLE, _TITLE)],
    control: [bytes((KINDS.index(FrameType(each[0])),)) + each[HEADER_BYTES:-4] for each in _CONTROL]
    + [b"\0" + _TITLE],
    packet: [encode_packet(Packet(Kind.DATA, 1, 0, range(5, 7), [b"a", b"b"]))],
    plain_segment: [encode_plain(PLAIN_ROWS), encode_plain(PLAIN_ROWS.take([0, 1, 2] * 300))],
    typed_segment: [bytes((number,)) + SEGMENTS[number].body for number in range(3)],
    snapshot: [bytes((number,)) + SNAPSHOTS[number].body for number in range(3)],
    typed_record: [encode_typed_record(TYPED_ROWS, 1), encode_typed_record(TYPED_ROWS.slice(0, 1), 1)],
    schema: [encode_schema(SCHEMA), encode_schema(message_schema(SCHEMA))],
    row_filter: [b"key = 'a' and not (value.value >= -1.5e3 or id in ('x', 'y')) or headers['a'] like '%_'"],
    http_body: [b"\x80" + _JSON, b'\x80{"messages": [' + _JSON + b"]}", b"\1" + _ROW, b"\2raw", *_STREAMS],
}
