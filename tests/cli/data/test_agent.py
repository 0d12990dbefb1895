"""``headpond agent``: delivers what producers left, and ends at SIGTERM."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.cli.conftest import Cli, Node, Spawn
from tests.cli.contract import check
from tests.cli.data.test_refill_send import refill_files
from tests.client.reading import values_at
from tests.root import ROOT

DEVICE = (sys.executable, str(ROOT / "examples" / "device.py"))


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


def test_what_a_device_measures_while_its_node_is_away_arrives_in_order(
    spawn: Spawn, node: Node, state_folder: Path
) -> None:
    def measure() -> str:
        environment = os.environ | {"HEADPOND_URL": node.url}
        ran = subprocess.run(DEVICE, env=environment, capture_output=True, text=True, timeout=60)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    node.kill()
    assert measure() == "60.5 spilled\n61.0 spilled\n61.5 spilled\n"
    agent = spawn("agent", "--interval", 0.1, "--pause", 0.1)
    node.start()
    assert agent.stdout is not None
    assert agent.stdout.readline().startswith(b"delivered ")
    assert measure() == "60.5 stored\n61.0 stored\n61.5 stored\n"
    readings = [json.loads(value) for value in asyncio.run(values_at(node.url, "readings"))]
    assert [reading["degrees"] for reading in readings] == [60.5, 61.0, 61.5] * 2
    assert readings == sorted(readings, key=lambda reading: reading["at"])
