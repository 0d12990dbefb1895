"""``headpond demo``: a bad link, a real node, a kill in the middle, Spark, and the count of what arrived.

The node runs in a child process, in a temporary folder. The producer sends over a link whose connections break
and lose what is in transit. After half of the messages, the node is killed (SIGKILL) and started again while
the other half is in transit. Then everything is counted, another subscription reads the whole topic again, a
Spark pipeline copies it to another topic, and an audit compares the two.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headpond.cli.command import command
from headpond.cli.output import Output, note, print_table, run
from headpond.model.address import Address, parse_addresses
from headpond.model.errors import Unavailable
from headpond.model.ledger import Ratio
from headpond.node.lossy_link import Harm, LossyLink

if TYPE_CHECKING:
    from headpond.client.connect import Client
    from headpond.client.produce.producer import Producer
    from headpond.spark.jobs.audit.audit import AuditResult


CARRIED = "demo.carried"
AUDITED = ("sent", "received", "unique", "missing", "repeated", "R", "UR")
ENTRIES_A_BATCH = 40_000
MESSAGES = 100_000
SHARDS = 4
KEYS = 100
SEGMENT_ROWS = 100
"""Small, so that the link can lose many different ones."""
TOPIC = "demo"
RECEIVED_BEFORE_KILL = 30_000
SECONDS_MAX = 300.0
IDLE_SECONDS = 30.0
"""Longer than the restart of the node and the backoff of the client take on a slow machine."""


@command()
def demo(
    output: Output,
    spark: Annotated[
        bool, typer.Option("--spark/--no-spark", help="Also copy the topic through Spark, and audit the copy.")
    ] = True,
) -> None:
    """Send 100,000 messages over a bad link, kill the node halfway, copy them through Spark, and count.

    Everything runs in a temporary folder. Exits with 1 unless every guarantee held.
    """
    if spark:
        from headpond.spark.start.packages import need_spark

        need_spark()  # fail now, not after a minute of work
    for ending in (signal.SIGTERM, signal.SIGHUP):  # as Ctrl-C does: stop the node and remove its folder
        signal.signal(ending, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="headpond-demo-") as folder:
        node = NodeProcess(Path(folder) / "node")
        try:
            node.start()
            note(f"a node runs at {node.url}")
            began = time.monotonic()
            outcome = run(_demo(node))
            if spark:
                note("starting Spark")
                outcome.spark = carry(node.url, TOPIC, Path(folder))
            outcome.seconds = time.monotonic() - began
        finally:
            node.stop()
    output.show(outcome.summary(), partial(_print, outcome), ok=outcome.held)


@dataclass
class Reading:
    """The messages that one subscription received, by the number that each carries."""

    received: int = 0
    seen: set[int] = field(default_factory=set)
    in_order: bool = True
    under_way: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once enough messages were received to kill the node in the middle."""
    _last: dict[int, int] = field(default_factory=dict)

    def take(self, shard: int, numbers: list[int]) -> None:
        """Checks the order of the producer on each shard, among first arrivals: a repeat does not break it."""
        self.received += len(numbers)
        last = self._last.get(shard, -1)
        for number in numbers:
            if number in self.seen:
                continue
            self.in_order &= number > last
            last = number
        self._last[shard] = last
        self.seen.update(numbers)
        if self.received >= RECEIVED_BEFORE_KILL:
            self.under_way.set()

    @property
    def lost(self) -> int:
        return MESSAGES - len(self.seen)

    @property
    def repeated(self) -> int:
        return self.received - len(self.seen)

    @property
    def exact(self) -> bool:
        return self.lost == 0 and self.repeated == 0 and self.in_order


