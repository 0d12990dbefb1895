"""State topics on the command line: created, filled, read from their state, compacted, inspected."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Cli
from tests.cli.contract import check
from tests.fire.real_node import RealNode


def test_a_state_topic_from_its_creation_to_its_compacted_file(node: RealNode, cli: Cli) -> None:
    made = cli("topic", "create", "prices", "--state", "--set", "tombstone_ttl=1h", url=node.url)
    assert (made.code, made.out) == (0, b"created state topic default/default/default/prices with 1 shard\n")
    lines = b"tea:1\ncoffee:2\ntea:3\ncoffee:\n"
    sent = cli("produce", "prices", "--key-separator", ":", "--empty-deletes", url=node.url, stdin=lines)
    assert sent.code == 0
    read = cli("consume", "prices", "-s", "s", "--start", "state", "--idle", 0.5, "--json", url=node.url)
    (row,) = [json.loads(line) for line in read.out.splitlines()]
    assert (row["entry"], row["key"], row["value"]) == (2, "tea", "3")

    compacted = cli("topic", "compact", "prices", "--json", url=node.url)
    assert json.loads(compacted.out)["shards"][0]["compacted"] == 2
    shown = json.loads(cli("topic", "show", "prices", "--json", url=node.url).out)
    assert shown["state"] is True and shown["settings"]["state"]["value"] is True
    assert shown["shard_list"][0]["compacted"] == 2
    subscription = json.loads(cli("sub", "show", "prices", "s", "--json", url=node.url).out)
    assert subscription["compacted"] == 3

    (file,) = Path(node.data).glob("topics/*/00000/*.00000001.log")
    inspected = cli("inspect", file, "--json")
    assert inspected.code == 0
    assert check("inspect", inspected.out)["compacted"] == {"entries": 2, "end": 4}


def test_a_message_that_a_state_topic_refuses_is_an_error_with_a_hint(node: RealNode, cli: Cli) -> None:
    cli("topic", "create", "prices", "--state", url=node.url)
    keyless = cli("produce", "prices", url=node.url, stdin=b"no key\n")
    assert keyless.code == 1 and "no key" in keyless.err and "hint" in keyless.err
    changed = cli("topic", "set", "prices", "state=no", url=node.url)
    assert changed.code == 1 and "fixed" in changed.err
    typed = cli("topic", "create", "typed", "--state", "--column", "x:int64 not null", url=node.url)
    assert typed.code == 1 and "takes no nulls" in typed.err
    cli("topic", "create", "plain", url=node.url)
    started = cli("consume", "plain", "-s", "s", "--start", "state", "--idle", 0.1, url=node.url)
    assert started.code == 1 and "no state topic" in started.err
    assert cli("topic", "compact", "plain", url=node.url).code == 1
    assert cli("sub", "seek", "prices", "s", "--to", "state", url=node.url).code == 2
    assert cli("produce", "prices", "--empty-deletes", url=node.url, stdin=b"x").code == 2
