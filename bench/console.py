"""What the pages of the console wait for, at a node with 10,000 topics and a million messages.

Every figure is the time of one answer to a request that a page makes, beside the goal of 200 ms. The last two
are how long another request waits while two consoles watch: the stream of rates reads all topics every two
seconds while somebody looks, and the history does every ten.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
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
    "overview: one reading": "/v1/top?limit=10&interval=0.1",
    "overview: the last hour": "/v1/history",
    "topics: first page": "/v1/topics?limit=51",
    "topics: a page in the middle": "/v1/topics?limit=51&after=default/default/default/topic-05000",
    "topics: search": "/v1/topics?limit=51&match=topic-0999",
    "topic": "/v1/topics/million",
    "messages: newest": f"/v1/topics/million/messages?entry={MESSAGES - 50}&count=50",
    "messages: middle": f"/v1/topics/million/messages?entry={MESSAGES // 2}&count=50",
    "messages: a key in 8 MiB": "/v1/topics/million/messages?filter=key+%3D+%27k-77777%27&bytes_max=8388608",
    "subscriptions: first page": "/v1/subscriptions?limit=51",
    "subscriptions: search": "/v1/subscriptions?limit=51&match=topic-0999",
    "subscription": "/v1/topics/million/subscriptions/reader",
    "producers: first page": "/v1/producers?limit=51",
    "delivery: the ledger of a million": "/v1/topics/million/ledger",
    "spark: sources": "/v1/subscriptions?limit=200&advanced=true",
    "dead letters": "/v1/subscriptions?limit=51&dead=true",
    "for Prometheus": "/metrics",
}
WAITED_MS = {"overview: one reading": 100.0}
"""What the request itself asks the node to wait."""


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


def answer_ms(http: httpx.Client, path: str, times: int) -> list[float]:
    found = []
    for _ in range(times):
        began = time.perf_counter()
        http.get(path).raise_for_status()
        found.append((time.perf_counter() - began) * 1000)
    return found


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
            found += answer_ms(http, "/livez", 1)
            time.sleep(0.002)
    over.set()
    for each in watchers:
        each.join()
    return found


def measure(folder: Path, limits: Limits, seconds: float) -> list[Figure]:
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
            asyncio.run(make_topics(url))
            with httpx.Client(base_url=address, timeout=60) as http:
                fill(http)
                figures = []
                for name, path in ASKS.items():
                    found = answer_ms(http, path, max(5, int(5 * seconds)))
                    own = quantile(found, 0.5) - WAITED_MS.get(name, 0.0)
                    note = f"slowest {max(found) - WAITED_MS.get(name, 0.0):.0f} ms"
                    figures.append(Figure(f"console, {name}", own, "ms", "the goal", GOAL_MS, note))
            quiet = while_watched_ms(address, 5 * seconds)
            for share in (0.5, 0.999):
                name = f"console, /livez at {share:.1%} while two consoles watch"
                figures.append(Figure(name, quantile(quiet, share), "ms", "the goal", GOAL_MS))
            return figures
        finally:
            node.terminate()
