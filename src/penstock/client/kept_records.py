"""The last record that came alone on each shard, decoded: where messages come one at a time, its other rows
follow in deliveries that bring no record.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from penstock.client.batch import Batch, only
from penstock.model.errors import PenstockError
from penstock.wire.control import Deliver
from penstock.wire.frame import Frame


class KeptRecords:
    """``read`` decodes the rows of a record that are meant."""

    def __init__(self, read: Callable[[Frame, Deliver], Batch | None]) -> None:
        self._read = read
        self._by_shard: dict[int, tuple[Frame, Batch]] = {}

    @property
    def bytes(self) -> int:
        return sum(len(frame.body) for frame, _ in self._by_shard.values())

    def keep(self, deliver: Deliver, frame: Frame) -> None:
        self._by_shard.pop(deliver.shard, None)
        try:
            batch = self._read(frame, msgspec.structs.replace(deliver, spans=[(0, 2**63)]))
        except PenstockError:
            return  # told when it is taken
        if batch is not None:
            self._by_shard[deliver.shard] = (frame, batch)

    def frame(self, shard: int) -> Frame | None:
        kept = self._by_shard.get(shard)
        return kept[0] if kept is not None else None

    def rows(self, frame: Frame, deliver: Deliver) -> Batch | None:
        """The rows of a record that are meant, kept or not."""
        kept = self._by_shard.get(deliver.shard)
        if kept is None or kept[0] is not frame:
            return self._read(frame, deliver)
        return only(kept[1], deliver.spans, deliver.attempt)

    def clear(self) -> None:
        self._by_shard.clear()
