"""Every route with every kind of token: ``python -m tests.node.http.matrix`` prints what each is answered.

The routes are those of the OpenAPI schema. ``ROUTES`` says what each one needs; one that is not in it fails the
test of this table, so that no route is added without a thought about who may call it.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.node.http.nodes import HttpNode

TOPIC = "acme:shop:till:orders"
FILLED = {
    "topic": TOPIC,
    "subscription": "billing",
    "producer": "till-1",
    "writer": "acme/nightly",
    "token": "nobody",
    "code": "gap",
    "peer": "127.0.0.1:1",
}
PLACES = {"tenants": "acme", "products": "acme:shop", "components": "acme:shop:till"}

ANYBODY = "anybody"
"""Without a token too."""
GOOD = "a good token"
USE = "produce or consume"
PRODUCE = "produce"
CONSUME = "consume"
ADMIN = "admin"
NODE = "admin of everything"

BAD = ("none", "unknown", "expired", "revoked")
"""Invalid tokens."""
TOKENS = (*BAD, "elsewhere", "produce", "consume", "admin", "root")
"""``elsewhere`` is another tenant's admin, the next three have one right in ``acme``."""


@dataclass(frozen=True)
class Route:
    needs: str
    body: Any = None
    listing: bool = False
    """What is out of reach is left out of the answer, or is as if it did not exist."""
    query: dict[str, Any] = field(default_factory=dict)


SETTLE = {"positions": ["0/0"]}
T = "/v1/topics/{topic}"
S = T + "/subscriptions/{subscription}"
ROUTES: dict[tuple[str, str], Route] = {
    ("get", "/livez"): Route(ANYBODY),
    ("get", "/readyz"): Route(ANYBODY),
    ("get", "/metrics"): Route(NODE),
    ("get", "/v1/errors"): Route(ANYBODY),
    ("get", "/v1/errors/{code}"): Route(ANYBODY),
    ("get", "/v1/access"): Route(GOOD),
    ("get", "/v1/node"): Route(NODE),
    ("get", "/v1/top"): Route(NODE, query={"interval": 0.1}),
    ("get", "/v1/top/events"): Route(NODE),
    ("get", "/v1/history"): Route(NODE),
    ("get", "/v1/cluster"): Route(NODE),
    ("get", "/v1/log"): Route(NODE),
    ("get", "/v1/peers"): Route(NODE),
    ("post", "/v1/peers"): Route(NODE, {"url": "headpond://127.0.0.1:1", "topics": ["acme/*"]}),
    ("get", "/v1/peers/{peer}"): Route(NODE),
    ("delete", "/v1/peers/{peer}"): Route(NODE),
    ("get", "/v1/tokens"): Route(ADMIN, listing=True),
    ("post", "/v1/tokens"): Route(ADMIN, {"name": "x", "rights": ["consume"], "scopes": ["acme/shop"]}),
    ("get", "/v1/tokens/{token}"): Route(ADMIN, listing=True),
    ("delete", "/v1/tokens/{token}"): Route(ADMIN, listing=True),
    ("get", "/v1/writers"): Route(PRODUCE, listing=True),
    ("get", "/v1/writers/{writer}"): Route(PRODUCE),
    ("delete", "/v1/writers/{writer}"): Route(PRODUCE),
    ("get", "/v1/topics"): Route(USE, listing=True),
    ("post", "/v1/topics"): Route(ADMIN, {"topic": "acme/shop/till/more"}),
    ("get", T): Route(USE),
    ("delete", T): Route(ADMIN),
    ("patch", T + "/schema"): Route(ADMIN, {"schema": [{"name": "a", "type": "int64"}]}),
    ("patch", T + "/settings"): Route(ADMIN, {"set": {"hard_ttl": "7d"}}),
    ("post", T + "/compact"): Route(ADMIN),
    ("get", T + "/ledger"): Route(USE),
    ("get", T + "/ends"): Route(CONSUME),
    ("get", T + "/messages"): Route(CONSUME),
    ("post", T + "/messages"): Route(PRODUCE, {"value": "a"}),
    ("get", T + "/events"): Route(CONSUME),
    ("get", "/v1/producers"): Route(PRODUCE, listing=True),
    ("get", T + "/producers"): Route(PRODUCE),
    ("post", T + "/producers"): Route(ADMIN, {"producer": "till-1", "exist_ok": True}),
    ("get", T + "/producers/{producer}"): Route(PRODUCE),
    ("delete", T + "/producers/{producer}"): Route(ADMIN),
    ("get", "/v1/subscriptions"): Route(CONSUME, listing=True),
    ("get", T + "/subscriptions"): Route(CONSUME),
    ("post", T + "/subscriptions"): Route(CONSUME, {"subscription": "billing", "exist_ok": True}),
    ("get", S): Route(CONSUME),
    ("delete", S): Route(ADMIN),
    ("post", S + "/seek"): Route(CONSUME, {"to": "earliest"}),
    ("post", S + "/pause"): Route(CONSUME),
    ("post", S + "/resume"): Route(CONSUME),
    ("post", S + "/promote"): Route(ADMIN),
    ("get", S + "/dead"): Route(CONSUME),
    ("get", S + "/unacked"): Route(CONSUME),
    ("get", S + "/skipped"): Route(CONSUME),
    ("post", S + "/redrive"): Route(CONSUME, {}),
    ("post", S + "/fetch"): Route(CONSUME),
    ("post", S + "/ack"): Route(CONSUME, SETTLE),
    ("post", S + "/skip"): Route(CONSUME, SETTLE),
    ("post", S + "/nack"): Route(CONSUME, SETTLE),
    ("post", S + "/extend"): Route(CONSUME, SETTLE),
    ("delete", S + "/consumer"): Route(CONSUME),
    ("post", S + "/events"): Route(CONSUME),
    ("get", "/v1/tenants"): Route(USE, listing=True),
    ("post", "/v1/tenants"): Route(NODE, {"name": "acme", "exist_ok": True}),
    ("get", "/v1/tenants/{place}"): Route(USE),
    ("patch", "/v1/tenants/{place}/settings"): Route(ADMIN, {"set": {"hard_ttl": "7d"}}),
    ("delete", "/v1/tenants/{place}"): Route(NODE),
    ("get", "/v1/products"): Route(USE, listing=True),
    ("post", "/v1/products"): Route(ADMIN, {"name": "acme/shop", "exist_ok": True}),
    ("get", "/v1/products/{place}"): Route(USE),
    ("patch", "/v1/products/{place}/settings"): Route(ADMIN, {"set": {"hard_ttl": "7d"}}),
    ("delete", "/v1/products/{place}"): Route(ADMIN),
    ("get", "/v1/components"): Route(USE, listing=True),
    ("post", "/v1/components"): Route(ADMIN, {"name": "acme/shop/till", "exist_ok": True}),
    ("get", "/v1/components/{place}"): Route(USE),
    ("patch", "/v1/components/{place}/settings"): Route(ADMIN, {"set": {"hard_ttl": "7d"}}),
    ("delete", "/v1/components/{place}"): Route(ADMIN),
}


