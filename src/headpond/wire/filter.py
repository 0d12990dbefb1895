"""A small language that selects rows, compiled to Arrow compute kernels.

::

    filter     =  all { "or" all }
    all        =  one { "and" one }
    one        =  "not" one  |  "(" filter ")"  |  test
    test       =  column ( "=" | "!=" | "<>" | "<" | "<=" | ">" | ">=" ) literal
               |  column "is" [ "not" ] "null"
               |  column [ "not" ] "in" "(" literal { "," literal } ")"
               |  column [ "not" ] "like" text               % any characters, _ any one
    column     =  name { "." name }  |  "headers" "[" text "]"
    literal    =  number  |  text in single quotes, '' for a quote  |  "true"  |  "false"

Columns are those of a message (value, key, id, headers, sent_at) and what the node adds (shard, entry,
stored_at); in a typed topic ``value.NAME`` are the schema's. A text compared with bytes
is UTF-8; compared with a time (2026-01-31T12:00:00+00:00), a date (2026-01-31) or a time of day (12:00:30) it
is parsed as one; a number compared with a duration is seconds. The filter selects the rows for which it is
true; a test of a null is neither true nor false. A fault is a ``BadFilter`` that names its position. Length,
depth and number of tests are limited, because filters may come from anyone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import partial, reduce
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from headpond.model.errors import BadFilter
from headpond.wire.plain.columns import is_bytes, is_text

FILTER_LENGTH_MAX: Final = 4096
DEPTH_MAX: Final = 32
TESTS_MAX: Final = 256
DIGITS_MAX: Final = 76
"""Digits of Arrow's longest decimals."""

_TOKEN: Final = re.compile(
    r"\s*(?:(?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|(?P<text>'(?:[^']|'')*')"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*)|(?P<sign><=|>=|!=|<>|[=<>().,\[\]]))"
)
_WORDS: Final = frozenset(("and", "or", "not", "is", "null", "in", "like", "true", "false"))
_COMPARISONS: Final[Mapping[str, Callable[..., Any]]] = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_UNIT_US: Final = {"s": 1_000_000, "ms": 1000}
_FAULTS: Final = (pa.ArrowException, TypeError, ValueError, OverflowError, KeyError)

Columns = Mapping[str, pa.Array]
Step = Callable[[Columns], pa.Array]
"""The rows for which a part of a filter is true."""


class Filter:
    """A parsed filter; ``mask`` selects rows."""

    def __init__(self, text: str) -> None:
        self._step = _Parser(text).whole()

    def check(self, columns: Columns) -> None:
        """Refuses a filter that does not fit these columns, which may be empty."""
        self._step(columns)

    def mask(self, columns: Columns) -> pa.Array:
        return pc.fill_null(self._step(columns), False)


class _Token(NamedTuple):
    kind: str
    """``number``, ``text``, ``name``, ``word``, ``sign`` or ``end``"""
    text: str
    place: int


class _Parser:
    def __init__(self, text: str) -> None:
        if len(text) > FILTER_LENGTH_MAX:
            raise BadFilter(f"a filter of {len(text):,} characters; at most {FILTER_LENGTH_MAX:,} are allowed")
        self._tokens = _cut(text)
        self._at = self._depth = self._tests = 0

    # --- tokens -------------------------------------------------------------------------------------

    @property
    def _token(self) -> _Token:
        return self._tokens[self._at]

    def _take(self) -> str:
        self._at += 1
        return self._tokens[self._at - 1].text

    def _took(self, *wanted: str) -> bool:
        if self._token.kind in ("word", "sign") and self._token.text in wanted:
            self._at += 1
            return True
        return False

    def _need(self, wanted: str) -> None:
        if not self._took(wanted):
            raise self._fault(f"{wanted!r} is expected")

    def _fault(self, what: str) -> BadFilter:
        there = "the filter ends" if self._token.kind == "end" else f"there is {self._token.text!r:.40}"
        return BadFilter(f"at character {self._token.place + 1} of the filter: {what}, and {there}")

    # --- grammar ------------------------------------------------------------------------------------

    def whole(self) -> Step:
        found = self._any()
        if self._token.kind != "end":
            raise self._fault("its end, 'and' or 'or' is expected")
        return found

    def _any(self) -> Step:
        found = self._all()
        while self._took("or"):
            found = partial(_both, pc.or_kleene, found, self._all())
        return found

    def _all(self) -> Step:
        found = self._one()
        while self._took("and"):
            found = partial(_both, pc.and_kleene, found, self._one())
        return found

    def _one(self) -> Step:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise self._fault(f"tests may stand {DEPTH_MAX} deep at most")
        found: Step
        if self._took("not"):
            found = partial(_not, self._one())
        elif self._took("("):
            found = self._any()
            self._need(")")
        else:
            found = self._test()
        self._depth -= 1
        return found

    def _test(self) -> Step:
        self._count("tests")
        place = self._token.place
        column = self._column()
        if self._took("is"):
            negated = self._took("not")
            self._need("null")
            return _placed(place, partial(_is_null, column, negated))
        if self._token.kind == "sign" and self._token.text in _COMPARISONS:
            compare = _COMPARISONS[self._take()]
            return _placed(place, partial(_compare, compare, column, self._literal()))
        negated = self._took("not")
        if self._took("in"):
            step: Step = partial(_is_in, column, self._list())
        elif self._took("like"):
            step = partial(_like, column, self._quoted("a text"))
        else:
            raise self._fault("a comparison, 'is', 'in' or 'like' is expected")
        return _placed(place, partial(_not, step) if negated else step)

    def _count(self, what: str) -> None:
        self._tests += 1
        if self._tests > TESTS_MAX:
            raise self._fault(f"a filter has {TESTS_MAX} {what} at most")

    def _quoted(self, what: str) -> str:
        if self._token.kind != "text":
            raise self._fault(f"{what} in single quotes is expected")
        return str(self._literal())

    def _column(self) -> Step:
        if self._token.kind != "name":
            raise self._fault("a column is expected")
        name = self._take()
        if name == "headers" and self._took("["):
            header = self._quoted("the name of a header")
            self._need("]")
            return partial(_header, header)
        path = [name]
        while self._took("."):
            if self._token.kind not in ("name", "word"):
                raise self._fault("a column is expected")
            path.append(self._take())
        return partial(_column, path)

    def _list(self) -> list[Any]:
        self._need("(")
        found = [self._literal()]
        while self._took(","):
            self._count("values")
            found.append(self._literal())
        self._need(")")
        return found

    def _literal(self) -> Any:
        kind = self._token.kind
        if kind == "number":
            text = self._take()
            return int(text) if text.lstrip("-").isdecimal() else float(text)
        if kind == "text":
            return self._take()[1:-1].replace("''", "'")
        if kind == "word" and self._token.text in ("true", "false"):
            return self._take() == "true"
        raise self._fault("a number, a text in single quotes, true or false is expected")


