"""``penstock peer``: a link is added, looked at and removed by a person."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock.sync
from penstock.cli.app import app
from tests.cli.conftest import Node
from tests.fire.real_node import wait_until


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Node]:
    with Node(tmp_path / "other") as running:
        yield running


def test_a_link_from_the_command_line_brings_a_topic(
    service: Node, other: Node, topic: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_URL", service.url)

    def said(*words: str) -> str:
        code = app(["peer", *words], prog_name="penstock", standalone_mode=False) or 0
        out, err = capsys.readouterr()
        assert code == 0, err
        return out

    with penstock.sync.connect(other.url) as there, there.producer(topic) as producer:
        producer.send(b"x")
    assert said("add", other.url, "--topics", topic, "--name", topic) == f"linked {topic}\n"
    wait_until(lambda: "following" in said("show", topic))
    wait_until(lambda: "connected" in said("list"))
    shown = said("show", topic)
    assert "messages in   1" in shown and f"default/default/default/{topic}  pull" in shown
    with penstock.sync.connect(service.url) as here, here.consumer(topic, "s") as consumer:
        message = consumer.receive(20)
        assert message is not None and message.value == b"x"
    assert said("remove", topic, "--yes") == f"removed {topic}\n"
    assert topic not in said("list")
