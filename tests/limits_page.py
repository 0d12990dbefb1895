"""docs/limits.md, from the types of all input: ``python -m tests.limits_page`` writes it.

``all_unbounded`` lists the fields whose type has no bound; a test wants it to be empty.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from litestar.params import KwargDefinition

from headpond.broker import operations
from headpond.broker.access import tokens
from headpond.broker.catalog import place_requests
from headpond.broker.ingest import admission
from headpond.broker.ingest import ingest as producing
from headpond.broker.links import source as peer_source
from headpond.broker.reading import fetch as fetching
from headpond.broker.settings import Limits, Settings
from headpond.broker.subscriptions import attachment
from headpond.broker.subscriptions import subscribe as subscribing
from headpond.client import contexts
from headpond.model import bounds, entry_set, ledger, policy
from headpond.model.topic_settings import SETTINGS
from headpond.node.http import bodies, gate
from headpond.node.http.app import make_app
from headpond.node.http.publish import KEY_LENGTH_MAX
from headpond.pipes.lab import run as lab
from headpond.producer.refill import index as refill_index
from headpond.spark import options as spark_options
from headpond.spark.pipeline import definition
from headpond.storage.log import book
from headpond.storage.log import shard_log as log
from headpond.storage.log import shard_log as log_state
from headpond.wire import frame
from headpond.wire.connection import FROM_CLIENT, FROM_NODE
from headpond.wire.control import staging
from headpond.wire.control.catalog import ShowTopic
from headpond.wire.control.codec import CONTROL_TYPES, Operation, Request, answer_type
from headpond.wire.control.links import SinkOperation, SourceOperation
from headpond.wire.frame import FrameType
from headpond.wire.title import Title
from tests.root import ROOT

PAGE = ROOT / "docs" / "limits.md"
Kind = type[msgspec.Struct]

MESSAGE = "8 MiB with its message"
FREE = {
    "Response.result": "plain data of at most 16 MiB, read by the type that the request expects",
    "Base64.base64": MESSAGE,
} | {
    f"{kind.__name__}.{name}": text
    for kind in (bodies.MessageBody, bodies.JsonBody)
    for name, text in {
        "value": f"{bodies.PARTS_MAX:,} parts; {MESSAGE}",
        "headers": "decoded only if they are short",
        "key": MESSAGE,
        "id": MESSAGE,
        "sent_at": "years 1 to 9999",
        "messages": f"{bodies.MESSAGES_MAX:,} messages",
    }.items()
}
"""Fields that have no bound in their type, and what bounds them."""


# --- types as text ------------------------------------------------------------------------------------


def meta_of(kind: Any) -> msgspec.Meta | None:
    return next((each for each in get_args(kind)[1:] if isinstance(each, msgspec.Meta)), None)


def kinds() -> dict[str, Any]:
    """The named types, in order."""
    found: dict[str, Any] = {}
    for module in (bounds, policy):
        for name, value in vars(module).items():
            if get_origin(value) in (Annotated, tuple, Union, types.UnionType) and name[0].isupper():
                found.setdefault(name, value)
    return found


def number(value: float) -> str:
    if isinstance(value, int) and abs(value) > 2**31:
        for off, shown in ((0, ""), (1, " - 1")):
            if (abs(value) + off).bit_count() == 1:
                return f"{'-' if value < 0 else ''}2^{(abs(value) + off).bit_length() - 1}{shown}"
    return f"{value:,.10g}" if isinstance(value, float) else f"{value:,}"


def bound(kind: Any) -> str:
    """The values that a type accepts, as text."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        base, meta = inner[0], meta_of(kind)
        assert meta is not None
        if base in (int, float):
            low = number(meta.ge) if meta.ge is not None else f"above {number(meta.gt)}"  # type: ignore[arg-type]
            high = meta.le if meta.le is not None else meta.lt - 1  # type: ignore[operator]
            return f"{low} to {number(high)}" + (" s" if base is float and 1 < high < 1e12 else "")
        assert meta.max_length is not None
        unit = {str: "characters", bytes: "bytes"}.get(base) or bound(base)
        exact = base is bytes and meta.min_length == meta.max_length
        return f"{'' if exact else 'at most '}{number(meta.max_length)} {unit}"
    if origin in (list, dict):
        return f"times {': '.join(map(named, inner))}"
    if origin is tuple:
        return f"({', '.join(map(named, inner))})"
    if origin in (Union, types.UnionType):
        return " or ".join(map(named, inner))
    if origin is Literal:
        return " or ".join(f'"{word}"' for word in inner)
    return {bool: "yes or no", type(None): "nothing"}.get(kind) or str(getattr(kind, "__name__", "any"))


