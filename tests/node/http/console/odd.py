"""Data that a page can get and that its designer did not think of: names as long as they may be, text that
runs from right to left, markup, and numbers with fifteen digits."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import quote

import httpx
from playwright.sync_api import Page, Route

EVIL = "<img src=x onerror=\"alert('value')\"><script>alert('script')</script>"
RTL = "‮שלום עולם‬ مرحبا بالعالم"
LONG = "W" * 120
TOPIC = f"{LONG}:{LONG}:{LONG}:{LONG}"
SUBSCRIPTION = f"s{LONG}"
PRODUCER = f"{EVIL} {RTL} {'P' * 150}"
CONSUMER = f"{EVIL} {RTL}"[:128]
LINK = "L" * 60
HUGE = 987_654_321_012_345
PATHS = (
    *("", "topics", f"topics/{TOPIC}", f"topics/{TOPIC}/messages", f"topics/{TOPIC}/delivery"),
    *("subscriptions", f"subscriptions/{TOPIC}/{SUBSCRIPTION}", "producers", "delivery", "dead"),
    *(f"dead/{TOPIC}/{SUBSCRIPTION}", "spark", "links", "tokens"),
)


def fill(http: httpx.Client) -> None:
    def post(path: str, body: dict[str, Any] | None = None) -> Any:
        answer = http.post(path, json=body)
        assert answer.is_success, (path, answer.text)
        return answer.json()

    topic = f"/v1/topics/{quote(TOPIC, safe='')}"
    post("/v1/topics", {"topic": TOPIC.replace(":", "/"), "shards": 4})
    body = {"subscription": SUBSCRIPTION, "kind": "shared", "policy": {"max_attempts": 1}}
    post(f"{topic}/subscriptions", body)
    post(f"{topic}/producers", {"producer": PRODUCER, "access": "single"})
    peer = {"url": f"headpond://{'h' * 60}.invalid:1", "topics": [TOPIC.replace(":", "/")], "name": LINK}
    post("/v1/peers", peer)
    odd = [EVIL, RTL, LONG * 20, "", " ", "\u0000\u0001\u2028", json.dumps({"number": HUGE, RTL: [EVIL]})]
    messages = [
        {"value": text, "key": text, "id": text[:200], "headers": {EVIL: text[:500], RTL: EVIL}} for text in odd
    ]
    post(f"{topic}/messages?producer={quote(PRODUCER)}", {"messages": messages})
    subscription = f"{topic}/subscriptions/{SUBSCRIPTION}"
    held = post(f"{subscription}/fetch?count=20&wait=5&consumer={quote(CONSUMER)}")["messages"]
    for reason, each in zip((EVIL, RTL, LONG * 4), held, strict=False):
        post(
            f"{subscription}/nack?consumer={quote(CONSUMER)}",
            {"positions": [each["position"]], "reason": reason},
        )
    http.delete(f"{subscription}/consumer?consumer={quote(CONSUMER)}").raise_for_status()


def _huge(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        return {name: _huge(each, name) for name, each in value.items()}
    if isinstance(value, list):
        return [_huge(each) for each in value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return HUGE if isinstance(value, int) or name.endswith("_s") else value  # the others are shares


def make_huge(page: Page) -> None:
    """Every whole number and rate of what the node answers becomes one of fifteen digits."""

    def answer(route: Route) -> None:
        url = route.request.url
        stream = "/top/events" in url  # it does not end: one reading stands for it
        found = route.fetch(url=re.sub("interval=[0-9]+", "interval=0.1", url.replace("/top/events", "/top")))
        body = json.dumps(_huge(found.json()))
        if stream:
            route.fulfill(content_type="text/event-stream", body=f"event: top\ndata: {body}\n\n")
        else:
            route.fulfill(status=found.status, content_type="application/json", body=body)

    page.route("**/v1/**", answer)
