"""``reorder``: the rows of a group in the order of their index.

A row that comes early waits in Spark's state for those before it. After ``wait`` the order continues behind a
gap. No row is dropped: a row that comes after its place was given up, or again, passes at once with
``out_of_order`` set. Each query has its own state and may judge differently, so rows can be divided by that
column only within one sink.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BooleanType, LongType, StructField, StructType

from headpond.model.errors import BadRequest
from headpond.spark.pipeline.faults import OUT_OF_ORDER, seconds
from headpond.spark.pipeline.plan import Reorder

_INTEGERS = ("byte", "short", "integer", "long")


@dataclass(slots=True)
class ReorderBuffer:
    """The waiting rows of one group, and the next index: the rule, without Spark.

    ``rows`` maps an index to its row: a dict, or Spark's state with the same methods.
    """

    rows: Any
    next_index: int | None
    held_max: int

    def take(self, index: int, row: Any) -> Iterator[tuple[Any, bool]]:
        """Adds a row; yields the rows that it releases, each with whether it is out of order."""
        if self.next_index is None:
            self.next_index = index
        if index < self.next_index or index in self.rows:
            yield row, True
        elif index > self.next_index:
            self.rows[index] = row
            if len(self.rows) > self.held_max:
                yield from self.give_up()
        else:
            yield row, False
            self.next_index += 1
            yield from self._run()

    def give_up(self) -> Iterator[tuple[Any, bool]]:
        """Skips the gap: releases the lowest waiting row and its successors."""
        if self.rows:
            self.next_index = min(self.rows)
            yield from self._run()

    def _run(self) -> Iterator[tuple[Any, bool]]:
        assert self.next_index is not None
        while self.next_index in self.rows:
            yield self.rows.pop(self.next_index), False
            self.next_index += 1


def reorder(rows: DataFrame, step: Reorder) -> DataFrame:
    by = [step.by] if isinstance(step.by, str) else list(step.by)
    types = {field.name: field.dataType.typeName() for field in rows.schema.fields}
    if types.get(step.index) not in _INTEGERS:
        raise BadRequest(
            f"index = {step.index!r} is {types.get(step.index, 'not a column of these rows')}",
            hint="Name a column of whole numbers that count the rows of a group.",
        )
    if OUT_OF_ORDER in map(str.lower, types):
        raise BadRequest(
            f"the rows have a column {OUT_OF_ORDER} already", hint="Give it another name in SQL before."
        )
    schema = StructType([*rows.schema.fields, StructField(OUT_OF_ORDER, BooleanType(), False)])
    if not rows.isStreaming:
        raise BadRequest("reorder takes a stream, and these rows are a batch read", hint="Sort them with SQL.")
    wait_ms = round(seconds(step.wait) * 1000)
    processor = ReorderProcessor(rows.schema, step.index, step.first, step.held_max, wait_ms)
    return rows.groupBy(*by).transformWithState(processor, schema, "append", "ProcessingTime")


def released(buffer: ReorderBuffer, rows: Iterable[tuple[int | None, Any]]) -> Iterator[tuple[Any, bool]]:
    """Adds the rows of a batch, lowest index first; yields the rows that they release."""
    numbered: list[tuple[int, Any]] = []
    for index, row in rows:
        if index is None:  # it has no place in the order
            yield row, True
        else:
            numbered.append((index, row))
    for number, row in sorted(numbered, key=lambda pair: pair[0]):
        yield from buffer.take(number, row)


_NONE_YET = -1
_LONG = StructType([StructField("index", LongType())])
_PLACE = StructType([StructField("next", LongType()), StructField("timer_ms", LongType())])


class ReorderProcessor(StatefulProcessor):
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
        buffer, timer_ms = self._buffer()
        came = [(row[self._index], row) for row in rows]
        next_before = buffer.next_index
        yield from self._shown(released(buffer, came))
        if next_before != buffer.next_index or timer_ms == _NONE_YET:
            timer_ms = self._set_timer(buffer, timer_ms, timerValues.getCurrentProcessingTimeInMs())
        self._keep_place(buffer, timer_ms)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        buffer, _ = self._buffer()
        yield from self._shown(buffer.give_up())
        timer_ms = self._set_timer(buffer, _NONE_YET, timerValues.getCurrentProcessingTimeInMs())
        self._keep_place(buffer, timer_ms)

    def _keep_place(self, buffer: ReorderBuffer, timer_ms: int) -> None:
        self._place.update((_NONE_YET if buffer.next_index is None else buffer.next_index, timer_ms))

    def close(self) -> None:
        pass

    def _buffer(self) -> tuple[ReorderBuffer, int]:
        place = self._place.get() if self._place.exists() else None
        next_index, timer_ms = (self._first, _NONE_YET) if place is None else (place[0], place[1])
        rows = _StateRows(self._waiting)
        return ReorderBuffer(rows, None if next_index == _NONE_YET else next_index, self._held_max), timer_ms

    def _set_timer(self, buffer: ReorderBuffer, timer_ms: int, now_ms: int) -> int:
        """Starts the wait for a new gap, if rows wait behind one."""
        if timer_ms != _NONE_YET:
            self._handle.deleteTimer(timer_ms)
        if not buffer.rows:
            return _NONE_YET
        self._handle.registerTimer(now_ms + self._wait_ms)
        return now_ms + self._wait_ms

    def _shown(self, rows: Iterator[tuple[Any, bool]]) -> Iterator[Row]:
        for row, late in rows:
            yield Row(**dict(zip(self._schema.fieldNames(), row, strict=True)), **{OUT_OF_ORDER: late})


class _StateRows:
    """Spark's map of waiting rows, as the mapping that ``ReorderBuffer`` uses; it caches the keys."""

    def __init__(self, state: Any) -> None:
        self._state = state
        self._keys = {key[0] for key, _ in state.iterator()} if state.exists() else set()

    def __setitem__(self, index: int, row: Any) -> None:
        self._state.updateValue((index,), tuple(row))
        self._keys.add(index)

    def pop(self, index: int) -> Any:
        row = self._state.getValue((index,))
        self._state.removeKey((index,))
        self._keys.discard(index)
        return row

    def __contains__(self, index: object) -> bool:
        return index in self._keys

    def __iter__(self) -> Iterator[int]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)
