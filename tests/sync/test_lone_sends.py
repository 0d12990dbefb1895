"""Blocking sends that come one at a time: the caller takes the answers itself."""

from __future__ import annotations

import pytest

import headpond.sync
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

    def noted(connection: Connection, timeout_s: float) -> bool:
        taken.append(receive(connection, timeout_s))
        return taken[-1]

    monkeypatch.setattr(Connection, "receive", noted)
    return taken


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller acts in place of the loop for longer than a busy machine takes for an answer."""
    monkeypatch.setattr(background, "LEND_S", PATIENT_S)
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