@dataclass
class DemoResult:
    sent: int = 0
    stored: int = 0
    duplicate: int = 0
    entries: int = 0
    came_again: int = 0
    came_twice: int = 0
    """Segments that reached the node a second time, and were refused as duplicates."""
    segments: int = 0
    """Segments that it stored."""
    live: Reading = field(default_factory=Reading)
    again: Reading = field(default_factory=Reading)
    link: Harm = field(default_factory=Harm)
    spark: AuditResult | None = None
    """Of the copy that Spark made."""
    seconds: float = 0.0

    def checks(self) -> list[tuple[str, bool]]:
        """Each promise and whether it held."""
        checks = [
            ("every message sent was acknowledged as stored", self.stored + self.duplicate == self.sent),
            ("the log holds each message once, re-sends included", self.entries == self.sent),
            ("none was lost to the consumer across the kill", self.live.lost == 0),
            ("first arrivals came in the producer's order", self.live.in_order),
            ("a second reader finds all, once, in order", self.again.exact),
            ("what was acknowledged did not come again", self.came_again == 0),
        ]
        if (copy := self.spark) is not None:
            exact = copy.sent == copy.received == copy.unique and not copy.missing and not copy.repeated
            checks.append(("Spark carried each message to the other topic once", exact))
        return checks

    @property
    def held(self) -> bool:
        return all(held for _, held in self.checks())

    @property
    def arrivals(self) -> Ratio:
        """UR of the delivery itself: what came again to the node counts."""
        return Ratio(self.segments, self.segments + self.came_twice)

    def summary(self) -> dict[str, Any]:
        return {
            "sent": self.sent,
            "stored": self.stored,
            "duplicate": self.duplicate,
            "received": self.live.received,
            "lost": self.live.lost,
            "repeated": self.live.repeated,
            "R": len(self.live.seen) / MESSAGES,
            "UR": len(self.live.seen) / self.live.received if self.live.received else 0.0,
            "UR_arrived": self.arrivals.value,
            "in_order": self.live.in_order,
            "link": {
                "passed": self.link.passed,
                "swallowed": self.link.swallowed,
                "answers_swallowed": self.link.answers_swallowed,
                "cuts": self.link.cuts,
                "came_twice": self.came_twice,
            },
            "spark": None if self.spark is None else {name: getattr(self.spark, name) or 0 for name in AUDITED},
            "checks": dict(self.checks()),
            "held": self.held,
            "seconds": round(self.seconds, 3),
        }


async def _demo(node: NodeProcess) -> DemoResult:
    import headpond

    outcome = DemoResult()
    async with (
        asyncio.timeout(SECONDS_MAX),
        LossyLink(*node.address) as link,
        headpond.connect(node.url) as client,
        headpond.connect(link.url) as sender,
    ):
        outcome.link = link.harm
        await client.admin.create_topic(TOPIC, shards=SHARDS)
        reader = asyncio.create_task(_read(client, "live", outcome.live))
        try:
            # The demo counts the answers of the node, so it waits longer before it spills.
            async with sender.producer(
                TOPIC, name="demo", spill_after=60.0, batch_rows=SEGMENT_ROWS, refill=node.refill
            ) as producer:
                await _send_across_a_kill(producer, node, outcome)
            await reader
        finally:
            reader.cancel()
        note("reading everything once more")
        await _read(client, "again", outcome.again)
        outcome.came_again = await _count_left(client, "live")
        ledger = await client.admin.ledger(TOPIC)
        outcome.came_twice = sum(account.duplicates for account in ledger.producers)
        outcome.segments = sum(account.stored for account in ledger.producers)
        info = await client.admin.show_topic(TOPIC)
        outcome.entries = sum(each.entry_next - each.entry_first for each in info.shard_list)
    return outcome


async def _send_across_a_kill(producer: Producer, node: NodeProcess, outcome: DemoResult) -> None:
    half = MESSAGES // 2
    promises = await _post(producer, range(half))
    await producer.flush()
    await outcome.live.under_way.wait()
    promises += await _post(producer, range(half, MESSAGES))
    received = outcome.live.received
    node.stop(kill=True)
    note(f"killed the node (SIGKILL) with {received:,} messages received")
    await asyncio.to_thread(node.start)
    note("started it again")
    for promise in promises:
        receipt = await promise
        outcome.sent += 1
        outcome.stored += receipt.outcome == "stored"
        outcome.duplicate += receipt.outcome == "duplicate"


async def _post(producer: Producer, numbers: range) -> list[Any]:
    """Posts the messages, and lets the connection work now and then."""
    promises = []
    for number in numbers:
        promises.append(producer.post(b"%d" % number, key=b"key-%d" % (number % KEYS), id=str(number)))
        if number % 1000 == 999:
            await asyncio.sleep(0)
    return promises


async def _read(client: Client, subscription: str, reading: Reading) -> None:
    """Consumes and acknowledges until every message arrived, or none did for a while."""
    async with client.consumer(TOPIC, subscription=subscription, start="earliest") as consumer:
        batches = consumer.batches()
        while len(reading.seen) < MESSAGES:
            try:
                batch = await asyncio.wait_for(anext(batches), IDLE_SECONDS)
            except (TimeoutError, StopAsyncIteration):
                return
            reading.take(batch.shard, [int(value) for value in batch.arrow.column("value").to_pylist()])
            await consumer.ack(batch)
        await consumer.flush()


