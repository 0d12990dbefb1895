"""Values that flatter nobody: distinct random bytes, because LZ4 folds away what repeats in a segment."""

from __future__ import annotations

import os

POOL = 50_000
"""Programs take them in turn; a segment has fewer."""


def values_of(size: int, count: int = POOL) -> list[bytes]:
    data = os.urandom(size * count)
    return [data[at : at + size] for at in range(0, len(data), size)]
