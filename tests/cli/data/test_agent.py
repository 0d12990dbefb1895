"""``headpond agent``: delivers what producers left, and ends at SIGTERM."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

from tests.cli.conftest import Cli, Node, Spawn
from tests.cli.contract import check
from tests.cli.data.test_refill_send import refill_files
from tests.client.reading import values_at


def test_the_agent_delivers_files_as_soon_as_the_node_answers(
    cli: Cli, spawn: Spawn, node: Node, topic: str, state_folder: Path
) -> None:
    node.kill()
    assert cli("produce", topic, url=node.url, stdin=b"a\nb\n").code == 0
    (file,) = refill_files(state_folder)
    agent = spawn("agent", "--json", "--interval", 0.1, "--pause", 0.1)
    assert agent.stdout is not None and agent.stderr is not None
    log = (json.loads(line)["message"] for line in agent.stderr)
    assert "delivers refill files in" in next(log)
    assert any("no node answers" in message for message in log)
    node.start()
    (line,) = check("agent", agent.stdout.readline())
    assert (line["file"], line["topic"].rpartition("/")[2]) == (str(file), topic)
    assert refill_files(state_folder) == []
    assert asyncio.run(values_at(node.url, topic)) == [b"a", b"b"]
    agent.send_signal(signal.SIGTERM)
    assert agent.wait(30) == 0