def named(kind: Any) -> str:
    """A type by its name, if it has one."""
    return next((name for name, each in kinds().items() if each == kind), None) or bound(kind)


def unbounded(kind: Any, path: str, seen: frozenset[Any] = frozenset()) -> Iterator[str]:
    """The parts of a type that accept a value of any size."""
    meta = meta_of(kind) if get_origin(kind) is Annotated else None
    base = get_args(kind)[0] if meta is not None else kind
    if get_origin(base) is Literal:
        return
    if isinstance(base, type) and issubclass(base, msgspec.Struct):
        for field in msgspec.structs.fields(base) if base not in seen else ():
            yield from unbounded(field.type, f"{base.__name__}.{field.name}", seen | {base})
    elif base in (int, float):
        if meta is None or (meta.ge is None and meta.gt is None) or (meta.le is None and meta.lt is None):
            yield path
    elif base in (str, bytes) or get_origin(base) in (list, dict):
        if meta is None or meta.max_length is None:
            yield path
    elif base not in (bool, type(None)) and get_origin(base) not in (tuple, Union, types.UnionType):
        yield path
    for each in get_args(base):
        yield from unbounded(each, path, seen)


def structs_in(kind: Any) -> Iterator[Kind]:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield kind
    for each in get_args(kind):
        yield from structs_in(each)


def parts_of(tops: Iterable[Kind]) -> list[Kind]:
    """Structs inside others, in the order of their first use."""
    met = dict.fromkeys(tops)
    waiting = list(met)
    while waiting:
        fields = msgspec.structs.fields(waiting.pop(0))
        new = [part for field in fields for part in structs_in(field.type) if part not in met]
        met |= dict.fromkeys(new)
        waiting[:0] = new
    return [each for each in met if each not in tops]


# --- the doors ----------------------------------------------------------------------------------------


def control_frames(frame_types: Iterable[int]) -> list[Kind]:
    wanted = set(frame_types)
    return [kind for kind, type_ in CONTROL_TYPES.items() if type_ in wanted]


FRAMES_OF_CLIENTS = [kind for kind in control_frames([FrameType.HELLO, *FROM_CLIENT]) if kind is not Request]
FRAMES_OF_NODES = [
    kind for kind in control_frames([FrameType.WELCOME, *FROM_NODE]) if kind not in FRAMES_OF_CLIENTS
]
REQUESTS: dict[str, Kind] = {str(kind.__struct_config__.tag): kind for kind in get_args(Operation)}
SECTIONS: dict[str, Kind] = {
    field.name: each for field in msgspec.structs.fields(Settings) for each in structs_in(field.type)
}


def peer_answers() -> list[Kind]:
    """The answers that a node reads from another."""
    asked = [ShowTopic, *get_args(SourceOperation), *get_args(SinkOperation)]
    found = (each for kind in asked for each in structs_in(answer_type(kind)))
    return list(dict.fromkeys(found))


def http_arguments() -> Iterator[tuple[str, str, Any]]:
    """Path, name and declaration of every argument of every route."""
    for route in make_app(None).routes:
        for handler in getattr(route, "route_handlers", []):
            for name, field in handler.parsed_fn_signature.parameters.items():
                yield str(route.path).replace(":str", ""), name, field


def http_bodies() -> list[Kind]:
    found = (
        each for _, name, field in http_arguments() if name == "data" for each in structs_in(field.annotation)
    )
    return list(dict.fromkeys([bodies.JsonBody, *found]))


def http_parameters() -> Iterator[tuple[str, str, str]]:
    """Name, places and bound of every parameter that is a number."""
    found: dict[tuple[str, str], set[str]] = {}
    for path, name, field in http_arguments():
        given, kind = field.kwarg_definition, field.annotation
        if isinstance(given, KwargDefinition) and {kind, *get_args(kind)} & {int, float}:
            high = given.lt - 1 if given.le is None and given.lt is not None else given.le
            no_bound = given.ge is None or high is None
            shown = "unbounded" if no_bound else f"{number(given.ge)} to {number(high)}"  # type: ignore[arg-type]
            found.setdefault((name, shown), set()).add(f"`{path}`")
    for (name, shown), paths in sorted(found.items()):
        yield f"`{name}`", ", ".join(sorted(paths)), shown


def all_unbounded() -> list[str]:
    """Every field from outside that accepts a value of any size."""
    tops: list[Kind] = [
        Title,
        Request,
        *FRAMES_OF_CLIENTS,
        *FRAMES_OF_NODES,
        *peer_answers(),
        Settings,
        *http_bodies(),
    ]
    return sorted({path for kind in tops for path in unbounded(kind, kind.__name__)} - FREE.keys())


