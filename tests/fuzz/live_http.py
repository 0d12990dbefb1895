"""Requests made from the OpenAPI schema against a real node: none may make it fail.

Names of topics, subscriptions and so on are often ones that exist, so that requests get past the first look-up.
Streams of events do not end by themselves and have other tests.
"""

from __future__ import annotations

import copy
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import hypothesis
import schemathesis
from hypothesis import HealthCheck, given

from headpond.node.http.app import make_app
from tests.node.http.nodes import HttpNode

KNOWN: dict[str, list[str]] = {
    "topic": ["plain", "typed", "state", "acme:shop:till:orders", "plain.dead"],
    "subscription": ["s", "r", "k"],
    "place": ["acme", "acme:shop", "acme:shop:till", "default"],
    "producer": ["p", ""],
    "writer": ["acme/w"],
    "code": ["gap"],
}
WAITS = {"wait": 0.05, "interval": 0.1}
COLUMNS = [{"name": "n", "type": "int64"}, {"name": "at", "type": "timestamp[us, UTC]"}]
FURNITURE: list[tuple[str, dict[str, Any]]] = [
    ("/v1/topics", {"topic": "plain", "shards": 2, "exist_ok": True}),
    ("/v1/topics", {"topic": "typed", "schema": COLUMNS, "exist_ok": True}),
    ("/v1/topics", {"topic": "state", "state": True, "exist_ok": True}),
    ("/v1/topics", {"topic": "acme/shop/till/orders", "exist_ok": True}),
    ("/v1/topics/plain/subscriptions", {"subscription": "s", "kind": "shared", "exist_ok": True}),
    ("/v1/topics/plain/subscriptions", {"subscription": "r", "mode": "resilient", "exist_ok": True}),
    ("/v1/topics/plain/messages", {"messages": [{"value": "a"}] * 10}),
]


def schema_to_walk() -> dict[str, Any]:
    """The schema of the node, with known names beside any text, short waits, and without streams."""
    whole: dict[str, Any] = copy.deepcopy(make_app(None).openapi_schema.to_schema())
    for path in [path for path in whole["paths"] if path.endswith("/events")]:
        del whole["paths"][path]
    for operation in [each for operations in whole["paths"].values() for each in operations.values()]:
        for parameter in operation.get("parameters", ()):
            name, kind = parameter["name"], parameter["schema"]
            if name in KNOWN:
                any_text = {"type": "string", "minLength": 1, "pattern": "^[^/]+$"}
                parameter["schema"] = {"anyOf": [*[{"enum": KNOWN[name]}] * 3, any_text]}
            elif name in WAITS:
                parameter["schema"] = {**kind, "maximum": WAITS[name]}
    return whole


def walk(node: HttpNode, seconds: float, examples: int = 20) -> Counter[int]:
    """Some requests to every route, again and again for about so many seconds in all; counts statuses.

    A status of 500 or above, unless a retry may help, fails with the request that led to it.
    """
    schema = schemathesis.openapi.from_dict(schema_to_walk())
    schema.config.update(base_url=node.http)
    operations: list[Any] = [each.ok() for each in schema.get_all_operations()]  # type: ignore[union-attr]
    statuses: Counter[int] = Counter()
    until = time.monotonic() + seconds
    with node.client() as http:
        while not statuses or time.monotonic() < until:
            for path, body in FURNITURE:
                http.post(path, json=body)  # some may have been deleted
            for operation in operations:
                _walk_route(http, operation, examples, statuses)
        assert http.get("/readyz").text == "ok\n"
    return statuses


def _walk_route(http: httpx.Client, operation: Any, examples: int, statuses: Counter[int]) -> None:
    @hypothesis.settings(
        max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(case=operation.as_strategy())
    def ask(case: Any) -> None:
        _ask(http, case, statuses)

    ask()


def _ask(http: httpx.Client, case: Any, statuses: Counter[int]) -> None:
    made = case.as_transport_kwargs(base_url=str(http.base_url))
    headers = {name: str(text) for name, text in dict(made.get("headers", {})).items() if name != "User-Agent"}
    if any(not text.isascii() or not text.isprintable() for text in headers.values()):
        return  # no client sends such headers
    body: dict[str, Any] = {"json": made["json"]} if "json" in made else {}
    if isinstance(made.get("data"), bytes | str):
        body["content"] = made["data"]
    answer = http.request(made["method"], made["url"], params=made.get("params"), headers=headers, **body)
    statuses[answer.status_code] += 1
    if answer.status_code >= 400:
        shape = answer.json()
        assert set(shape) >= {"code", "message", "hint", "retryable"}, (case, shape)
        assert answer.status_code < 500 or shape["retryable"] is True, (case, shape)


def live_http(folder: Path, seconds: float) -> tuple[int, str]:
    """The number of requests; a fault raises."""
    with HttpNode(folder) as node:
        return walk(node, seconds).total(), ""
