"""A body is looked at before objects are made of it: what would be a million of them is refused first.

Objects made in one call hold up every client of the node, whichever thread makes them.
"""

from __future__ import annotations

import tracemalloc

import pytest

from headpond.model.errors import BadRequest
from headpond.node.http.bodies import JSON, NDJSON, RawMessage, Rows, read_body

MANY = 1_000_000
HEADERS = b",".join(b'"%x":""' % number for number in range(20_000))
BODIES = {
    "messages": (JSON, b'{"messages":[' + b"{}," * MANY + b"{}]}"),
    "fields": (JSON, b"{" + b",".join(b'"%x":0' % number for number in range(MANY)) + b"}"),
    "headers": (JSON, b'{"headers":{' + b",".join(b'"%x":""' % number for number in range(MANY)) + b"}}"),
    "headers of many messages": (
        JSON,
        b'{"messages":[' + b",".join([b'{"headers":{' + HEADERS + b"}}"] * 50) + b"]}",
    ),
    "blank lines": (NDJSON, b"\n" * (10 * MANY)),
    "lines": (NDJSON, b"{}\n" * (2 * MANY)),
}


@pytest.mark.parametrize(("media", "body"), BODIES.values(), ids=BODIES)
def test_a_body_of_too_many_objects_is_refused_before_they_are_decoded(media: str, body: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(BadRequest):
            read_body(media, body, RawMessage(), {})
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 50 * MANY, "bytes: a million objects take more"


def test_values_may_hold_many_braces() -> None:
    text = "{" * 15 + "}" * 15
    body = b'{"messages":[' + b",".join([b'{"value":"%s"}' % text.encode()] * 10_000) + b"]}"
    found = read_body(JSON, body, RawMessage(), {})
    assert isinstance(found, Rows) and len(found.values) == 10_000


def test_a_list_of_messages_stands_alone() -> None:
    with pytest.raises(BadRequest, match="other fields beside `messages`"):
        read_body(JSON, b'{"messages": [{}], "id": "a"}', RawMessage(), {})
    for body in (b'{"messages": null}', b'{"messages": 7}', b'{"messages": []}', b"[]", b"{}{}"):
        with pytest.raises(BadRequest):
            read_body(JSON, body, RawMessage(), {})
