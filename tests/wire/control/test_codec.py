"""Every message of the conversation decodes to what was sent; an undecodable body is a BadFrame."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headpond.model.errors import CATALOGUE, BadFrame, Gap, HeadpondError
from headpond.wire.control.catalog import ShardInfo, TopicInfo
from headpond.wire.control.codec import CONTROL_TYPES, decode_control, encode_control, read_result
from headpond.wire.control.greeting import Error, Ping
from headpond.wire.control.operation import Control
from headpond.wire.frame import CONTROL_BYTES_MAX, FrameType, decode_at
from tests.wire.samples import MESSAGES

TYPES = sorted(CONTROL_TYPES.values())


def body_of(message: Control) -> tuple[int, bytes]:
    frame = decode_at(encode_control(message), 0, CONTROL_BYTES_MAX)
    assert frame is not None
    return frame.type, frame.body


def plain(message: Control) -> list[Any]:
    """A message's fields as an older or newer peer would see them."""
    decoded: list[Any] = msgspec.msgpack.decode(body_of(message)[1])
    return decoded


@pytest.mark.parametrize("message", MESSAGES, ids=repr)
def test_every_message_is_read_back_as_sent(message: Control) -> None:
    assert decode_control(*body_of(message)) == message


def test_the_samples_hold_every_kind_of_message() -> None:
    assert {type(message) for message in MESSAGES} == set(CONTROL_TYPES)


def test_every_conversation_type_from_16_has_one_message() -> None:
    assert [kind for kind in FrameType if kind >= 16 and kind not in (FrameType.STAGE, FrameType.PEER)] == TYPES


@pytest.mark.parametrize("message", MESSAGES, ids=repr)
def test_a_field_added_by_a_newer_peer_is_passed_over(message: Control) -> None:
    body = msgspec.msgpack.encode([*plain(message), "new", {"field": [1]}])
    assert decode_control(CONTROL_TYPES[type(message)], body) == message


def test_a_field_that_an_older_peer_does_not_send_has_its_default() -> None:
    assert decode_control(FrameType.ERROR, msgspec.msgpack.encode(["gap", "m", "h", True])) == Error(
        "gap", "m", "h", True
    )


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",  # never used in msgpack
        b"\x80",  # a map
        b"\x90",  # no fields
        b"\x9f" + b"\xc0" * 15,  # nulls
        b"\xdd\xff\xff\xff\xff",  # a claim of 2**32 - 1 items
        b"\x92\x91\x01\xa1\xff",  # a text that is not UTF-8
        b"\x92\x01" + b"\x91" * 100_000 + b"\xc0",  # nested too deep
    ],
    ids=["empty", "unused", "map", "no-fields", "nulls", "huge", "not-utf8", "deep"],
)
def test_an_unreadable_body_is_a_bad_frame(kind: FrameType, body: bytes) -> None:
    with pytest.raises(BadFrame, match=f"cannot decode a {kind.name} frame"):
        decode_control(kind, body)


def test_bytes_behind_a_message_are_a_bad_frame() -> None:
    with pytest.raises(BadFrame):
        decode_control(*body_of(Ping(1))[:1], body_of(Ping(1))[1] + b"\x00")


@pytest.mark.parametrize("code", sorted(CATALOGUE))
def test_an_error_of_the_catalogue_survives_the_wire(code: str) -> None:
    error = Error(code, "what happened", "what to do", False).as_exception()
    assert type(error) is CATALOGUE[code]
    assert (error.message, error.hint) == ("what happened", "what to do")


def test_an_error_of_a_newer_peer_keeps_its_code_in_the_text() -> None:
    error = Error("from-the-future", "what happened", "hint", False).as_exception()
    assert type(error) is HeadpondError
    assert "from-the-future" in str(error)
    assert not isinstance(error, Gap)


def test_a_response_gives_back_the_struct_it_was_made_from() -> None:
    info = TopicInfo("orders", b"u" * 16, 2, 5, "sync", None, [ShardInfo(0, 0, 0, 9, 100, [(3, 4)])])
    result = msgspec.msgpack.decode(msgspec.msgpack.encode(info))
    assert read_result(result, TopicInfo) == info
    assert read_result([result], list[TopicInfo]) == [info]
