"""Every pipe keeps its promise over memory and over TCP, with a bad route in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise

import pytest

from headpond.pipes.drivers import memory, tcp
from headpond.pipes.drivers.receiver import PipeReceiver
from headpond.pipes.drivers.sender import PipeSender
from tests.client.peer import until
from tests.pipes.drivers.ends import QUICK, reading, send_in_bursts
from tests.pipes.drivers.mischief import Mischief, proxy

COUNT = 120
SENT = list(range(COUNT))


def all_arrive(got: list[int]) -> bool:
    return set(got) == set(SENT)


def each_arrives_once(got: list[int]) -> bool:
    return sorted(got) == SENT


def all_arrive_once_and_in_order(got: list[int]) -> bool:
    return got == SENT


def all_arrive_in_steps_of_0_or_1(got: list[int]) -> bool:
    return got[0] == 0 and got[-1] == COUNT - 1 and all(b - a in (0, 1) for a, b in pairwise(got))


def most_arrive_and_rise(got: list[int]) -> bool:
    return len(got) > COUNT // 4 and all(a < b for a, b in pairwise(got))


def most_arrive_and_never_fall(got: list[int]) -> bool:
    return len(got) > COUNT // 4 and all(a <= b for a, b in pairwise(got))


def most_arrive_and_none_twice(got: list[int]) -> bool:
    return COUNT // 2 < len(got) == len(set(got))


Promise = Callable[[list[int]], bool]

SURE: list[tuple[str, Promise]] = [
    ("resend", all_arrive),
    ("resend_many(window=32)", all_arrive),
    ("resend_many(confirm=settled)", all_arrive),
    ("stream", all_arrive),
    ("sequential", all_arrive_once_and_in_order),
    ("continuous", all_arrive_once_and_in_order),
    ("continuous(strict=false)", all_arrive_in_steps_of_0_or_1),
    ("resend_many | dedup", each_arrives_once),
    ("resend_many(confirm=settled) | dedup", each_arrives_once),
    ("stream | dedup", each_arrives_once),
    ("stream | continuous", all_arrive_once_and_in_order),
    ("resend_many | continuous(gaps=false)", all_arrive_once_and_in_order),
]
UNSURE: list[tuple[str, Promise]] = [
    ("index", most_arrive_and_rise),
    ("index(strict=false)", most_arrive_and_never_fall),
    ("dedup", most_arrive_and_none_twice),
    ("dedup(by=index)", most_arrive_and_rise),
]
SURE_ROUTES = pytest.mark.parametrize(("route", "promise"), SURE, ids=[route for route, _ in SURE])
UNSURE_ROUTES = pytest.mark.parametrize(("route", "promise"), UNSURE, ids=[route for route, _ in UNSURE])


async def through(sender: PipeSender, receiver: PipeReceiver, promise: Promise) -> None:
    async with reading(receiver) as got:
        await send_in_bursts(sender, SENT, burst=2)
        await sender.flush()
        assert sender.stats.confirmed == COUNT
        assert sender.stats.unconfirmed == 0
        await until(lambda: promise(got))
        assert sender.stats.transmissions > COUNT, "nothing was lost, so nothing was tried"


@SURE_ROUTES
async def test_over_memory_with_a_bad_route(route: str, promise: Promise) -> None:
    mischief = Mischief(seed=7)
    sender, receiver = memory.pair(route, between=mischief.between)
    async with receiver, sender:
        await through(sender, receiver, promise)
    assert mischief.lost and mischief.repeated and mischief.delayed


@SURE_ROUTES
async def test_over_tcp_with_a_bad_route_that_is_cut_again_and_again(route: str, promise: Promise) -> None:
    mischief = Mischief(seed=11)
    async with (
        tcp.listen(route) as receiver,
        proxy(receiver.address, mischief, cut_every=40) as between,
        tcp.connect(route, "127.0.0.1", between.port, backoff=QUICK) as sender,
    ):
        await through(sender, receiver, promise)
        assert mischief.lost and mischief.repeated and mischief.delayed
        assert sender.stats.reconnects
        assert receiver.stats.senders == 1
        assert (sender.stats.faults, receiver.stats.faults) == (0, 0)


@UNSURE_ROUTES
async def test_pipes_that_do_not_confirm_keep_their_order_over_memory(route: str, promise: Promise) -> None:
    mischief = Mischief(seed=3)
    sender, receiver = memory.pair(route, between=mischief.between)
    async with receiver, sender, reading(receiver) as got:
        await send_in_bursts(sender, SENT, burst=2)
        await until(lambda: mischief.waiting == 0)
        await asyncio.sleep(0.01)
        assert promise(got)
        assert mischief.lost and len(set(got)) < COUNT


@UNSURE_ROUTES
async def test_pipes_that_do_not_confirm_keep_their_order_over_tcp(route: str, promise: Promise) -> None:
    mischief = Mischief(seed=5)
    async with (
        tcp.listen(route) as receiver,
        proxy(receiver.address, mischief) as between,
        tcp.connect(route, "127.0.0.1", between.port) as sender,
        reading(receiver) as got,
    ):
        await send_in_bursts(sender, SENT, burst=2)
        await asyncio.sleep(0.05)
        await until(lambda: mischief.waiting == 0 and receiver.stats.transmissions == between.forwarded)
        await until(lambda: len(got) == receiver.stats.delivered)
        assert promise(got)
        assert mischief.lost and len(set(got)) < COUNT
        dropped = receiver.stats.duplicates + receiver.stats.late
        assert receiver.stats.transmissions == len(got) + dropped
