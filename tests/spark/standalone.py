"""A cluster of Spark's own kind on this machine: ``python -m tests.spark.standalone``, ``make cluster``.

A master and two workers are processes of their own, with executors as theirs. A pipeline's file and a program
under ``spark-submit`` take messages from a topic through a shuffle to another, and one of the workers is killed
while the pipeline runs. Printed are what ran where and the counts; exit code 1 unless they are exact.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import penstock.sync
from penstock.spark.java import find_java, java_home
from tests.fire.real_node import RealNode

HOST = "127.0.0.1"
START_S_MAX = 120.0
RUN_S_MAX = 400.0
QUICK_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
MASTER, WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"
HERE = Path(__file__).parent
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


class Cluster:
    """``with Cluster(folder) as cluster``: a master and workers with one core each; all end with the block."""

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self.folder = folder
        self.workers: list[subprocess.Popen[bytes]] = []
        self._master: subprocess.Popen[bytes] | None = None
        self._count = workers
        with socket.socket() as free:
            free.bind((HOST, 0))
            self._port: int = free.getsockname()[1]

    @property
    def url(self) -> str:
        return f"spark://{HOST}:{self._port}"

    @property
    def environment(self) -> dict[str, str]:
        return os.environ | {
            "JAVA_HOME": str(java_home(find_java())),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_DAEMON_JAVA_OPTS": QUICK_JAVA,
            "SPARK_DAEMON_MEMORY": "256m",
            "PYSPARK_PYTHON": sys.executable,
        }

    @property
    def conf(self) -> dict[str, str]:
        """What a small application on this cluster is told."""
        return {
            "spark.driver.host": HOST,
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.driver.extraJavaOptions": QUICK_JAVA,
            "spark.executor.extraJavaOptions": QUICK_JAVA,
            "spark.sql.shuffle.partitions": "2",
        }

    def __enter__(self) -> Self:
        try:
            self._master = self._launch(
                "master", MASTER, "--host", HOST, "--port", str(self._port), "--webui-port", "0"
            )
            self._await(lambda: _listens(self._port), self._master, "master")
            for number in range(self._count):
                self.workers.append(self.add_worker(f"worker-{number}"))
        except BaseException:
            self._end()
            raise
        return self

    def add_worker(self, name: str, **environment: str) -> subprocess.Popen[bytes]:
        """One more; its executors run in a folder of that name."""
        limits = ("--cores", "1", "--memory", "600m")
        place = ("--host", HOST, "--webui-port", "0", "--work-dir", str(self.folder / name))
        return self._launch(name, WORKER, *place, *limits, self.url, **environment)

    def kill_worker(self, number: int) -> None:
        """The worker and its executors at once, as when a machine goes."""
        _kill(self.workers[number])

    def ran(self) -> dict[str, Counter[str]]:
        """How many executors each worker had, by application."""
        found: dict[str, Counter[str]] = {}
        for place in sorted(self.folder.glob("*/app-*/*")):
            found.setdefault(place.parents[1].name, Counter())[place.parent.name] += 1
        return found

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _launch(self, name: str, main: str, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
        (self.folder / name).mkdir(parents=True, exist_ok=True)
        command = [str(spark_home() / "bin" / "spark-class"), main, *arguments]
        # Which Python runs tasks is for applications to say.
        inherited = {key: value for key, value in self.environment.items() if key != "PYSPARK_PYTHON"}
        with self.log(name).open("ab") as log:
            # A group of its own, so that a worker can be killed with its executors.
            return subprocess.Popen(
                command,
                cwd=self.folder / name,
                env=inherited | environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _await(self, condition: object, process: subprocess.Popen[bytes], name: str) -> None:
        assert callable(condition)
        deadline = time.monotonic() + START_S_MAX
        while not condition():
            assert process.poll() is None and time.monotonic() < deadline, self.log(name).read_text()
            time.sleep(0.1)

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        for process in (*self.workers, self._master):
            if process is not None:
                _kill(process)


def spark_home() -> Path:
    import pyspark

    return Path(pyspark.__file__).parent


def _listens(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex((HOST, port)) == 0


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


# --- what runs on it ------------------------------------------------------------------------------------


@dataclass
class Found:
    """What came of it."""

    sent: int
    copies: int = 0
    lost: int = 0
    repeated: int = 0
    killed_after: int = 0
    """How many copies were there when a worker was killed."""
    counted: int = 0
    """By the program under ``spark-submit``, a message a key."""
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
            f"penstock spark run: {counts}; a worker was killed after {self.killed_after:,}",
            f"spark-submit: {self.counted:,} counted by key",
        ]
        return "\n".join(lines)


def fill(client: penstock.sync.Client, count: int) -> None:
    client.admin.create_topic("orders", shards=4)
    client.admin.create_topic("copies", shards=2)
    client.admin.create_topic("counts")
    with client.producer("orders", name="till") as producer:
        for number in range(count):
            producer.post(b"%d" % number, key=b"k%d" % (number % 100))


def run_pipeline(cluster: Cluster, url: str, client: penstock.sync.Client, found: Found, batch: int) -> None:
    """``penstock spark run``, and a worker killed once it has written something."""
    conf = ", ".join(f'"{name}" = "{value}"' for name, value in cluster.conf.items())
    file = cluster.folder / "cluster.toml"
    file.write_text(PIPELINE.format(conf=conf, batch=batch))
    command = (
        sys.executable,
        "-m",
        "penstock",
        "spark",
        "run",
        str(file),
        "--master",
        cluster.url,
        "--url",
        url,
    )
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


def submit(cluster: Cluster, url: str, *options: str, program: Path | None = None) -> str:
    """Runs a program by ``spark-submit``; returns what it printed."""
    told = [part for name, value in cluster.conf.items() for part in ("--conf", f"{name}={value}")]
    started = str(program or HERE / "cluster_program.py")
    command = [
        str(spark_home() / "bin" / "spark-submit"),
        "--master",
        cluster.url,
        *told,
        *options,
        started,
        url,
    ]
    done = subprocess.run(command, env=cluster.environment, capture_output=True, text=True, timeout=RUN_S_MAX)
    if done.returncode:
        raise SubmitFailed(done.stderr)
    return done.stdout


class SubmitFailed(Exception):
    """The text is what it wrote on stderr."""


def _stored(client: penstock.sync.Client, topic: str) -> int:
    return sum(shard.entry_next for shard in client.admin.show_topic(topic).shard_list)


def count_copies(client: penstock.sync.Client, found: Found) -> None:
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
    found.copies = copies.total()
    found.lost = (sent - copies).total()
    found.repeated = (copies - sent).total()


def run_all(folder: Path, messages: int) -> Found:
    """The whole of it."""
    found = Found(messages)
    with (
        RealNode(folder / "node") as node,
        Cluster(folder / "spark") as cluster,
        penstock.sync.connect(node.url) as client,
    ):
        fill(client, messages)
        run_pipeline(cluster, node.url, client, found, batch=max(1, messages // 5))
        count_copies(client, found)
        submit(cluster, node.url)
        with client.reader("counts") as reader:
            (ends,) = reader.ends()
            parts = list(reader.read(0, 0, ends.entry_next))
        found.counted = sum(
            int(message.value) for part in parts for batch in part.batches for message in batch.messages()
        )
        found.ran = cluster.ran()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-cluster-") as folder:
        began = time.monotonic()
        found = run_all(Path(folder), asked.messages)
        print(found)
        print(f"{'exact' if found.exact else 'NOT EXACT'}, in {time.monotonic() - began:.0f} s")
    return 0 if found.exact else 1


if __name__ == "__main__":
    sys.exit(main())