def routes_of_schema() -> set[tuple[str, str]]:
    """What the door offers."""
    from headpond.node.http.app import make_app

    paths = make_app(None).openapi_schema.to_schema()["paths"]
    return {(method, path) for path, methods in paths.items() for method in methods}


def wanted(route: Route, token: str) -> str:
    """``in``, ``401`` or ``403``."""
    if route.needs == ANYBODY:
        return "in"
    if token in BAD:
        return "401"
    if token == "root" or route.needs == GOOD:
        return "in"
    if route.needs == NODE:
        return "403"
    if token == "elsewhere":
        return "in" if route.listing else "403"
    rights = {USE: ("produce", "consume"), PRODUCE: ("produce",), CONSUME: ("consume",), ADMIN: ()}[route.needs]
    return "in" if token in ("admin", *rights) else "403"


def make_tokens(node: HttpNode) -> dict[str, str | None]:
    """One of each kind; the topic exists afterwards."""
    with node.client() as http:

        def make(name: str, right: str, scope: str, **more: Any) -> dict[str, Any]:
            body = {"name": name, "rights": [right], "scopes": [scope], **more}
            answer = http.post("/v1/tokens", json=body)
            assert answer.status_code == 201, answer.text
            found: dict[str, Any] = answer.json()
            return found

        http.post("/v1/topics", json={"topic": TOPIC.replace(":", "/")}).raise_for_status()
        revoked = make("revoked", "admin", "*")
        http.delete(f"/v1/tokens/{revoked['token']}").raise_for_status()
        expired = make("expired", "admin", "*", lasts=1)
        with node.client(expired["secret"]) as over:
            while over.get("/v1/access").status_code != 401:
                time.sleep(0.1)
        made = {right: make(right, right, "acme")["secret"] for right in ("produce", "consume", "admin")}
        return {
            "none": None,
            "unknown": "hpd_000000000000_nonsense",
            "expired": expired["secret"],
            "revoked": revoked["secret"],
            "elsewhere": make("elsewhere", "admin", "elsewhere")["secret"],
            **made,
            "root": node.token,
        }


def ask(http: httpx.Client, method: str, path: str, route: Route, token: str | None) -> tuple[int, str]:
    """The status, and what an answer that is no stream says."""
    place = next((name for word, name in PLACES.items() if f"/{word}" in path), "")
    url = path.format(**FILLED, place=place) if "{" in path else path
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    with http.stream(method, url, json=route.body, params=route.query, headers=headers) as answer:
        is_stream = answer.headers.get("content-type", "").startswith("text/event-stream")
        return answer.status_code, "" if is_stream else answer.read().decode()


def shown(status: int) -> str:
    return str(status) if status in (401, 403) else "in"


Table = dict[tuple[str, str], dict[str, tuple[int, str]]]


def walk(node: HttpNode) -> Table:
    """What is answered, by route and token. What changes least comes first, deletions come last."""
    tokens = make_tokens(node)
    order = sorted(ROUTES, key=lambda key: (("get", "patch", "post", "delete").index(key[0]), key[1]))
    with httpx.Client(base_url=node.http, timeout=60.0) as http:
        return {
            (method, path): {
                name: ask(http, method, path, ROUTES[method, path], token) for name, token in tokens.items()
            }
            for method, path in order
        }


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, HttpNode(Path(folder) / "node", guarded=True) as node:
        table = walk(node)
    width = max(len(path) for _, path in table)
    print(f"{'':7}{'':{width}}  {'needs':20}" + "".join(f"{name:>11}" for name in TOKENS))
    for (method, path), answers in sorted(table.items(), key=lambda each: each[0][::-1]):
        needs = ROUTES[method, path].needs
        cells = "".join(f"{shown(answers[name][0]):>11}" for name in TOKENS)
        print(f"{method.upper():7}{path:{width}}  {needs:20}{cells}")


if __name__ == "__main__":
    main()
