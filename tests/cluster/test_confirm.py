"""With ``confirm = "journal+standby"`` a standby has applied every change before it is acknowledged."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import headpond
from tests.cluster.group import RealGroup
from tests.cluster.nats import NatsCluster

CONFIRM = 'confirm = "journal+standby"\n'
TOPIC = "orders"
SENDS = 20
SILENCE_S = 2.5
"""Less than the time after which a standby takes over."""


def stored(group: RealGroup, member: str, value: bytes) -> bool:
    """Whether the folder of a member has a value."""
    files = [path for path in group.data(member).rglob("*") if path.is_file()]
    return any(value in path.read_bytes() for path in files)


@pytest.mark.timeout(180)
async def test_a_standby_has_what_is_acknowledged_and_without_one_nothing_is(tmp_path: Path) -> None:
    async with (
        NatsCluster(tmp_path / "nats") as nats,
        RealGroup(tmp_path / "group", nats, config=CONFIRM) as group,
    ):
        active = await group.active()
        standbys = await group.standbys()
        async with (
            headpond.connect(group.url, wait=False) as client,
            client.producer(TOPIC, refill=None) as producer,
        ):
            for number in range(SENDS):
                value = b"value-%d-of-the-test" % number
                receipt = await producer.send(value)
                for member in standbys:
                    group.stop(member)
                assert receipt.outcome == "stored"
                assert any(stored(group, member, value) for member in standbys), number
                for member in standbys:
                    group.resume(member)
            await stopped_standbys(group, producer, standbys)
        assert await group.active() == active, "nobody took over"
        for member in standbys:
            group.kill(member)
        assert await asyncio.to_thread(group.end, active) == 0, "it stops although no standby is there"


async def stopped_standbys(group: RealGroup, producer: headpond.Producer, standbys: list[str]) -> None:
    """Nothing is acknowledged while both are stopped; one that continues is enough."""
    for member in standbys:
        group.stop(member)
    sending = asyncio.ensure_future(producer.send(b"the value that waits"))
    await asyncio.sleep(SILENCE_S)
    assert not sending.done()
    assert not any(stored(group, member, b"the value that waits") for member in standbys)
    group.resume(standbys[0])
    receipt = await asyncio.wait_for(sending, 30)
    assert receipt.outcome == "stored" and stored(group, standbys[0], b"the value that waits")
    group.resume(standbys[1])


@pytest.mark.timeout(120)
async def test_a_member_without_a_standby_does_not_serve_and_stops_at_once(tmp_path: Path) -> None:
    async with (
        NatsCluster(tmp_path / "nats") as nats,
        RealGroup(tmp_path / "group", nats, config=CONFIRM) as group,
    ):
        group.kill(*group.members)
        before = group.log("m1")
        group.start("m1")
        assert await group.active() == "m1"
        await asyncio.sleep(1.0)
        assert "ready" not in group.log("m1").removeprefix(before)
        assert await asyncio.to_thread(group.end, "m1") == 0
