"""The line of a key, in every form that TOML has for it."""

from __future__ import annotations

import pytest

from headpond.spark.pipeline.faults import line_of

FILE = '''\
name = "a"

# a comment
[sources.orders]
topic = "orders"

[steps.one]
sql = """
  select *
  from orders
"""
from = "orders"   # behind a text of several lines

[steps.two]
dedup = { by = "id", within = "5m" }

[sinks]
in.topic = "dotted"

[sinks.out]
"quoted" = 1
list = [
  1,
]
last = 2
'''


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("name", 1),
        ("sources.orders", 4),
        ("sources.orders.topic", 5),
        ("steps.one.sql", 8),
        ("steps.one.from", 12),
        ("steps.two.dedup.within", 15),
        ("sinks.in.topic", 18),
        ("sinks.out.quoted", 21),
        ("sinks.out.list", 22),
        ("sinks.out.last", 25),
        ("sinks.out.missing", 20),
        ("sinks.other.missing", 17),
    ],
)
def test_a_key_is_found_on_the_line_it_begins(path: str, line: int) -> None:
    assert line_of(FILE, path.split(".")) == line


def test_nothing_of_the_path_has_no_line() -> None:
    assert line_of("a = 1", ["b", "c"]) is None
    assert line_of("", ["b"]) is None
