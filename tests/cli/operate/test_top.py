"""``headpond top`` over a real node, which also goes away."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import time
from pathlib import Path

import headpond.sync
from tests.cli.conftest import HEADPOND, Cli, Node, clean_environment

WAIT_S_MAX = 60.0


def test_one_sample_shows_the_furthest_behind_first(cli: Cli, service: Node, topic: str) -> None:
    with headpond.sync.connect(service.url) as client:
        for count, name in ((2, f"{topic}-a"), (5, f"{topic}-b")):
            with client.producer(name) as producer:
                for _ in range(count):
                    producer.send(b"x")
            client.admin.create_subscription(name, "s")
        few = client.admin.top(f"{topic}-*", limit=1)
    assert (len(few.topics), few.topics_left_out, few.subscriptions_left_out) == (1, 1, 1)
    done = cli("top", "--once", "--interval", 0.1, "--json", "--topic", f"{topic}-*", url=service.url)
    assert (done.code, done.err) == (0, "")
    (line,) = done.out.splitlines()
    sample = json.loads(line)
    assert [row["lag"] for row in sample["subscriptions"]] == [5, 2]
    assert [row["stored"] for row in sample["topics"]] == [5, 2]
    assert sample["topics"][0]["messages_s"] == 0.0
    assert sample["node"]["connections"] >= 1 and sample["node"]["rss_bytes"] > 0


def test_a_node_that_is_not_there_is_an_error_for_a_single_sample(cli: Cli) -> None:
    done = cli("top", "--once", "--json", url="headpond://127.0.0.1:1")
    assert done.code == 1
    assert json.loads(done.err)["hint"]


class Terminal:
    """``headpond top`` on a pseudo terminal, read until it shows something."""

    def __init__(self, url: str) -> None:
        self._ours, theirs = pty.openpty()
        environment = clean_environment() | {"HEADPOND_URL": url, "COLUMNS": "100", "LINES": "30"}
        self.process = subprocess.Popen(
            [*HEADPOND, "top", "--interval", "0.2"],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment | {"TERM": "xterm"},
        )
        os.close(theirs)

    def until(self, words: str) -> None:
        deadline, seen = time.monotonic() + WAIT_S_MAX, ""
        while words not in seen:
            assert time.monotonic() < deadline, seen[-2000:]
            if select.select([self._ours], [], [], 1.0)[0]:
                seen += os.read(self._ours, 65536).decode(errors="replace")

    def press(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    def interrupt(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(WAIT_S_MAX)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)


def test_a_node_that_goes_away_is_waited_for(tmp_path: Path) -> None:
    with Node(tmp_path / "node") as node:
        with headpond.sync.connect(node.url) as client:
            client.admin.create_topic("orders")
        terminal = Terminal(node.url)
        try:
            terminal.until("orders")
            node.kill()
            terminal.until("no answer, trying")
            terminal.until("orders")  # the last figures stay, marked as old ones
            node.start()
            with headpond.sync.connect(node.url) as client:
                client.admin.create_topic("later")
            terminal.until("later")
            assert terminal.interrupt() == 130
        finally:
            terminal.close()


def test_keys_change_the_order_and_end_it(service: Node) -> None:
    terminal = Terminal(service.url)
    try:
        terminal.until("by lag")
        terminal.press(b"ss")
        terminal.until("by size")
        terminal.press(b"q")
        assert terminal.process.wait(WAIT_S_MAX) == 0
    finally:
        terminal.close()
