"""Two nodes and their producer are killed in turn, and the books are balanced.

``python -m tests.fire.kill_producer``. The producer is a separate process. It sends numbers in tables to one
node with a copy to the other, and writes each receipt to a synced file of notes. After a kill it continues
behind the last note. It may send the table that was under way again, under another identity; the count keeps
these apart. In the end the program reads both topics and compares them with the notes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

import headpond
from headpond.client.link.dialling import Backoff
from headpond.client.produce.refill_send import send_slot
from headpond.model.identity import Identity
from headpond.producer.refill.folder import files, slots
from headpond.storage.os_disk import OsDisk
from tests.fire.real_node import RealNode

TOPIC = "numbers"
NAME = "counter"
ROWS = 1000
QUICK = Backoff(0.02, 0.2)


@dataclass
class Noted:
    """The receipts, in order of arrival."""

    safe: int = 0
    """All numbers below it are safe."""
    spilled: int = 0
    by_identity: dict[Identity, int] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Noted:
        found = cls()
        for line in path.read_text().splitlines() if path.exists() else ():
            try:
                note = json.loads(line)
            except json.JSONDecodeError:
                break  # torn by a kill: that table was not noted
            block, number = bytes.fromhex(note["block"]), note["first"]
            for row in range(note["rows"]):
                found.by_identity[Identity(block, note["shard"], note["segment"], row)] = number + row
            found.safe = number + note["rows"]
            found.spilled += note["rows"] if note["spilled"] else 0
        return found


@dataclass
class Found:
    """The messages of one node."""

    stored: int = 0
    repeated: int = 0
    lost: int = 0
    sent_again: int = 0
    """Numbers that arrived twice under different identities: the producer died before it noted them."""
    out_of_order: int = 0
    missing: int = 0
    """Missing numbers."""

    @property
    def faults(self) -> int:
        return self.repeated + self.lost + self.out_of_order + self.missing


@dataclass
class Table:
    sent: int
    kills: dict[str, int]
    spilled: int
    nodes: list[Found]
    left_in_refill: int
    seconds: float

    @property
    def balanced(self) -> bool:
        return not self.left_in_refill and not any(node.faults for node in self.nodes)

    def __str__(self) -> str:
        kills = ", ".join(f"{name} {count}" for name, count in self.kills.items())
        lines = [
            f"sent {self.sent:,}, acknowledged {self.sent:,}, of these spilled first {self.spilled:,}",
            f"kills: {kills}; {self.seconds:.0f} s; bytes left in the refill {self.left_in_refill}",
            f"{'':12}{'stored':>12}{'lost':>8}{'repeated':>10}{'order':>8}{'sent again':>12}{'R':>6}{'UR':>6}",
        ]
        for name, node in zip("AB", self.nodes, strict=True):
            reliability = 1 - node.lost / self.sent
            uniqueness = 1 - node.repeated / max(node.stored, 1)
            lines.append(
                f"node {name:7}{node.stored:>12,}{node.lost:>8}{node.repeated:>10}{node.out_of_order:>8}"
                f"{node.sent_again:>12,}{reliability:>6g}{uniqueness:>6g}"
            )
        return "\n".join(lines)


# --- the producing process ----------------------------------------------------------------------------


async def work(url: str, copy: str, note_path: Path, total: int) -> None:
    """Sends the numbers without a note."""
    number = Noted.read(note_path).safe
    with _open_notes(note_path) as notes:
        async with (
            headpond.connect(url, wait=False, backoff=QUICK) as client,
            client.producer(TOPIC, NAME, copies=[copy], spill_after=0.3, close_timeout=0.5) as producer,
        ):
            while number < total:
                rows = min(ROWS, total - number)
                values = [b"%d" % each for each in range(number, number + rows)]
                receipt = await producer.send_batch(pa.table({"value": pa.array(values, pa.binary())}))
                assert not receipt.rejected, receipt.errors
                for parcel, first, _ in receipt.parcels:
                    assert parcel.fate is not None
                    note = {
                        "first": number + first,
                        "rows": parcel.rows,
                        "block": parcel.block.hex(),
                        "shard": parcel.shard,
                        "segment": parcel.segment,
                        "spilled": parcel.fate.outcome == "spilled",
                    }
                    notes.write(json.dumps(note).encode() + b"\n")
                notes.flush()
                os.fdatasync(notes.fileno())
                number += rows


def _open_notes(path: Path) -> BinaryIO:
    """The notes to continue with, without a line that a kill tore."""
    path.touch()
    data = path.read_bytes()
    os.truncate(path, data.rfind(b"\n") + 1)
    return path.open("ab")


class Worker:
    def __init__(self, folder: Path, nodes: list[RealNode], total: int) -> None:
        self.notes = folder / "notes"
        self.state = folder / "state"
        self._errors = folder / "worker.err"
        self._command = [
            *(sys.executable, "-m", "tests.fire.kill_producer", "--work", *(node.url for node in nodes)),
            *("--notes", str(self.notes), "--messages", str(total)),
        ]
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        with self._errors.open("ab") as errors:
            environment = {**os.environ, "HEADPOND_STATE": str(self.state)}
            return subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stderr=errors, stdout=errors, env=environment
            )

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process = self._start()

    @property
    def done(self) -> bool:
        code = self.process.poll()
        if code not in (None, 0):
            raise AssertionError(f"the producer ended with {code}:\n{self._errors.read_text()[-2000:]}")
        return code == 0


# --- the run ----------------------------------------------------------------------------------------


def run(folder: Path, *, messages: int, kills: int, seed: int) -> Table:
    """Kills in turn, at least this often, as long as the producer has something to send."""
    chance = random.Random(seed)
    began = time.monotonic()
    counts = {"node A": 0, "node B": 0, "producer": 0}
    with RealNode(folder / "a") as first, RealNode(folder / "b") as second:
        worker = Worker(folder, [first, second], messages)
        turn = 0
        while not worker.done or turn < kills:
            time.sleep(chance.uniform(0.5, 2.5))
            victim = list(counts)[turn % 3]
            turn += 1
            counts[victim] += 1
            if victim == "producer":
                worker.kill()
                continue
            node = first if victim == "node A" else second
            node.kill()
            time.sleep(chance.choice((0.0, 0.0, 1.0)))
            node.start()
        worker.process.wait()
        noted = Noted.read(worker.notes)
        left = asyncio.run(deliver(worker.state / "refill"))
        nodes = [asyncio.run(read(node.url, noted, messages)) for node in (first, second)]
    return Table(messages, counts, noted.spilled, nodes, left, time.monotonic() - began)


async def deliver(root: Path) -> int:
    """Sends the rest of the refill; returns the bytes that are left in it."""
    disk = OsDisk(root)
    for slot in slots(disk):
        if files(disk, slot):
            await send_slot(root, slot, token=None, timeout_s=300.0)
    return sum((root / path).stat().st_size for slot in slots(disk) for path in files(disk, slot))


async def read(url: str, noted: Noted, messages: int) -> Found:
    found = Found()
    identities: set[Identity] = set()
    numbers: set[int] = set()
    last = -1
    async with (
        headpond.connect(url) as client,
        client.consumer(TOPIC, "all", start="earliest") as consumer,
    ):
        while (message := await consumer.receive(timeout=2.0)) is not None:
            found.stored += 1
            identity = message.identity
            found.repeated += identity in identities
            identities.add(identity)
            number = int(message.value)
            numbers.add(number)
            if (told := noted.by_identity.get(identity)) is None:
                found.sent_again += 1
                continue
            assert told == number, "a message that is not what its receipt was for"
            found.out_of_order += number <= last
            last = max(last, number)
    found.lost = sum(identity not in identities for identity in noted.by_identity)
    found.missing = messages - len(numbers)
    return found


def main() -> None:
    logging.basicConfig(level=logging.ERROR)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", nargs=2, metavar="URL")
    parser.add_argument("--notes", type=Path)
    given = parser.parse_args()
    if given.work:
        url, copy = given.work
        asyncio.run(work(url, copy, given.notes, given.messages))
        return
    with tempfile.TemporaryDirectory() as folder:
        table = run(Path(folder), messages=given.messages, kills=given.kills, seed=given.seed)
    print(table)
    raise SystemExit(0 if table.balanced else 1)


if __name__ == "__main__":
    main()
