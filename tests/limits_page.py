"""docs/limits.md, from the types that hold what comes from outside: ``python -m tests.limits_page`` writes it.

A field whose type has no bound is in ``unbounded``, which a test wants to be empty (tests/test_limits_page.py).
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec
from litestar.params import KwargDefinition

import headpond.model.bounds
import headpond.model.policy
from headpond.api import bodies, gate
from headpond.api.app import make_app
from headpond.api.once import KEY_LENGTH_MAX
from headpond.model import entry_set, ledger
from headpond.model.topic_settings import SETTINGS
from headpond.node.core import (
    admission,
    asking,
    attachment,
    book,
    fetching,
    log,
    log_state,
    peer_source,
    producing,
    subscribing,
    tenancy_requests,
    tokens,
)
from headpond.node.settings import HttpLimits, Limits, LogSettings, Settings, StagingSettings
from headpond.transport import refill_index
from headpond.wire import frame
from headpond.wire.connection import FROM_CLIENT, FROM_NODE
from headpond.wire.control import CONTROL_TYPES, Operation, Request
from headpond.wire.following import CopyApplied, CopyOpened, FollowedSubscription, Settlements
from headpond.wire.frame import FrameType
from headpond.wire.greeting import Hello
from headpond.wire.peering import Admitted, FeedOpened, Followed, Heads
from headpond.wire.title import Title

PAGE = Path(__file__).parent.parent / "docs" / "limits.md"
PEER_ANSWERS: tuple[type[msgspec.Struct], ...] = (
    Followed,
    Heads,
    FeedOpened,
    Admitted,
    FollowedSubscription,
    Settlements,
    CopyOpened,
    CopyApplied,
)
FREE = {
    "Response.result": "plain data of at most 16 MiB, read by the type that the request expects",
    "Base64.base64": "8 MiB with its message",
}
"""Fields that have no bound of their own, and why they need none."""
RAW_BODIES = {
    "value": f"{bodies.PARTS_MAX:,} parts; 8 MiB with its message",
    "headers": "read once it is known to be short",
    "key": "8 MiB with its message",
    "id": "8 MiB with its message",
    "sent_at": "years 1 to 9999",
    "messages": f"{bodies.MESSAGES_MAX:,} messages",
}
"""What a request that sends messages holds is bounded as a whole."""


# --- types as text ------------------------------------------------------------------------------------


def meta_of(kind: Any) -> msgspec.Meta | None:
    return next((each for each in get_args(kind)[1:] if isinstance(each, msgspec.Meta)), None)


def kinds() -> dict[str, Any]:
    """The named types, in order."""
    found: dict[str, Any] = {}
    for module in (headpond.model.bounds, headpond.model.policy):
        for name, value in vars(module).items():
            if get_origin(value) in (Annotated, tuple, Union, types.UnionType) and name[0].isupper():
                found.setdefault(name, value)
    return found


def number(value: float) -> str:
    if isinstance(value, int) and value > 2**31:
        for off, shown in ((0, ""), (1, " - 1")):
            if (value + off).bit_count() == 1:
                return f"2^{(value + off).bit_length() - 1}{shown}"
    if isinstance(value, int) and value < -(2**31):
        return f"-{number(-value)}"
    return f"{value:,.10g}" if isinstance(value, float) else f"{value:,}"


def bound(kind: Any) -> str:
    """What a type lets in."""
    if get_origin(kind) is Annotated:
        base, meta = get_args(kind)[0], meta_of(kind)
        assert meta is not None
        if base in (int, float):
            low = number(meta.ge) if meta.ge is not None else f"above {number(meta.gt)}"  # type: ignore[arg-type]
            high = meta.le if meta.le is not None else meta.lt - 1  # type: ignore[operator]
            return f"{low} to {number(high)}" + (" s" if base is float and 1 < high < 1e12 else "")
        assert meta.max_length is not None
        unit = {str: "characters", bytes: "bytes"}.get(base)
        if unit is not None:
            exact = meta.min_length == meta.max_length
            return f"{'' if exact else 'at most '}{number(meta.max_length)} {unit}"
        return f"at most {number(meta.max_length)} {bound(base)}"
    if get_origin(kind) is list:
        return f"times {named(get_args(kind)[0])}"
    if get_origin(kind) is dict:
        key, value = get_args(kind)
        return f"times {named(key)}: {named(value)}"
    if get_origin(kind) is tuple:
        return f"({', '.join(map(named, get_args(kind)))})"
    if get_origin(kind) in (Union, types.UnionType):
        return " or ".join(named(each) for each in get_args(kind))
    plain = {bool: "yes or no", type(None): "nothing", int: "any number", float: "any number"}
    return plain.get(kind) or (kind.__name__ if isinstance(kind, type) else "any")


def named(kind: Any) -> str:
    """A type by its name, if it has one."""
    return next((name for name, each in kinds().items() if each == kind), None) or bound(kind)


def unbounded(kind: Any, path: str, seen: set[Any] | None = None) -> Iterator[str]:
    """The parts of a type that a value of any size fits into."""
    seen = set() if seen is None else seen
    meta = meta_of(kind) if get_origin(kind) is Annotated else None
    base = get_args(kind)[0] if meta is not None else kind
    if isinstance(base, type) and issubclass(base, msgspec.Struct):
        for field in msgspec.structs.fields(base) if base not in seen else ():
            yield from unbounded(field.type, f"{base.__name__}.{field.name}", seen | {base})
        return
    if base in (bool, type(None)):
        return
    if base in (int, float):
        if meta is None or None in (
            meta.ge if meta.ge is not None else meta.gt,
            meta.le if meta.le is not None else meta.lt,
        ):
            yield path
        return
    if base in (str, bytes) or get_origin(base) in (list, dict):
        if meta is None or meta.max_length is None:
            yield path
    elif get_origin(base) not in (tuple, Union, types.UnionType):
        yield path
    for each in get_args(base):
        yield from unbounded(each, path, seen)


def parts_of(kinds_: Iterable[Any]) -> list[type[msgspec.Struct]]:
    """Structs that stand inside of others, in the order in which they are met."""
    found: dict[type[msgspec.Struct], None] = {}

    def meet(kind: Any) -> None:
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            if kind not in found:
                found[kind] = None
                for field in msgspec.structs.fields(kind):
                    meet(field.type)
        else:
            for each in get_args(kind):
                meet(each)

    tops = list(kinds_)
    for top in tops:
        for field in msgspec.structs.fields(top):
            meet(field.type)
    return [each for each in found if each not in tops]


# --- tables -------------------------------------------------------------------------------------------


def table(heads: list[str], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


def fields_of(kind: type[msgspec.Struct], free: Callable[[str], str | None] = lambda path: None) -> str:
    """The fields of a struct, each with its kind."""
    told = []
    for field in msgspec.structs.fields(kind):
        shown = FREE.get(f"{kind.__name__}.{field.name}") or free(field.name) or named(field.type)
        told.append(f"`{field.name}` {shown}")
    return ", ".join(told) or "none"


def control_frames(sizes: Iterable[int]) -> list[type[msgspec.Struct]]:
    wanted = set(sizes)
    return [kind for kind, type_ in CONTROL_TYPES.items() if type_ in wanted]


def operations() -> dict[str, type[msgspec.Struct]]:
    return {str(kind.__struct_config__.tag): kind for kind in get_args(Operation)}


def http_parameters() -> Iterator[tuple[str, str, str]]:
    """Name, where it is and its bound, of every parameter of every route that is no text."""
    found: dict[tuple[str, str], set[str]] = {}
    for route in make_app(None).routes:
        for handler in getattr(route, "route_handlers", []):
            for name, field in handler.parsed_fn_signature.parameters.items():
                given = field.kwarg_definition
                if (
                    not isinstance(given, KwargDefinition)
                    or field.annotation is bool
                    or name in ("caller", "data")
                ):
                    continue
                if set(get_args(field.annotation) or [field.annotation]) & {int, float}:
                    low, high = given.ge, given.le
                    if high is None and given.lt is not None:
                        high = given.lt - 1
                    told = f"{number(low)} to {number(high)}" if None not in (low, high) else "unbounded"  # type: ignore[arg-type]
                    found.setdefault((name, told), set()).add(str(route.path).replace(":str", ""))
    for (name, told), paths in sorted(found.items()):
        yield f"`{name}`", ", ".join(sorted(f"`{path}`" for path in paths)), told


def http_bodies() -> list[type[msgspec.Struct]]:
    found: dict[type[msgspec.Struct], None] = {}
    for route in make_app(None).routes:
        for handler in getattr(route, "route_handlers", []):
            field = handler.parsed_fn_signature.parameters.get("data")
            if field is not None:
                kind = next(
                    each
                    for each in (get_args(field.annotation) or [field.annotation])
                    if each is not type(None)
                )
                found[kind] = None
    return [bodies.JsonBody, *found]


def exempt(kind: type[msgspec.Struct]) -> Callable[[str], str | None]:
    return RAW_BODIES.get if issubclass(kind, bodies.MessageBody) else (lambda name: None)


def kib(size: int) -> str:
    for unit, power in (("GiB", 3), ("MiB", 2), ("KiB", 1)):
        if size >= 1024**power and size % 1024**power == 0:
            return f"{size // 1024**power:,} {unit}"
    return f"{size:,} bytes"


def held() -> list[tuple[str, str, str]]:
    """What one client can make a node hold at a time."""
    requests = Limits().window_bytes // asking.REQUEST_COST_BYTES
    return [
        ("unanswered requests", f"{requests:,} (`limits.window_bytes`), then it is not read from", "asking.py"),
        ("requests that wait to read a log", f"{fetching.READS_MAX}; one reads at a time", "fetching.py"),
        ("questions that wait for topics to grow", f"{fetching.WATCHES_MAX}", "fetching.py"),
        ("the same, of links", f"{peer_source.WAITING_MAX}", "peer_source.py"),
        ("consumers", f"{subscribing.CONSUMERS_MAX:,}", "subscribing.py"),
        ("credit of a consumer", kib(attachment.CREDIT_BYTES_MAX), "attachment.py"),
        ("entries of a span or a settlement", "those that the log has, or the consumer holds", "settling.py"),
        ("blocks that its titles named", f"{producing.BLOCKS_MAX:,}; the oldest is forgotten", "producing.py"),
        ("holes of a block in a shard", f"{producing.HOLES_MAX:,}", "producing.py"),
        ("holes with nothing behind them, of a shard", f"{admission.DECLARED_MAX:,}", "admission.py"),
        ("blocks of which nothing is stored, of a shard", f"{book.ALONE_MAX:,}", "book.py"),
        ("producers with an account of forgotten blocks, of a shard", f"{book.FOLDED_MAX}", "book.py"),
        ("reasons that an account counts one by one", f"{ledger.REASONS_MAX}", "model/ledger.py"),
        ("a total of the ledger", number(ledger.COUNT_MAX), "model/ledger.py"),
        (
            "room for what the ledger notes of refused segments",
            f"as much as stored messages take, and {kib(log_state.TALLY_BYTES)}",
            "log.py",
        ),
        (
            "a span that a set of entries is built from",
            number(entry_set.SPAN_ENTRIES_MAX),
            "model/entry_set.py",
        ),
        ("tokens within reach of a tenant's admin", f"{tokens.REACHED_MAX:,}", "tokens.py"),
        (
            "tenants, products and components of a node",
            f"{tenancy_requests.PLACES_MAX:,}",
            "tenancy_requests.py",
        ),
    ]


def files() -> list[tuple[str, str, str]]:
    body = kib(frame.FILE_BODY_BYTES_MAX)
    return [
        ("any file of frames", f"a body of {body}, whose checksum holds", "wire/frame.py, files/recovery.py"),
        ("journals", "a record that cannot be read is reported; others count", "files/journal.py"),
        (
            "the head of a log file",
            f"marks and ledger take {kib(log.MARKS_BYTES_MAX)}: blocks that were silent for longest go first",
            "node/core/marks.py",
        ),
        ("claims of producers in it", f"sums are cut to {number(ledger.COUNT_MAX)}", "model/ledger.py"),
        (
            "segments in it",
            f"{body}, decoded within the limits of their form",
            "wire/segment.py, typed_record.py",
        ),
        (
            "refill files",
            f"numbers below 2^62, {refill_index.SEGMENTS_MAX:,} segments",
            "transport/refill_form.py, refill_index.py",
        ),
        ("the settings file", "TOML; every value as below, unknown names refused", "node/settings.py"),
    ]


def frames() -> Iterator[tuple[str, str, str]]:
    told = {
        FrameType.TITLE: "block (16 bytes), shard power (0 to 12), `Title`",
        FrameType.SEGMENT: "rows, which are counted and checked before they are stored",
        FrameType.SNAPSHOT: "what its decoder holds: `limits.connection_decoder_bytes`",
        FrameType.STAGE: "stage (16 bytes), rows; `[staging]` and the tenant's quotas",
        FrameType.PEER: "topic (16 bytes), a stored record",
    }
    for type_, size in FROM_CLIENT.items():
        if type_ in told:
            yield f"`{FrameType(type_).name}`", kib(size), told[FrameType(type_)]
    yield "all others", kib(frame.CONTROL_BYTES_MAX), "the messages below"


def setting_rows() -> Iterator[tuple[str, str]]:
    for setting in SETTINGS.values():
        if setting.words:
            told = ", ".join(setting.words)
        elif setting.kind in ("flag", "topic"):
            told = {"flag": "yes or no", "topic": "a topic's name, or nothing"}[setting.kind]
        else:
            told = f"{setting.shown(setting.low)} to {setting.shown(setting.high)}"
        yield f"`{setting.name}`", told + (", or none" if setting.liftable else "")


INTRODUCTION = """\
# What comes from outside, and its bounds

