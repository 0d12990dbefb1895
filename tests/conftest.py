"""Fixtures of all tests: a real node in a separate process."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import signal
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from tests.fire.real_node import RealNode

HERE = Path(__file__).parent
LONG = ("cluster", "sim", "torture")
SPARK_S_MAX = 600

# A process that a shell starts in the background ignores Ctrl-C, and so would all its children.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No deadline: a busy machine makes examples slow.
hypothesis.settings.register_profile("headpond", deadline=None)
hypothesis.settings.load_profile("headpond")

_numbers = itertools.count()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests on Spark: they share one session, so one process runs all of them.

    A test that starts Spark in a separate process is not marked. Files that take minutes come first, so that no
    process has one left when the others are done.
    """
    items.sort(key=lambda item: item.path.relative_to(HERE).parts[0] not in LONG)
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()) or item.path.is_relative_to(HERE / "spark"):
            item.add_marker("spark")
            # A timeout inside a call to Java leaves the shared session out of step for all
            # the tests that follow, so it is only for what really hangs.
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(SPARK_S_MAX))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs a test that is a coroutine function, in a loop that it has to itself."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture(autouse=True)
def state_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Producers, here and in processes that a test starts, spill into a folder of this test."""
    folder = tmp_path_factory.mktemp("state")
    monkeypatch.setenv("HEADPOND_STATE", str(folder))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))  # ignore the user's contexts
    return folder


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RealNode]:
    """A running node for one test alone: url, data, kill(), stop(), start(), restart()."""
    with RealNode(tmp_path / "node") as running:
        yield running


@pytest.fixture(scope="session")
def shared_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a node that many tests share, since starting one takes a second; use it with ``topic``."""
    with RealNode(tmp_path_factory.mktemp("shared") / "node") as running:
        yield running.url


@pytest.fixture
def topic() -> str:
    """A topic name that no other test uses."""
    return f"topic-{next(_numbers)}"
