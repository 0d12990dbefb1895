"""On which line of a TOML file a key stands.

tomllib tells no lines. But a file cut off behind any line either is TOML or is not, and the first cut with
which a key is there ends with its value: so the parser itself finds the line, whatever form the file has.
"""

from __future__ import annotations

import tomllib
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any


def line_of(text: str, path: Sequence[str]) -> int | None:
    """The line (from 1) on which that key or table begins; its nearest parent's where it is not there."""
    lines = text.splitlines()
    for length in range(len(path), 0, -1):
        wanted = path[:length]

        def there(count: int, wanted: Sequence[str] = wanted) -> bool:
            return _has(_whole(lines, count)[1], wanted)

        ends = bisect_left(range(len(lines) + 1), True, key=there)
        if ends <= len(lines):
            return _whole(lines, ends - 1)[0] + 1
    return None


def _whole(lines: Sequence[str], count: int) -> tuple[int, dict[str, Any]]:
    """The longest beginning of at most so many lines that ends between two keys, and what it says."""
    while True:
        try:
            return count, tomllib.loads("\n".join(lines[:count]))
        except tomllib.TOMLDecodeError:
            count -= 1  # inside of a value that goes over several lines


def _has(said: Any, path: Sequence[str]) -> bool:
    for name in path:
        if not isinstance(said, dict) or name not in said:
            return False
        said = said[name]
    return True
