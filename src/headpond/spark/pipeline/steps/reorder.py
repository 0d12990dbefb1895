"""``reorder``: the rows of a group in the order of their index.

A row that comes early waits in Spark's state for those before it. A gap is waited for as long as told; then the
order goes on behind it. Nothing is dropped: what comes after its place was given up, and what comes again, goes
on at once with ``out_of_order`` set. Each query has a state of its own, and may judge otherwise: whoever must
not see such rows parts them by that column within one sink.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from headpond.model.errors import BadRequest
from headpond.spark.pipeline.flow import OUT_OF_ORDER as OUT_OF_ORDER
from headpond.spark.pipeline.flow import seconds
from headpond.spark.pipeline.plan import Reorder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_INTEGERS = ("byte", "short", "integer", "long")


class Held:
    """The rows of one group that wait, and the index that is next: the rule, without Spark.

    ``rows`` maps an index to its row (several where it came twice); it is read and written like a dict.
    """

    def __init__(self, rows: Any, next_index: int | None, held_max: int) -> None:
        self.rows = rows
        self.next_index = next_index
        self._held_max = held_max

    def take(self, index: int, row: Any) -> Iterator[tuple[Any, bool]]:
        """A row came: the rows that can go on, each with whether it is out of order."""
        if self.next_index is None:
            self.next_index = index
        if index < self.next_index or index in self.rows:
            yield row, True
        elif index > self.next_index:
            self.rows[index] = row
            if len(self.rows) > self._held_max:
                yield from self.give_up()
        else:
            yield row, False
            self.next_index += 1
            yield from self._run()

    def give_up(self) -> Iterator[tuple[Any, bool]]:
        """The gap is not waited for any longer: goes on with the lowest row that is there."""
        if self.rows:
            self.next_index = min(self.rows)
            yield from self._run()

    def _run(self) -> Iterator[tuple[Any, bool]]:
        assert self.next_index is not None
        while self.next_index in self.rows:
            yield self.rows.pop(self.next_index), False
            self.next_index += 1


def reorder(rows: DataFrame, told: Reorder) -> DataFrame:
    from pyspark.sql.types import BooleanType, StructField, StructType

    from headpond.spark.pipeline.steps.reorder_state import Reordering

    by = [told.by] if isinstance(told.by, str) else list(told.by)
    types = {field.name: field.dataType.typeName() for field in rows.schema.fields}
    if types.get(told.index) not in _INTEGERS:
        raise BadRequest(
            f"index = {told.index!r} is {types.get(told.index, 'no column of these rows')}",
            hint="Name a column of whole numbers that count the rows of a group.",
        )
    if OUT_OF_ORDER in map(str.lower, types):
        raise BadRequest(
            f"the rows have a column {OUT_OF_ORDER} already", hint="Give it another name in SQL before."
        )
    schema = StructType([*rows.schema.fields, StructField(OUT_OF_ORDER, BooleanType(), False)])
    if not rows.isStreaming:
        raise BadRequest("rows that are read at once are in any order", hint="Sort them with SQL.")
    processor = Reordering(rows.schema, told.index, told.first, told.held_max, round(seconds(told.wait) * 1000))
    return rows.groupBy(*by).transformWithState(processor, schema, "append", "ProcessingTime")


def released(held: Held, rows: Iterable[tuple[int | None, Any]]) -> Iterator[tuple[Any, bool]]:
    """All that a batch of rows lets go on; within it the lower index is looked at first."""
    numbered: list[tuple[int, Any]] = []
    for index, row in rows:
        if index is None:  # it has no place to wait for
            yield row, True
        else:
            numbered.append((index, row))
    for number, row in sorted(numbered, key=lambda pair: pair[0]):
        yield from held.take(number, row)
