"""Who may call what: the table of ``tests.node.http.matrix``, and what becomes of a token that ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.node.http import matrix
from tests.node.http.nodes import HttpNode


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpNode]:
    with HttpNode(tmp_path_factory.mktemp("guarded") / "node", guarded=True) as running:
        yield running


def test_every_route_says_what_it_needs() -> None:
    assert matrix.routes_of_schema() == set(matrix.ROUTES)


def test_every_route_is_answered_to_every_token_as_the_table_says(guarded: HttpNode) -> None:
    table = matrix.walk(guarded)
    wrong = [
        f"{method} {path} with {name}: {status}, not {wanted}: {text[:200]}"
        for (method, path), answers in table.items()
        for name, (status, text) in answers.items()
        if matrix.shown(status) != (wanted := matrix.wanted(matrix.ROUTES[method, path], name))
    ]
    assert wrong == []
    leaks = [
        f"{method} {path}: {answers['elsewhere'][1][:200]}"
        for (method, path), answers in table.items()
        if matrix.ROUTES[method, path].listing and "acme" in answers["elsewhere"][1]
    ]
    assert leaks == []
    faults = [
        (key, status) for key, answers in table.items() for status, _ in answers.values() if status >= 500
    ]
    assert faults == []


def test_a_token_that_is_revoked_is_refused_with_the_next_request(guarded: HttpNode) -> None:
    with guarded.client() as admin:
        body = {"name": "short", "rights": ["consume"], "scopes": ["*"]}
        made: dict[str, Any] = admin.post("/v1/tokens", json=body).json()
        with guarded.client(made["secret"]) as http:
            assert http.get("/v1/access").json()["token"] == made["token"]
            assert admin.delete(f"/v1/tokens/{made['token']}").json() == {
                "token": made["token"],
                "revoked": True,
            }
            answer = http.get("/v1/access")
            assert (answer.status_code, answer.json()["code"]) == (401, "token-revoked")
            assert answer.headers["www-authenticate"].startswith("Bearer")


def test_a_stream_of_events_ends_when_its_token_does(guarded: HttpNode) -> None:
    with guarded.client() as admin:
        admin.post("/v1/topics", json={"topic": "watched", "exist_ok": True}).raise_for_status()
        body = {"name": "watcher", "rights": ["consume"], "scopes": ["*"]}
        made: dict[str, Any] = admin.post("/v1/tokens", json=body).json()
        with guarded.client(made["secret"]) as http, http.stream("GET", "/v1/topics/watched/events") as answer:
            lines = answer.iter_lines()
            assert next(lines) == ": connected"
            admin.delete(f"/v1/tokens/{made['token']}").raise_for_status()
            rest = list(lines)
        assert "event: error" in rest
        assert any("token-revoked" in line for line in rest)


def test_the_log_of_administration_names_the_token_of_an_http_request(guarded: HttpNode) -> None:
    with guarded.client() as admin:
        admin.post("/v1/topics", json={"topic": "logged"}).raise_for_status()
        last = admin.get("/v1/log", params={"count": 1}).json()[-1]
        assert (last["operation"], last["result"], last["client"]) == ("create_topic", "done", "http")
        assert last["token"] == admin.get("/v1/access").json()["token"]


def test_nothing_of_a_token_is_in_answers_or_in_the_nodes_log(guarded: HttpNode) -> None:
    secret = "hpd_0123456789ab_" + "s3cr3t" * 5
    with httpx.Client(base_url=guarded.http, headers={"Authorization": f"Bearer {secret}"}) as http:
        texts = [http.get(path).text for path in ("/v1/access", f"/v1/tokens/{secret}", "/nope")]
        texts.append(http.post("/v1/topics", content=b"{").text)
    assert guarded.token is not None
    with guarded.client() as admin:
        texts.append(admin.delete(f"/v1/tokens/{secret}").text)
        texts.append(admin.post("/v1/peers", json={"url": f"headpond://x:{secret}@y:1", "topics": ["t"]}).text)
        texts.append(admin.get("/v1/log").text)
    for text in (*texts, guarded.errors):
        assert "s3cr3t" not in text and guarded.token not in text


def test_a_key_belongs_to_its_tokens_name_also_with_a_new_token(guarded: HttpNode) -> None:
    with guarded.client() as admin:
        admin.post("/v1/topics", json={"topic": "tills"}).raise_for_status()
        outcomes = []
        for name in ("till-1", "till-2", "till-1"):
            body = {"name": name, "rights": ["produce"], "scopes": ["default/default/default/tills"]}
            with guarded.client(admin.post("/v1/tokens", json=body).json()["secret"]) as http:
                sent = http.post(
                    "/v1/topics/tills/messages", json={"value": "tea"}, headers={"Idempotency-Key": "1"}
                )
                outcomes.append(sent.json()["receipts"][0]["outcome"])
    assert outcomes == ["stored", "stored", "duplicate"]
