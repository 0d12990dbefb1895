"""Blocking sends that come one at a time: the caller takes the answers itself."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest

import headpond.sync
from headpond.client.link import connection, spin
from headpond.client.link.connection import Connection
from headpond.sync import background, producer
from tests.fire.real_node import RealNode

SENDS = 50
PATIENT_S = 10.0


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each time that a caller waited in place of the loop: whether bytes came."""
    taken: list[bool] = []
    receive = Connection.receive

    def noted(link: Connection, timeout_s: float) -> bool:
        taken.append(receive(link, timeout_s))
        return taken[-1]

    monkeypatch.setattr(Connection, "receive", noted)
    return taken


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller acts in place of the loop for longer than a busy machine takes for an answer."""
    monkeypatch.setattr(background, "LEND_S", PATIENT_S)
    monkeypatch.setattr(background, "LEND_DIRECTLY_S", PATIENT_S)
    monkeypatch.setattr(background, "HAND_OVER_S", PATIENT_S)
    monkeypatch.setattr(producer, "LEND_S", PATIENT_S)


@pytest.mark.usefixtures("patient")
def test_the_caller_takes_the_answers_without_the_loop(shared_url: str, topic: str, taken: list[bool]) -> None:
    with headpond.sync.connect(shared_url) as client, client.producer(topic) as sender:
        receipts = [sender.send(b"%d" % number, key=b"k", id=str(number)) for number in range(SENDS)]
        assert [receipt.entry for receipt in receipts] == list(range(SENDS))
        assert sender.stats.stored == SENDS and len(taken) > SENDS // 2


@pytest.mark.usefixtures("patient")
def test_a_refusal_is_raised(shared_url: str, topic: str, taken: list[bool]) -> None:
    with headpond.sync.connect(shared_url) as client, client.producer(topic, refill=None) as sender:
        for _ in range(SENDS):
            sender.send(b"")
        client.admin.delete_topic(topic)
        with pytest.raises(headpond.HeadpondError):
            sender.send(b"")
        assert any(taken)


@pytest.mark.usefixtures("patient")
def test_a_node_that_goes_away_is_noticed_and_the_message_arrives(node: RealNode, taken: list[bool]) -> None:
    with headpond.sync.connect(node.url) as client, client.producer("t") as sender:
        for _ in range(SENDS):
            sender.send(b"before")
        assert any(taken)
        node.kill()
        node.start()
        sent = [sender.post(b"after") if number % 2 else sender.send(b"after") for number in range(4)]
        assert len(sent) == 4
        sender.flush()
    with headpond.sync.connect(node.url) as client, client.consumer("t", "s") as consumer:
        values = [message.value for _, message in zip(range(SENDS + 4), consumer, strict=False)]
    assert values == [b"before"] * SENDS + [b"after"] * 4


class LatePoll:
    """Every answer comes after more than ``SPIN_S``."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self.register = self._poll.register

    def poll(self, timeout_ms: float) -> list[tuple[int, int]]:
        if timeout_ms == 0:
            return []
        time.sleep(2 * connection.SPIN_S)
        return self._poll.poll(timeout_ms)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(
    ("count", "poll", "spins"),
    [
        pytest.param(2.0, select.poll, True, id="answers come soon"),
        pytest.param(2.0, LatePoll, False, id="answers come late"),
        pytest.param(1.0, select.poll, False, id="the node needs the same core"),
    ],
)
def test_a_caller_spins_while_answers_come_soon(
    shared_url: str,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
    taken: list[bool],
    count: float,
    poll: Callable[[], object],
    spins: bool,
) -> None:
    yields: list[None] = []
    monkeypatch.setattr(os, "sched_yield", lambda: yields.append(None))
    monkeypatch.setattr(spin, "cores", lambda: count)
    monkeypatch.setattr(spin, "SPARE", 100.0)
    monkeypatch.setattr(connection, "select", SimpleNamespace(poll=poll, POLLIN=select.POLLIN))
    if poll is select.poll:
        monkeypatch.setattr(connection, "SPIN_S", PATIENT_S)
    with headpond.sync.connect(shared_url) as client, client.producer(topic) as sender:
        for _ in range(SENDS):
            sender.send(b"")
        taken.clear()
        yields.clear()
        for _ in range(SENDS):
            sender.send(b"")
        assert any(taken) and bool(yields) == spins
