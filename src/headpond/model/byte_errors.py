"""The entries of the catalogue that are about bytes: frames, segments and what became of them."""

from __future__ import annotations

from headpond.model.error import HeadpondError


class BadFrame(HeadpondError):
    """The bytes on a connection or in a file are not a Headpond frame.

    Usually another protocol speaks to this port (a browser, a TLS client), or a file is not one of ours.
    """

    code = "bad-frame"
    default_hint = "Check that the URL is a Headpond node's and that both sides agree on TLS."


class BadChecksum(BadFrame):
    """A frame arrived whole, but its crc32c does not match its bytes: it was altered on the way."""

    code = "bad-checksum"
    default_hint = "The frame was altered in memory, on the network or on disk; the sender may try again."
    retryable = True


class FrameTooLarge(BadFrame):
    """A frame's header claims more bytes than the limit; nothing was allocated for it."""

    code = "frame-too-large"
    default_hint = "Send smaller segments; the node's limit is in its welcome and in `limits` of its settings."


class UnknownFrame(BadFrame):
    """A frame's type is none that this version knows in this place."""

    code = "unknown-frame"
    default_hint = "Update the older of the two sides, or check that the peer speaks Headpond."


class BadSegment(HeadpondError):
    """A segment is not a valid Arrow record batch of its topic's columns."""

    code = "bad-segment"
    default_hint = "Build segments with the client library, or see docs/protocol.md for the two segment forms."


class SegmentTooLarge(HeadpondError):
    """A segment, or one message alone, is larger than a segment may be."""

    code = "segment-too-large"
    default_hint = "A segment holds at most 8 MiB; keep large objects elsewhere and send a reference."


class SchemaMismatch(HeadpondError):
    """Rows do not have the columns that their topic asks for."""

    code = "schema-mismatch"
    default_hint = "Compare the columns named in the message with `headpond topic show TOPIC`."


class Damaged(HeadpondError):
    """Stored entries failed their checksum or are missing. They are reported by range and never served."""

    code = "damaged"
    default_hint = (
        "Run `headpond inspect` on the file named; restore it from a copy or a peer, or read on behind it."
    )
