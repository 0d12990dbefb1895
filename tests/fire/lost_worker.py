"""A pipeline and a submitted program on a cluster that loses a worker.

Both take messages from a topic through a shuffle to another; one of the workers is killed with its executor
while the pipeline runs.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import headpond.sync
from tests.fire.real_node import RealNode
from tests.root import ROOT
from tests.spark.standalone import RUN_S_MAX, Cluster, submit

PROGRAM = ROOT / "tests" / "spark" / "cluster_program.py"
PIPELINE = """\
name = "cluster"
trigger = {{ available_now = true }}
spark = {{ conf = {{ {conf} }} }}

[sources.orders]
topic = "orders"
subscription = "cluster"
max_entries_per_trigger = {batch}

[steps.shuffled]
sql = "select key, value, identity from orders distribute by key"

[sinks.copies]
from = "shuffled"
topic = "copies"
headers = "map('origin', identity)"
"""


@dataclass
class Found:
    """The result."""

    sent: int
    copies: int = 0
    lost: int = 0
    repeated: int = 0
    killed_after: int = 0
    """How many copies existed when a worker was killed."""
    counted: int = 0
    """Written by the program under ``spark-submit``, one message per key."""
    ran: dict[str, Counter[str]] = field(default_factory=dict)

    @property
    def exact(self) -> bool:
        return (self.copies, self.lost, self.repeated, self.counted) == (self.sent, 0, 0, self.sent)

    def __str__(self) -> str:
        lines = [
            f"{worker}: " + ", ".join(f"{app} on {count} executors" for app, count in sorted(apps.items()))
            for worker, apps in self.ran.items()
        ]
        counts = f"{self.sent:,} sent, {self.copies:,} copies, {self.lost} lost, {self.repeated} repeated"
        lines += [
            f"headpond spark run: {counts}; a worker was killed after {self.killed_after:,}",
            f"spark-submit: {self.counted:,} counted by key",
        ]
        return "\n".join(lines)


def fill(client: headpond.sync.Client, count: int) -> None:
    client.admin.create_topic("orders", shards=4)
    client.admin.create_topic("copies", shards=2)
    client.admin.create_topic("counts")
    with client.producer("orders", name="till") as producer:
        for number in range(count):
            producer.post(b"%d" % number, key=b"k%d" % (number % 100))


def pipeline(cluster: Cluster, batch: int) -> Path:
    """The file of a pipeline that copies the topic."""
    conf = ", ".join(f'"{name}" = "{value}"' for name, value in cluster.conf.items())
    file = cluster.folder / "cluster.toml"
    file.write_text(PIPELINE.format(conf=conf, batch=batch))
    return file


def run_pipeline(cluster: Cluster, url: str, client: headpond.sync.Client, found: Found, batch: int) -> None:
    """Runs ``headpond spark run``, and kills a worker after it has written something."""
    file = pipeline(cluster, batch)
    command = (sys.executable, "-m", "headpond", "spark", "run", file, "--master", cluster.url, "--url", url)
    with cluster.log("run").open("ab") as log:
        run = subprocess.Popen(
            command, env=cluster.environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL
        )
        try:
            deadline = time.monotonic() + RUN_S_MAX
            while run.poll() is None and time.monotonic() < deadline:
                there = _stored(client, "copies")
                if there and not found.killed_after:
                    found.killed_after = there
                    cluster.kill_worker(0)
                time.sleep(0.1)
        finally:
            run.kill()
            code = run.wait()
    assert code == 0, cluster.log("run").read_text()


def _stored(client: headpond.sync.Client, topic: str) -> int:
    return sum(shard.entry_next for shard in client.admin.show_topic(topic).shard_list)


def lost_and_repeated(client: headpond.sync.Client) -> tuple[int, int, int]:
    """How many copies there are, how many messages have none, and how many copies are too many."""

    def rows(topic: str) -> list[tuple[str, str]]:
        shards = range(len(client.admin.show_topic(topic).shard_list))
        with client.reader(topic) as reader:
            return [
                (str(message.identity), message.headers.get("origin", ""))
                for shard, end in zip(shards, (each.entry_next for each in reader.ends()), strict=True)
                for part in reader.read(shard, 0, end)
                for batch in part.batches
                for message in batch.messages()
            ]

    sent = Counter(identity for identity, _ in rows("orders"))
    copies = Counter(origin for _, origin in rows("copies"))
    return copies.total(), (sent - copies).total(), (copies - sent).total()


def run(folder: Path, messages: int) -> Found:
    """Both, one after the other."""
    found = Found(messages)
    with (
        RealNode(folder / "node") as node,
        Cluster(folder / "spark") as cluster,
        headpond.sync.connect(node.url) as client,
    ):
        fill(client, messages)
        run_pipeline(cluster, node.url, client, found, batch=max(1, messages // 5))
        found.copies, found.lost, found.repeated = lost_and_repeated(client)
        submit(cluster, PROGRAM, node.url)
        with client.reader("counts") as reader:
            (ends,) = reader.ends()
            parts = list(reader.read(0, 0, ends.entry_next))
        found.counted = sum(
            int(message.value) for part in parts for batch in part.batches for message in batch.messages()
        )
        found.ran = cluster.ran()
    return found
