"""A typed topic's values one by one: mappings of its columns, checked as they come."""

from __future__ import annotations

import math
import numbers
import struct
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pt

from headpond.model.errors import SchemaMismatch
from headpond.wire.typed.rows import message_schema

# Arrow takes values that a column cannot hold exactly: of 1.5 it stores 1 in a column of whole numbers, of a
# datetime its date, of a struct the known fields, of bytes a text; and a decimal with some millions of decimal
# places ends the process. So checks, made once per column, look at each value first. Values that pass them
# Arrow stores exactly or refuses; only floating-point numbers are rounded, never to infinity.

Check = Callable[[Any], None]

_CONVERSION_ERRORS: Final = (pa.ArrowException, TypeError, ValueError, OverflowError)
_UNIT_MICROS: Final = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 0}
_UNITS_A_DAY: Final = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}
_PLACES_MAX: Final = 1_000
"""Decimal places that Arrow is asked to judge; there are never that many in a column."""
_DIGITS_MAX: Final = 40
"""Digits of a decimal for a column of whole numbers."""
_SHOWN_CHARS_MAX: Final = 60


class Unfit(Exception):
    """Why a value does not fit, and where it stands in its column."""

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.path = path

    def under(self, place: str) -> Unfit:
        return Unfit(self.reason, place + self.path)


def check_of(field: pa.Field, *, ask_arrow: bool = False) -> Check:
    """The check of one column's values; ``ask_arrow`` asks Arrow about each part of one."""
    of_value = _check(field.type, ask_arrow)

    def check(value: Any) -> None:
        if isinstance(value, pa.Scalar):
            _check_scalar(value, field.type)
        elif value is not None:
            of_value(value)
        elif not field.nullable:
            raise Unfit("it takes no nulls")

    return check


def _check_scalar(value: pa.Scalar, kind: pa.DataType) -> None:
    if value.type != kind or not value.is_valid:
        raise Unfit(f"it is {kind}, not {value.type}" if value.is_valid else "a null is None here")


def _check(kind: pa.DataType, ask_arrow: bool) -> Check:
    if pt.is_struct(kind):
        return _struct(kind, ask_arrow)
    if pt.is_map(kind):
        return _map(kind, ask_arrow)
    if pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind):
        return _list(kind, ask_arrow)
    of_value = _leaf(kind)

    def check(value: Any) -> None:
        of_value(value)
        try:
            pa.scalar(value, kind)
        except _CONVERSION_ERRORS as error:
            raise Unfit(f"it is {kind}: {error}") from None

    return check if ask_arrow else of_value


def _struct(kind: pa.DataType, ask_arrow: bool) -> Check:
    fields = [kind.field(index) for index in range(kind.num_fields)]
    checks = {field.name: check_of(field, ask_arrow=ask_arrow) for field in fields}

    def check(value: Any) -> None:
        if not isinstance(value, Mapping):
            raise Unfit(f"a struct is a mapping of its fields, not {type(value).__name__}")
        for name in value:
            if name not in checks:
                raise Unfit(f"it has no field {_shown(name)}, but {', '.join(checks)}")
        for name, of_field in checks.items():
            try:
                of_field(value.get(name))
            except Unfit as unfit:
                raise unfit.under(f".{name}") from None

    return check


def _map(kind: pa.DataType, ask_arrow: bool) -> Check:
    of_key = check_of(kind.key_field, ask_arrow=ask_arrow)
    of_item = check_of(kind.item_field, ask_arrow=ask_arrow)

    def check(value: Any) -> None:
        pairs = value.items() if isinstance(value, Mapping) else value
        if isinstance(pairs, str | bytes) or not isinstance(pairs, Collection):
            raise Unfit(f"a map is a mapping or a list of pairs, not {type(value).__name__}")
        for pair in pairs:
            if not isinstance(pair, tuple) or len(pair) != 2:
                raise Unfit(f"a map is a mapping or a list of pairs, and {_shown(pair)} is no pair")
            try:
                of_key(pair[0])
                of_item(pair[1])
            except Unfit as unfit:
                raise unfit.under(f"[{_shown(pair[0])}]") from None

    return check


