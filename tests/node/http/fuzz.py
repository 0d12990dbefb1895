"""Requests made up from the OpenAPI schema, sent to a real node: none may make it fail.

``python -m tests.node.http.fuzz --examples 2000`` is the long run (``make fuzz-http``). Names of topics,
subscriptions and so on are often ones that exist, so that what lies behind a first look-up is reached too.
Streams of events do not end by themselves and are left to their own tests.
"""

from __future__ import annotations

import argparse
import copy
import tempfile
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


def schema_to_walk() -> dict[str, Any]:
    """The door's schema, with known names beside any text, short waits, and without streams."""
    whole: dict[str, Any] = copy.deepcopy(make_app(None).openapi_schema.to_schema())
    for path in [path for path in whole["paths"] if path.endswith("/events")]:
        del whole["paths"][path]
    for operations in whole["paths"].values():
        for operation in operations.values():
            for parameter in operation.get("parameters", ()):
                name, kind = parameter["name"], parameter["schema"]
                if name in KNOWN:
                    any_text = {"type": "string", "minLength": 1, "pattern": "^[^/]+$"}
                    known = {"enum": KNOWN[name]}
                    parameter["schema"] = {"anyOf": [known, known, known, any_text]}
                elif name in WAITS:
                    parameter["schema"] = {**kind, "maximum": WAITS[name]}
    return whole


def furnish(node: HttpNode) -> None:
    """What the known names stand for."""
    with node.client() as http:
        for body in (
            {"topic": "plain", "shards": 2},
            {"topic": "typed", "schema": COLUMNS},
            {"topic": "state", "state": True},
            {"topic": "acme/shop/till/orders"},
        ):
            http.post("/v1/topics", json={**body, "exist_ok": True}).raise_for_status()
        for name, kind, mode in (("s", "shared", "non_resilient"), ("r", "unique", "resilient")):
            made = {"subscription": name, "kind": kind, "mode": mode, "exist_ok": True}
            http.post("/v1/topics/plain/subscriptions", json=made).raise_for_status()
        http.post("/v1/topics/plain/messages", json={"messages": [{"value": "a"}] * 10}).raise_for_status()


def walk(node: HttpNode, examples: int, seconds: float) -> Counter[int]:
    """Sends up to so many requests to each route, for about so many seconds in all; counts statuses.

    A status of 500 or above, other than that of something refused for now, fails with the request that led to
    it.
    """
    furnish(node)
    schema = schemathesis.openapi.from_dict(schema_to_walk())
    schema.config.update(base_url=node.http)
    walker = Walker(node)
    operations: list[Any] = [each.ok() for each in schema.get_all_operations()]  # type: ignore[union-attr]
    began = time.monotonic()
    with node.client() as walker.http:
        for number, operation in enumerate(operations):
            walker.walk(operation, examples, began + seconds * (number + 1) / len(operations))
        assert walker.http.get("/readyz").text == "ok\n"
    return walker.statuses


class Walker:
    def __init__(self, node: HttpNode) -> None:
        self.http: httpx.Client
        self.statuses: Counter[int] = Counter()
        self._node = node

    def walk(self, operation: Any, examples: int, until: float) -> None:
        """One route, until it is time for the next, but once at least."""
        before = self.statuses.total()

        @hypothesis.settings(
            max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck)
        )
        @given(case=operation.as_strategy())
        def ask(case: Any) -> None:
            if time.monotonic() < until or self.statuses.total() == before:
                self.ask(case)

        ask()

    def ask(self, case: Any) -> None:
        made = case.as_transport_kwargs(base_url=self._node.http)
        headers = {name: str(text) for name, text in dict(made.get("headers", {})).items()}
        if any(not text.isascii() or not text.isprintable() for text in headers.values()):
            return  # no client sends such headers
        headers.pop("User-Agent", None)
        content = made.get("data")
        body: dict[str, Any] = {"json": made["json"]} if "json" in made else {}
        if isinstance(content, bytes | str):
            body["content"] = content
        answer = self.http.request(
            made["method"], made["url"], params=made.get("params"), headers=headers, **body
        )
        self.statuses[answer.status_code] += 1
        if answer.status_code >= 400:
            told = answer.json()
            assert set(told) >= {"code", "message", "hint", "retryable"}, (case, told)
            assert answer.status_code < 500 or told["retryable"] is True, (case, told)


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--examples", type=int, default=500)
    options.add_argument("--seconds", type=float, default=3600.0)
    given_options = options.parse_args()
    with tempfile.TemporaryDirectory() as folder, HttpNode(Path(folder) / "node") as node:
        assert isinstance(node, HttpNode)
        statuses = walk(node, given_options.examples, given_options.seconds)
    print(f"{sum(statuses.values()):,} requests to every route, no fault: {dict(sorted(statuses.items()))}")


if __name__ == "__main__":
    main()
