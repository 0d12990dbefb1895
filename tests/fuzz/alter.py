"""Altered bytes: flipped, overwritten, cut, spliced, and with the checksums of frames made right again."""

from __future__ import annotations

from google_crc32c import value
from hypothesis import strategies as st

from headpond.wire.frame import HEADER, HEADER_BYTES, OVERHEAD_BYTES, TRAILER

WORDS = [
    bytes(8),
    b"\xff" * 8,
    b"\xff\xff\xff\x7f",
    b"\x00\x00\x00\x80",
    b"\x01",
    b"\x00",
    b"\xff",
    b"\x10\x00",
]
KINDS = ["flip", "word", "cut", "splice", "insert", "remove"]
Change = tuple[str, int, int, bytes]
"""What is done, where, with what number and with which bytes."""


def alter(data: bytes, changes: list[Change], pool: list[bytes]) -> bytes:
    """The data with these changes; what is spliced comes from the pool."""
    altered = bytearray(data)
    for kind, first, second, word in changes:
        at = first % (len(altered) + 1)
        if kind == "flip" and at < len(altered):
            altered[at] ^= 1 << second % 8
        elif kind == "word":
            altered[at : at + len(word)] = word
        elif kind == "cut":
            del altered[at:]
        elif kind == "splice":
            other = pool[second % len(pool)]
            altered[at:] = other[second % (len(other) + 1) :]
        elif kind == "insert":
            altered[at:at] = word
        elif kind == "remove":
            del altered[at : at + second % 16]
    return bytes(altered)


def mutations(pool: list[bytes]) -> st.SearchStrategy[bytes]:
    """One of the pool with one to four changes."""
    change = st.tuples(
        st.sampled_from(KINDS), st.integers(0, 2**20), st.integers(0, 2**20), st.sampled_from(WORDS)
    )
    changes = st.lists(change, min_size=1, max_size=4)
    return st.builds(lambda data, done: alter(data, done, pool), st.sampled_from(pool), changes)


def with_checksums(stream: bytes) -> bytes:
    """The frames of a stream with the right checksum each, as far as their headers lead."""
    repaired, at = bytearray(stream), 0
    while at + OVERHEAD_BYTES <= len(repaired):
        end = at + HEADER_BYTES + HEADER.unpack_from(repaired, at)[3]
        if end + TRAILER.size > len(repaired):
            break
        TRAILER.pack_into(repaired, end, value(bytes(repaired[at:end])))
        at = end + TRAILER.size
    return bytes(repaired)