def _list(kind: pa.DataType, ask_arrow: bool) -> Check:
    of_item = check_of(kind.value_field, ask_arrow=ask_arrow)
    size = kind.list_size if pt.is_fixed_size_list(kind) else None

    def check(value: Any) -> None:
        if not isinstance(value, list | tuple):
            _check_ordered(value)
        if size is not None and len(value) != size:
            raise Unfit(f"it has {size:,} items, not {len(value):,}")
        for index, each in enumerate(value):
            try:
                of_item(each)
            except Unfit as unfit:
                raise unfit.under(f"[{index}]") from None

    return check


def _check_ordered(value: Any) -> None:
    unordered = isinstance(value, str | bytes | bytearray | memoryview | Set | Mapping)
    if unordered or not isinstance(value, Collection):
        raise Unfit(f"a list is a sequence of values, not {type(value).__name__}")


def _leaf(kind: pa.DataType) -> Check:
    if pt.is_integer(kind):
        return _integer
    if pt.is_floating(kind):
        return _floating(kind)
    if pt.is_decimal(kind):
        return _decimal
    if pt.is_string(kind) or pt.is_large_string(kind):
        return _text
    if pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind):
        return _bytes
    if pt.is_timestamp(kind):
        return _timestamp(kind)
    if pt.is_date(kind):
        return _date(86_400_000 if pt.is_date64(kind) else 1)
    if pt.is_time(kind):
        return _time(kind)
    if pt.is_duration(kind):
        return _duration(kind)
    return _anything


def _anything(value: Any) -> None:
    """A boolean: Arrow takes no other value for one."""


def _integer(value: Any) -> None:
    if type(value) is not int:
        _check_whole(value)


def _check_whole(value: Any) -> int | None:
    """The number as a whole one; None if it is no number."""
    is_number = isinstance(value, numbers.Number) and _numpy_kind(value) != "m"
    if not is_number and (hasattr(value, "__int__") or hasattr(value, "__index__")):
        raise Unfit(f"{_shown(value)} is no number")  # Arrow would ask it for one
    if isinstance(value, Decimal):
        if value.is_finite() and value.adjusted() > _DIGITS_MAX:  # Arrow would write out all of them
            raise Unfit(f"{value} is too large")
        is_whole = value.is_finite() and value == value.to_integral_value()
    elif isinstance(value, numbers.Real):
        is_whole = math.isfinite(value) and value == math.floor(value)
    else:
        return None
    if not is_whole:
        raise Unfit(f"{_shown(value)} is not whole")
    return int(value)


def _floating(kind: pa.DataType) -> Check:
    packing = struct.Struct({16: "<e", 32: "<f", 64: "<d"}[kind.bit_width])
    bits = {16: 11, 32: 24, 64: 53}[kind.bit_width]

    def check(value: Any) -> None:
        if isinstance(value, bool) or not isinstance(value, numbers.Real) or _numpy_kind(value) == "m":
            raise Unfit(f"{_shown(value)} is no floating-point number")
        if isinstance(value, numbers.Integral) and abs(int(value)) > 1 << bits:
            raise Unfit(f"{_shown(value)} has more digits than {kind} holds")
        try:
            packing.pack(value)
            too_large = math.isinf(value) and value != float(value)  # numpy has longer ones than Python
        except OverflowError:
            too_large = True
        if too_large:
            raise Unfit(f"{_shown(value)} is too large for {kind}")

    return check


def _decimal(value: Any) -> None:
    if isinstance(value, Decimal):
        exponent = value.as_tuple().exponent
        if not isinstance(exponent, int):
            raise Unfit(f"{value} is no number")
        if exponent < -_PLACES_MAX:
            raise Unfit(f"{-exponent:,} decimal places are more than it has")


def _text(value: Any) -> None:
    if not isinstance(value, str):
        raise Unfit(f"it is text, not {type(value).__name__}")


def _bytes(value: Any) -> None:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise Unfit(f"it is bytes, not {type(value).__name__}")


