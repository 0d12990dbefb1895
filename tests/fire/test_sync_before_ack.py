"""The node confirms only synced data: checked by the system calls of a real node."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import headpond
from tests.fire.real_node import NODE, RealNode
from tests.fire.sync_order import check_acks, check_settlements
from tests.fire.tracer import Call, read_trace

MESSAGES = 12
TRACER = Path(__file__).with_name("tracer.py")
WITHOUT_SYNC = Path(__file__).with_name("node_without_sync.py")


def trace_of(folder: Path, node: tuple[str, ...]) -> list[Call]:
    """The calls of a node while messages are sent and settled one at a time."""
    trace = folder / "trace"
    with RealNode(folder, command=(sys.executable, str(TRACER), str(trace), "--", *node)) as running:
        asyncio.run(send_and_settle_one_by_one(running.url))
        running.stop()
    return read_trace(trace)


async def send_and_settle_one_by_one(url: str) -> None:
    async with headpond.connect(url) as client:
        async with client.producer("traced") as producer:
            for number in range(MESSAGES):
                receipt = await producer.send(f"message {number}".encode())
                assert receipt.stored
        async with client.consumer("traced", subscription="reader") as consumer:
            for _ in range(MESSAGES):
                message = await consumer.receive(timeout=10.0)
                assert message is not None
                await consumer.ack(message)
                await consumer.flush()


def test_a_message_is_acknowledged_only_after_its_log_file_was_synced(tmp_path: Path) -> None:
    calls = trace_of(tmp_path, NODE)
    acks = check_acks(calls)
    assert (acks.confirmed, acks.violations) == (MESSAGES, [])
    settlements = check_settlements(calls)
    assert settlements.confirmed >= MESSAGES
    assert settlements.violations == []


def test_a_node_that_does_not_sync_is_detected(tmp_path: Path) -> None:
    calls = trace_of(tmp_path, (sys.executable, str(WITHOUT_SYNC), "node"))
    acks, settlements = check_acks(calls), check_settlements(calls)
    assert len(acks.violations) == acks.confirmed == MESSAGES
    assert len(settlements.violations) == settlements.confirmed >= MESSAGES
