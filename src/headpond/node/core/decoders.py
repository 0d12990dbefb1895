"""Decoders of typed blocks, one a (connection, block, shard), within bounds.

A decoder holds what its producer's encoder knows, so it costs memory that the producer decides about. There is
a bound for each connection and one for all; past it the decoder that was used longest ago is dropped, and its
sender asked for a snapshot when it goes on. The one in use stays, whatever it holds: it has a bound of its own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import NamedTuple

from headpond.wire.typed import Decoder

DECODER_COST_BYTES = 32 * 1024
"""What a decoder costs beside its dictionaries: the forms of its schema."""


class DecoderKey(NamedTuple):
    connection: int
    block: bytes
    shard: int


class Decoders:
    def __init__(self, *, connection_bytes_max: int, bytes_max: int) -> None:
        self._connection_bytes_max = connection_bytes_max
        self._bytes_max = bytes_max
        self._held: OrderedDict[DecoderKey, tuple[Decoder, int]] = OrderedDict()
        """The one used longest ago first, with the bytes it was counted with."""
        self._by_connection: dict[int, int] = {}
        self.bytes = 0

    def get(self, key: DecoderKey) -> Decoder | None:
        found = self._held.get(key)
        return found[0] if found is not None else None

    def keep(self, key: DecoderKey, decoder: Decoder) -> int:
        """Counts a decoder that is new or has learned; returns how many others had to go for it."""
        self.drop(key)
        size = DECODER_COST_BYTES + decoder.state_bytes
        self._held[key] = (decoder, size)
        self._count(key.connection, size)
        dropped = 0
        while self._by_connection[key.connection] > self._connection_bytes_max:
            oldest = next(other for other in self._held if other.connection == key.connection)
            if oldest == key:
                break
            self.drop(oldest)
            dropped += 1
        while self.bytes > self._bytes_max and (oldest := next(iter(self._held))) != key:
            self.drop(oldest)
            dropped += 1
        return dropped

    def drop(self, key: DecoderKey) -> None:
        found = self._held.pop(key, None)
        if found is not None:
            self._count(key.connection, -found[1])

    def drop_block(self, connection: int, block: bytes) -> None:
        """A connection speaks no more of a block."""
        if connection in self._by_connection:
            for key in [key for key in self._of(connection) if key.block == block]:
                self.drop(key)

    def drop_connection(self, connection: int) -> None:
        if connection in self._by_connection:
            for key in list(self._of(connection)):
                self.drop(key)

    def _of(self, connection: int) -> Iterator[DecoderKey]:
        return (key for key in self._held if key.connection == connection)

    def _count(self, connection: int, size: int) -> None:
        self.bytes += size
        held = self._by_connection.get(connection, 0) + size
        if held:
            self._by_connection[connection] = held
        else:
            self._by_connection.pop(connection, None)

    def __len__(self) -> int:
        return len(self._held)
