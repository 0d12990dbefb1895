"""Confirms cascade over relays: a relay may die, and the next pipe may fail, and nothing is lost."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headpond.model.errors import BadRequest
from headpond.pipes.drivers import memory, tcp
from headpond.pipes.drivers.relay import relay
from tests.client.peer import until
from tests.client.test_connecting import closed_port
from tests.pipes.drivers.child import Child
from tests.pipes.drivers.ends import QUICK, reading
from tests.pipes.drivers.test_memory import lose_everything

HOP = "resend_many(confirm=settled) | dedup"


async def test_a_message_is_confirmed_when_the_worker_behind_the_last_relay_is_done() -> None:
    first, before = memory.pair(HOP)
    middle, between = memory.pair(HOP)
    after, last = memory.pair(HOP)
    relays = [
        asyncio.create_task(relay(before, middle)),
        asyncio.create_task(relay(between, after)),
    ]
    async with last, first:
        await first.send(b"order")
        item = await last.receive(timeout=10)
        assert item is not None and item.payload == b"order"
        assert first.stats.confirmed == 0
        last.confirm(item)
        await first.flush()
        assert first.stats.confirmed == 1
    for each in relays:
        each.cancel()
    await asyncio.gather(*relays, return_exceptions=True)


async def test_a_message_that_the_next_pipe_gave_up_comes_again() -> None:
    first, before = memory.pair("resend_many(confirm=settled, timeout=1)")
    away, silent = memory.pair("resend_many(tries=1, timeout=1)", between=lose_everything)
    passing = asyncio.create_task(relay(before, away))
    async with silent, first:
        await first.send(b"order")
        await until(lambda: away.stats.given_up >= 2)
        assert first.stats.confirmed == 0
        await first.abort()
    passing.cancel()
    await asyncio.gather(passing, return_exceptions=True)


@pytest.mark.parametrize("stored", [False, True])
async def test_a_relay_that_is_killed_loses_nothing(tmp_path: Path, stored: bool) -> None:
    count = 2_000
    before = "stream" if stored else HOP
    port = await closed_port()
    async with tcp.listen(HOP) as last, reading(last) as got:
        arguments = ("relay-tcp", before, port, HOP, last.address[1], *([tmp_path] if stored else []))
        async with Child(*arguments) as first:
            sender = await tcp.connect(before, "127.0.0.1", port, backoff=QUICK, connect_timeout=20)
            sending = asyncio.create_task(sender.send_many([b"%d" % each for each in range(count)]))
            await until(lambda: len(got) > 300)
            await first.kill()
        async with Child(*arguments):
            await sending
            await sender.close()
            await until(lambda: set(got) == set(range(count)))


@pytest.mark.parametrize(
    ("before", "after", "word"),
    [
        ("resend_many | dedup", HOP, "confirms before the next"),
        (HOP, "index", "confirms cannot cascade over index"),
    ],
)
async def test_pipes_over_which_confirms_cannot_cascade_are_refused(before: str, after: str, word: str) -> None:
    _, receiver = memory.pair(before)
    sender, _ = memory.pair(after)
    with pytest.raises(BadRequest, match=word):
        await relay(receiver, sender)
