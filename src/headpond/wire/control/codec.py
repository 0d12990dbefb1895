"""The table of conversation messages by frame type, and how a frame is encoded and decoded.

A new field goes to the end of its struct and has a default, so that an older peer can read a newer one.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, NamedTuple, TypeVar, get_args

import msgspec

from headpond.model.bounds import NUMBER_MAX, UNDECODABLE, Number, check_values
from headpond.model.errors import BadFrame, BadRequest, HeadpondError, LimitReached, WrongGroup
from headpond.wire.control.access import AccessOperation
from headpond.wire.control.backup import BackupOperation
from headpond.wire.control.catalog import CatalogOperation
from headpond.wire.control.consuming import (
    Credit,
    Deliver,
    Extend,
    GiveBack,
    Lost,
    Renew,
    Settle,
    Settled,
    Subscribe,
    Subscribed,
    SubscriptionOperation,
    Unsubscribe,
    Unsubscribed,
)
from headpond.wire.control.greeting import Error, Hello, Ping, Pong, Welcome
from headpond.wire.control.ledger import ShowLedger
from headpond.wire.control.links import PeerOperation
from headpond.wire.control.operation import Control, OperationOf
from headpond.wire.control.producing import Ack, BlockEnd, Hole, ProducerOperation
from headpond.wire.control.reading import Fetched, ReadingOperation
from headpond.wire.control.staging import StagingOperation
from headpond.wire.control.status import StatusOperation
from headpond.wire.frame import CONTROL_BYTES_MAX, RESPONSE_BYTES_MAX, FrameType, encode

PROTOCOL_VERSION = 1

Operation = (
    CatalogOperation
    | SubscriptionOperation
    | ReadingOperation
    | ProducerOperation
    | StagingOperation
    | AccessOperation
    | PeerOperation
    | StatusOperation
    | BackupOperation
    | ShowLedger
)


class Request(Control, frozen=True):
    number: Number
    operation: Operation


class Response(Control, frozen=True):
    """The answer to a request: plain data, which ``read_result`` converts to an ``*Info`` struct."""

    number: Number
    result: Any


_Kinds = tuple[type[Control], ...]
_CONSUMER_MESSAGES: _Kinds = (Subscribe, Unsubscribe, Credit, Settle, Extend, Renew, GiveBack)
CLIENT_MESSAGES: _Kinds = (Ping, Pong, Request, Hole, BlockEnd, *_CONSUMER_MESSAGES)
"""What a client may send after HELLO."""
_ANSWERS: _Kinds = (Response, Ack, Subscribed, Unsubscribed, Settled, Fetched)
NODE_MESSAGES: _Kinds = (Error, Ping, Pong, Deliver, Lost, *_ANSWERS)
"""What a node may send after WELCOME."""


def _frame_type(kind: type[Control]) -> FrameType:
    """The type with the message's name: BLOCK_END for ``BlockEnd``."""
    return FrameType[re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.__name__).upper()]


_ALL: set[type[Control]] = {Hello, Welcome, *CLIENT_MESSAGES, *NODE_MESSAGES}
CONTROL_TYPES = {kind: _frame_type(kind) for kind in sorted(_ALL, key=_frame_type)}

_encoder = msgspec.msgpack.Encoder()
_decoders: dict[int, msgspec.msgpack.Decoder[Any]] = {
    int(type_): msgspec.msgpack.Decoder(kind) for kind, type_ in CONTROL_TYPES.items()
}

Info = TypeVar("Info")


def encode_control(message: Control) -> bytes:
    """The frame of a message."""
    body = _encoder.encode(message)
    limit = RESPONSE_BYTES_MAX if type(message) is Response else CONTROL_BYTES_MAX
    if len(body) > limit:
        raise LimitReached(f"a {type(message).__name__} has {len(body):,} bytes; the limit is {limit:,}")
    return encode(CONTROL_TYPES[type(message)], body)


def encode_refusal(error: HeadpondError, *, request: int | None = None, consumer: int | None = None) -> bytes:
    """The ERROR frame for a request or a consumer."""
    successor = error.successor if isinstance(error, WrongGroup) else ""
    what = (error.code, error.message, error.hint, error.retryable)
    return encode_control(Error(*what, request, consumer, successor=successor))


def decode_control(frame_type: int, body: bytes) -> Control:
    """The message in a frame; raises ``BadFrame`` if the body cannot be decoded."""
    try:
        message: Control = _decoders[frame_type].decode(body)
    except UNDECODABLE as error:
        raise BadFrame(f"cannot decode a {FrameType(frame_type).name} frame: {error}") from error
    return message


class Misfit(NamedTuple):
    """A message with an invalid field. The node refuses it by its number and keeps the connection."""

    kind: type[Control]
    number: int
    """The number of the request or the consumer."""
    error: BadRequest


_ANSWERED: dict[int, type[Control]] = {int(CONTROL_TYPES[kind]): kind for kind in (Request, Subscribe, Settle)}
"""Messages that the node can refuse by the number in their first field, and keep the connection."""
_OPERATIONS: dict[Any, type[Control]] = {kind.__struct_config__.tag: kind for kind in get_args(Operation)}


def read_misfit(frame_type: int, body: bytes) -> Misfit | None:
    """The error in a body that ``decode_control`` could not decode; None if it has no number to refuse by."""
    kind = _ANSWERED.get(frame_type)
    try:
        match msgspec.msgpack.decode(body):
            case [int(number), *_] as values if kind is not None and 0 <= number <= NUMBER_MAX:
                return Misfit(kind, number, _misfit_error(kind, values))
    except (*UNDECODABLE, TypeError):
        pass
    return None


def _misfit_error(kind: type[Control], values: list[Any]) -> BadRequest:
    match values:
        case [_, [tag, *fields], *_] if kind is Request and tag in _OPERATIONS:
            kind, values = _OPERATIONS[tag], fields
    try:
        check_values(kind, values)
    except BadRequest as error:
        return error
    return BadRequest(f"a {kind.__name__} has too few fields, or this node does not know it")


def read_result(result: Any, kind: type[Info]) -> Info:
    """A response's plain data as one of the ``*Info`` structs (or a list of them)."""
    return msgspec.convert(result, kind)


def read_answer(operation: OperationOf[Info], answer: Any) -> Info:
    """The plain data that answers an operation, as the type that the operation declares."""
    found: Info = msgspec.convert(answer, answer_type(type(operation)))
    return found


@cache
def answer_type(kind: Any) -> Any:
    """The type of the answer that a kind of operation declares."""
    return get_args(kind.__orig_bases__[0])[0]
