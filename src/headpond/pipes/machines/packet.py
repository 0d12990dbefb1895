"""The packets between the two sides of a pipe, and their bytes.

A packet is a run: several numbers of one kind and one session, with a payload each where the kind carries any.
Numbers that follow each other are a ``range``. Machines never look into a payload; on a wire it is bytes, or an
envelope of another pipe around bytes.

On a wire a packet is one msgpack array::

    kind, layer, epoch, origin, first, numbers, payloads

``numbers`` is how many follow ``first`` (itself the first of them), or the list of all with ``first`` 0. For
bytes that do not decode to exactly this, with every size within its limit, ``decode_packet`` returns None;
the caller counts them, and the other side's timers send the packet again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from itertools import groupby, repeat
from operator import itemgetter
from typing import Annotated, Any, NamedTuple

import msgspec

from headpond.model.bounds import UNDECODABLE

NUMBERS_MAX = 1 << 16
"""How many numbers one packet may hold: a claim of more is refused before anything is made of it."""
NUMBER_MAX = (1 << 63) - 1
LAYERS_MAX = 16


class Kind(IntEnum):
    """The kinds of packets, and who sends each to whom."""

    DATA = 1
    """Messages. Sender to receiver, or to the storage of a stream."""
    CONFIRM = 2
    """These numbers arrived (or were processed). Back to the sender."""
    GAP = 3
    """These numbers are missing. Back to the sender."""
    PROGRESS = 4
    """Everything below the first number was passed on; the highest that came is below the second, and came so
    many µs ago. Back to the sender."""
    FLOOR = 5
    """Nothing below this number will come again. Sender to receiver."""
    PROBE = 6
    """Numbers up to here were sent: what is missing? Sender to receiver."""
    FETCH = 7
    """Send entries from this index, at most so many. Receiver to storage."""
    FETCHED = 8
    """Entries; none if there are none yet. Storage to receiver."""
    READ = 9
    """Which index was committed? Receiver to index storage."""
    POSITION = 10
    """This index was committed. Index storage to receiver."""
    COMMIT = 11
    """Keep this index. Receiver to index storage."""


class Packet(NamedTuple):
    kind: int
    epoch: int
    """The session of the sender whose numbers these are; an answer repeats it from its question."""
    origin: int
    """The session of the side that wrote an answer; 0 in what the sender says."""
    numbers: Sequence[int]
    payloads: Sequence[Any] | None = None
    layer: int = 0
    """Which pipe of a stack this belongs to; 0 is the innermost, next to the route."""


class Run(NamedTuple):
    """Messages passed on to the next worker. ``(epoch, number)`` names one of them for ever."""

    epoch: int
    numbers: Sequence[int]
    payloads: Sequence[Any]


def seal(epoch: int, numbers: Sequence[int], payloads: Sequence[Any]) -> list[Any]:
    """Envelopes: each message with its name, as one payload for the pipe beneath."""
    return list(zip(repeat(epoch, len(numbers)), numbers, payloads, strict=True))


def unseal(envelopes: Sequence[Any]) -> tuple[list[Run], int]:
    """The messages out of their envelopes, as runs of one session, and how many were no envelopes."""
    malformed = 0
    if not _are_envelopes(envelopes):
        whole = [each for each in envelopes if _is_envelope(each)]
        malformed = len(envelopes) - len(whole)
        envelopes = whole
    runs = []
    for epoch, group in groupby(envelopes, itemgetter(0)):
        _, numbers, payloads = zip(*group, strict=True)
        runs.append(Run(epoch, numbers, payloads))
    return runs, malformed


def cut(payloads: Sequence[Any], bytes_max: int) -> Iterator[slice]:
    """Cuts payloads into pieces of at most so many bytes; a larger payload is a piece by itself."""
    start = size = 0
    for at, payload in enumerate(payloads):
        length = payload_bytes(payload)
        if at > start and size + length > bytes_max:
            yield slice(start, at)
            start, size = at, 0
        size += length
    yield slice(start, len(payloads))


def payload_bytes(payload: Any) -> int:
    """The size of the bytes inside all envelopes of a payload."""
    while not isinstance(payload, bytes):
        payload = payload[2]
    return len(payload)


def _are_envelopes(envelopes: Sequence[Any]) -> bool:
    """The check of every one, at the speed of few calls."""
    if not set(map(type, envelopes)) <= {tuple, list} or not set(map(len, envelopes)) <= {3}:
        return False
    for place in (0, 1):
        named = list(map(itemgetter(place), envelopes))
        if not set(map(type, named)) <= {int} or (named and not 0 <= min(named) <= max(named) <= NUMBER_MAX):
            return False
    return True


def _is_envelope(each: Any) -> bool:
    if not isinstance(each, tuple | list) or len(each) != 3:
        return False
    return all(type(named) is int and 0 <= named <= NUMBER_MAX for named in each[:2])


# --- bytes ------------------------------------------------------------------------------------------


_Number = Annotated[int, msgspec.Meta(ge=0, le=NUMBER_MAX)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=NUMBERS_MAX)]
_Numbers = Annotated[list[_Number], msgspec.Meta(max_length=NUMBERS_MAX)]


class _PacketArray(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    kind: Kind
    layer: Annotated[int, msgspec.Meta(ge=0, lt=LAYERS_MAX)]
    epoch: _Number
    origin: _Number
    first: _Number
    numbers: _Count | _Numbers
    payloads: list[Any] | None


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_PacketArray)
_WITH_PAYLOADS = frozenset((Kind.DATA, Kind.FETCHED))


def encode_packet(packet: Packet) -> bytes:
    kind, epoch, origin, numbers, payloads, layer = packet
    carried = None if payloads is None else list(payloads)
    if isinstance(numbers, range) and numbers.step == 1:
        return _encoder.encode((kind, layer, epoch, origin, numbers.start, len(numbers), carried))
    return _encoder.encode((kind, layer, epoch, origin, 0, list(numbers), carried))


def decode_packet(data: bytes, pipes: int | None = None) -> Packet | None:
    """Returns the packet in ``data``, or None where there is none, for the caller to count.

    ``pipes`` is how many the route has, where that is known: then a payload must have one envelope per pipe
    over its layer, and the program gets bytes.
    """
    try:
        wire = _decoder.decode(data)
    except UNDECODABLE:
        return None
    numbers: Sequence[int]
    if isinstance(wire.numbers, list):
        numbers, fits = wire.numbers, wire.first == 0
    else:
        numbers = range(wire.first, wire.first + wire.numbers)
        fits = numbers.stop <= NUMBER_MAX
    if wire.kind not in _WITH_PAYLOADS:
        fits = fits and wire.payloads is None and len(numbers) > 0
    elif wire.payloads is None or len(wire.payloads) != len(numbers):
        fits = False
    else:
        fits = fits and _are_payloads(wire.payloads, wire.layer, pipes)
    return Packet(wire.kind, wire.epoch, wire.origin, numbers, wire.payloads, wire.layer) if fits else None


def _are_payloads(payloads: list[Any], layer: int, pipes: int | None) -> bool:
    """Whether each is bytes, in an envelope for each pipe over it; in any number where that is open."""
    depths = set(map(_depth, payloads))
    return None not in depths if pipes is None else depths <= {pipes - 1 - layer}


def _depth(payload: Any) -> int | None:
    """The envelopes around its bytes; None if there are no bytes in there."""
    for depth in range(LAYERS_MAX):
        if isinstance(payload, bytes):
            return depth
        if not _is_envelope(payload):
            return None
        payload = payload[2]
    return None
