"""A typed topic's values one by one: mappings of its columns, checked as they come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from headpond.client.exact_values import Check, Unfit, check_of
from headpond.model.errors import SchemaMismatch
from headpond.wire.typed_rows import message_schema

FIELD_BYTES = 16
_FAULTS = (pa.ArrowException, TypeError, ValueError, OverflowError)


class TypedValues:
    """The columns of one topic."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._type = pa.struct(list(schema))
        self._names = frozenset(schema.names)
        self._checks = [(field.name, check_of(field)) for field in schema]
        self._messages = message_schema(schema)

    def check(self, value: object) -> tuple[Mapping[str, Any], int]:
        """The value as it is kept, and about how many bytes it takes; ``SchemaMismatch`` names the column."""
        if not isinstance(value, Mapping):
            raise SchemaMismatch(
                f"a message of this topic is a mapping of its columns, not {type(value).__name__}",
                hint=f"Its columns are {', '.join(f'{field.name}: {field.type}' for field in self.schema)}.",
            )
        for name in value:
            if name not in self._names:
                raise SchemaMismatch(
                    f"column {name!r} is not one of the topic's: {', '.join(self.schema.names)}"
                )
        self._look(self._checks, value)
        kept = dict(value)
        try:
            pa.scalar(kept, self._type)
        except _FAULTS as error:
            self._look([(field.name, check_of(field, ask_arrow=True)) for field in self.schema], kept)
            raise SchemaMismatch(f"the row does not fit: {error}") from error
        return kept, _bytes_of(kept)

    def _look(self, checks: Sequence[tuple[str, Check]], value: Mapping[str, Any]) -> None:
        """Raises for the first column whose value does not fit."""
        for name, check in checks:
            try:
                check(value.get(name))
            except Unfit as unfit:
                raise SchemaMismatch(
                    f"column {name + unfit.path!r}: {unfit.reason}",
                    hint=f"{name} is {self.schema.field(name).type}. What does not fit exactly is not stored.",
                ) from None

    def to_batch(
        self,
        values: Sequence[Mapping[str, Any] | None],
        keys: list[bytes | None] | None,
        ids: list[str | None] | None,
        headers: list[Mapping[str, str] | None] | None,
        sent_at_us: list[int],
    ) -> pa.RecordBatch:
        """Rows as a batch of messages."""
        rows = len(values)
        pairs = None if headers is None else [None if h is None else list(h.items()) for h in headers]
        columns = (keys, ids, pairs, sent_at_us)
        try:
            arrays = [
                pa.nulls(rows, field.type) if column is None else pa.array(column, field.type)
                for field, column in zip(self._messages, columns, strict=False)
            ]
            return pa.RecordBatch.from_arrays([*arrays, pa.array(values, self._type)], schema=self._messages)
        except _FAULTS as error:
            raise SchemaMismatch(f"the messages do not make a batch: {error}") from error


def _bytes_of(value: Any) -> int:
    if isinstance(value, str | bytes):
        return len(value) + FIELD_BYTES
    if isinstance(value, Mapping):
        return FIELD_BYTES + sum(_bytes_of(each) + len(str(name)) for name, each in value.items())
    if isinstance(value, list | tuple):
        return FIELD_BYTES + sum(map(_bytes_of, value))
    return FIELD_BYTES