async def _count_left(client: Client, subscription: str) -> int:
    """How many messages are delivered again to a subscription that acknowledged all of them."""
    async with client.consumer(TOPIC, subscription=subscription) as consumer:
        left = 0
        while await consumer.receive(timeout=0.3) is not None:
            left += 1
        return left


def carry(url: str, topic: str, folder: Path) -> AuditResult:
    """Copies a topic through a shuffle to another topic, in several batches, and audits the copy by ids."""
    from headpond.spark.jobs.audit.audit import audit
    from headpond.spark.pipeline import Pipeline
    from headpond.spark.start.session import session

    spark = session("headpond demo", master="local[2]")
    pipeline = (
        Pipeline("demo", checkpoint=folder / "checkpoint", url=url, trigger={"available_now": True})
        .source("messages", topic=topic, subscription="spark", max_entries_per_trigger=ENTRIES_A_BATCH)
        .step("spread", sql="select /*+ repartition(2, key) */ key, id, value from messages")
        .sink("carried", from_="spread", topic=CARRIED)
    )
    pipeline.start(spark).wait()
    found = audit(topic, CARRIED, by="id", url=url)
    spark.stop()
    return found


def _print(outcome: DemoResult) -> None:
    live, link, spark = outcome.live, outcome.link, outcome.spark
    print("\nThe link, in segments")
    print_table(
        ("PASSED ON", "SWALLOWED", "ANSWERS SWALLOWED", "CUTS", "CAME AGAIN TO THE NODE"),
        [(link.passed, link.swallowed, link.answers_swallowed, link.cuts, outcome.came_twice)],
    )
    hops = [
        ("producer > link > node", outcome.sent, outcome.entries, len(outcome.again.seen)),
        ("node > consumer", MESSAGES, live.received, len(live.seen)),
    ]
    if spark is not None:
        hops.append(("topic > Spark > topic", spark.sent, spark.received, spark.unique))
    print("\nMessages passed on; UR counts the repeats that are left after deduplication")
    rows = [(*hop, str(Ratio(hop[3], hop[1])), str(Ratio(hop[3], hop[2]))) for hop in hops]
    print_table(("HOP", "SENT", "RECEIVED", "UNIQUE", "R", "UR"), rows)
    print(f"\nUR of the link, in segments, before the node drops repeats: {outcome.arrivals}")
    print()
    for promise, held in outcome.checks():
        print(f"  {'held  ' if held else 'BROKEN'}  {promise}")
    print(f"\n{'All held' if outcome.held else 'Not all held'}, in {outcome.seconds:.1f} s.")


STOP_SECONDS_MAX = 10.0


class NodeProcess:
    """A node in a child process, that can be killed and started again on the same port and folder."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._process: subprocess.Popen[bytes] | None = None
        self.address = ("127.0.0.1", 0)
        """Host and port."""
        self.refill = str(data.with_suffix(".refill"))
        """A folder for messages that producers spill."""

    @property
    def url(self) -> str:
        return Address(*self.address).url

    def start(self) -> None:
        """Returns when the node can serve."""
        from headpond.broker.settings import variables

        command = [sys.executable, "-m", "headpond", "node"]
        log_file = self._data.with_suffix(".log")
        with log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--data", str(self._data), "--listen", str(Address(*self.address))],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # Ctrl-C reaches the demo, which then stops its node
                env={name: os.environ[name] for name in os.environ.keys() - variables().keys()},
            )
        assert self._process.stdout is not None
        word, _, url = self._process.stdout.readline().decode().strip().partition(" ")
        if word != "ready":
            lines = log_file.read_text(errors="replace").strip().splitlines()
            raise Unavailable(f"the node did not start: {lines[-1] if lines else 'it printed nothing'}")
        (address,) = parse_addresses(url)
        self.address = (address.host, address.port)

    def stop(self, *, kill: bool = False) -> None:
        """Asks the node to end; kills it with SIGKILL if it does not, or if ``kill`` is set."""
        process, self._process = self._process, None
        if process is None:
            return
        with process:  # closes its stdout and waits
            if not kill:
                process.terminate()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(STOP_SECONDS_MAX)
            process.kill()
