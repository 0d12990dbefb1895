"""A consumer whose process stops (SIGSTOP) with messages in hand, and wakes after others have continued."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import headpond
from headpond.model.errors import SubscriptionBusy
from headpond.wire.control.consuming import SubscriptionInfo
from tests.client.consume.cells import KEYS, each_cell, fill, in_key_order
from tests.client.processes import environment

COUNT = 20
POLICY = headpond.Policy(deadline=0.5, lease=0.5, backoff=0.02, failover_after=1, max_attempts=0)


@contextmanager
def lone_consumer(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.client.consume.lone_consumer", *arguments]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def next_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


async def opened(client: headpond.Client, topic: str, kind: str, mode: str) -> headpond.Consumer:
    """Another consumer; the lease of the stalled one still holds for a moment."""
    while True:
        try:
            return await client.consumer(topic, "s", kind=kind, mode=mode, name="other").open()
        except SubscriptionBusy:
            await asyncio.sleep(0.1)


async def read_the_rest(client: headpond.Client, topic: str, kind: str, mode: str) -> list[headpond.Message]:
    """Another consumer gets everything while the first one stalls."""
    found: list[headpond.Message] = []
    async with asyncio.timeout(60):
        async with await opened(client, topic, kind, mode) as consumer:
            while (await client.admin.show_subscription(topic, "s")).unsettled:
                if (message := await consumer.receive(0.2)) is not None:
                    found.append(message)
                    await consumer.ack(message)
                await consumer.flush()
    return found


@each_cell
def test_a_stalled_consumer_holds_nobody_up_and_breaks_nothing_when_it_wakes(
    shared_url: str, topic: str, kind: str, mode: str
) -> None:
    alone = (kind, mode) == ("unique", "non_resilient")
    """No other consumer may read, and there is no lease: its messages wait for it."""

    async def scenario() -> None:
        async with headpond.connect(shared_url) as client:
            await fill(client, topic, COUNT, rows=4)
            await client.admin.create_subscription(topic, "s", kind=kind, mode=mode, policy=POLICY)
            with lone_consumer(shared_url, topic, kind, mode) as process:
                word, entry = (await asyncio.to_thread(next_line, process)).split()
                assert (word, entry) == ("held", "0")
                os.kill(process.pid, signal.SIGSTOP)
                others: list[headpond.Message] = []
                if alone:
                    while not (await client.admin.show_subscription(topic, "s")).unacked:  # noqa: ASYNC110
                        await asyncio.sleep(0.05)  # until its deadline has passed
                else:
                    others = await read_the_rest(client, topic, kind, mode)
                assert process.stdin is not None
                process.stdin.write("go\n")
                process.stdin.flush()
                os.kill(process.pid, signal.SIGCONT)
                said = await asyncio.to_thread(lambda: list(iter(lambda: next_line(process), "")))
            info = await client.admin.show_subscription(topic, "s")
            check(kind, mode, said, others, info)

    asyncio.run(scenario())


def check(
    kind: str, mode: str, said: list[str], others: list[headpond.Message], info: SubscriptionInfo
) -> None:
    assert said[-1] == "done"
    woken = [int(line.split()[1]) for line in said[:-1]]
    theirs = [message.entry for message in others]
    assert (info.acked, info.unsettled, info.dead) == (COUNT, 0, 0), "each is settled, once"
    if (kind, mode) == ("unique", "non_resilient"):
        assert set(woken) | {0} == set(range(COUNT))
        return
    assert sorted(theirs) == list(range(COUNT)), "the other one got everything, and nothing twice"
    assert others[theirs.index(0)].attempt >= 2, "the attempt says that another consumer may have had it"
    assert in_key_order(theirs)
    if kind in ("unique", "failover"):
        assert theirs == list(range(COUNT)), "in order"
        assert mode == "non_resilient" or woken == [], "what is another's by the lease is not handed out"
    if mode == "resilient" and kind in ("shared", "key_shared"):
        assert info.redelivered <= KEYS, "it costs each key, or the one message that is out, one deadline"
    assert info.late == 1 + len(woken), "what it acknowledges too late is counted"
