"""``headpond peer``: a link is added, looked at and removed by a person."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import headpond.sync
from headpond.cli.app import app
from tests.cli.conftest import Cli, Node
from tests.fire.real_node import wait_until


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with Node(tmp_path_factory.mktemp("other")) as running:
        yield running


def test_a_link_from_the_command_line_brings_a_topic(
    service: Node, other: Node, topic: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADPOND_URL", service.url)

    def said(*words: str) -> str:
        code = app(["peer", *words], prog_name="headpond", standalone_mode=False) or 0
        out, err = capsys.readouterr()
        assert code == 0, err
        return out

    with headpond.sync.connect(other.url) as there, there.producer(topic) as producer:
        producer.send(b"x")
    assert said("add", other.url, "--topics", topic, "--name", topic) == f"linked {topic}\n"
    wait_until(lambda: "following" in said("show", topic))
    wait_until(lambda: "connected" in said("list"))
    shown = said("show", topic)
    assert "messages in   1" in shown and f"{topic}  pull" in shown
    with headpond.sync.connect(service.url) as here, here.consumer(topic, "s") as consumer:
        message = consumer.receive(20)
        assert message is not None and message.value == b"x"
    assert said("remove", topic, "--yes") == f"removed {topic}\n"
    assert topic not in said("list")


def test_a_subscription_follows_is_refused_and_is_promoted(
    service: Node,
    other: Node,
    topic: str,
    cli: Cli,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HEADPOND_URL", service.url)

    def said(*words: str) -> str:
        app([*words], prog_name="headpond", standalone_mode=False)
        out, err = capsys.readouterr()
        return out + err

    with headpond.sync.connect(other.url) as there:
        with there.producer(topic) as producer:
            for number in range(3):
                producer.send(b"%d" % number)
        with there.consumer(topic, "billing") as consumer:
            first = consumer.receive(20)
            assert first is not None
            consumer.ack(first)
    names = ("--name", topic, "--with-subscriptions")
    said("peer", "add", other.url, "--topics", topic, *names)
    wait_until(lambda: "passive" in said("sub", "show", topic, "billing"))
    wait_until(lambda: "acknowledged 1 " in " ".join(said("sub", "show", topic, "billing").split()))
    shown = said("sub", "show", topic, "billing")
    assert f"link {topic}, 0 behind, updated 20" in shown
    assert "following" in said("peer", "show", topic).splitlines()[-1]
    refused = cli("consume", topic, "--subscription", "billing", "--count", "1", url=service.url).err
    assert f"lives on node {first.node}" in refused.replace("\n", " ") and "sub promote" in refused
    assert said("sub", "promote", topic, "billing").endswith("is active here, with 2 to settle\n")
    with headpond.sync.connect(service.url) as here, here.consumer(topic, "billing") as consumer:
        messages = [consumer.receive(20) for _ in range(2)]
        assert [message and (message.value, message.attempt) for message in messages] == [(b"1", 1), (b"2", 1)]
    wait_until(lambda: "promoted" in said("peer", "show", topic).splitlines()[-1])
    said("peer", "remove", topic, "--yes")
