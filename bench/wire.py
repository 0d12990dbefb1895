"""Bytes a sample on the wire: ``python -m bench.wire`` puts a typed metrics topic beside other forms of it.

10,000 series with 10 labels each (100 targets of 100 series), one sample a second and series, 100 samples a
segment, for 60 seconds; what the dictionaries learn at the start is in the numbers of the whole run, and the
steady state is the second half. Every form carries the same 100 samples in a piece, and each piece is
compressed for itself, with the same codec. The typed topic's include frames and the messages' envelope, Arrow's
include frames. Two orders of the samples:

- **scrapes**: a segment is what one target answered: its series in their order, one time for all;
- **mixed**: a segment is any 100 samples, each with a time of its own. The worst case for indices and times.

Half of the series are counters, a third are gauges with three decimals, the rest seldom change.
"""

from __future__ import annotations

import argparse
import json
import random
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from bench.figure import Figure
from bench.limits import Limits
from headpond.wire.frame import OVERHEAD_BYTES
from headpond.wire.typed.codec import RowEncoder
from headpond.wire.typed.rows import messages_of, row_schema, to_rows

TARGETS, SERIES_EACH, SEGMENT_ROWS = 100, 100, 100
BEGIN_US = 1_700_000_000_000_000
SCHEMA = pa.schema(
    [
        pa.field("timestamp", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("value", pa.float64(), nullable=False),
        pa.field("labels", pa.map_(pa.string(), pa.string())),
    ]
)
TYPED = "typed topic"
ARROW = "Arrow, self-contained"
ARROW_WORDS = "Arrow, dictionaries in each segment"
JSON = "JSON lines"
REMOTE = "Prometheus remote write (protobuf)"

Labels = list[tuple[str, str]]


@dataclass(slots=True)
class Piece:
    """The samples of one segment."""

    series: list[int]
    times: list[int]
    values: list[float]


# --- the samples -------------------------------------------------------------------------------------


def labels_of(target: int, number: int) -> Labels:
    """Ten labels, as an exporter beside each node of a cluster gives them."""
    return [
        ("__name__", f"http_server_{('requests_total', 'duration_seconds', 'in_flight', 'up')[number % 4]}"),
        ("cluster", "prod-eu-central-1"),
        ("namespace", f"team-{target % 7}"),
        ("job", f"shop/{('cart', 'checkout', 'search', 'images')[target % 4]}"),
        ("instance", f"10.4.{target % 256}.{17 + target % 50}:9100"),
        ("pod", f"shop-{target:03d}-7d9f{target * 7919 % 65536:04x}-x{target * 104729 % 1048576:05x}"),
        ("handler", f"/api/v1/{('orders', 'items', 'users', 'prices', 'stock')[number // 4 % 5]}"),
        ("method", ("GET", "POST", "PUT", "DELETE")[number // 20 % 4]),
        ("code", ("200", "201", "404", "500")[number // 5 % 4]),
        ("shard", str(number)),
    ]


class Samples:
    """One second after the other, the same for every form."""

    def __init__(self, *, mixed: bool, seed: int = 7) -> None:
        self._random = random.Random(seed)
        self._mixed = mixed
        self.labels = [labels_of(n // SERIES_EACH, n % SERIES_EACH) for n in range(TARGETS * SERIES_EACH)]
        self._values = [float(self._random.randrange(1_000_000)) for _ in self.labels]
        self._phases = [self._random.randrange(1_000_000) for _ in range(TARGETS)]

    def second(self, number: int) -> Iterator[Piece]:
        chance = self._random
        begin_us = BEGIN_US + number * 1_000_000
        order = list(range(len(self.labels)))
        if self._mixed:
            chance.shuffle(order)
        for first in range(0, len(order), SEGMENT_ROWS):
            series = order[first : first + SEGMENT_ROWS]
            if self._mixed:
                times = [begin_us + chance.randrange(1_000_000) for _ in series]
            else:
                target_us = begin_us + self._phases[first // SEGMENT_ROWS] + chance.randrange(2_000)
                times = [target_us // 1000 * 1000] * len(series)
            yield Piece(series, times, [self._next(n) for n in series])

    def _next(self, series: int) -> float:
        chance, kind = self._random, series % 6
        if kind < 3:
            self._values[series] += chance.randrange(200)
        elif kind < 5:
            self._values[series] = round(abs(self._values[series] % 1000 + chance.gauss(0, 2)), 3)
        elif chance.random() < 0.01:
            self._values[series] = float(chance.randrange(100))
        return self._values[series]


# --- the forms ---------------------------------------------------------------------------------------


def batch_of(piece: Piece, labels: list[Labels]) -> pa.RecordBatch:
    columns = [piece.times, piece.values, [labels[n] for n in piece.series]]
    arrays = [pa.array(column, kind) for column, kind in zip(columns, SCHEMA.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def typed_form() -> Callable[[pa.RecordBatch, Piece], bytes]:
    """As a producer sends it, with the envelope of its messages; one block on one shard."""
    encoder = RowEncoder(row_schema(SCHEMA), 0)

    def encode(batch: pa.RecordBatch, piece: Piece) -> bytes:
        (messages,) = messages_of(batch, SCHEMA, piece.times[-1])
        return encoder.encode(to_rows(messages, SCHEMA))[0].body

    return encode


def arrow_form(batch: pa.RecordBatch, _: Piece) -> bytes:
    """A record batch message; the schema travels once, and not here."""
    return bytes(batch.serialize())


def arrow_words_form(batch: pa.RecordBatch, _: Piece) -> bytes:
    """The same with names and texts as dictionaries of this segment alone."""
    column = batch.column("labels")
    word = pa.dictionary(pa.int16(), pa.string())
    kind = pa.map_(word, word)
    entry = pa.StructArray.from_arrays(
        [column.keys.cast(word), column.items.cast(word)], fields=[kind.key_field, kind.item_field]
    )
    labels = pa.Array.from_buffers(kind, len(column), column.buffers()[:2], children=[entry])
    coded = batch.set_column(2, "labels", labels)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, coded.schema) as writer:
        writer.write_batch(coded)
    return bytes(sink.getvalue().slice(coded.schema.serialize().size))


def json_form(batch: pa.RecordBatch, piece: Piece) -> bytes:
    lines = [
        json.dumps({"timestamp": time, "value": value, "labels": dict(labels)}, separators=(",", ":"))
        for time, value, labels in zip(
            piece.times, piece.values, batch.column("labels").to_pylist(), strict=True
        )
    ]
    return "".join(f"{line}\n" for line in lines).encode()


def remote_write_form(batch: pa.RecordBatch, piece: Piece) -> bytes:
    """WriteRequest{1: TimeSeries{1: Label{1: name, 2: value}, 2: Sample{1: double, 2: int64 ms}}}"""
    series = []
    for time, value, labels in zip(piece.times, piece.values, batch.column("labels").to_pylist(), strict=True):
        parts = [
            _field(1, _field(1, name.encode()) + _field(2, text.encode())) for name, text in sorted(labels)
        ]
        sample = b"\x09" + struct.pack("<d", value) + b"\x10" + _varint(time // 1000)
        series.append(_field(1, b"".join(parts) + _field(2, sample)))
    return b"".join(series)


def _field(number: int, body: bytes) -> bytes:
    return bytes((number << 3 | 2,)) + _varint(len(body)) + body


def _varint(number: int) -> bytes:
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


# --- measuring ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class Sizes:
    """Bytes of all pieces: as they are, with zstd (level 3), with snappy."""

    raw: int = 0
    zstd: int = 0
    snappy: int = 0

    def add(self, body: bytes, codecs: tuple[pa.Codec, pa.Codec], frame_bytes: int) -> None:
        zstd, snappy = codecs
        self.raw += len(body) + frame_bytes
        self.zstd += zstd.compress(body).size + frame_bytes
        self.snappy += snappy.compress(body).size + frame_bytes


def sizes(seconds: int, *, mixed: bool) -> dict[str, dict[str, Any]]:
    """For each form, bytes a sample of the whole run and of its second half."""
    samples = Samples(mixed=mixed)
    forms: dict[str, tuple[Callable[[pa.RecordBatch, Piece], bytes], int]] = {
        TYPED: (typed_form(), OVERHEAD_BYTES),
        ARROW: (arrow_form, OVERHEAD_BYTES),
        ARROW_WORDS: (arrow_words_form, OVERHEAD_BYTES),
        JSON: (json_form, 0),
        REMOTE: (remote_write_form, 0),
    }
    codecs = (pa.Codec("zstd", compression_level=3), pa.Codec("snappy"))
    halves = {name: (Sizes(), Sizes()) for name in forms}
    for number in range(seconds):
        for piece in samples.second(number):
            batch = batch_of(piece, samples.labels)
            for name, (form, frame_bytes) in forms.items():
                halves[name][2 * number >= seconds].add(form(batch, piece), codecs, frame_bytes)
    rows = seconds * TARGETS * SERIES_EACH
    steady = (seconds - (seconds + 1) // 2) * TARGETS * SERIES_EACH
    return {
        name: {
            codec: {
                "run": (getattr(first, codec) + getattr(second, codec)) / rows,
                "steady": getattr(second, codec) / steady,
            }
            for codec in ("raw", "zstd", "snappy")
        }
        for name, (first, second) in halves.items()
    }


def table_of(title: str, found: dict[str, dict[str, Any]]) -> str:
    """Each form beside JSON lines and self-contained Arrow in the same codec."""
    lines = [
        f"{title}: bytes a sample, whole run (steady state)",
        f"{'FORM':38} {'CODEC':>7} {'RUN':>8} {'STEADY':>8} {'OF JSON':>8} {'OF ARROW':>9}",
    ]
    shown = [(name, codec) for codec in ("raw", "zstd") for name in found] + [
        (REMOTE, "snappy"),
        (TYPED, "snappy"),
    ]
    for name, codec in shown:
        size = found[name][codec]
        of_json, of_arrow = (size["run"] / found[other][codec]["run"] for other in (JSON, ARROW))
        named = f"{name:38} {'none' if codec == 'raw' else codec:>7}"
        lines.append(f"{named} {size['run']:>8.2f} {size['steady']:>8.2f} {of_json:>8.3f} {of_arrow:>9.3f}")
    return "\n".join(lines)


def measure(folder: Path, limits: Limits, seconds: float) -> list[Figure]:
    """Bytes a sample, beside JSON lines; ``main`` prints all of it."""
    figures: list[Figure] = []
    for order in ("scrapes", "mixed"):
        found = sizes(max(2, round(seconds)), mixed=order == "mixed")
        json_bytes = found[JSON]["zstd"]["run"]
        figures += [
            Figure(f"{order}, zstd: {form}", size["zstd"]["run"], "bytes a sample", "JSON lines", json_bytes)
            for form, size in found.items()
        ]
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=60, metavar="S", help="seconds of samples (at least 2)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    asked = parser.parse_args()
    found = {
        "scrapes": sizes(max(2, asked.seconds), mixed=False),
        "mixed": sizes(max(2, asked.seconds), mixed=True),
    }
    print("\n\n".join(table_of(title, form) for title, form in found.items()))
    if asked.json is not None:
        asked.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
