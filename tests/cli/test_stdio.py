"""Lines are cut from blocks as they stand, wherever the blocks are cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headpond.cli.stdio import LineCutter


def cut(blocks: list[bytes], bytes_max: int = 1000) -> tuple[list[bytes], list[int]]:
    cutter = LineCutter(bytes_max)
    lines = [line for block in blocks for line in cutter.feed(block)]
    return lines + cutter.finish(), cutter.take_too_long()


def expected_lines(data: bytes) -> list[bytes]:
    lines = data.split(b"\n")
    return lines[:-1] if lines[-1] == b"" else lines


@given(st.lists(st.text("a\n\r", max_size=12).map(str.encode), max_size=12))
def test_lines_do_not_depend_on_the_borders_of_blocks(blocks: list[bytes]) -> None:
    assert cut(blocks) == (expected_lines(b"".join(blocks)), [])


@given(st.lists(st.text("ab\n", max_size=9).map(str.encode), max_size=12), st.integers(0, 5))
def test_lines_over_the_limit_are_dropped_and_numbered(blocks: list[bytes], bytes_max: int) -> None:
    lines = expected_lines(b"".join(blocks))
    kept = [line for line in lines if len(line) <= bytes_max]
    numbers = [number for number, line in enumerate(lines, 1) if len(line) > bytes_max]
    assert cut(blocks, bytes_max) == (kept, numbers)


def test_empty_lines_are_lines_and_the_last_needs_no_newline() -> None:
    assert cut([b"\n\na\n\nb"]) == ([b"", b"", b"a", b"", b"b"], [])


def test_an_endless_line_does_not_fill_the_memory() -> None:
    cutter = LineCutter(bytes_max=10)
    for _ in range(1000):
        assert cutter.feed(b"x" * 100) == []
        assert sum(map(len, cutter._rest)) <= 10
    assert cutter.feed(b"\nok\n") == [b"ok"]
    assert cutter.take_too_long() == [1]
    assert cutter.take_too_long() == []
