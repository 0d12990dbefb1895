"""One Spark session for all tests of Spark: starting one takes seconds."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headpond.spark
import headpond.sync
from headpond.spark.connection import NodeConnection
from tests.cluster.nats import free_ports
from tests.spark import loaded_daemon
from tests.spark.standalone import QUICK_JAVA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER = "local[2, 4]"
"""Two cores, and four attempts at a task."""


@pytest.fixture(scope="session")
def node_of_pages() -> str:
    """The address of the node that a page names by its default, as the session does."""
    return f"127.0.0.1:{free_ports(1)[0]}"


@pytest.fixture(scope="session")
def spark(node_of_pages: str) -> Iterator[SparkSession]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("HEADPOND_URL", f"headpond://{node_of_pages}")  # Java takes it over at its start
        session = headpond.spark.session(
            "headpond tests",
            master=MASTER,
            conf={
                "spark.driver.extraJavaOptions": QUICK_JAVA,
                "spark.python.daemon.module": loaded_daemon.__name__,
            },
        )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def path_without_java(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A PATH with every program of this machine but Java."""
    folder = tmp_path_factory.mktemp("programs")
    for place in os.get_exec_path():
        programs = Path(place).iterdir() if Path(place).is_dir() else ()
        for program in programs:
            link = folder / program.name
            if not program.name.startswith("java") and not link.is_symlink():
                link.symlink_to(program)
    return str(folder)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Records how long each connection of a source or a sink may wait for its node."""
    waits: list[float] = []
    opening = NodeConnection.open

    def opened(self: NodeConnection, *, wait_s: float = 0.0) -> headpond.sync.Client:
        waits.append(wait_s)
        return opening(self, wait_s=wait_s)

    monkeypatch.setattr(NodeConnection, "open", opened)
    return waits