def _cut(text: str) -> list[_Token]:
    """The tokens, and the end."""
    found: list[_Token] = []
    at = 0
    while at < len(text.rstrip()):
        token = _TOKEN.match(text, at)
        if token is None:
            place = at + len(text[at:]) - len(text[at:].lstrip())
            raise BadFilter(f"at character {place + 1} of the filter: {text[place]!r} is not allowed")
        kind = str(token.lastgroup)
        word, start = token[kind], token.start(kind)
        if kind == "name" and word.lower() in _WORDS:
            kind, word = "word", word.lower()
        found.append(_Token(kind, word, start))
        at = token.end()
    return [*found, _Token("end", "", len(text))]


# --- steps ------------------------------------------------------------------------------------------


def _placed(place: int, step: Step) -> Step:
    """The step, with faults that name its position."""

    def run(columns: Columns) -> pa.Array:
        try:
            return step(columns)
        except _FAULTS as error:
            text = str(error.args[0]) if isinstance(error, KeyError) else str(error)
            why = text.splitlines()[0] if text else type(error).__name__
            raise BadFilter(f"at character {place + 1} of the filter: {why}") from None

    return run


def _both(how: Callable[..., Any], left: Step, right: Step, columns: Columns) -> pa.Array:
    return how(left(columns), right(columns))


def _not(step: Step, columns: Columns) -> pa.Array:
    return pc.invert(step(columns))


def _column(path: list[str], columns: Columns) -> pa.Array:
    if path[0] not in columns:
        raise ValueError(f"there is no column {path[0]!r}; there are {', '.join(columns)}")
    found = columns[path[0]]
    for name in path[1:]:
        if not pt.is_struct(found.type) or found.type.get_field_index(name) < 0:
            raise ValueError(f"there is no column {name!r} in {path[0]}")
        found = pc.struct_field(found, [found.type.get_field_index(name)])
    return found


def _header(name: str, columns: Columns) -> pa.Array:
    return pc.map_lookup(columns["headers"], pa.scalar(name), "first")


def _is_null(column: Step, negated: bool, columns: Columns) -> pa.Array:
    found = column(columns)
    return pc.is_valid(found) if negated else pc.is_null(found)


def _compare(how: Callable[..., Any], column: Step, literal: Any, columns: Columns) -> pa.Array:
    return _compare_column(how, column(columns), literal)


def _compare_column(how: Callable[..., Any], found: pa.Array, literal: Any) -> pa.Array:
    if pt.is_integer(found.type) and _is_number(literal):
        return _compare_whole(how, found, literal)
    if pt.is_decimal(found.type) and _is_number(literal):
        return _compare_decimal(how, found, literal)
    if pt.is_float16(found.type):  # Arrow cannot compare these
        found = pc.cast(found, pa.float32())
    value = _scalar(literal, found.type)
    if value.type.equals(found.type):
        return how(found, value)
    # Whole seconds or milliseconds beside a literal of microseconds.
    whole, rest = divmod(value.value, _UNIT_US[found.type.unit])
    floor = pa.scalar(whole, found.type)
    return _compare_between(how, found, floor) if rest else how(found, floor)


