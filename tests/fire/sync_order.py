"""Reads a trace of a node and finds confirmations that came before the sync."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from headpond.storage.append import NEW_SUFFIX
from headpond.wire.connection import FROM_NODE
from headpond.wire.control.codec import decode_control
from headpond.wire.control.consuming import Settled
from headpond.wire.control.producing import Ack
from headpond.wire.frame import (
    CONTROL_BYTES_MAX,
    FILE_BODY_BYTES_MAX,
    OVERHEAD_BYTES,
    Frame,
    FrameReader,
    FrameType,
    decode_at,
)
from headpond.wire.record import decode_record_header
from tests.fire.tracer import Call

SegmentId = tuple[bytes, int, int]
"""Block, shard, segment."""

_SYNCS = ("fdatasync", "fsync")


@dataclass
class Findings:
    """``confirmed`` counts the checked confirmations; ``violations`` lists those that came too early."""

    confirmed: int = 0
    violations: list[str] = field(default_factory=list)


def check_acks(calls: list[Call]) -> Findings:
    """Every segment acknowledged as stored was written, then synced with success, then acknowledged."""
    written: dict[SegmentId, Call] = {}
    for call, frame in _file_frames(calls, ".log"):
        if frame.type == FrameType.SEGMENT:
            header = decode_record_header(frame.body)
            written[header.block, frame.shard, frame.segment] = call
    findings = Findings()
    for call, frame in _sent_frames(calls):
        if frame.type != FrameType.ACK:
            continue
        ack = decode_control(frame.type, frame.body)
        assert isinstance(ack, Ack)
        for item in ack.items:
            if item.outcome == "stored":
                findings.confirmed += 1
                write = written.get((ack.block, ack.shard, item.segment))
                findings.violations += _judge(
                    calls, write, call, f"segment {item.segment} of shard {ack.shard}"
                )
    return findings


def check_settlements(calls: list[Call]) -> Findings:
    """Every SETTLED follows a sync of the last write to the settlement journal.

    A client that settles one message at a time causes one write each, so the last write is the right one.
    """
    writes = [
        call
        for call, frame in _file_frames(calls, ".journal")
        if frame.type == FrameType.RECORD and "/settlements/" in call.path
    ]
    findings = Findings()
    for call, frame in _sent_frames(calls):
        if frame.type != FrameType.SETTLED:
            continue
        settled = decode_control(frame.type, frame.body)
        assert isinstance(settled, Settled)
        findings.confirmed += 1
        before = [write for write in writes if write.entered < call.entered]
        findings.violations += _judge(
            calls, before[-1] if before else None, call, f"settlement {settled.number}"
        )
    return findings


def _judge(calls: list[Call], write: Call | None, confirmation: Call, what: str) -> Iterator[str]:
    if write is None or write.returned > confirmation.entered:
        yield f"{what} was confirmed and had not been written"
        return
    between = [
        call
        for call in calls
        if call.name in _SYNCS
        and call.result == 0
        and write.returned < call.entered
        and call.returned < confirmation.entered
    ]
    folder, _, name = write.path.rpartition("/")
    if not any((call.fd, call.path) == (write.fd, write.path) for call in between):
        yield f"{what} was confirmed, and its write to {name} had not been synced"
    elif name.endswith(NEW_SUFFIX) and not any(call.path == folder for call in between):
        yield f"{what} was confirmed, and that {name} exists under its name had not been synced"


def _file_frames(calls: list[Call], suffix: str) -> Iterator[tuple[Call, Frame]]:
    for call in calls:
        if call.path.removesuffix(NEW_SUFFIX).endswith(suffix) and call.result > 0:
            at = 0
            while (frame := decode_at(call.data, at, FILE_BODY_BYTES_MAX)) is not None:
                yield call, frame
                at += OVERHEAD_BYTES + len(frame.body)


def _sent_frames(calls: list[Call]) -> Iterator[tuple[Call, Frame]]:
    """The frames that the node sent, with the call that sent the last byte of each."""
    readers: dict[str, FrameReader] = {}
    limits = {**FROM_NODE, FrameType.WELCOME: CONTROL_BYTES_MAX}
    for call in calls:
        if call.path.startswith("socket:") and call.result > 0:
            reader = readers.setdefault(call.path, FrameReader(limits))
            for frame in reader.feed(call.data[: call.result]):
                yield call, frame
