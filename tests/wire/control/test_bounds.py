"""Every field from outside has a bound in its type; a decoder refuses a value beyond it."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from headpond.model.bounds import check_fields
from headpond.model.errors import BadFrame, BadRequest
from headpond.wire.connection import NodeSide
from headpond.wire.control.catalog import CreateTopic
from headpond.wire.control.codec import Misfit, Operation, Request, decode_control, encode_control
from headpond.wire.control.consuming import Extend, GiveBack, Redrive, Settle, Subscribe
from headpond.wire.control.greeting import Hello, Ping
from headpond.wire.control.producing import Hole
from headpond.wire.frame import CONTROL_BYTES_MAX, FrameType, decode_at, encode


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
def test_a_value_beyond_its_bound_is_refused_while_decoding(message: Any) -> None:
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
def test_a_numbered_message_is_refused_by_its_number_and_names_the_field(
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
def test_the_client_refuses_an_invalid_message_before_sending(operation: Operation) -> None:
    with pytest.raises(BadRequest, match="cannot be"):
        check_fields(operation)
