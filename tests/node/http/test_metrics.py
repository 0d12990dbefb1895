"""What a real node shows Prometheus, while it works."""

from __future__ import annotations

import re

import httpx

from tests import metrics_page


def test_a_node_exposes_what_the_page_lists(http: httpx.Client) -> None:
    page = http.get("/metrics").text
    assert metrics_page.shown(page) == metrics_page.shown(metrics_page.node_page())
    assert re.search(r'^headpond_build_info\{python="3[^"]+",version="[^"]+"\} 1.0$', page, re.MULTILINE)


def test_a_message_that_is_acknowledged_is_timed_all_the_way(http: httpx.Client, topic: str) -> None:
    def counts() -> dict[str, float]:
        found = re.findall(r"^headpond_(\w+)_seconds_count (\S+)$", http.get("/metrics").text, re.MULTILINE)
        return {name: float(count) for name, count in found}

    before = counts()
    path = f"/v1/topics/{topic}/subscriptions"
    http.post(f"/v1/topics/{topic}/messages", json={"value": "a"}).raise_for_status()
    http.post(path, json={"subscription": "s"}).raise_for_status()
    (message,) = http.post(f"{path}/s/fetch?wait=10").json()["messages"]
    assert 'headpond_subscription_oldest_age_seconds{subscription="s"' in http.get("/metrics").text
    http.post(f"{path}/s/ack", json={"positions": [message["position"]]}).raise_for_status()
    after = counts()
    assert before.keys() == after.keys() == {"sync", "publish", "delivery", "end_to_end"}
    assert all(after[name] > before[name] for name in after), (before, after)
