"""The whole demo: a newcomer runs it first."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys

import pytest

from headpond.cli.operate.demo import MESSAGES, DemoResult
from tests.cli.conftest import Cli
from tests.cli.contract import check
from tests.client.processes import environment
from tests.spark.standalone import QUICK_JAVA


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_the_demo_holds(cli: Cli) -> None:
    done = cli("demo", "--json", timeout=590, JAVA_TOOL_OPTIONS=QUICK_JAVA)
    found = check("demo", done.out)
    assert done.code == 0, found["checks"]
    assert (found["sent"], found["lost"], found["R"], found["held"]) == (MESSAGES, 0, 1.0, True)
    assert found["stored"] + found["duplicate"] == MESSAGES
    assert found["received"] == MESSAGES + found["repeated"]
    assert "killed the node" in done.err
    assert found["link"]["cuts"] > 0 and found["link"]["swallowed"] > 0
    assert found["spark"]["received"] == found["spark"]["unique"] == MESSAGES
    assert (found["spark"]["R"], found["spark"]["UR"]) == (1.0, 1.0)


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGHUP])
def test_a_demo_that_is_ended_leaves_no_node_behind(ending: signal.Signals) -> None:
    command = [sys.executable, "-m", "headpond", "demo", "--no-spark"]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=environment()
    ) as demo:
        assert demo.stderr is not None
        address = next(line for line in demo.stderr if "a node runs at" in line).split("://")[1].strip()
        demo.send_signal(ending)
        demo.stderr.read()
        demo.wait(60)
    host, _, port = address.rpartition(":")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), 5).close()


def test_losses_repeats_and_disorder_are_counted() -> None:
    async def outcome() -> DemoResult:
        """One message too few, one twice, two the wrong way round."""
        found = DemoResult(sent=MESSAGES, stored=MESSAGES, entries=MESSAGES)
        found.live.take(0, [0, 2, 1, 1, *range(3, MESSAGES - 1)])
        found.again.take(0, list(range(MESSAGES)))
        return found

    found = asyncio.run(outcome())
    assert (found.live.lost, found.live.repeated, found.live.in_order) == (1, 1, False)
    assert not found.held
    assert [held for _, held in found.checks()] == [True, True, False, False, True, True]


def test_a_segment_that_came_to_the_node_again_counts_in_the_ur_of_the_link() -> None:
    async def outcome() -> DemoResult:
        return DemoResult(sent=MESSAGES, segments=90, came_twice=10)

    assert asyncio.run(outcome()).summary()["UR_arrived"] == 0.9
