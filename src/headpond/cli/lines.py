"""Lines cut from blocks of bytes, a block at a time."""

from __future__ import annotations


class LineCutter:
    """Cuts blocks into lines without their newline; the last line may lack one, an empty line is a line.

    A line over ``bytes_max`` is not kept: it is dropped up to its end, and ``take_too_long`` tells its number.
    So memory is bounded by a block and one line, whatever comes.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._rest: list[bytes] = []
        self._rest_bytes = 0
        self._dropping = False
        self.count = 0
        """How many lines ended so far, the dropped ones included."""
        self._too_long: list[int] = []

    def feed(self, block: bytes) -> list[bytes]:
        """The lines that end in ``block``."""
        lines = block.split(b"\n")
        if len(lines) == 1:
            self._keep(block)
            return []
        lines[0] = self._take(lines[0])
        tail = lines.pop()
        kept = self._checked(lines)
        self._keep(tail)
        return kept

    def finish(self) -> list[bytes]:
        """The last line, where the input did not end with a newline."""
        if not self._rest_bytes and not self._dropping:
            return []
        return self._checked([self._take(b"")])

    def take_too_long(self) -> list[int]:
        """The numbers, from 1, of the lines dropped since this was last asked."""
        numbers, self._too_long = self._too_long, []
        return numbers

    def _keep(self, part: bytes) -> None:
        if not part:
            return
        self._rest_bytes += len(part)
        if self._rest_bytes > self._bytes_max:
            self._dropping = True
            self._rest.clear()
        if not self._dropping:
            self._rest.append(part)

    def _take(self, end: bytes) -> bytes:
        self._rest.append(end)
        line = b"".join(self._rest)
        self._rest.clear()
        self._rest_bytes = 0
        return line

    def _checked(self, lines: list[bytes]) -> list[bytes]:
        first = self.count + 1
        self.count += len(lines)
        dropped, self._dropping = self._dropping, False
        if not dropped and max(map(len, lines)) <= self._bytes_max:
            return lines
        bad = {at for at, line in enumerate(lines) if len(line) > self._bytes_max}
        if dropped:
            bad.add(0)
        self._too_long.extend(first + at for at in sorted(bad))
        return [line for at, line in enumerate(lines) if at not in bad]
