"""The plugin for pytest: its fixtures, and what it costs where nobody uses them."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.root import ROOT
from tests.testing.running import run_pytest

ANYIO = """
import asyncio
import pytest

pytestmark = pytest.mark.anyio

@pytest.fixture
def anyio_backend():
    return "asyncio"

seen = []

@pytest.mark.parametrize("number", [1, 2])
async def test_each_test_has_its_own_node(headpond_node, headpond_client, number):
    assert headpond_node not in seen
    seen.append(headpond_node)
    async with headpond_client.producer("orders") as producer:
        assert (await producer.send(b"one")).entry == 0
    async with headpond_node.connect() as other:
        assert [each.topic for each in await other.admin.list_topics()] == ["default/default/default/orders"]
"""
PLAIN = """
import asyncio

def test_without_a_plugin_for_asyncio(headpond_node):
    async def scenario():
        async with headpond_node.connect() as client:
            async with client.producer("orders") as producer:
                return await producer.send(b"one")

    assert asyncio.run(scenario()).outcome == "stored"
"""
BLOCKING = """
import os
import headpond.sync

def test_a_program_connects_itself(headpond_url, headpond_sync_node, tmp_path_factory):
    assert headpond_url == headpond_sync_node.url
    assert os.environ["HEADPOND_STATE"].startswith(str(tmp_path_factory.getbasetemp()))
    with headpond.sync.connect(headpond_url) as client, client.producer("orders") as producer:
        assert producer.send(b"one").outcome == "stored"
"""


def test_the_fixtures_work_in_a_users_tests(tmp_path: Path) -> None:
    for name, text in {"anyio": ANYIO, "plain": PLAIN, "blocking": BLOCKING}.items():
        (tmp_path / f"test_{name}.py").write_text(text)
    outcome = run_pytest(tmp_path)
    assert "4 passed" in outcome, outcome


def test_a_run_that_uses_no_fixture_loads_no_node() -> None:
    program = (
        "import sys, headpond.testing.plugin; print(*(each for each in sys.modules if 'headpond' in each))"
    )
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert loaded.split() == ["headpond", "headpond.testing", "headpond.testing.plugin"]


def test_pytest_finds_the_plugin_by_its_entry_point() -> None:
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"]
    assert points == {"headpond.testing.plugin": "headpond.testing.plugin"}


@pytest.mark.parametrize("name", ["Node", "node", "BlockingNode", "blocking_node", "Clock"])
def test_the_package_has_its_public_names(name: str) -> None:
    import headpond.testing

    assert getattr(headpond.testing, name).__name__ == name
