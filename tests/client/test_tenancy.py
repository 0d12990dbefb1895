"""Tenants and settings over real sockets, and over a node that is killed in the middle."""

from __future__ import annotations

import asyncio

import pytest

import headpond
from headpond.model.errors import NotEmpty, PlaceNotFound, SegmentTooLarge
from headpond.wire.control.catalog import PlaceInfo, TopicInfo
from tests.fire.real_node import RealNode


def origin(info: TopicInfo | PlaceInfo, name: str) -> tuple[object, str]:
    found = next(each for each in info.settings if each.name == name)
    return found.value, found.place


async def test_all_levels_are_made_set_unset_and_deleted(shared_url: str, topic: str) -> None:
    async with headpond.connect(shared_url) as client:
        admin, tenant = client.admin, topic
        await admin.create_tenant(tenant, settings={"hard_ttl": "7d"})
        await admin.create_product(f"{tenant}/shop")
        await admin.create_component(f"{tenant}/shop/web")
        name = f"{tenant}/shop/web/orders"
        await admin.create_topic(name, settings={"max_bytes": "1GiB"})
        await admin.set_product(f"{tenant}/shop", soft_ttl=60)
        await admin.set_component(f"{tenant}/shop/web", hard_ttl=None)
        shown = await admin.show_topic(name)
        assert origin(shown, "hard_ttl") == (None, f"{tenant}/shop/web")
        assert origin(shown, "soft_ttl") == (60.0, f"{tenant}/shop")
        assert origin(shown, "max_bytes") == (2**30, name)
        await admin.unset_component(f"{tenant}/shop/web", "hard_ttl")
        assert origin(await admin.show_component(f"{tenant}/shop/web"), "hard_ttl") == (604_800.0, tenant)
        assert origin(await admin.unset_topic(name, "max_bytes"), "max_bytes") == (None, "")
        with pytest.raises(NotEmpty):
            await admin.delete_product(f"{tenant}/shop")
        assert (await admin.delete_product(f"{tenant}/shop", recursive=True)).topics == [name]
        await admin.delete_tenant(tenant)
        with pytest.raises(PlaceNotFound):
            await admin.show_tenant(tenant)


async def test_receipts_name_the_durability_that_the_topic_asks_for(shared_url: str, topic: str) -> None:
    async with headpond.connect(shared_url) as client:
        await client.admin.create_topic(topic, settings={"durability": "os"})
        async with client.producer(topic) as producer:
            assert (await producer.send(b"a")).durability == "os"
            await client.admin.set_topic(topic, durability="sync")
            assert (await producer.send(b"b")).durability == "sync"


async def test_a_message_longer_than_the_topic_takes_is_refused_here_and_there(
    shared_url: str, topic: str
) -> None:
    async with headpond.connect(shared_url) as client:
        await client.admin.create_topic(topic, settings={"message_bytes_max": 1000})
        async with client.producer(topic) as producer:
            await producer.send(b"x" * 1000)
            with pytest.raises(SegmentTooLarge):
                await producer.send(b"x" * 1001)
            await client.admin.set_topic(topic, message_bytes_max=100)
            with pytest.raises(SegmentTooLarge, match="message_bytes_max"):
                await producer.send(b"x" * 101)  # the producer was opened before: the node refuses it
            await asyncio.gather(*(producer.send(b"y" * 90) for _ in range(20)))


async def test_answered_changes_survive_a_kill_of_the_node(node: RealNode) -> None:
    """SIGKILL while tenants, topics, settings and producers come and go."""

    async def check(answered: int) -> None:
        async with headpond.connect(node.url) as client:
            there = {info.topic: info for info in await client.admin.list_topics()}
            for number in range(answered):
                name = f"tenant-{number}/shop/web/orders"
                gone = number % 3 == 1 and number + 1 < answered
                assert (name not in there) == gone, name
                if not gone:
                    shown = await client.admin.show_topic(name)
                    assert origin(shown, "max_bytes") == (1000 + number, name)
                    assert origin(shown, "hard_ttl") == (60.0 + number, f"tenant-{number}")
                    assert (await client.admin.show_producer(name, "till")).access == "single"

    answered: list[int] = []
    enough = asyncio.Event()

    async def keep_count(url: str) -> None:
        async with headpond.connect(url) as client:
            while True:
                number = len(answered)
                name = f"tenant-{number}/shop/web/orders"
                await client.admin.create_topic(name, settings={"max_bytes": 1000 + number}, exist_ok=True)
                await client.admin.set_tenant(f"tenant-{number}", hard_ttl=60 + number)
                await client.admin.create_producer(name, "till", access="single", exist_ok=True)
                if number % 3 == 2:
                    await client.admin.create_tenant(f"tenant-{number - 1}", exist_ok=True)
                    await client.admin.delete_tenant(f"tenant-{number - 1}", recursive=True)
                answered.append(number)
                if len(answered) % 4 == 0:
                    enough.set()

    for _ in range(3):
        enough.clear()
        changing = asyncio.create_task(keep_count(node.url))
        await enough.wait()
        await asyncio.to_thread(node.kill)
        changing.cancel()
        await asyncio.gather(changing, return_exceptions=True)
        await asyncio.to_thread(node.start)
        await check(len(answered))
    assert len(answered) >= 12
    assert "damaged" not in node.errors