# --- the page -----------------------------------------------------------------------------------------


def table(heads: list[str], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def fields_of(kind: Kind) -> str:
    shown = (
        f"`{field.name}` {FREE.get(f'{kind.__name__}.{field.name}') or named(field.type)}"
        for field in msgspec.structs.fields(kind)
    )
    return ", ".join(shown) or "none"


def structs(first: str, found: Iterable[Kind] | dict[str, Kind]) -> str:
    """A table of structs, by their own names or by those given."""
    by_name = found if isinstance(found, dict) else {kind.__name__: kind for kind in found}
    return table([first, "fields"], ((f"`{name}`", fields_of(kind)) for name, kind in by_name.items()))


def size(count: int) -> str:
    for unit, power in (("GiB", 3), ("MiB", 2), ("KiB", 1)):
        if count >= 1024**power and count % 1024**power == 0:
            return f"{count // 1024**power:,} {unit}"
    return f"{count:,} bytes"


def frame_rows() -> Iterator[tuple[str, str, str]]:
    for type_, text in {
        FrameType.TITLE: "block (16 bytes), shard power (0 to 12), `Title`",
        FrameType.SEGMENT: "rows, counted and checked before they are stored",
        FrameType.SNAPSHOT: "the state of a decoder: `limits.connection_decoder_bytes`",
        FrameType.STAGE: "stage (16 bytes), rows; `[staging]` and the tenant's quotas",
        FrameType.PEER: "topic (16 bytes), a stored record",
    }.items():
        yield f"`{type_.name}`", size(FROM_CLIENT[type_]), text
    yield "all others", size(frame.CONTROL_BYTES_MAX), "the messages below"


def setting_rows() -> Iterator[tuple[str, str]]:
    for setting in SETTINGS.values():
        words = {"flag": "yes or no", "topic": "a topic's name, or nothing"}.get(setting.kind)
        shown = (
            ", ".join(setting.words)
            or words
            or f"{setting.shown(setting.low)} to {setting.shown(setting.high)}"
        )
        yield f"`{setting.name}`", shown + (", or none" if setting.liftable else "")


def page() -> str:
    http, answers = http_bodies(), peer_answers()
    inner = parts_of([Title, *FRAMES_OF_CLIENTS, *REQUESTS.values()])
    of_nodes = [each for each in parts_of([*FRAMES_OF_NODES, *answers]) if each not in inner]
    of_http = [each for each in parts_of(http) if each not in inner]
    named_kinds = (
        (name, bound(kind), meta.description or "" if (meta := meta_of(kind)) else "")
        for name, kind in kinds().items()
    )
    requests = Limits().window_bytes // operations.REQUEST_COST_BYTES
    return f"""\
# Limits on input

This page lists every field that a node, a client or a file takes from outside, its bound, and where
the bound is checked. It is generated from the types (`python -m tests.limits_page`); a field without
a bound fails a test.

The decoder checks a bound before anything is built from the message. The node refuses a request, a
`SUBSCRIBE` or a `SETTLE` beyond a bound by its number (`bad-request`, with the name of the field), and
ends the connection at any other frame beyond a bound (`bad-frame`). The quotas of a tenant are in
[tenancy](tenancy.md), the capacity of a node in [settings](settings.md).

## Kinds of values

The tables below name these kinds. The last column is a further rule, checked where the value is used.

{table(["kind", "bound", "further"], named_kinds)}

## From a client: frames

The header holds type, shard (0 to 65,535), segment (0 to 2^32 - 1) and size. The size is checked
against the limit of the type before a byte of the body is kept (wire/frame.py).

{table(["frame", "size at most", "body"], frame_rows())}

{structs("message", [Title, *FRAMES_OF_CLIENTS])}

## From a client: requests

{structs("request", REQUESTS)}

Values inside these:

{structs("value", inner)}

## From a client: amounts

| what | at most | checked in |
|---|---|---|
| unanswered requests | {requests:,} (`limits.window_bytes`); then the node stops reading | broker/operations.py |
| requests that wait to read a log | {fetching.READS_MAX}; one reads at a time | broker/reading/fetch.py |
| `read_ends` requests that wait | {fetching.WATCHES_MAX} | broker/reading/fetch.py |
| `follow_topics` requests that wait | {peer_source.WAITING_MAX} | broker/links/source.py |
| consumers | {subscribing.CONSUMERS_MAX:,} | broker/subscriptions/subscribe.py |
| credit of a consumer | {size(attachment.CREDIT_BYTES_MAX)} | attachment.py |
| entries of a span or a settlement | those that the log has, or the consumer holds | settling.py |
| blocks that titles of the connection named | {producing.BLOCKS_MAX:,}; the oldest is dropped | broker/ingest/ingest.py |
| holes of a block in a shard | {producing.HOLES_MAX:,} | broker/ingest/ingest.py |
| holes of a shard with nothing behind them | {admission.DECLARED_MAX:,} | admission.py |
| blocks of a shard without a stored segment | {book.ALONE_MAX:,} | book.py |
| producers of a shard with a summary of old blocks | {book.FOLDED_MAX} | book.py |
| reasons that an account counts one by one | {ledger.REASONS_MAX} | model/ledger.py |
| a total of the ledger | {number(ledger.COUNT_MAX)} | model/ledger.py |
| ledger notes of refused segments | the size of the stored messages, plus {size(log_state.TALLY_BYTES)} | log.py |
| a span that a set of entries is built from | {number(entry_set.SPAN_ENTRIES_MAX)} | model/entry_set.py |
| tokens within reach of a tenant's admin | {tokens.REACHED_MAX:,} | tokens.py |
| tenants, products and components of a node | {place_requests.PLACES_MAX:,} | broker/catalog/place_requests.py |

## From another node

A node reads the answers of a node that it follows by these types. It checks the bounds of its own
requests again when it makes one from such an answer. An answer takes at most 16 MiB.

{structs("answer", answers)}

## From a node, at a client

{structs("message", FRAMES_OF_NODES)}

Values inside these and the answers above:

{structs("value", of_nodes)}

## Over HTTP

The first line and the headers take at most `http_limits.header_bytes`, which bounds every text in
them; an `Idempotency-Key` has {KEY_LENGTH_MAX} characters. A body takes at most {size(gate.ADMIN_BODY_BYTES)},
or `http_limits.body_bytes` if it sends messages. The bounds of requests hold as well.

{table(["parameter", "of", "bound"], http_parameters())}

{structs("body", http)}

Values inside these:

{structs("value", of_http)}

## Files

| file | bound | checked in |
|---|---|---|
| any file of frames | a body of {size(frame.FILE_BODY_BYTES_MAX)} with a good checksum | wire/frame.py, storage/recovery.py |
| journals | an unreadable record is reported, and the others are used | storage/journal.py |
| the head of a log file | marks and ledger take {size(log.MARKS_BYTES_MAX)}; the oldest blocks go first | storage/log/marks.py |
| claims of producers in it | sums are cut to {number(ledger.COUNT_MAX)} | model/ledger.py |
| segments in it | the limits of their form | wire/plain/segment.py, wire/typed/record.py |
| refill files | numbers below 2^62, {refill_index.SEGMENTS_MAX:,} segments | producer/refill/form.py, producer/refill/index.py |
| the settings file of a node, and its variables | every value as below; an unknown name in the file is refused | broker/settings.py |
| a pipeline | {size(definition.FILE_BYTES_MAX)}; an unknown name is refused | spark/pipeline/definition.py |
| contexts | {size(contexts.FILE_BYTES_MAX)} | client/contexts.py |

## Settings of a node

{structs("section", {"top": Settings} | SECTIONS)}

## Settings of topics and tenants

{table(["setting", "bound"], setting_rows())}

## Command line and Spark options

The client checks every argument that goes to a node against the bounds of requests before it sends
anything, for commands, programs and Spark alike. These values stay in the process:

| value | bound | checked in |
|---|---|---|
| `lab run --messages` | 1 to {lab.MESSAGES_MAX:,} | pipes/lab/run.py |
| `refill send --timeout` | 0.1 to 31,622,400 s | cli/data/refill.py |
| Spark: `start`, `end` | an entry from 0 to {number(bounds.ENTRY_MAX)}, or a time | spark/options.py |
| Spark: `minEntriesPerTrigger`, `maxEntriesPerTrigger`, `maxBytesPerTrigger` | 1 to {number(bounds.NUMBER_MAX)} | spark/options.py |
| Spark: `minPartitions` | 1 to {spark_options.PARTITIONS_MAX:,} | spark/options.py |
| Spark: `maxTriggerDelay` | 0 to {number(bounds.SECONDS_MAX)} s | spark/options.py |
| Spark: `timeout` | above 0, below 1,000,000 s | spark/options.py |
| Spark: `sinkId` | {spark_options.SINK_LENGTH_MAX} printable characters | spark/options.py |
| Spark: `batch` | 0 to {number(staging.BATCH_MAX)} | spark/options.py |
"""  # noqa: E501  # rows of tables


if __name__ == "__main__":
    PAGE.write_text(page())
