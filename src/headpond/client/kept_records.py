"""The last record that came alone on each shard, decoded when its rows are asked for.

Where messages come one at a time, or one a key, its other rows follow in deliveries that bring no record.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from headpond.client.batch import Batch, only
from headpond.wire.control import Deliver, Subscribed
from headpond.wire.frame import Frame

ALL = [(0, 2**63)]


def rows_may_follow(info: Subscribed | None) -> bool:
    """Whether a subscription is of a kind and mode in which more rows of a record come without it."""
    return info is not None and info.mode == "resilient" and info.kind in ("shared", "key_shared")


class KeptRecords:
    """``read`` decodes the rows of a record that are meant."""

    def __init__(self, read: Callable[[Frame, Deliver], Batch | None]) -> None:
        self._read = read
        self._frames: dict[int, Frame] = {}
        self._batches: dict[int, Batch] = {}
        """Of the same shards, all rows; what cannot be read is not here, and told whenever it is taken."""

    @property
    def bytes(self) -> int:
        return sum(len(frame.body) for frame in self._frames.values())

    def keep(self, shard: int, frame: Frame) -> None:
        self._frames[shard] = frame
        self._batches.pop(shard, None)

    def frame(self, shard: int) -> Frame | None:
        return self._frames.get(shard)

    def rows(self, frame: Frame, deliver: Deliver) -> Batch | None:
        """The rows of a record that are meant, kept or not."""
        shard = deliver.shard
        if self._frames.get(shard) is not frame:
            return self._read(frame, deliver)
        batch = self._batches.get(shard)
        if batch is None:
            batch = self._read(frame, msgspec.structs.replace(deliver, spans=ALL))
            if batch is None:
                return None
            self._batches[shard] = batch
        return only(batch, deliver.spans, deliver.attempt)

    def decode_anew(self) -> None:
        """The topic has another schema: the rows that are still to follow come in it."""
        self._batches.clear()

    def clear(self) -> None:
        self._frames.clear()
        self._batches.clear()
