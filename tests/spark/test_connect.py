"""Over Spark Connect the client needs only Spark, for the source and the sink."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import headpond.spark
import headpond.sync
from headpond.model.errors import BadRequest
from headpond.spark.start.java import find_java, java_home
from tests.fire.real_node import RealNode
from tests.spark.standalone import QUICK_JAVA


def test_a_client_of_spark_connect_reads_writes_and_streams(node: RealNode, tmp_path: Path) -> None:
    with headpond.sync.connect(node.url) as client, client.producer("a") as producer:
        for number in range(20):
            producer.send(b"%d" % number, key=b"%d" % (number % 3))
    program = Path(__file__).with_name("connect_program.py")
    names = {
        "JAVA_HOME": str(java_home(find_java())),
        "JAVA_TOOL_OPTIONS": QUICK_JAVA,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    done = subprocess.run(
        [sys.executable, program, node.url, tmp_path / "checkpoint"],
        env=os.environ | names,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert {topic: said[topic] for topic in "abc"} == {"a": 20, "b": 20, "c": 20}
    assert said["of"] == "pyspark.sql.connect.session"
    assert "over Spark Connect" in said["session"]
    assert said["lag"] == {"default/default/default/a": 0}


def test_a_session_refuses_a_process_that_uses_spark_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://localhost")
    with pytest.raises(BadRequest, match=r"over Spark Connect") as caught:
        headpond.spark.session()
    assert "spark.read.format" in (caught.value.hint or "")
