"""Rows of typed topics, and how tests encode them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from headpond.wire.typed.codec import RowEncoder
from headpond.wire.typed.form import Redundant, TypedSegment

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
LABELS = st.lists(st.tuples(WORD, st.none() | WORD), max_size=3)
ROWS = st.fixed_dictionaries(
    {
        "host": st.none() | WORD,
        "labels": st.none() | LABELS,
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


def encode_all(batches: list[pa.RecordBatch]) -> tuple[RowEncoder, list[TypedSegment], list[Redundant]]:
    encoder = RowEncoder(batches[0].schema, 3)
    pairs = [encoder.encode(batch) for batch in batches]
    return encoder, [segment for segment, _ in pairs], [redundant for _, redundant in pairs]
