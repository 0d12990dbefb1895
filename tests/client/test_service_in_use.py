"""A program that names no URL connects to HEADPOND_URL, else to the context in use, else to this machine."""

from __future__ import annotations

import pytest

import headpond
import headpond.sync
from headpond.client.contexts import Contexts, NodeContext, service_in_use
from headpond.spark.options import read_connection


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("URL", "TOKEN", "CA", "CERT", "KEY", "CONTEXT"):
        monkeypatch.delenv(f"HEADPOND_{name}", raising=False)


def test_variables_come_before_the_context_and_the_context_before_the_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert service_in_use() == NodeContext("headpond://127.0.0.1:7411")
    contexts = Contexts()
    contexts.add("west", NodeContext("headponds://west:1", "secret", ca="west.pem"))
    contexts.save()
    assert service_in_use() == NodeContext("headponds://west:1", "secret", ca="west.pem")
    spark = read_connection({})
    assert (spark.url, spark.token, spark.ca) == ("headponds://west:1", "secret", "west.pem")
    monkeypatch.setenv("HEADPOND_TOKEN", "other")
    assert service_in_use().token == "other"
    monkeypatch.setenv("HEADPOND_URL", "headpond://east:2")
    assert service_in_use() == NodeContext("headpond://east:2", "other")
    assert read_connection({"url": "headpond://north:3"}).url == "headpond://north:3"


def test_the_clients_connect_there(shared_url: str, topic: str) -> None:
    contexts = Contexts()
    contexts.add("here", NodeContext(shared_url))
    contexts.save()
    with headpond.sync.connect() as client:
        client.admin.create_topic(topic)