def _timestamp(kind: pa.DataType) -> Check:
    def check(value: Any) -> None:
        _check_is_time(value)
        if _numpy_kind(value) == "M":
            return  # Arrow takes only what counts in the column's unit
        if not isinstance(value, datetime):
            _check_whole(value)
        elif kind.tz is not None and value.tzinfo is None:
            raise Unfit(f"it is {kind}, and {value} does not say its zone")
        elif kind.tz is None and value.tzinfo is not None:
            raise Unfit(f"it is {kind}, which has no zone, and {value} has one")
        else:
            _check_units(value, value.microsecond, _nanos(value), kind)

    return check


def _date(units_a_day: int) -> Check:
    def check(value: Any) -> None:
        _check_is_time(value)
        if isinstance(value, datetime):
            if value.tzinfo is not None or value.time() != time() or _nanos(value):
                raise Unfit(f"it is a date, and {value} has a time of day")
        elif not isinstance(value, date):
            number = _check_whole(value)
            if number is not None and number % units_a_day:
                raise Unfit(f"it is a date in milliseconds, and {_shown(value)} are no whole days")

    return check


def _time(kind: pa.DataType) -> Check:
    a_day = _UNITS_A_DAY[kind.unit]

    def check(value: Any) -> None:
        if isinstance(value, time):
            if value.tzinfo is not None:
                raise Unfit(f"it is a time of day without a zone, and {value} has one")
            _check_units(value, value.microsecond, 0, kind)
        else:
            number = _check_whole(value)
            if number is not None and not 0 <= number < a_day:
                raise Unfit(f"it is a time of day in {kind.unit}, and {_shown(value)} is none")

    return check


def _duration(kind: pa.DataType) -> Check:
    def check(value: Any) -> None:
        _check_is_time(value)
        if isinstance(value, timedelta):
            _check_units(value, value.microseconds, getattr(value, "nanoseconds", 0), kind)
        elif _numpy_kind(value) != "m":  # of those Arrow takes only what counts in the column's unit
            _check_whole(value)

    return check


def _numpy_kind(value: Any) -> str:
    """Numpy's letter for the type of one of its values: m and M are a duration and a time."""
    return "" if getattr(value, "ndim", 1) else str(getattr(getattr(value, "dtype", None), "kind", ""))


def _check_is_time(value: Any) -> None:
    is_time = isinstance(value, datetime | timedelta) or _numpy_kind(value) in ("m", "M")
    if is_time and value != value:  # as pandas' and numpy's "not a time" are
        raise Unfit(f"{value} is no time; a null is None here")


def _nanos(value: datetime) -> int:
    """Of pandas' kind of datetime."""
    return int(getattr(value, "nanosecond", 0))


def _check_units(value: Any, micros: int, nanos: int, kind: pa.DataType) -> None:
    """No smaller part of a second than the column counts in."""
    unit = _UNIT_MICROS[kind.unit]
    if unit and (nanos or micros % unit):
        raise Unfit(f"it counts in {kind.unit}, and {value} does not")


def _shown(value: Any) -> str:
    """The value for a sentence; one of ten thousand digits would be a page of it."""
    if isinstance(value, int) and not -(10**_SHOWN_CHARS_MAX) < value < 10**_SHOWN_CHARS_MAX:
        return f"a number of {value.bit_length():,} bits"
    text = str(value) if isinstance(value, numbers.Number) else repr(value)
    return text if len(text) <= _SHOWN_CHARS_MAX else f"{text[:_SHOWN_CHARS_MAX]}…"


FIELD_BYTES = 16


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
        except _CONVERSION_ERRORS as error:
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
                    hint=f"{name} is {self.schema.field(name).type}. A value must fit exactly to be stored.",
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
        except _CONVERSION_ERRORS as error:
            raise SchemaMismatch(f"the messages do not make a batch: {error}") from error


def _bytes_of(value: Any) -> int:
    if isinstance(value, str | bytes):
        return len(value) + FIELD_BYTES
    if isinstance(value, Mapping):
        return FIELD_BYTES + sum(_bytes_of(each) + len(str(name)) for name, each in value.items())
    if isinstance(value, list | tuple):
        return FIELD_BYTES + sum(map(_bytes_of, value))
    return FIELD_BYTES
