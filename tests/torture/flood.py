"""Full load: a producer that sends as fast as it can, and a consumer that finds out by itself what is missing.

``python -m tests.torture.flood send|take URL`` runs until SIGTERM, and prints what it counted. Messages are
numbered, so nobody keeps them; the topic forgets them after a time.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
from collections import deque
from pathlib import Path

import msgspec

import headpond
from headpond.model.errors import HeadpondError

TOPIC = "flood"
SOFT_TTL_S = 20.0
VALUE_BYTES = 500
BATCH = 500
IN_FLIGHT = 20
IDLE_S = 10.0
END_S_MAX = 120.0


class Counts(msgspec.Struct):
    """Of a sender or of a taker."""

    acknowledged: int = 0
    refused: list[int] = []
    received: int = 0
    flagged: int = 0
    unflagged: int = 0
    """Repeats that came as first attempts."""
    missing: list[int] = []
    next: int = 0


async def send(url: str, counts: Counts, ending: asyncio.Event) -> None:
    filler = os.urandom(VALUE_BYTES).hex().encode()[:VALUE_BYTES]
    async with connect(url) as client, client.producer(TOPIC, refill=None) as producer:
        flying: deque[tuple[int, headpond.Promise]] = deque()
        while not ending.is_set() or flying:
            if not ending.is_set():
                numbers = range(counts.next, counts.next + BATCH)
                flying += [(number, producer.post(b"%d:%b" % (number, filler))) for number in numbers]
                counts.next += BATCH
            while flying and (ending.is_set() or len(flying) > IN_FLIGHT * BATCH):
                number, promise = flying.popleft()
                try:
                    stored = (await promise).stored
                except HeadpondError:
                    stored = False
                counts.acknowledged += stored
                counts.refused += [] if stored else [number]
            await asyncio.sleep(0)


async def take(url: str, counts: Counts, ending: asyncio.Event) -> None:
    missing: set[int] = set()
    async with connect(url) as client, client.consumer(TOPIC, subscription="all") as consumer:
        while (message := await consumer.receive(timeout=IDLE_S)) is not None or not ending.is_set():
            if message is None:
                continue
            number = int(bytes(message.value or b"").partition(b":")[0])
            if number >= counts.next or number in missing:
                missing.update(range(counts.next, number))
                missing.discard(number)
                counts.next = max(counts.next, number + 1)
                counts.received += 1
            elif message.attempt > 1:
                counts.flagged += 1
            else:
                counts.unflagged += 1
            await consumer.ack(message)
    counts.missing = sorted(missing)


def connect(url: str) -> headpond.Client:
    return headpond.connect(url, wait=False)


class Flood:
    """Both programs, as processes."""

    def __init__(self, folder: Path, url: str) -> None:
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        for role in ("send", "take"):
            command = [sys.executable, "-m", "tests.torture.flood", role, url]
            with (folder / f"flood.{role}.err").open("wb") as errors:
                self._processes[role] = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors)

    async def end(self) -> tuple[dict[str, int], list[str]]:
        """What they counted, and the broken promises."""
        sent, taken = [await asyncio.to_thread(self._end, role) for role in self._processes]
        lost = set(taken.missing) | set(range(taken.next, sent.next))
        counts = {"flood acknowledged": sent.acknowledged, "flood received": taken.received}
        broken = [f"lost: {len(lost - set(sent.refused))} messages of the flood"] if lost else []
        return counts, broken + [f"repeated: {taken.unflagged} messages of the flood"] * bool(taken.unflagged)

    def _end(self, role: str) -> Counts:
        process = self._processes[role]
        process.terminate()
        return msgspec.json.decode(process.communicate(timeout=END_S_MAX)[0], type=Counts)

    def kill(self) -> None:
        for process in self._processes.values():
            process.kill()


async def main(role: str, url: str) -> None:
    counts, ending = Counts(), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ending.set)
    await (send if role == "send" else take)(url, counts, ending)
    print(msgspec.json.encode(counts).decode())


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    asyncio.run(main(*sys.argv[1:]))
