"""The time of one message is found in every form of a stored segment."""

from __future__ import annotations

import pytest

from headpond.wire.plain.columns import SENT_AT_US_UNKNOWN, rows_to_batch
from headpond.wire.plain.few_rows import FORM_BARE
from headpond.wire.plain.segment import FORM_FOLDED, FORM_IPC, encode_plain
from headpond.wire.sent_at import sent_at_us
from headpond.wire.typed.record import encode_typed_record
from headpond.wire.typed.schema import encode_schema
from headpond.wire.typed.versions import SchemaVersions
from tests.broker.ingest.typed_sender import SCHEMA, messages, row

AT_US = 1_700_000_000_000_000


@pytest.mark.parametrize(
    ("rows", "size", "form"), [(3, 5, FORM_BARE), (700, 5, FORM_IPC), (700, 300, FORM_FOLDED)]
)
@pytest.mark.parametrize("keyed", [False, True])
def test_of_a_plain_segment(rows: int, size: int, form: int, keyed: bool) -> None:
    times = [AT_US + row for row in range(rows)]
    keys: list[bytes | None] | None = [b"k"] * rows if keyed else None
    segment = encode_plain(rows_to_batch([b"v" * size] * rows, keys, None, None, times))
    assert segment[0] == form
    assert [sent_at_us(segment, row, None, 9) for row in (0, rows - 1)] == [times[0], times[-1]]


@pytest.mark.parametrize("rows", [2, 500])
@pytest.mark.parametrize("envelope", [{}, {"key": b"k"}])
def test_of_a_typed_topics_record(rows: int, envelope: dict[str, bytes]) -> None:
    schemas = SchemaVersions([encode_schema(SCHEMA)])
    segment = encode_typed_record(messages([row(n) for n in range(rows)], SCHEMA, sent_at=AT_US, **envelope), 1)
    assert sent_at_us(segment, rows - 1, schemas, 9) == AT_US


def test_an_unknown_time_is_the_time_when_the_node_stored_it() -> None:
    segment = encode_plain(rows_to_batch([b"v"], None, None, None, [SENT_AT_US_UNKNOWN]))
    assert sent_at_us(segment, 0, None, 9) == 9


def test_of_bytes_that_are_no_segment_there_is_none() -> None:
    assert sent_at_us(b"\x01\x11" + bytes(40), 0, None, 9) is None
    assert sent_at_us(b"", 0, None, 9) is None
