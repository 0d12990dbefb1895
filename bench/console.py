"""What the pages of the console wait for, at a node with 10,000 topics and a million messages.

Every figure is the time of one answer to a request that a page makes, or until the first event of a stream,
beside the goal of 200 ms: the middle one and the slowest. The last figures are how long another request waits
while two consoles watch, and what the node does while nobody looks: the stream of rates reads all topics every
two seconds, the history does every ten.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from os import sysconf
from pathlib import Path

import httpx

from bench.figure import Figure, quantile
from bench.limits import Limits
from headpond import connect

TOPICS = 10_000
MESSAGES = 1_000_000
BATCH = 10_000
AT_ONCE = 200
GOAL_MS = 200.0
ASKS = {
    "the page itself": "/",
    "its largest file": "/console/vendor/uplot.js",
    "overview: one reading": "/v1/top?limit=10&interval=0.1",
    "overview: the last hour": "/v1/history",
    "who": "/v1/access",
    "topics: first page": "/v1/topics?limit=51",
    "topics: a page in the middle": "/v1/topics?limit=51&after=default/default/default/topic-05000",
    "topics: search": "/v1/topics?limit=51&match=topic-0999",
    "topic": "/v1/topics/million",
    "topic: its subscriptions": "/v1/subscriptions?limit=50&match=default/default/default/million/",
    "messages: ends": "/v1/topics/million/ends",
    "messages: newest": f"/v1/topics/million/messages?entry={MESSAGES - 50}&count=50",
    "messages: middle": f"/v1/topics/million/messages?entry={MESSAGES // 2}&count=50",
    "messages: a key in 8 MiB": "/v1/topics/million/messages?filter=key+%3D+%27k-77777%27&bytes_max=8388608",
    "subscriptions: first page": "/v1/subscriptions?limit=51",
    "subscriptions: search": "/v1/subscriptions?limit=51&match=topic-0999",
    "subscription": "/v1/topics/million/subscriptions/reader",
    "producers: first page": "/v1/producers?limit=51",
    "delivery: sinks": "/v1/writers",
    "delivery: sources": "/v1/subscriptions?limit=1000&advanced=true",
    "delivery: the ledger of a million": "/v1/topics/million/ledger",
    "delivery: the last hour of a topic": "/v1/history?topic=million",
    "dead letters": "/v1/subscriptions?limit=51&dead=true",
    "dead letters of a subscription": "/v1/topics/million/subscriptions/reader/dead",
    "links": "/v1/peers",
    "tokens": "/v1/tokens",
    "tokens: log": "/v1/log?count=50",
    "for Prometheus": "/metrics",
}
STREAMS = {
    "overview: first event": "/v1/top/events?limit=10&interval=2",
    "delivery: first event": "/v1/top/events?limit=20&interval=2",
    "delivery: first event of a search": "/v1/top/events?limit=20&interval=2&topic=*topic-0999*",
    "messages: follow": "/v1/topics/million/events?start=latest",
}
WAITED_MS = {"overview: one reading": 100.0}
"""What the request itself asks the node to wait."""
UNSEEN_S = 30.0
"""The time with nobody looking: three readings for the history."""


async def make_topics(url: str) -> None:
    async with connect(url) as client:
        free = asyncio.Semaphore(AT_ONCE)

        async def make(number: int) -> None:
            async with free:
                name = f"topic-{number:05}"
                await client.admin.create_topic(name)
                await client.admin.create_subscription(name, "reader")

        await asyncio.gather(*(make(number) for number in range(TOPICS)))


def fill(http: httpx.Client) -> None:
    http.post("/v1/topics", json={"topic": "million"}).raise_for_status()
    http.post("/v1/topics/million/subscriptions", json={"subscription": "reader"}).raise_for_status()
    for start in range(0, MESSAGES, BATCH):
        messages = [{"value": f"message {n}", "key": f"k-{n}"} for n in range(start, start + BATCH)]
        http.post("/v1/topics/million/messages", json={"messages": messages}).raise_for_status()


def answer_ms(http: httpx.Client, path: str) -> float:
    began = time.perf_counter()
    http.get(path).raise_for_status()
    return (time.perf_counter() - began) * 1000


def event_ms(http: httpx.Client, path: str) -> float:
    """Until the first bytes of a stream; of rates, until the first event behind the greeting."""
    began = time.perf_counter()
    with http.stream("GET", path) as answer:
        lines = answer.iter_lines()
        next(line for line in lines if line.startswith("data: " if "/top/" in path else ":"))
    return (time.perf_counter() - began) * 1000


def while_watched_ms(url: str, seconds: float) -> list[float]:
    """What ``/livez`` takes while two consoles follow the rates of the node."""
    over = threading.Event()

    def watch() -> None:
        path = "/v1/top/events?interval=2&limit=20"
        with httpx.Client(base_url=url, timeout=30) as http, http.stream("GET", path) as answer:
            for _ in answer.iter_lines():
                if over.is_set():
                    return

    watchers = [threading.Thread(target=watch) for _ in range(2)]
    for each in watchers:
        each.start()
    found: list[float] = []
    with httpx.Client(base_url=url, timeout=30) as http:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            found.append(answer_ms(http, "/livez"))
            time.sleep(0.002)
    over.set()
    for each in watchers:
        each.join()
    return found


def processor_s(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / sysconf("SC_CLK_TCK")


@contextmanager
def running(folder: Path) -> Iterator[tuple[int, str, str]]:
    """A node: its process, and the addresses for clients and for HTTP."""
    config = folder / "console.toml"
    config.write_text(
        'http = "127.0.0.1:0"\n'
        "[limits]\ntopics = 20000\nsubscriptions = 40000\n"
        "[topics]\ntenant_topics = 20000\ntenant_subscriptions = 20000\ntenant_creates_s = 1000000\n"
    )
    command = [sys.executable, "-m", "headpond", "node", "--config", str(config), "--listen", "127.0.0.1:0"]
    with subprocess.Popen(
        [*command, "--data", str(folder / "console")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as node:
        assert node.stdout is not None
        try:
            url, address = (node.stdout.readline().split()[1] for _ in range(2))
            yield node.pid, url, address
        finally:
            node.terminate()


def waits(http: httpx.Client, times: int) -> list[Figure]:
    figures = []
    for ask, paths in ((answer_ms, ASKS), (event_ms, STREAMS)):
        for name, path in paths.items():
            found = [ask(http, path) - WAITED_MS.get(name, 0.0) for _ in range(times)]
            for which, value in (("", quantile(found, 0.5)), (", slowest", max(found))):
                figures.append(Figure(f"console, {name}{which}", value, "ms", "the goal", GOAL_MS))
    return figures


def stalls(address: str, seconds: float, when: str) -> list[Figure]:
    quiet = while_watched_ms(address, seconds)
    shares = {"p50": quantile(quiet, 0.5), "p99.9": quantile(quiet, 0.999), "slowest": max(quiet)}
    return [
        Figure(f"console, /livez while two consoles watch, {when}, {name}", value, "ms", "the goal", GOAL_MS)
        for name, value in shares.items()
    ]


def measure(folder: Path, limits: Limits, seconds: float) -> list[Figure]:
    figures = []
    with running(folder) as (_, url, address):
        began = time.monotonic()
        asyncio.run(make_topics(url))
        spent = time.monotonic() - began
        figures.append(Figure(f"console, making {TOPICS:,} topics and subscriptions", spent, "s"))
        with httpx.Client(base_url=address, timeout=60) as http:
            fill(http)
        figures += stalls(address, 10 * seconds, "all new")
    began = time.monotonic()
    with running(folder) as (process, _, address):
        figures.append(Figure(f"console, starting with {TOPICS:,} topics", time.monotonic() - began, "s"))
        with httpx.Client(base_url=address, timeout=60) as http:
            figures += waits(http, max(5, int(5 * seconds)))
        figures += stalls(address, 10 * seconds, "started again")
        before = processor_s(process)
        time.sleep(UNSEEN_S)
        share = (processor_s(process) - before) / UNSEEN_S
        figures.append(Figure("console, processor while nobody looks", 100 * share, "%", "one core", 100.0))
    return figures
