"""Every field that comes from outside has a bound in its type: what is beyond it is refused when decoded."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from penstock.model.errors import BadFrame, BadRequest
from penstock.wire.connection import FROM_CLIENT, FROM_NODE, NodeSide
from penstock.wire.control import (
    CONTROL_TYPES,
    CreateTopic,
    Extend,
    GiveBack,
    Hole,
    Misfit,
    Operation,
    Ping,
    Redrive,
    Request,
    Settle,
    Subscribe,
    check_fields,
    decode_control,
    encode_control,
)
from penstock.wire.following import CopyApplied, CopyOpened, FollowedSubscription, Settlements, WholeSegments
from penstock.wire.frame import CONTROL_BYTES_MAX, FrameType, decode_at, encode
from penstock.wire.greeting import Hello
from penstock.wire.peering import Admitted, FeedOpened, Followed, Heads
from penstock.wire.title import Title

FRAMES = [
    kind for kind, type_ in CONTROL_TYPES.items() if {type_} & ({FrameType.HELLO, *FROM_CLIENT, *FROM_NODE})
]
PEER_ANSWERS: list[Any] = [
    *(Followed, Heads, FeedOpened, Admitted, FollowedSubscription, Settlements, CopyOpened, CopyApplied),
    WholeSegments,
]
"""What a node reads of another one's answers."""


def unbounded(kind: inspect.Type, path: str) -> Iterator[str]:
    """The parts of a type that a value of any size fits into."""
    if isinstance(kind, inspect.Metadata):
        yield from unbounded(kind.type, path)
    elif isinstance(kind, inspect.IntType | inspect.FloatType):
        low = kind.ge is not None or kind.gt is not None
        if not low or (kind.le is None and kind.lt is None):
            yield path
    elif isinstance(kind, inspect.StrType | inspect.BytesType):
        if kind.max_length is None:
            yield path
    elif isinstance(kind, inspect.ListType):
        if kind.max_length is None:
            yield path
        yield from unbounded(kind.item_type, f"{path}[]")
    elif isinstance(kind, inspect.DictType):
        if kind.max_length is None:
            yield path
        yield from unbounded(kind.key_type, f"{path} key")
        yield from unbounded(kind.value_type, f"{path} value")
    elif isinstance(kind, inspect.TupleType):
        for number, item in enumerate(kind.item_types):
            yield from unbounded(item, f"{path}[{number}]")
    elif isinstance(kind, inspect.UnionType):
        for each in kind.types:
            yield from unbounded(each, path)
    elif isinstance(kind, inspect.StructType):
        for field in kind.fields:
            yield from unbounded(field.type, f"{kind.cls.__name__}.{field.name}")
    elif not isinstance(kind, inspect.BoolType | inspect.NoneType):
        yield f"{path}: {kind!r:.80}"


@pytest.mark.parametrize(
    "kind", [*FRAMES, Title, *PEER_ANSWERS], ids=lambda kind: getattr(kind, "__name__", "tuple")
)
def test_every_field_has_a_bound(kind: Any) -> None:
    found = sorted(set(unbounded(inspect.type_info(kind), "it")))
    assert found == (["Response.result: AnyType()"] if kind.__name__ == "Response" else [])


def body_of(message: Any) -> tuple[int, bytes]:
    frame = decode_at(encode_control(message), 0, CONTROL_BYTES_MAX)
    assert frame is not None
    return frame.type, frame.body


BEYOND = [
    GiveBack(1, 0, [(0, 2**63)]),
    GiveBack(1, 4096, [(0, 1)]),
    GiveBack(1, 0, [(-1, 1)]),
    GiveBack(1, 0, [(0, 1)] * 16_385),
    GiveBack(2**64 - 1, 0, []),
    Extend(1, 0, [(0, 1)], -0.1),
    Extend(1, 0, [(0, 1)], math.nan),
    Extend(1, 0, [(0, 1)], math.inf),
    Extend(1, 0, [(0, 1)], 1e9),
    Hole(b"short", 0, 1),
    Hole(bytes(16), 0, 2**32),
    Hello([1], "x" * 5000),
    Hello([1] * 65, "x"),
]


@pytest.mark.parametrize("message", BEYOND, ids=lambda message: f"{message!r:.60}")
def test_what_is_beyond_a_bound_is_refused_as_it_is_decoded(message: Any) -> None:
    with pytest.raises(BadFrame, match="Expected"):
        decode_control(*body_of(message))


def asked(message: Any) -> object:
    """What a node's side makes of a message, once it has been greeted."""
    side = NodeSide(node="n", software="s", window_bytes_max=1)
    side.receive(encode_control(Hello([1], "client")))
    (event,) = side.receive(encode_control(message))
    (pong,) = side.receive(encode_control(Ping(7)))
    assert pong == Ping(7), "the conversation goes on"
    return event


@pytest.mark.parametrize(
    ("message", "number", "said"),
    [
        (Request(5, CreateTopic("t", 8192)), 5, "shards cannot be 8192: Expected `int` <= 4096"),
        (
            Request(6, CreateTopic("t", settings={"soft_ttl": math.nan})),
            6,
            "settings cannot be {'soft_ttl': nan}",
        ),
        (Request(7, Redrive("t", "s", [(0, 0, 2**63)])), 7, "entries cannot be"),
        (Subscribe(8, "t", "s", "unique", "resilient", "earliest", -1), 8, "credit_bytes cannot be -1"),
        (Settle(9, 1, 0, nacked=[(0, -1.0)]), 9, "nacked cannot be [[0, -1.0]]"),
    ],
)
def test_what_has_a_number_is_refused_by_it_and_the_field_is_named(
    message: Any, number: int, said: str
) -> None:
    misfit = asked(message)
    assert isinstance(misfit, Misfit)
    assert (misfit.kind, misfit.number) == (type(message), number)
    assert misfit.error.message.startswith(said)


def test_a_request_that_is_not_known_here_is_refused_by_its_number() -> None:
    body = msgspec.msgpack.encode([3, ["from_the_future", 1]])
    side = NodeSide(node="n", software="s", window_bytes_max=1)
    side.receive(encode_control(Hello([1], "client")))
    (misfit,) = side.receive(encode(FrameType.REQUEST, body))
    assert isinstance(misfit, Misfit) and misfit.number == 3


@pytest.mark.parametrize(
    "operation",
    [
        CreateTopic("t", 0),
        CreateTopic("x" * 5000),
        CreateTopic("t", schema="text"),  # type: ignore[arg-type]
        CreateTopic("t", settings={"a": object()}),  # type: ignore[dict-item]
    ],
    ids=lambda operation: f"{operation!r:.60}",
)
def test_a_program_is_told_by_its_own_client_before_anything_is_sent(operation: Operation) -> None:
    with pytest.raises(BadRequest, match="cannot be"):
        check_fields(operation)