Every field that a node, a client or a file takes from outside, its bound, and where the bound is
checked. The page is generated from the types (`python -m tests.limits_page`); a field without a bound
fails a test.

A bound is checked while a message is decoded, before anything is built from it. A request, a
`SUBSCRIBE` or a `SETTLE` beyond a bound is refused by its number (`bad-request`, with the name of the
field); any other frame beyond a bound ends its connection (`bad-frame`). How much a tenant may have is
in [tenancy](tenancy.md), how much a node holds in [settings](settings.md).
"""
KINDS = """\
## Kinds of values

The tables below name these kinds. The last column is what holds beyond the type; it is checked where
the value is used."""
FRAMES = """\
## From a client: frames

The header holds type, shard (0 to 65,535), segment (0 to 2^32 - 1) and size. The size is checked
against the limit of the type before a byte of the body is kept (wire/frame.py)."""
PEERS = """\
## From another node

A node reads the answers of a node that it follows by these types, and then asks itself within the
bounds of requests."""
HTTP = f"""\
## Over HTTP

The first line and the headers take at most `http_limits.header_bytes`, which bounds every text in
them; an `Idempotency-Key` has {KEY_LENGTH_MAX} characters. A body takes at most {kib(gate.ADMIN_BODY_BYTES)},
one that sends messages `http_limits.body_bytes`. What is asked of the node has the bounds of requests
as well."""
INSIDE = "Values inside of these:"


def struct_table(
    first: str,
    structs: Iterable[tuple[str, type[msgspec.Struct]]],
    free: Callable[[type[msgspec.Struct]], Callable[[str], str | None]] = lambda kind: lambda name: None,
) -> str:
    return table([first, "fields"], ((name, fields_of(kind, free(kind))) for name, kind in structs))


def by_name(kinds_: Iterable[type[msgspec.Struct]]) -> list[tuple[str, type[msgspec.Struct]]]:
    return [(f"`{kind.__name__}`", kind) for kind in kinds_]


def page() -> str:
    told = [kind for kind in control_frames([FrameType.HELLO, *FROM_CLIENT]) if kind is not Request]
    answers = [kind for kind in control_frames([FrameType.WELCOME, *FROM_NODE]) if kind not in told]
    asked, http = operations(), http_bodies()
    inner = parts_of([Title, *told, *asked.values()])
    others = [each for each in parts_of([*answers, *PEER_ANSWERS]) if each not in inner]
    of_http = [each for each in parts_of(http) if each not in inner]
    sections: dict[str, type[msgspec.Struct]] = {"top": Settings}
    sections |= {"limits": Limits, "http_limits": HttpLimits, "log": LogSettings, "staging": StagingSettings}
    further = ((name, kind, meta_of(kind)) for name, kind in kinds().items())
    texts = [
        INTRODUCTION,
        KINDS,
        table(
            ["kind", "bound", "further"],
            ((name, bound(kind), (meta.description or "") if meta else "") for name, kind, meta in further),
        ),
        FRAMES,
        table(["frame", "size at most", "body"], frames()),
        struct_table("message", [("`Title`", Title), *by_name(told)]),
        "## From a client: requests",
        struct_table("request", [(f"`{tag}`", kind) for tag, kind in asked.items()]),
        INSIDE,
        struct_table("value", by_name(inner)),
        "## From a client: how much at a time",
        table(["what", "at most", "checked in (node/core)"], held()),
        PEERS,
        struct_table("answer", by_name(PEER_ANSWERS)),
        "## From a node, at a client",
        struct_table("message", by_name(answers)),
        "Values inside of these and of the answers above:",
        struct_table("value", by_name(others)),
        HTTP,
        table(["parameter", "of", "bound"], http_parameters()),
        struct_table("body", by_name(http), exempt),
        INSIDE,
        struct_table("value", by_name(of_http), exempt),
        "## Files",
        table(["file", "bound", "checked in"], files()),
        "## Settings of a node",
        struct_table("section", [(f"`{name}`", kind) for name, kind in sections.items()]),
        "## Settings of topics and tenants",
        table(["setting", "bound"], setting_rows()),
    ]
    return "\n\n".join(text.rstrip("\n") for text in texts) + "\n"


def all_unbounded() -> list[str]:
    """Every field of every door that a value of any size fits into."""
    tops: list[type[msgspec.Struct]] = [Title, Hello, *PEER_ANSWERS, Settings, *http_bodies()]
    tops += control_frames([*FROM_CLIENT, *FROM_NODE])
    found = {path for kind in tops for path in unbounded(kind, kind.__name__)}
    messages = {
        f"{kind.__name__}.{name}" for kind in (bodies.MessageBody, bodies.JsonBody) for name in RAW_BODIES
    }
    return sorted(found - FREE.keys() - messages)


if __name__ == "__main__":
    PAGE.write_text(page())
