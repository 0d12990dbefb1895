"""The state of ``reorder`` in Spark: what waits, by its index, and the timer of the gap that it waits for."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import LongType, StructField, StructType

from headpond.spark.pipeline.steps.reorder import OUT_OF_ORDER, Held, released

_NONE_YET = -1
_LONG = StructType([StructField("index", LongType())])
_PLACE = StructType([StructField("next", LongType()), StructField("timer_ms", LongType())])


class Reordering(StatefulProcessor):
    def __init__(self, schema: StructType, index: str, first: int | None, held_max: int, wait_ms: int) -> None:
        self._schema = schema
        self._index = index
        self._first = first
        self._held_max = held_max
        self._wait_ms = wait_ms

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._place = handle.getValueState("place", _PLACE)
        self._waiting = handle.getMapState("waiting", _LONG, self._schema)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        held, timer_ms = self._held()
        came = [(row[self._index], row) for row in rows]
        next_before = held.next_index
        yield from self._shown(released(held, came))
        if next_before != held.next_index or timer_ms == _NONE_YET:
            timer_ms = self._set_timer(held, timer_ms, timerValues.getCurrentProcessingTimeInMs())
        self._place.update((_NONE_YET if held.next_index is None else held.next_index, timer_ms))

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        held, _ = self._held()
        yield from self._shown(held.give_up())
        timer_ms = self._set_timer(held, _NONE_YET, timerValues.getCurrentProcessingTimeInMs())
        self._place.update((_NONE_YET if held.next_index is None else held.next_index, timer_ms))

    def close(self) -> None:
        pass

    def _held(self) -> tuple[Held, int]:
        place = self._place.get() if self._place.exists() else None
        next_index, timer_ms = (self._first, _NONE_YET) if place is None else (place[0], place[1])
        rows = _Waiting(self._waiting)
        return Held(rows, None if next_index == _NONE_YET else next_index, self._held_max), timer_ms

    def _set_timer(self, held: Held, timer_ms: int, now_ms: int) -> int:
        """The gap before what waits is a new one: it is waited for from now on."""
        if timer_ms != _NONE_YET:
            self._handle.deleteTimer(timer_ms)
        if not held.rows:
            return _NONE_YET
        self._handle.registerTimer(now_ms + self._wait_ms)
        return now_ms + self._wait_ms

    def _shown(self, rows: Iterator[tuple[Any, bool]]) -> Iterator[Row]:
        for row, late in rows:
            yield Row(**dict(zip(self._schema.fieldNames(), row, strict=True)), **{OUT_OF_ORDER: late})


class _Waiting(MutableMapping[int, Any]):
    """Spark's map of what waits, as the mapping that ``Held`` works on; its keys are kept at hand."""

    def __init__(self, state: Any) -> None:
        self._state = state
        self._keys = {key[0] for key, _ in state.iterator()} if state.exists() else set()

    def __getitem__(self, index: int) -> Any:
        return self._state.getValue((index,))

    def __setitem__(self, index: int, row: Any) -> None:
        self._state.updateValue((index,), tuple(row))
        self._keys.add(index)

    def __delitem__(self, index: int) -> None:
        self._state.removeKey((index,))
        self._keys.discard(index)

    def __contains__(self, index: object) -> bool:
        return index in self._keys

    def __iter__(self) -> Iterator[int]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)
