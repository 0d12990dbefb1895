"""The operations of the active member on their way to the stream.

Operations wait in a queue, become records, and are *in flight* until the stream's leader has confirmed their
record. Records are sent without waiting for the answers of those before, each with the sequence that it
expects, so what lands is a prefix of them.

A record counts as confirmed only by its own answer, and only behind confirmed ones. If an answer is missing or
is a refusal, ``resolve`` compares the stream with the records in flight: one that is there has landed, the
others are sent again, the same bytes. A record of a higher epoch means that another member has taken over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from headpond.cluster.apply import Diverged, Position
from headpond.cluster.records import (
    RECORD_BYTES_MAX,
    RECORD_OVERHEAD_BYTES,
    Kind,
    decode_record,
    encode_op,
    encode_record,
    extend_chain,
)
from headpond.model.errors import BadFrame

FLIGHT_BYTES_MAX = 8 * 1024 * 1024
FLIGHT_RECORDS_MAX = 32
CONTENT_BYTES_MAX = RECORD_BYTES_MAX - RECORD_OVERHEAD_BYTES
DATA_BYTES_MAX = CONTENT_BYTES_MAX - 4096
"""Of one operation: paths take the rest."""


class Fenced(Exception):
    """Another member is the active one."""


@dataclass(eq=False)
class InFlight:
    raw: bytes
    number: int
    """Operations up to and including this record."""
    seq: int = 0
    """Its place in the stream if it landed."""
    confirmed: bool = False
    sent_s: float | None = None
    """When it was first sent, by the shell's clock."""


class ToSend(NamedTuple):
    record: InFlight
    raw: bytes
    expected_seq: int
    sending: int
    """Counts the times that the records in flight were sent; the answers to an earlier time do not count."""


class Confirmed(NamedTuple):
    seq: int
    raw: bytes
    number: int
    sent_s: float


@dataclass(eq=False)
class Outbox:
    """The caller serialises all calls."""

    position: Position
    """Where the epoch of this member began: its EPOCH record is applied."""
    queue: deque[tuple[bytes, bytes]] = field(default_factory=deque)
    queued_bytes: int = 0
    put_bytes: int = 0
    """Of all operations that were put in."""
    flight: deque[InFlight] = field(default_factory=deque)
    flight_bytes: int = 0
    sending: int = 0

    def __post_init__(self) -> None:
        self.epoch = self.position.epoch
        self.number = self.position.number
        """Operations that were put in."""
        self.confirmed_seq = self.position.seq
        """The last record of the stream that this member knows, its own or a void one."""
        self._chain = self.position.chain
        self._recorded = self.position.number
        self._next_seq = self.position.seq + 1

    def put(self, kind: int, path: str, new_path: str = "", offset: int = 0, data: bytes = b"") -> int:
        """Adds an operation; returns its number, counted from 1."""
        head = encode_op(kind, path, new_path, offset, len(data))
        self.queue.append((head, data))
        self.queued_bytes += len(head) + len(data)
        self.put_bytes += len(head) + len(data)
        self.number += 1
        return self.number

    def add(self, kind: Kind) -> None:
        """Adds a record without operations, behind those that are in flight."""
        self._fly(kind, b"", 0)

    def take(self) -> list[ToSend]:
        """The records to send now."""
        while self.queue and len(self.flight) < FLIGHT_RECORDS_MAX and self.flight_bytes < FLIGHT_BYTES_MAX:
            parts: list[bytes] = []
            size = count = 0
            while self.queue:
                head, data = self.queue[0]
                if parts and size + len(head) + len(data) > CONTENT_BYTES_MAX:
                    break
                self.queue.popleft()
                parts += (head, data)
                size += len(head) + len(data)
                count += 1
            self.queued_bytes -= size
            self._fly(Kind.OPS, b"".join(parts), count)
        return self._send([each for each in self.flight if not each.seq])

    def _fly(self, kind: Kind, content: bytes, count: int) -> None:
        raw = encode_record(kind, self._chain, self.epoch, self._recorded, content)
        self._recorded += count
        self._chain = extend_chain(self._chain, raw)
        self.flight.append(InFlight(raw, self._recorded))
        self.flight_bytes += len(raw)

    def _send(self, records: list[InFlight]) -> list[ToSend]:
        found = []
        for record in records:
            record.seq = self._next_seq
            self._next_seq += 1
            found.append(ToSend(record, record.raw, record.seq - 1, self.sending))
        return found

    # --- answers ------------------------------------------------------------------------------------

    def confirm(self, sent: ToSend, seq: int) -> list[Confirmed]:
        """The stream has a record; returns those that count now, in order."""
        if sent.sending != self.sending:
            return []
        if seq != sent.expected_seq + 1:
            raise Diverged(f"a record that expected sequence {sent.expected_seq} was stored as {seq}")
        sent.record.confirmed = True
        return self._take_confirmed()

    def _take_confirmed(self) -> list[Confirmed]:
        found: list[Confirmed] = []
        while self.flight and self.flight[0].confirmed:
            record = self.flight.popleft()
            self.flight_bytes -= len(record.raw)
            self.confirmed_seq = max(self.confirmed_seq, record.seq)
            found.append(Confirmed(record.seq, record.raw, record.number, record.sent_s or 0.0))
        return found

    def resolve(self, behind: Sequence[tuple[int, bytes]]) -> tuple[list[Confirmed], list[ToSend]]:
        """``behind``: all records of the stream behind ``confirmed_seq``, as its leader has them.

        Returns the records that landed, and those to send again.
        """
        waiting = deque(self.flight)  # one that landed before those it follows is void
        last = self.confirmed_seq
        for seq, raw in behind:
            if seq <= last:
                continue  # its answer came meanwhile
            if seq != last + 1:
                raise Diverged(f"the stream has record {seq} where record {last + 1} is due")
            last = seq
            if waiting and raw == waiting[0].raw:
                landed = waiting.popleft()
                landed.seq, landed.confirmed = seq, True
                continue
            try:
                epoch = decode_record(raw).epoch
            except BadFrame as error:
                raise Diverged(f"record {seq} of the stream: {error}") from error
            if epoch > self.epoch:
                raise Fenced(f"record {seq} is of epoch {epoch}, and this member is of epoch {self.epoch}")
            if epoch == self.epoch and all(raw != each.raw for each in waiting):
                raise Diverged(f"record {seq} is of epoch {epoch}, and this member did not write it")
        for record in waiting:
            record.confirmed = False
        self.sending += 1
        confirmed = self._take_confirmed()
        self.confirmed_seq = max(self.confirmed_seq, last)
        self._next_seq = last + 1
        return confirmed, self._send(list(self.flight))
