"""Jobs and their commands find their node as ``headpond.connect()`` does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headpond.client.contexts import Contexts, NodeContext
from headpond.model.errors import BadRequest, TokenNeeded, TopicNotFound, Unavailable
from headpond.node.bootstrap import bootstrap
from headpond.spark.jobs.archive import archive
from headpond.spark.jobs.audit.audit import audit
from headpond.spark.jobs.audit.follow import follow
from headpond.spark.jobs.audit.ledger import audit_ledger
from headpond.spark.jobs.feed import feed_of, other_side
from headpond.spark.jobs.replay import replay
from headpond.spark.jobs.reshard import reshard
from tests.cli.conftest import Cli
from tests.fire.real_node import RealNode

NOWHERE = "headpond://127.0.0.1:1"
JOBS: dict[str, Callable[[Path], object]] = {
    "archive no-such archive": lambda folder: archive("no-such", folder),
    "replay no-such other": lambda folder: replay("no-such", "other"),
    "reshard no-such other --shards 2": lambda folder: reshard("no-such", "other", 2),
    "audit no-such other": lambda folder: audit("no-such", "other"),
    "audit no-such other --follow": lambda folder: follow("no-such", "other"),
    "audit --sent-ledger no-such": lambda folder: audit_ledger("no-such"),
}


def use(context: NodeContext) -> None:
    contexts = Contexts()
    contexts.add("here", context)
    contexts.save()


@pytest.mark.parametrize("command", JOBS)
def test_a_job_asks_the_node_of_the_context_in_use(command: str, service: RealNode, tmp_path: Path) -> None:
    use(NodeContext(service.url))
    with pytest.raises(TopicNotFound):
        JOBS[command](tmp_path / "archive")


@pytest.mark.parametrize("command", JOBS)
def test_the_environment_wins_over_the_context(
    command: str, service: RealNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(NodeContext(NOWHERE))
    with pytest.raises(Unavailable):
        JOBS[command](tmp_path / "archive")
    monkeypatch.setenv("HEADPOND_URL", service.url)
    with pytest.raises(TopicNotFound):
        JOBS[command](tmp_path / "archive")


@pytest.mark.parametrize("command", JOBS)
def test_a_command_asks_the_same_node(command: str, service: RealNode, cli: Cli, tmp_path: Path) -> None:
    words = [str(tmp_path / word) if word == "archive" else word for word in command.split()[1:]]
    words = ["spark", command.split()[0], *words]
    use(NodeContext(NOWHERE))
    assert "127.0.0.1:1" in cli(*words).err
    assert "there is no topic" in cli(*words, url=service.url).err
    use(NodeContext(service.url))
    assert "there is no topic" in cli(*words).err


def test_the_token_and_the_certificates_of_the_context_go_with_its_url(monkeypatch: pytest.MonkeyPatch) -> None:
    use(NodeContext(NOWHERE, "hpd_a_b", ca="/ca.pem"))
    wanted = {"url": NOWHERE, "token": "hpd_a_b", "ca": "/ca.pem", "topic": "default/default/default/t"}
    assert feed_of("t", "it").options() == wanted
    elsewhere = feed_of("t", "it", "headpond://there:1").options()
    assert (elsewhere["token"], "ca" in elsewhere) == ("none", False)
    monkeypatch.setenv("HEADPOND_TOKEN", "hpd_c_d")
    assert feed_of("t", "it").options()["token"] == "hpd_c_d"
    there = other_side("headpond://there:1", None, None, None)
    assert feed_of("t", "it", *there).options()["token"] == "none"


def test_a_topic_is_the_same_whatever_the_token() -> None:
    first, second = feed_of("t", "it", NOWHERE, "hpd_a_b"), feed_of("t", "it", NOWHERE, "hpd_c_d")
    assert first.is_same(second)
    assert not first.is_same(feed_of("t", "it", "headpond://127.0.0.1:2"))
    assert not first.is_same(feed_of("other", "it", NOWHERE))
    with pytest.raises(BadRequest, match="both sides"):
        audit("t", "t", url=NOWHERE, token="hpd_a_b", received_url=NOWHERE, received_token="hpd_c_d")


def test_a_job_shows_the_token_of_the_context(tmp_path: Path) -> None:
    guarded = RealNode(tmp_path / "node")
    _, admin = bootstrap(guarded.data, "admin")
    with guarded:
        use(NodeContext(guarded.url))
        with pytest.raises(TokenNeeded):
            archive("no-such", tmp_path / "archive")
        use(NodeContext(guarded.url, admin))
        with pytest.raises(TopicNotFound):
            archive("no-such", tmp_path / "archive")
