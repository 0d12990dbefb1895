"""Pages of lists, rates as events, and the last hour: what a page for people asks for."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import httpx

from headpond.node.http.history import READINGS_MAX, History
from headpond.wire.control.status import ShowTop, TopInfo, TopNode, TopSubscription, TopTopic
from tests.node.http.nodes import HttpNode


def names(answer: httpx.Response, *fields: str) -> list[str]:
    return ["/".join(each[field] for field in fields).rpartition("default/")[2] for each in answer.json()]


def test_a_list_comes_in_pages_in_the_order_of_names(http: httpx.Client) -> None:
    for topic in ("page-b", "page-c", "page-a"):
        http.post("/v1/topics", json={"topic": topic}).raise_for_status()
        http.post(f"/v1/topics/{topic}/subscriptions", json={"subscription": "reads"}).raise_for_status()
        http.post(f"/v1/topics/{topic}/producers", json={"producer": "sends"}).raise_for_status()
    for path, fields, end in (
        ("/v1/topics", ("topic",), ""),
        ("/v1/subscriptions", ("topic", "subscription"), "/reads"),
        ("/v1/producers", ("topic", "producer"), "/sends"),
    ):
        first = http.get(path, params={"match": "/page-", "limit": 2})
        assert names(first, *fields) == [f"page-a{end}", f"page-b{end}"]
        after = f"default/default/default/page-b{end}"
        rest = http.get(path, params={"match": "/page-", "limit": 2, "after": after})
        assert names(rest, *fields) == [f"page-c{end}"]
        assert http.get(path, params={"match": "page"}).json()["code"] == "bad-request"


def test_a_page_of_topics_has_their_sizes(http: httpx.Client) -> None:
    http.post("/v1/topics", json={"topic": "sized"}).raise_for_status()
    http.post("/v1/topics/sized/messages", json={"value": "a"}).raise_for_status()
    (topic,) = http.get("/v1/topics", params={"match": "/sized", "limit": 1}).json()
    assert topic["entries"] == 1 and topic["bytes"] > 0 and topic["settings"]


def test_only_subscriptions_with_dead_messages_are_listed_on_request(http: httpx.Client) -> None:
    http.post("/v1/topics", json={"topic": "mortal"}).raise_for_status()
    path = "/v1/topics/mortal/subscriptions"
    for name in ("well", "ill"):
        body = {"subscription": name, "kind": "shared", "policy": {"max_attempts": 1}}
        http.post(path, json=body).raise_for_status()
    http.post("/v1/topics/mortal/messages", json={"value": "a"}).raise_for_status()
    (held,) = http.post(f"{path}/ill/fetch?wait=5").json()["messages"]
    http.post(f"{path}/ill/nack", json={"positions": [held["position"]]}).raise_for_status()
    while http.get(f"{path}/ill").json()["dead"] == 0:
        pass
    found = http.get("/v1/subscriptions", params={"match": "/mortal/", "limit": 9, "dead": True})
    assert [each["subscription"] for each in found.json()] == ["ill"]


def test_a_page_holds_only_what_the_token_reaches(tmp_path: Path) -> None:
    with HttpNode(tmp_path / "node", guarded=True) as node, node.client() as http:
        for topic in ("acme/a/b/one", "other/a/b/two", "acme/a/b/three"):
            http.post("/v1/topics", json={"topic": topic}).raise_for_status()
        body = {"name": "acme", "rights": ["consume"], "scopes": ["acme"]}
        secret = http.post("/v1/tokens", json=body).json()["secret"]
        with node.client(secret) as acme:
            found = acme.get("/v1/topics", params={"limit": 2}).json()
            assert [each["topic"] for each in found] == ["acme/a/b/one", "acme/a/b/three"]
            assert acme.get("/v1/history").status_code == 403


def test_rates_come_as_events(http: httpx.Client) -> None:
    http.post("/v1/topics/eventful/messages", json={"value": "a"}).raise_for_status()
    events = []
    with http.stream("GET", "/v1/top/events", params={"topic": "eventful", "interval": 0.5}) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: "):
                events.append(json.loads(line.removeprefix("data: ")))
            if len(events) == 2:
                break
    first, second = events
    assert first["node"]["stored_s"] is None and second["node"]["stored_s"] is not None
    assert [(each["topic"], each["r"], each["ur"]) for each in second["topics"]] == [
        ("default/default/default/eventful", 1.0, 1.0)
    ]


def reading(number: int) -> TopInfo:
    node = TopNode("n", "s", number * 10_000_000, number * 10_000_000, 1, 1, 1, 100 * number, 0, 0, 5)
    topic = TopTopic("a/b/c/t", 100 * number, 0, 0, 0, lag=0, announced=4, segments=2, duplicates=2)
    return TopInfo(node, [topic], [TopSubscription("a/b/c/t", "s", 0, 0, 0, 0, 0, 0, 0, 1, False)])


def test_the_history_has_the_rates_and_hops_of_an_hour_and_no_more() -> None:
    numbers = iter(range(1, READINGS_MAX + 10))
    asked: list[ShowTop] = []

    async def read(ask: ShowTop) -> TopInfo:
        asked.append(ask)
        return reading(next(numbers))

    history = History(read, lambda: 0)
    assert history.show()["at"] == []

    async def take_all() -> None:
        for _ in range(READINGS_MAX + 5):
            await history.take()

    asyncio.run(take_all())
    found = history.show("a/b/c/t")
    assert len(found["at"]) == READINGS_MAX
    assert found["node"]["stored_s"] == [10.0] * READINGS_MAX
    assert found["topics"]["a/b/c/t"]["r"] == found["topics"]["a/b/c/t"]["ur"] == [0.5] * READINGS_MAX
    assert list(found["subscriptions"]) == ["a/b/c/t/s"]
    assert history.show()["topics"] == {}
    assert {each.limit for each in asked} == {50}


def test_an_ordinary_node_has_no_lossy_link(http: httpx.Client) -> None:
    assert http.get("/v1/lossy-link").status_code == 404
    assert http.patch("/v1/lossy-link", json={"loss": 0.1}).status_code == 404
    assert "lossy_link" not in http.get("/v1/node").json()
