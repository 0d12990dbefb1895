"""The OpenAPI schema: it is served, it names what answers hold, and no request made up from it is a fault."""

from __future__ import annotations

import httpx

from headpond.model.errors import CATALOGUE
from headpond.node.http.app import make_app
from headpond.node.http.status import status_of
from tests.fuzz.live_http import walk
from tests.node.http.nodes import HttpNode


def test_the_schema_is_served_and_names_fields(http: httpx.Client) -> None:
    schema = http.get("/schema/openapi.json").json()
    assert schema["info"]["title"] == "Headpond"
    topic = schema["components"]["schemas"]["TopicShape"]
    assert {"topic", "uuid", "shards"} <= set(topic["required"])
    assert "shard_list" in topic["properties"] and "shard_list" not in topic["required"]
    publish = schema["paths"]["/v1/topics/{topic}/messages"]["post"]
    assert "application/x-ndjson" in publish["requestBody"]["content"]
    assert any(each["name"] == "Idempotency-Key" for each in publish["parameters"])
    assert http.get("/schema").status_code == 200


def test_every_operation_has_a_summary_or_a_description() -> None:
    paths = make_app(None).openapi_schema.to_schema()["paths"]
    bare = [
        (method, path)
        for path, operations in paths.items()
        for method, operation in operations.items()
        if not (operation.get("description") or operation.get("summary"))
    ]
    assert bare == []


def test_every_answer_in_json_has_a_shape() -> None:
    paths = make_app(None).openapi_schema.to_schema()["paths"]
    shapeless = [
        (method, path, status)
        for path, operations in paths.items()
        for method, operation in operations.items()
        for status, answer in operation["responses"].items()
        if not answer.get("content", {}).get("application/json", {"schema": "none is due"})["schema"]
    ]
    assert shapeless == []


def test_every_operation_documents_errors_in_the_shape_of_the_catalogue() -> None:
    paths = make_app(None).openapi_schema.to_schema()["paths"]
    for path, operations in paths.items():
        for method, operation in operations.items():
            told = operation["responses"]["default"]["content"]["application/json"]["schema"]
            assert set(told["required"]) == {"code", "message", "hint", "retryable"}, (method, path)
            assert "400" not in operation["responses"], (method, path)


def test_requests_made_up_from_the_schema_are_answered_without_a_fault(door: HttpNode) -> None:
    statuses = walk(door, seconds=0, examples=6)
    assert statuses[200] and statuses[400] and statuses[404]


def test_every_error_has_a_status_and_only_retryable_ones_are_unavailable() -> None:
    for code, kind in CATALOGUE.items():
        status = status_of(kind("x"))
        assert 400 <= status < 600, code
        assert status != 503 or kind.retryable, code
