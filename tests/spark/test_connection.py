"""How sources and sinks find their node: options, the environment, the context in use; TLS."""

from __future__ import annotations

from pathlib import Path

import pytest

from headpond.client.contexts import Contexts, NodeContext
from headpond.model.errors import BadContext, BadRequest, BadURL, TlsFailed
from headpond.spark.connection import NodeConnection
from headpond.spark.options import SINK_OPTIONS, options_table, read_connection, read_sink_options
from headpond.spark.pipeline.frames import node_options
from headpond.spark.pipeline.plan import Plan, SinkTable
from headpond.spark.pipeline.run import node_of
from tests.client.link.certificates import Certificates
from tests.fire.real_node import RealNode
from tests.root import ROOT

HERE, THERE = "headpond://here:1", "headpond://there:1"
DOCS = ROOT / "docs"


@pytest.fixture
def context() -> NodeContext:
    """The one in use."""
    context = NodeContext(HERE, "hpd_a_b", "/ca.pem", "/cert.pem", "/key.pem")
    contexts = Contexts()
    contexts.add("here", context)
    contexts.save()
    return context


def test_nothing_given_is_the_node_on_this_machine() -> None:
    assert read_connection({}) == NodeConnection("headpond://127.0.0.1:7411", timeout_s=120.0)


def test_the_context_in_use_gives_url_token_and_certificates(
    context: NodeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read_connection({}) == NodeConnection(HERE, "hpd_a_b", "/ca.pem", "/cert.pem", "/key.pem")
    monkeypatch.setenv("HEADPOND_CONTEXT", "elsewhere")
    with pytest.raises(BadContext, match="elsewhere"):
        read_connection({})


def test_the_environment_wins_over_the_context_and_an_option_over_both(
    context: NodeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADPOND_TOKEN", "hpd_c_d")
    monkeypatch.setenv("HEADPOND_CA", "/other.pem")
    assert read_connection({}) == NodeConnection(HERE, "hpd_c_d", None, "/cert.pem", "/key.pem")
    assert read_connection({"token": "hpd_e_f", "ca": "/mine.pem"}).token == "hpd_e_f"
    assert read_connection({"ca": "/mine.pem"}).ca == "/mine.pem"
    monkeypatch.setenv("HEADPOND_URL", THERE)
    assert read_connection({}) == NodeConnection(THERE, "hpd_c_d")
    assert read_connection({"url": HERE}).url == HERE


def test_a_contexts_token_goes_to_its_own_url_alone(
    context: NodeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read_connection({"url": THERE}) == NodeConnection(THERE)
    monkeypatch.setenv("HEADPOND_URL", THERE)
    assert read_connection({}) == NodeConnection(THERE)


def test_a_pipeline_hands_its_context_to_its_own_node_and_the_environments_token_to_no_other(
    context: NodeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Plan(name="p", sources={}, sinks={})
    node = node_of(plan)
    here = node_options(node, SinkTable(from_="a", topic="t"))
    assert read_connection(here) == read_connection({}) and here["ca"] == "/ca.pem"
    monkeypatch.setenv("HEADPOND_TOKEN", "hpd_c_d")
    there = node_options(node, SinkTable(from_="a", topic="t", url=THERE))
    assert read_connection(there) == NodeConnection(THERE)
    assert node_of(Plan(name="p", sources={}, sinks={}, url=THERE)) == NodeConnection(THERE, "hpd_c_d")


@pytest.mark.parametrize("text", ["0", "-1", "nan", "soon", "1e9"])
def test_a_timeout_is_a_time(text: str) -> None:
    assert read_connection({"timeout": "2.5"}).timeout_s == 2.5
    with pytest.raises(BadRequest, match="timeout is a number of seconds above 0"):
        read_connection({"timeout": text})


def test_a_url_that_is_none_is_refused_wherever_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADPOND_URL", "http://x")
    with pytest.raises(BadURL):
        read_connection({})


def test_a_node_is_reached_over_tls_with_the_files_that_the_options_name(tmp_path: Path) -> None:
    files = Certificates.made(tmp_path / "certificates")
    config = f'tls_cert = "{files.node}"\ntls_client_ca = "{files.ca}"\n'
    with RealNode(tmp_path / "node", config=config) as node:
        given = {"URL": node.url, "CA": files.ca, "Cert": files.client, "key": files.client, "topic": "t"}
        with read_sink_options(given, streaming=True).connection.open() as client:
            assert client.admin.list_topics() == []
        del given["CA"]
        with pytest.raises(TlsFailed), read_sink_options(given, streaming=True).connection.open(wait_s=60):
            pass


def test_the_page_lists_the_sinks_options_as_they_are_declared() -> None:
    assert options_table(SINK_OPTIONS) in (DOCS / "spark_sink.md").read_text()