def _compare_decimal(how: Callable[..., Any], found: pa.Array, literal: int | float) -> pa.Array:
    if found.type.scale < 0:  # Arrow cannot compare a negative scale
        digits = found.type.precision - found.type.scale
        found = pc.cast(found, pa.decimal256(min(digits, DIGITS_MAX), 0))
    try:
        return how(found, pa.scalar(Decimal(repr(literal))))
    except pa.ArrowException:  # too many digits for one type of both
        return how(pc.cast(found, pa.float64()), pa.scalar(float(literal)))


def _compare_whole(how: Callable[..., Any], found: pa.Array, literal: int | float) -> pa.Array:
    """Compares integers with any number exactly; Arrow would cast both to one type and fail for large ones."""
    if _is_one_of(literal, found.type):
        return how(found, pa.scalar(int(literal), found.type))
    low, high = _extent(found.type)
    if low < literal < high:
        return _compare_between(how, found, pa.scalar(math.floor(literal), found.type))
    above = literal > high
    always = pc.equal(found, found)  # null for null
    if how in (pc.equal, pc.not_equal):
        return always if how is pc.not_equal else pc.invert(always)
    return always if above == (how in (pc.less, pc.less_equal)) else pc.invert(always)


def _compare_between(how: Callable[..., Any], found: pa.Array, floor: pa.Scalar) -> pa.Array:
    """Compares a column with a literal between two of its values, of which ``floor`` is the smaller."""
    if how in (pc.equal, pc.not_equal):
        always = pc.equal(found, found)  # null for null
        return always if how is pc.not_equal else pc.invert(always)
    below = pc.less_equal(found, floor)
    return below if how in (pc.less, pc.less_equal) else pc.invert(below)


def _is_in(column: Step, literals: list[Any], columns: Columns) -> pa.Array:
    found = column(columns)
    if pt.is_integer(found.type) and all(map(_is_number, literals)):
        meant = [int(literal) for literal in literals if _is_one_of(literal, found.type)]
    elif is_text(found.type) or is_bytes(found.type):
        meant = [_scalar(literal, found.type).as_py() for literal in literals]
    else:
        tests = [_compare_column(pc.equal, found, literal) for literal in literals]
        return reduce(pc.or_kleene, tests)
    known = pc.is_in(found, value_set=pa.array(meant, found.type))
    return pc.if_else(pc.is_valid(found), known, pa.scalar(None, pa.bool_()))


def _like(column: Step, pattern: str, columns: Columns) -> pa.Array:
    found = column(columns)
    if not (is_text(found.type) or is_bytes(found.type)) or pt.is_fixed_size_binary(found.type):
        raise TypeError(f"'like' needs text or bytes, not {found.type}")
    return pc.match_like(found, pattern)


def _scalar(literal: Any, kind: pa.DataType) -> pa.Scalar:
    """A literal in the type of the column it is compared with; in microseconds for coarser times."""
    if isinstance(literal, str):
        if is_bytes(kind):
            return pa.scalar(literal.encode(), kind)
        if pt.is_timestamp(kind):
            when = datetime.fromisoformat(literal)
            if kind.tz is not None and when.tzinfo is None:
                when = when.replace(tzinfo=UTC)
            return pa.scalar(when, kind if kind.unit == "ns" else pa.timestamp("us", kind.tz))
        if pt.is_date(kind):
            return pa.scalar(date.fromisoformat(literal), kind)
        if pt.is_time(kind):
            o_clock = time.fromisoformat(literal)
            if o_clock.tzinfo is not None:
                raise ValueError(f"{literal!r} has an offset; times of day have none")
            return pa.scalar(o_clock, kind if kind == pa.time64("ns") else pa.time64("us"))
        if is_text(kind):
            return pa.scalar(literal, kind)
        raise TypeError(f"a text cannot be compared with {kind}")
    if isinstance(literal, bool) != bool(pt.is_boolean(kind)):
        raise TypeError(f"{literal!r} cannot be compared with {kind}")
    if pt.is_boolean(kind):
        return pa.scalar(literal)
    if pt.is_floating(kind):
        return pa.scalar(float(literal), kind)
    if pt.is_duration(kind):
        seconds = timedelta(seconds=literal)
        return pa.scalar(seconds, kind if kind.unit == "ns" else pa.duration("us"))
    raise TypeError(f"a number cannot be compared with {kind}")


def _is_number(literal: Any) -> bool:
    return isinstance(literal, int | float) and not isinstance(literal, bool)


def _is_one_of(literal: int | float, kind: pa.DataType) -> bool:
    """Whether a column of integers can hold a number."""
    low, high = _extent(kind)
    return low <= literal <= high and literal == math.floor(literal)


def _extent(kind: pa.DataType) -> tuple[int, int]:
    bits = kind.bit_width
    return (0, 2**bits - 1) if pt.is_unsigned_integer(kind) else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
