"""A standalone Spark cluster on this machine: a master and workers, as processes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from headpond.spark.start.java import find_java, java_home

HOST = "127.0.0.1"
HOSTS = (HOST, "localhost")
"""Host names of workers: Spark runs a task a second time only on another host."""
START_S_MAX = 120.0
RUN_S_MAX = 400.0
QUICK_JAVA = (
    "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
"""Options for a Java that lives for seconds: it compiles once, and does not verify Spark's classes."""
MASTER, WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"


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
        """The environment of Spark: where programs are, and the sources of this package."""
        kept = ("HOME", "PATH", "PYTHONPATH", "HEADPOND_STATE", "XDG_CONFIG_HOME")
        return {name: os.environ[name] for name in kept if name in os.environ} | {
            "JAVA_HOME": str(java_home(find_java())),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_DAEMON_JAVA_OPTS": QUICK_JAVA,
            "SPARK_DAEMON_MEMORY": "256m",
            "PYSPARK_PYTHON": sys.executable,
        }

    @property
    def conf(self) -> dict[str, str]:
        """The settings of a small application on this cluster."""
        return {
            "spark.driver.host": HOST,
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.driver.extraJavaOptions": QUICK_JAVA,
            "spark.executor.extraJavaOptions": QUICK_JAVA,
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(self.folder / "warehouse"),
        }

    def __enter__(self) -> Self:
        try:
            self._master = self._launch(
                "master", MASTER, "--host", HOST, "--port", str(self._port), "--webui-port", "0"
            )
            self._await(lambda: _listens(self._port), self._master, "master")
            for number in range(self._count):
                self._add_worker(f"worker-{number}", HOSTS[number % 2])
        except BaseException:
            self._end()
            raise
        return self

    def _add_worker(self, name: str, host: str) -> None:
        """Starts one more worker; its executors run in a folder of that name."""
        limits = ("--cores", "1", "--memory", "600m")
        place = ("--host", host, "--webui-port", "0", "--work-dir", str(self.folder / name))
        self.workers.append(self._launch(name, WORKER, *place, *limits, self.url))

    def kill_worker(self, number: int) -> None:
        """Kills the worker and its executors at once, like the loss of a machine."""
        _kill(self.workers[number])

    def ran(self) -> dict[str, Counter[str]]:
        """How many executors each worker had, by application."""
        found: dict[str, Counter[str]] = {}
        for place in sorted(self.folder.glob("*/app-*/*")):
            found.setdefault(place.parents[1].name, Counter())[place.parent.name] += 1
        return found

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _launch(self, name: str, main: str, *arguments: str) -> subprocess.Popen[bytes]:
        (self.folder / name).mkdir(parents=True, exist_ok=True)
        command = [str(spark_home() / "bin" / "spark-class"), main, *arguments]
        # Which Python runs tasks is for applications to say.
        inherited = {key: value for key, value in self.environment.items() if key != "PYSPARK_PYTHON"}
        with self.log(name).open("ab") as log:
            # A separate process group, so that a worker can be killed with its executors.
            return subprocess.Popen(
                command,
                cwd=self.folder / name,
                env=inherited,
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


def submit(cluster: Cluster, program: Path, *arguments: str, conf: Mapping[str, str] | None = None) -> str:
    """Runs a program by ``spark-submit``; returns its output."""
    settings = cluster.conf | dict(conf or {})
    options = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    command = [str(spark_home() / "bin" / "spark-submit"), "--master", cluster.url, *options]
    done = subprocess.run(
        [*command, str(program), *arguments],
        cwd=cluster.folder,
        env=cluster.environment,
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
