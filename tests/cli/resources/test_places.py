"""Tenants, products, components, settings and producers from the command line."""

from __future__ import annotations

import json

from tests.cli.conftest import Cli, Node


def test_a_tree_is_made_given_settings_shown_and_deleted(cli: Cli, node: Node) -> None:
    assert cli("tenant", "create", "acme", "--set", "hard_ttl=7d", url=node.url).code == 0
    assert cli("product", "create", "acme/shop", url=node.url).code == 0
    cli("topic", "create", "acme/shop/web/orders", "--set", "max_bytes=1GiB", url=node.url)
    assert cli("product", "set", "acme/shop", "durability=os", "soft_ttl=1h", url=node.url).code == 0
    assert cli("component", "set", "acme/shop/web", "soft_ttl=none", url=node.url).code == 0
    settings = json.loads(cli("topic", "show", "acme/shop/web/orders", "--json", url=node.url).out)["settings"]
    assert settings["hard_ttl"] == {"value": 604_800.0, "origin": "tenant", "place": "acme"}
    assert settings["durability"] == {"value": "os", "origin": "product", "place": "acme/shop"}
    assert settings["soft_ttl"] == {"value": None, "origin": "component", "place": "acme/shop/web"}
    assert settings["max_bytes"] == {"value": 2**30, "origin": "topic", "place": "acme/shop/web/orders"}
    assert settings["backoff"] == {"value": 0.1, "origin": "default", "place": None}
    text = cli("topic", "show", "acme/shop/web/orders", url=node.url).out.decode()
    assert ["hard_ttl", "7d", "tenant", "acme"] in [line.split() for line in text.splitlines()]
    assert cli("topic", "unset", "acme/shop/web/orders", "max_bytes", url=node.url).code == 0
    shown = json.loads(cli("tenant", "show", "acme", "--json", url=node.url).out)
    assert (shown["tenant"], shown["topics"], shown["place_list"]) == (
        "acme",
        1,
        ["acme/shop", "acme/shop/web"],
    )
    refused = cli("tenant", "delete", "acme", "--json", url=node.url)
    assert (refused.code, json.loads(refused.err)["code"]) == (1, "not-empty")
    unasked = cli("tenant", "delete", "acme", "--recursive", url=node.url)
    assert unasked.code == 2 and "acme/shop/web/orders" in unasked.err, "it says what would go"
    gone = json.loads(cli("tenant", "delete", "acme", "--recursive", "--yes", "--json", url=node.url).out)
    assert gone == {
        "deleted": "acme",
        "places": ["acme/shop", "acme/shop/web"],
        "topics": ["acme/shop/web/orders"],
    }
    assert json.loads(cli("component", "list", "--json", url=node.url).out) == []


def test_an_error_names_the_wrong_setting(cli: Cli, service: Node, topic: str) -> None:
    cli("topic", "create", topic, url=service.url)
    for assignment in ("hard_ttl=soon", "durability=maybe", "nothing=1"):
        done = cli("topic", "set", topic, assignment, "--json", url=service.url)
        found = json.loads(done.err)
        assert (done.code, found["code"]) == (1, "bad-setting")
        assert assignment.partition("=")[0] in found["message"]
    assert cli("topic", "set", topic, "hard_ttl", url=service.url).code == 2


def test_a_producer_is_registered_listed_shown_and_deleted(cli: Cli, service: Node, topic: str) -> None:
    made = cli("producer", "create", topic, "till-1", "--access", "single", "--json", url=service.url)
    assert json.loads(made.err)["code"] == "topic-not-found"
    cli("topic", "create", topic, url=service.url)
    made = cli("producer", "create", topic, "till-1", "--access", "single", "--json", url=service.url)
    shown = json.loads(made.out)
    assert (shown["producer"], shown["access"], shown["epoch"], shown["holder"]) == (
        "till-1",
        "single",
        0,
        None,
    )
    listed = json.loads(cli("producer", "list", topic, "--json", url=service.url).out)
    assert listed == [shown]
    assert b"single" in cli("producer", "show", topic, "till-1", url=service.url).out
    assert cli("producer", "delete", topic, "till-1", url=service.url).code == 2
    assert cli("producer", "delete", topic, "till-1", "--yes", url=service.url).code == 0
    assert json.loads(cli("producer", "list", topic, "--json", url=service.url).out) == []
