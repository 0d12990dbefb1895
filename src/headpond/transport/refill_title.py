"""What a refill file says of itself, read without the rest of it."""

from __future__ import annotations

from headpond.files.disk import Disk
from headpond.model.errors import BadFrame
from headpond.wire.frame import (
    FILE_BODY_BYTES_MAX,
    HEADER_BYTES,
    TITLE_BYTES_MAX,
    TRAILER,
    FrameType,
    decode_at,
)
from headpond.wire.title import Title, decode_title


def read_title(disk: Disk, path: str) -> tuple[bytes, Title] | None:
    """Block and title; None if they cannot be read."""
    try:
        file = disk.open(path)
    except FileNotFoundError:
        return None
    try:
        data = file.read_at(0, TITLE_BYTES_MAX + HEADER_BYTES + TRAILER.size)
    finally:
        file.close()
    try:
        frame = decode_at(data, 0, FILE_BODY_BYTES_MAX)
        if frame is None or frame.type != FrameType.TITLE:
            return None
        block, _, title = decode_title(frame.body)
    except BadFrame:
        return None
    return block, title
