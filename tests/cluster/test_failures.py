"""Real nodes over real servers: whatever fails, nothing acknowledged is lost, altered or stored twice."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from headpond.wire.control.greeting import Hello
from tests.cluster.failures import FAILURES, run
from tests.cluster.nats import free_ports
from tests.fire.raw_client import RawClient
from tests.fire.real_node import NODE, STOP_S_MAX, wait_until

SHORT = (
    "the active node stands still, and wakes up replaced",
    "the active node and the leader of the stream are killed",
    "the active node stops cleanly, and its folder is lost",
)
"""The others run in ``python -m tests.cluster.failures``."""


@pytest.mark.timeout(300)
async def test_failures_lose_nothing_and_store_nothing_twice(tmp_path: Path) -> None:
    rows = [row async for row in run(tmp_path, [name for name in FAILURES if name in SHORT])]
    assert [row.name for row in rows if not row.sound] == [], "\n".join(map(str, rows))
    assert len(rows) == len(SHORT)
    assert all(row.outcome.acknowledged > 100 for row in rows), "\n".join(map(str, rows))


def test_a_member_that_has_not_reached_its_stream_refuses_every_client_and_stops(tmp_path: Path) -> None:
    port, nothing = free_ports(2)
    place = ["--data", str(tmp_path / "data"), "--listen", f"127.0.0.1:{port}"]
    with (
        (tmp_path / "log").open("wb") as log,
        subprocess.Popen([*NODE, *place, "--cluster", f"nats://127.0.0.1:{nothing}"], stderr=log) as member,
    ):
        try:
            wait_until(lambda: answer(port))
            assert [answer(port), answer(port)] == ["not-active", "not-active"]
            member.terminate()
            assert member.wait(STOP_S_MAX) == 0
        finally:
            member.kill()


def answer(port: int) -> str:
    """The code of the error with which a member refuses; empty if it does not listen yet."""
    try:
        client = RawClient(("127.0.0.1", port), greet=False)
    except ConnectionRefusedError:
        return ""
    with client:
        client.send(Hello(versions=[1], client="raw"))
        return client.end()
