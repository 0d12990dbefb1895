"""A web page in a browser on this machine reaches nothing: not by its own requests, images, forms or names."""

from __future__ import annotations

import hashlib
from pathlib import Path

import httpx
import pytest

from headpond.broker.settings import Settings
from headpond.model.errors import BadConfig
from headpond.node.http.gate import OwnNames
from tests.node.http import matrix
from tests.node.http.nodes import HttpNode

PAGES = {
    "another site": {"Sec-Fetch-Site": "cross-site"},
    "another port of this machine": {"Sec-Fetch-Site": "same-site"},
    "another site, older browser": {"Origin": "https://evil.example"},
    "another port, older browser": {"Origin": "http://localhost:3000"},
    "a file or a sandbox": {"Origin": "null"},
    "a name that was given this address": {"Host": "evil.example", "Sec-Fetch-Site": "same-origin"},
    "a name that begins like this address": {"Host": "127.0.0.1.evil.example:7412"},
    "no name at all": {"Host": ""},
}


@pytest.mark.parametrize("headers", PAGES.values(), ids=PAGES)
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/v1/topics", None),
        ("POST", "/v1/topics", {"topic": "theirs"}),
        ("POST", "/v1/topics/theirs/subscriptions/s/events?ack=sent", None),
        ("DELETE", "/v1/topics/theirs", None),
        ("OPTIONS", "/v1/topics", None),
    ],
)
def test_a_request_of_a_web_page_is_refused_with_its_origin(
    http: httpx.Client, headers: dict[str, str], method: str, path: str, body: object
) -> None:
    answer = http.request(method, path, json=body, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (403, "cross-site")
    assert answer.json()["hint"]
    assert "access-control-allow-origin" not in answer.headers
    assert http.get("/v1/topics/theirs").status_code == 404


@pytest.mark.parametrize(
    "media",
    [
        "text/plain",
        "TEXT/Plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
        "text/plain,application/json",
        "json",
    ],
)
@pytest.mark.parametrize("path", ["/v1/topics", "/v1/topics/t/messages", "/v1/topics/t/subscriptions/s/pause"])
def test_no_route_accepts_the_content_type_of_a_form(http: httpx.Client, path: str, media: str) -> None:
    """A form can send JSON as text/plain; an old browser does not say which page it comes from."""
    content = b'{"topic": "theirs", "value": "theirs"}'
    answer = http.post(path, content=content, headers={"Content-Type": f"{media}; charset=utf-8"})
    assert (answer.status_code, answer.json()["code"]) == (415, "media-type")


def test_a_person_and_a_page_of_the_node_itself_are_answered(door: HttpNode, http: httpx.Client) -> None:
    typed = {"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate"}
    assert http.get("/v1/topics", headers=typed).status_code == 200
    own = {"Sec-Fetch-Site": "same-origin", "Origin": door.http}
    assert http.get("/v1/topics", headers=own).status_code == 200


@pytest.mark.parametrize(
    ("listen", "own", "others"),
    [
        (
            "127.0.0.1",
            ["127.0.0.1", "127.0.0.1:9", "LocalHost:7412", "[::1]:7412", "127.0.0.2", "node.example"],
            ["10.0.0.5", "localhost.evil.example", "evil.example", "", "[::1", "127.1.evil", ":7412"],
        ),
        (
            "0.0.0.0",
            ["10.0.0.5:7412", "[fe80::1]:7412", "localhost", "node.example:443"],
            ["evil.example", "0x7f000001", ""],
        ),
        ("::", ["[fe80::1]", "10.0.0.5", "localhost"], ["evil.example"]),
        ("10.0.0.5", ["10.0.0.5:80", "node.example"], ["localhost", "127.0.0.1", "10.0.0.6"]),
        ("Node-1.lan", ["node-1.lan:7412"], ["localhost", "node-2.lan"]),
    ],
)
def test_a_node_answers_to_its_address_and_to_its_configured_names(
    listen: str, own: list[str], others: list[str]
) -> None:
    names = OwnNames(listen, ["Node.example"])
    assert [each for each in own if each not in names] == []
    assert [each for each in others if each in names] == []


def test_behind_a_proxy_a_node_answers_to_the_name_it_was_given(tmp_path: Path) -> None:
    with HttpNode(tmp_path / "node", more='http_names = ["messages.example"]\n') as node, node.client() as http:
        by_name = {"Host": "messages.example", "Origin": "https://messages.example"}
        assert http.get("/v1/topics", headers=by_name).status_code == 200
        rewritten = {"Origin": "https://messages.example"}  # the proxy calls the node by its address
        assert http.get("/v1/topics", headers=rewritten).status_code == 200
        assert http.get("/v1/topics", headers={"Host": "evil.example"}).status_code == 403
    with pytest.raises(BadConfig, match="http_names"):
        Settings(http_names=["https://messages.example/"]).check()


def test_a_node_with_tokens_answers_to_any_name_since_no_page_has_a_token(tmp_path: Path) -> None:
    with HttpNode(tmp_path / "node", guarded=True) as node, node.client() as http:
        assert http.get("/v1/topics", headers={"Host": "any.example"}).status_code == 200
        assert http.get("/v1/topics", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403


def contents(folder: Path) -> dict[str, str]:
    """The files of a data folder, each with a digest of its bytes."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_no_get_changes_anything(tmp_path: Path) -> None:
    with HttpNode(tmp_path / "node") as node, node.client() as http:
        topic = {"topic": matrix.TOPIC.replace(":", "/")}
        path = f"/v1/topics/{matrix.TOPIC}"
        http.post("/v1/topics", json=topic).raise_for_status()
        http.post(f"{path}/messages", json={"messages": [{"value": each} for each in "abc"]}).raise_for_status()
        http.post(f"{path}/producers", json={"producer": "till-1"}).raise_for_status()
        http.post(f"{path}/subscriptions", json={"subscription": "billing"}).raise_for_status()
        billing = http.get(f"{path}/subscriptions/billing").json()
        before = contents(node.data)
        for method, route in matrix.ROUTES:
            if method == "get":
                status, _ = matrix.ask(http, method, route, matrix.ROUTES[method, route], None)
                assert status in (200, 404), route
        for query in ("start=earliest", "entry=0&wait=0.1&filter=true", "subscription=billing&ack=sent"):
            assert http.get(f"{path}/messages?{query}").status_code in (200, 400)
        assert http.get("/v1/topics/nowhere/messages").status_code == 404
        assert http.get(f"{path}/subscriptions/billing/events?ack=sent").status_code == 405
        assert http.get(f"{path}/subscriptions/billing").json() == billing
        assert contents(node.data) == before
        assert "headpond_http_consumers 0.0" in http.get("/metrics").text
