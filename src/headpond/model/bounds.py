"""The limits of all input, declared once, as the types of the fields.

msgspec refuses a value beyond its bounds while it decodes a frame. A bound that depends on the state of a node
(the end of a log, the deliveries of a consumer) is checked by the code that knows it; the description of the
type names it. docs/limits.md lists every field with its bound, generated from these types.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any

import msgspec

from headpond.model.errors import BadRequest
from headpond.model.identity import BLOCK_BYTES, SEGMENT_NUMBER_MAX, SHARD_POWER_MAX

ENTRY_MAX = 2**62
NUMBER_MAX = 2**63 - 1
SECONDS_MAX = 366 * 86_400.0
WAIT_S_MAX = 30.0
SHARDS_MAX = 2**SHARD_POWER_MAX
SPANS_MAX = 16_384
SEGMENT_BYTES_MAX = 8 * 1024 * 1024
"""The largest segment, as its producer encoded it."""
TOPIC_LENGTH_MAX = 1024
NAME_LENGTH_MAX = 256
REASON_LENGTH_MAX = 512
"""Characters of the reason for a refusal; clients cut a longer one."""
EPOCH_MAX = 2**53
UNDECODABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for bytes that are no value of a type."""

# --- numbers ------------------------------------------------------------------------------------------

Number = Annotated[
    int, msgspec.Meta(ge=0, le=NUMBER_MAX, description="the sender's own; it comes back in the answer")
]
Entry = Annotated[int, msgspec.Meta(ge=0, le=ENTRY_MAX, description="cut to the entries that the shard has")]
Shard = Annotated[int, msgspec.Meta(ge=0, lt=SHARDS_MAX, description="one of the topic's")]
Shards = Annotated[int, msgspec.Meta(ge=1, le=SHARDS_MAX, description="a power of 2")]
Segment = Annotated[int, msgspec.Meta(ge=0, le=SEGMENT_NUMBER_MAX)]
SegmentEnd = Annotated[int, msgspec.Meta(ge=0, le=SEGMENT_NUMBER_MAX + 1)]
Count = Annotated[int, msgspec.Meta(ge=0, lt=2**32)]
Total = Annotated[int, msgspec.Meta(ge=0, le=NUMBER_MAX)]
ByteCount = Annotated[int, msgspec.Meta(ge=1, le=ENTRY_MAX)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=2**53)]
Epoch = Annotated[int, msgspec.Meta(ge=0, le=EPOCH_MAX)]
TimeUs = Annotated[int, msgspec.Meta(ge=-ENTRY_MAX, le=ENTRY_MAX)]
Seconds = Annotated[float, msgspec.Meta(ge=0.0, le=SECONDS_MAX)]
PositiveSeconds = Annotated[float, msgspec.Meta(gt=0.0, le=100 * SECONDS_MAX)]
Wait = Annotated[float, msgspec.Meta(ge=0.0, le=WAIT_S_MAX)]

# --- text and bytes -----------------------------------------------------------------------------------

Word = Annotated[str, msgspec.Meta(max_length=64)]
Name = Annotated[str, msgspec.Meta(max_length=NAME_LENGTH_MAX)]
TopicText = Annotated[str, msgspec.Meta(max_length=TOPIC_LENGTH_MAX, description="a name, or a pattern")]
Start = (
    Annotated[str, msgspec.Meta(max_length=64, description="earliest, latest, state, an entry or a time")]
    | Annotated[
        int, msgspec.Meta(ge=-ENTRY_MAX, le=ENTRY_MAX, description="cut to the entries that the shard has")
    ]
)
Text = Annotated[str, msgspec.Meta(max_length=4096)]
Reason = Annotated[str, msgspec.Meta(max_length=REASON_LENGTH_MAX)]
Uuid = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
Block = Annotated[bytes, msgspec.Meta(min_length=BLOCK_BYTES, max_length=BLOCK_BYTES)]
SchemaBytes = Annotated[
    bytes, msgspec.Meta(max_length=64 * 1024, description="at most 32 KiB, and one that is supported")
]
Framed = Annotated[bytes, msgspec.Meta(max_length=16 * 1024 * 1024, description="the frame's own limit")]

# --- several ------------------------------------------------------------------------------------------

Span = tuple[Entry, Entry]
"""Entries ``start <= n < end``."""
Spans = Annotated[list[Span], msgspec.Meta(max_length=SPANS_MAX)]
ShardSpans = Annotated[list[tuple[Shard, Entry, Entry]], msgspec.Meta(max_length=SPANS_MAX)]
"""Shard, start and end."""
ShardEntries = Annotated[list[Entry], msgspec.Meta(max_length=SHARDS_MAX, description="one per shard")]
ShardTotals = Annotated[list[Total], msgspec.Meta(max_length=SHARDS_MAX, description="one per shard")]
SegmentEnds = Annotated[
    dict[Shard, SegmentEnd], msgspec.Meta(max_length=SHARDS_MAX, description="one per shard")
]
SchemaList = Annotated[list[SchemaBytes], msgspec.Meta(max_length=8192, description="512 KiB together")]
Patterns = Annotated[list[TopicText], msgspec.Meta(max_length=64)]
SettingValue = (
    bool
    | Annotated[int, msgspec.Meta(ge=-(2**61), le=2**61)]
    | Annotated[float, msgspec.Meta(ge=-1e18, le=1e18)]
    | Annotated[str, msgspec.Meta(max_length=TOPIC_LENGTH_MAX)]
    | None
)
SettingValues = Annotated[
    dict[Word, SettingValue], msgspec.Meta(max_length=64, description="each by the rule of its setting")
]

_AS_SENT = (bytes,)
_SECRET = ("secret", "token")


@cache
def _fields(kind: type[msgspec.Struct]) -> list[tuple[str, Any]]:
    return [(field.name, field.type) for field in msgspec.structs.fields(kind)]


def check_values(kind: type[msgspec.Struct], values: list[Any]) -> None:
    """Raises ``BadRequest`` if a value is beyond the bounds of its field; the error names the field."""
    for (name, field), value in zip(_fields(kind), values, strict=False):
        try:
            msgspec.convert(msgspec.to_builtins(value, builtin_types=_AS_SENT), field, builtin_types=_AS_SENT)
        except (msgspec.ValidationError, TypeError) as error:
            shown = "what it is" if name in _SECRET else f"{value!r:.60}"
            raise BadRequest(f"{name} cannot be {shown}: {error}") from None


def check_fields(struct: msgspec.Struct) -> None:
    """Raises ``BadRequest`` for a struct that the receiver would refuse; call it before sending."""
    check_values(type(struct), [getattr(struct, name) for name, _ in _fields(type(struct))])
