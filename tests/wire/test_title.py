"""A title decodes unchanged; other bytes are a BadFrame."""

from __future__ import annotations

import msgspec
import pytest

from headpond.model.errors import BadFrame
from headpond.model.identity import SHARD_POWER_MAX
from headpond.wire.title import Predecessor, Title, decode_title, encode_title

BLOCK = bytes(range(16))
TITLE = Title(
    "default/default/default/orders", b"u" * 16, "till-1", 7, b"schema", Predecessor(b"p" * 16, {0: 4, 3: 9})
)


@pytest.mark.parametrize("title", [TITLE, Title("orders", b"u" * 16)])
@pytest.mark.parametrize("power", [0, SHARD_POWER_MAX])
def test_a_title_is_read_back_as_written(title: Title, power: int) -> None:
    assert decode_title(encode_title(BLOCK, power, title)) == (BLOCK, power, title)


def test_the_first_seventeen_bytes_are_block_and_shard_power() -> None:
    assert encode_title(BLOCK, 5, TITLE)[:17] == BLOCK + b"\x05"


def test_a_field_added_by_a_newer_peer_is_passed_over() -> None:
    title = Title("orders", b"u" * 16)
    body = BLOCK + b"\x00" + msgspec.msgpack.encode([*msgspec.structs.astuple(title), "new"])
    assert decode_title(body)[2] == title


@pytest.mark.parametrize("length", range(18))
def test_a_title_cut_short_is_a_bad_frame(length: int) -> None:
    with pytest.raises(BadFrame, match="too short"):
        decode_title(encode_title(BLOCK, 0, TITLE)[:length])


def test_a_shard_power_above_the_limit_is_a_bad_frame() -> None:
    with pytest.raises(BadFrame, match="shard power 13"):
        decode_title(BLOCK + b"\x0d" + msgspec.msgpack.encode(TITLE))


@pytest.mark.parametrize(
    "rest",
    [
        b"\xc1",
        b"\x80",
        b"\x91\xa1a",  # no uuid
        b"\x92\x01\xc4\x00",  # a topic that is a number
        b"\x92\xa1\xff\xc4\x00",  # a topic that is not UTF-8
        msgspec.msgpack.encode(TITLE) + b"\x00",
        b"\x97" + msgspec.msgpack.encode(TITLE)[1:] + b"\x91" * 50_000 + b"\xc0",
    ],
)
def test_bytes_that_are_no_title_are_a_bad_frame(rest: bytes) -> None:
    with pytest.raises(BadFrame, match="cannot be read"):
        decode_title(BLOCK + b"\x00" + rest)
