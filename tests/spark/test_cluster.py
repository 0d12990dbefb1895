"""On a cluster of processes: every row is written once, though a worker is killed and slow tasks run twice."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import headpond.sync
from tests.fire.real_node import RealNode
from tests.spark.standalone import RUN_S_MAX, Cluster, submit

PROGRAM = Path(__file__).with_name("cluster_program.py")
STRAGGLER = Path(__file__).with_name("straggler.py")
PIPELINE = """\
name = "cluster"
trigger = {{ available_now = true }}
spark = {{ conf = {{ {conf} }} }}

[sources.orders]
topic = "orders"
subscription = "cluster"
max_entries_per_trigger = 1000

[steps.shuffled]
sql = "select key, value, identity from orders distribute by key"

[sinks.copies]
from = "shuffled"
topic = "copies"
headers = "map('origin', identity)"
"""
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
}


@contextmanager
def filled(folder: Path, messages: int) -> Iterator[tuple[Cluster, str, headpond.sync.Client]]:
    """A cluster, and a node whose topic has messages with a hundred keys."""
    with (
        RealNode(folder / "node") as node,
        Cluster(folder / "spark") as cluster,
        headpond.sync.connect(node.url) as client,
    ):
        for topic, shards in (("orders", 4), ("copies", 2), ("counts", 1)):
            client.admin.create_topic(topic, shards=shards)
        with client.producer("orders", name="till") as producer:
            for number in range(messages):
                producer.post(b"%d" % number, key=b"k%d" % (number % 100))
        yield cluster, node.url, client


def read(client: headpond.sync.Client, topic: str) -> list[headpond.Message]:
    with client.reader(topic) as reader:
        return [
            message
            for shard, ends in enumerate(reader.ends())
            for part in reader.read(shard, 0, ends.entry_next)
            for batch in part.batches
            for message in batch.messages()
        ]


def check_copies(client: headpond.sync.Client) -> None:
    """Each message has one copy, which names it."""
    sent = [str(message.identity) for message in read(client, "orders")]
    assert sorted(message.headers["origin"] for message in read(client, "copies")) == sorted(sent)


def stored(client: headpond.sync.Client, topic: str) -> int:
    return sum(shard.entry_next for shard in client.admin.show_topic(topic).shard_list)


def run_pipeline(cluster: Cluster, url: str, client: headpond.sync.Client) -> int:
    """Runs ``headpond spark run`` and kills a worker when copies are there; returns how many."""
    conf = ", ".join(f'"{name}" = "{value}"' for name, value in cluster.conf.items())
    file = cluster.folder / "cluster.toml"
    file.write_text(PIPELINE.format(conf=conf))
    command = (sys.executable, "-m", "headpond", "spark", "run", file, "--master", cluster.url, "--url", url)
    killed_after = 0
    with cluster.log("run").open("ab") as log:
        run = subprocess.Popen(
            command, env=cluster.environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL
        )
        try:
            deadline = time.monotonic() + RUN_S_MAX
            while run.poll() is None and time.monotonic() < deadline:
                if not killed_after and (killed_after := stored(client, "copies")):
                    cluster.kill_worker(0)
                time.sleep(0.1)
        finally:
            run.kill()
            code = run.wait()
    assert code == 0, cluster.log("run").read_text()
    return killed_after


@pytest.mark.timeout(900)
def test_a_pipeline_and_a_submitted_program_are_exact_on_a_cluster_that_loses_a_worker(tmp_path: Path) -> None:
    with filled(tmp_path, 5000) as (cluster, url, client):
        assert 0 < run_pipeline(cluster, url, client) < 5000, "it was killed while the pipeline ran"
        check_copies(client)
        submit(cluster, PROGRAM, url)
        assert sum(int(message.value) for message in read(client, "counts")) == 5000
        assert len(cluster.ran()) == 2, "both workers had something to do"


@pytest.mark.timeout(900)
def test_tasks_that_spark_runs_twice_write_every_row_once(tmp_path: Path) -> None:
    with filled(tmp_path, 1000) as (cluster, url, client):
        submit(cluster, STRAGGLER, url, str(tmp_path), conf=SPECULATION)
        check_copies(client)
        orphans = sum(writer.stages for writer in client.admin.list_writers())
    attempts: dict[str, Counter[str]] = defaultdict(Counter)
    for line in (tmp_path / "attempts").read_text().splitlines():
        what, task = line.split()
        attempts[what][task] += 1
    assert set(attempts["began"].values()) == {1, 2}, "one task of each batch ran twice"
    twice = list(attempts["staged"].values()).count(2)
    assert orphans >= twice >= 1, "and both attempts at some staged all of their rows"
