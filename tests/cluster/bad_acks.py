"""A way to a NATS server that loses, doubles and reorders the acknowledgements of records."""

from __future__ import annotations

import asyncio
import contextlib
import random

from tests.torture.proxy import Proxy

LOST = DOUBLED = 0.02
LATE = 0.1


class BadAcks(Proxy):
    """Everything else passes."""

    def __init__(self, user: str, address: tuple[str, int]) -> None:
        super().__init__(user, address)
        self.spoilt = 0
        self._chance = random.Random(f"{user} {address}")

    async def _pass_back(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        late: list[bytes] = []
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while frame := await reader.readline():
                words = frame.split()
                if words[0] in (b"MSG", b"HMSG"):
                    frame += await reader.readexactly(int(words[-1]) + 2)
                if words[0] == b"MSG" and b".a." in words[1]:  # cluster/jetstream.py
                    writer.writelines(self._spoil(frame, late))
                else:
                    writer.write(frame)
                await writer.drain()

    def _spoil(self, frame: bytes, late: list[bytes]) -> list[bytes]:
        """What passes now: this acknowledgement, perhaps, and those that it has overtaken."""
        number = self._chance.random()
        self.spoilt += number < LOST + DOUBLED + LATE
        if number < LOST:
            return []
        if number < LOST + DOUBLED:
            return [frame, frame]
        if number < LOST + DOUBLED + LATE:
            late.append(frame)
            return []
        passing = [frame, *late]
        late.clear()
        return passing
