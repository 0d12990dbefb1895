"""Writers of staged batches from the command line."""

from __future__ import annotations

import json

import pyarrow as pa

import headpond
from tests.cli.conftest import Cli, Node


def test_writers_are_listed_shown_and_deleted(cli: Cli, service: Node, topic: str) -> None:
    with headpond.sync.connect(service.url) as client, client.writer(topic) as writer:
        rows = pa.table({"value": [b"a", b"b"]})
        writer.commit(7, [writer.stage(topic, rows)])
        left = writer.stage(topic, rows)
    listed = json.loads(cli("writer", "list", "--json", url=service.url).out)
    (found,) = [each for each in listed if each["writer"] == topic]
    assert (found["batch"], found["batches"], found["rows"], found["stages"]) == (7, 1, 2, 1)
    assert found["topics"] == [f"default/default/default/{topic}"] and not found["publishing"]
    shown = json.loads(cli("writer", "show", topic, "--json", url=service.url).out)
    assert [stage["stage"] for stage in shown["stage_list"]] == [left.id.hex()]
    text = cli("writer", "show", topic, url=service.url).out.decode()
    assert left.id.hex() in text and "batch" in text
    assert topic in cli("writer", "list", url=service.url).out.decode()
    assert cli("writer", "delete", topic, url=service.url).code == 2, "without a terminal it needs --yes"
    gone = json.loads(cli("writer", "delete", topic, "--yes", "--json", url=service.url).out)
    assert gone == {"deleted": topic, "stages": 1}
    missing = cli("writer", "show", topic, "--json", url=service.url)
    assert (missing.code, json.loads(missing.err)["code"]) == (1, "writer-not-found")


def test_a_stage_file_can_be_looked_into(cli: Cli, node: Node) -> None:
    with headpond.sync.connect(node.url) as client, client.writer("w") as writer:
        stage = writer.stage("t", pa.table({"value": [b"a" * 100, b"b"]}))
    (path,) = (node.data / "stages").iterdir()
    found = json.loads(cli("inspect", str(path), "--json").out)
    (chunk,) = [record for record in found["records"] if record["kind"] == "SEGMENT"]
    assert chunk["detail"] == f"stage {stage.id.hex()}, chunk 0, shard 0, 2 rows"
    assert not found["damage"] and not found["torn"]
