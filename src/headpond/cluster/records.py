"""The bytes of a record in the stream. Version 1.

A record is one RECORD frame (wire/frame.py), so it has a checksum. Its body, little endian::

    version u8 | kind u8 | - u16 | chain u32 | epoch u64 | number u64 | content

``chain`` is the crc32c of all valid records before this one, each whole: a stream that lost or changed a record
is noticed. ``number`` counts the operations before this record. The content of OPS is operations, each::

    kind u8 | path length u16 | new path length u16 | offset u64 | data length u32 | path | new path | data

The content of EPOCH is an ``ActiveMember`` as msgpack; BEAT and RELEASE have none.

A record is *void* if its epoch is lower than that of a record before it, or if it does not follow the last
valid record of its epoch. Every member passes over it, and it is no part of the chain. Such records come about
when a member has two records on the way and another member's record takes the place of the first: the second
finds the stream's end where it expects it. A member that was replaced writes nothing again; the active one
sends both again.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

import msgspec
from google_crc32c import extend

from headpond.model.bounds import UNDECODABLE
from headpond.model.errors import BadFrame
from headpond.wire.frame import OVERHEAD_BYTES, FrameType, decode_at, encode

VERSION = 1
SHARD_CLUSTER = 4
HEAD = struct.Struct("<BBHIQQ")
OP = struct.Struct("<BHHQI")
RECORD_OVERHEAD_BYTES = OVERHEAD_BYTES + HEAD.size
RECORD_BYTES_MAX = 512 * 1024
"""Larger records gain nothing, and a server takes a megabyte by default."""
BODY_BYTES_MAX = 1024 * 1024


class Kind(IntEnum):
    OPS = 1
    EPOCH = 2
    """A member becomes the active one."""
    BEAT = 3
    """The active member has nothing to write, and is alive."""
    RELEASE = 4
    """The active member stopped cleanly, or was asked to let another one take over."""


class OpKind(IntEnum):
    CREATE = 1
    WRITE = 2
    TRUNCATE = 3
    RENAME = 4
    REMOVE = 5
    REMOVE_TREE = 6


class Op(NamedTuple):
    kind: int
    path: str
    new_path: str
    offset: int
    """The size, in TRUNCATE."""
    data: bytes | memoryview


class ActiveMember(msgspec.Struct, frozen=True, forbid_unknown_fields=False):
    """Who became active, and where its clients reach it."""

    member: str
    url: str
    http: str = ""


class Record(NamedTuple):
    kind: int
    chain: int
    epoch: int
    number: int
    content: memoryview

    def ops(self) -> Iterator[Op]:
        """``BadFrame`` if they do not fit together."""
        at, content = 0, self.content
        try:
            while at < len(content):
                kind, length, new_length, offset, size = OP.unpack_from(content, at)
                at += OP.size
                path = str(content[at : at + length], "utf-8")
                at += length
                new_path = str(content[at : at + new_length], "utf-8")
                at += new_length
                data = content[at : at + size]
                if len(data) != size or kind not in OpKind.__members__.values():
                    raise BadFrame("an operation of the stream is not whole")
                yield Op(kind, path, new_path, offset, data)
                at += size
        except (struct.error, UnicodeDecodeError) as error:
            raise BadFrame(f"an operation of the stream cannot be read: {error}") from error

    def active(self) -> ActiveMember:
        """The content of EPOCH."""
        try:
            return msgspec.msgpack.decode(self.content, type=ActiveMember)
        except UNDECODABLE as error:
            raise BadFrame(f"an EPOCH record cannot be read: {error}") from error


def encode_op(kind: int, path: str, new_path: str = "", offset: int = 0, size: int = 0) -> bytes:
    """An operation without its data, which follows it."""
    first, second = path.encode(), new_path.encode()
    return OP.pack(kind, len(first), len(second), offset, size) + first + second


def encode_record(kind: int, chain: int, epoch: int, number: int, content: bytes) -> bytes:
    head = HEAD.pack(VERSION, kind, 0, chain, epoch, number)
    return encode(FrameType.RECORD, head + content, shard=SHARD_CLUSTER)


def decode_record(raw: bytes) -> Record:
    """``BadFrame`` if the bytes are no record, or were altered."""
    frame = decode_at(raw, 0, BODY_BYTES_MAX)
    if frame is None or frame.type != FrameType.RECORD or frame.shard != SHARD_CLUSTER:
        raise BadFrame("not a record of a cluster's stream")
    if len(raw) != OVERHEAD_BYTES + len(frame.body) or len(frame.body) < HEAD.size:
        raise BadFrame("a record of the stream has a wrong length")
    version, kind, _, chain, epoch, number = HEAD.unpack_from(frame.body)
    if version != VERSION or kind not in Kind.__members__.values():
        raise BadFrame(f"a record of the stream has version {version} and kind {kind}, which are unknown")
    return Record(kind, chain, epoch, number, memoryview(frame.body)[HEAD.size :])


def extend_chain(chain: int, raw: bytes) -> int:
    return int(extend(chain, raw))
