"""A packet's bytes decode to the same packet, and other bytes to none."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headpond.pipes.machines.packet import NUMBERS_MAX, Kind, Packet, decode_packet, encode_packet, seal, unseal

numbers = st.integers(0, 2**63 - 1)
lists = st.lists(numbers, min_size=1, max_size=20)
ranges = st.builds(lambda first, count: range(first, first + count), st.integers(0, 2**60), st.integers(1, 50))
epochs = st.integers(0, 2**63 - 1)


@st.composite
def packets(draw: st.DrawFn) -> Packet:
    kind = draw(st.sampled_from(Kind))
    named = draw(st.one_of(lists, ranges))
    payloads = None
    if kind in (Kind.DATA, Kind.FETCHED):
        payloads = draw(st.lists(st.binary(max_size=8), min_size=len(named), max_size=len(named)))
    return Packet(kind, draw(epochs), draw(epochs), named, payloads, draw(st.integers(0, 15)))


@given(packets())
def test_a_packet_comes_out_as_it_went_in(packet: Packet) -> None:
    assert decode_packet(encode_packet(packet)) == packet


@given(packets(), st.data())
def test_a_cut_packet_is_none(packet: Packet, data: st.DataObject) -> None:
    encoded = encode_packet(packet)
    assert decode_packet(encoded[: data.draw(st.integers(0, len(encoded) - 1))]) is None


GOOD: list[object] = [int(Kind.DATA), 0, 1, 0, 5, 2, [b"a", b"b"]]


def changed(place: int, value: object) -> bytes:
    fields = list(GOOD)
    fields[place] = value
    return msgspec.msgpack.encode(fields)


def test_the_fields_are_as_documented() -> None:
    assert decode_packet(msgspec.msgpack.encode(GOOD)) == Packet(Kind.DATA, 1, 0, range(5, 7), [b"a", b"b"])


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (0, 0),
        (0, 99),
        (1, -1),
        (1, 16),
        (2, -1),
        (2, 2**64 - 1),
        (3, -1),
        (3, "x"),
        (4, -1),
        (4, 2**63 - 2),
        (5, 3),
        (5, 10**12),
        (5, -1),
        (5, [5, 6]),
        (5, [-1, 6]),
        (6, None),
        (6, [b"a"]),
        (6, [b"a", 7]),
        (6, [b"a", [1, 2]]),
        (6, [b"a", [1, -2, b"x"]]),
        (6, [b"a", ["e", 2, b"x"]]),
    ],
)
def test_a_field_that_cannot_be_makes_it_none(place: int, value: object) -> None:
    assert decode_packet(changed(place, value)) is None


def test_a_claim_of_very_many_numbers_is_refused_unread() -> None:
    confirm = [int(Kind.CONFIRM), 0, 1, 1, 0, NUMBERS_MAX + 1, None]
    assert decode_packet(msgspec.msgpack.encode(confirm)) is None


def test_an_answer_names_at_least_one_number() -> None:
    assert decode_packet(msgspec.msgpack.encode([int(Kind.PROGRESS), 0, 1, 1, 0, 0, None])) is None


def test_deep_nesting_is_none() -> None:
    nested: object = b"x"
    for number in range(16):
        nested = [1, number, nested]
    assert decode_packet(changed(6, [b"a", nested])) is None
    bomb = b"\x97\x01\x00\x01\x00\x00\x01" + b"\x91" * 100_000
    assert decode_packet(bomb) is None


def test_an_envelope_travels_as_a_payload() -> None:
    sealed = seal(3, range(7, 9), [b"a", b"b"])
    packet = decode_packet(encode_packet(Packet(Kind.DATA, 1, 0, range(2), sealed)))
    assert packet is not None
    runs, malformed = unseal(packet.payloads or ())
    assert [(run.epoch, *run.numbers, *run.payloads) for run in runs] == [(3, 7, 8, b"a", b"b")]
    assert malformed == 0


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 99), st.binary(max_size=2)), max_size=20))
def test_envelopes_give_back_every_message_in_order(messages: list[tuple[int, int, bytes]]) -> None:
    runs, malformed = unseal(messages)
    opened = [(run.epoch, *pair) for run in runs for pair in zip(run.numbers, run.payloads, strict=True)]
    assert (opened, malformed) == (messages, 0)


@pytest.mark.parametrize(
    "wrong",
    [
        b"x",
        5,
        (1, 2),
        (1, 2, 3, 4),
        ("1", 2, b"x"),
        (1, None, b"x"),
        (1, -1, b""),
        (1, 2**63, b""),
        (-1, 0, b""),
        (2**63, 0, b""),
    ],
)
def test_a_payload_without_an_envelope_is_counted_and_the_others_pass(wrong: object) -> None:
    runs, malformed = unseal([(1, 0, b"a"), wrong, (1, 1, b"b")])
    assert malformed == 1
    assert [list(run.payloads) for run in runs] == [[b"a", b"b"]]


@pytest.mark.parametrize("depth", range(4))
def test_where_the_pipes_are_known_a_payload_comes_in_an_envelope_for_each_over_its_layer(depth: int) -> None:
    payload: object = b"x"
    for _ in range(depth):
        payload = (1, 0, payload)
    for layer in range(3):
        data = encode_packet(Packet(Kind.DATA, 1, 0, range(1), [payload], layer))
        assert decode_packet(data) is not None
        assert (decode_packet(data, pipes=3) is not None) == (depth == 2 - layer)
