"""Two processes with a pipe between them over TCP, and one of them killed and started again in the middle."""

from __future__ import annotations

import asyncio

import pytest

from headpond.pipes.drivers import tcp
from tests.client.peer import until
from tests.client.test_connecting import closed_port
from tests.pipes.drivers.child import Child
from tests.pipes.drivers.ends import QUICK, reading


@pytest.mark.parametrize("route", ["resend_many(confirm=settled)", "resend_many(confirm=settled) | dedup"])
async def test_a_killed_receiver_comes_back_and_everything_arrives_at_least_once(route: str) -> None:
    port = await closed_port()
    async with Child("receive-tcp", route, port) as first:
        sender = await tcp.connect(route, "127.0.0.1", port, backoff=QUICK, connect_timeout=20)
        sending = asyncio.create_task(sender.send_many([b"%d" % number for number in range(20_000)]))
        await until(lambda: len(first.lines) > 1000 and sender.stats.confirmed > 0)
        await first.kill()
        assert not sending.done(), "it was killed in the middle"
    async with Child("receive-tcp", route, port) as second:
        await sending
        await sender.close()
        await until(lambda: set(first.numbers) | set(second.numbers) == set(range(20_000)))
        assert sender.stats.reconnects >= 1
        assert sender.stats.receiver_restarts == 1
        assert 0 not in second.numbers, "what the first had confirmed is not sent again"


@pytest.mark.parametrize("route", ["resend_many | dedup", "continuous", "sequential(buffer=64)"])
async def test_a_killed_sender_comes_back_and_is_known_by_its_epoch(route: str) -> None:
    async with tcp.listen(route) as receiver, reading(receiver) as got:
        port = receiver.address[1]
        async with Child("send-tcp", route, port, 0, 1_000_000, "till") as first:
            await until(lambda: len(got) > 300)
            await first.kill()
        await until(lambda: len(got) == receiver.stats.delivered)
        before = len(got)
        assert got == list(range(before)), "each once and in order, up to where it died"
        # Its numbers in the pipe count from 0 again, and must not be taken for the old ones.
        async with Child("send-tcp", route, port, 0, 500, "till") as second:
            await until(lambda: "flushed" in second.lines)
        await until(lambda: len(got) == receiver.stats.delivered)
        assert got[before:] == list(range(500))
        assert receiver.stats.sender_restarts >= 1
        assert receiver.stats.senders == 1
