"""Single-access producers over real sockets: one holder, a takeover, a fenced one whose data is kept."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import headpond
from headpond import sync
from headpond.client.link.dialling import Backoff
from headpond.client.produce.refill_send import send_slot
from headpond.model.address import Address, parse_addresses
from headpond.model.errors import BadRequest, Fenced, ProducerBusy, ProducerMismatch, TopicNotFound
from headpond.producer.refill.folder import files, slots
from headpond.storage.os_disk import OsDisk
from headpond.wire.control.producing import OpenProducer
from tests.fire.raw_client import RawClient
from tests.fire.real_node import RealNode

LEASE_S = 0.3


async def values(client: headpond.Client, topic: str, count: int) -> list[bytes]:
    """The first messages of a topic, read by a new subscription."""
    found: list[bytes] = []
    async with client.consumer(topic, subscription="audit", create=False) as consumer:
        async for message in consumer:
            found.append(message.value)
            if len(found) == count:
                break
    return found


def send_astray(client: headpond.Client) -> list[Address]:
    """Cuts the client's connection and points it to a port without a node; returns the old addresses."""
    link = client.link
    there, link.dialling.given = link.dialling.given, parse_addresses("headpond://127.0.0.1:1")
    connection = link._connection
    assert connection is not None and connection._transport is not None
    connection._transport.abort()
    return there


async def test_a_second_instance_is_refused_by_the_holders_name_until_it_closes(
    shared_url: str, topic: str
) -> None:
    async with (
        headpond.connect(shared_url, name="shop-a") as one,
        headpond.connect(shared_url, name="shop-b") as two,
    ):
        async with one.producer(topic, name="till", access="single") as producer:
            await producer.send(b"a")
            with pytest.raises(ProducerBusy, match="shop-a"):
                await two.producer(topic, name="till", access="single").open()
            info = await one.admin.show_producer(topic, "till")
            assert (info.holder, info.epoch, info.access, info.clients) == (
                "shop-a",
                1,
                "single",
                ["shop-a"],
            )
        async with two.producer(topic, name="till") as producer:
            await producer.send(b"b")
            assert (await two.admin.show_producer(topic, "till")).epoch == 2
        assert await values(two, topic, 2) == [b"a", b"b"]


async def test_an_instance_that_waits_takes_over_when_the_holder_closes(shared_url: str, topic: str) -> None:
    async with headpond.connect(shared_url) as one, headpond.connect(shared_url) as two:
        first = await one.producer(topic, name="till", access="single").open()
        waiting = asyncio.create_task(two.producer(topic, name="till", access="single", wait=None).open())
        await first.send(b"a")
        assert not waiting.done()
        await first.close()
        second = await waiting
        await second.send(b"b")
        await second.close()
        with pytest.raises(ProducerMismatch):
            await two.producer(topic, name="till", access="multiple").open()


async def test_waiting_ends_when_its_time_is_over(shared_url: str, topic: str) -> None:
    async with (
        headpond.connect(shared_url) as one,
        headpond.connect(shared_url) as two,
        one.producer(topic, name="till", access="single"),
    ):
        with pytest.raises(ProducerBusy):
            await two.producer(topic, name="till", access="single", wait=0.6).open()


async def test_a_holder_that_is_frozen_keeps_its_connection_and_loses_its_lease(
    shared_url: str, topic: str
) -> None:
    """It neither pings nor closes, like a stopped or hanging program."""
    async with headpond.connect(shared_url, name="standby") as client:
        await client.admin.create_topic(topic, settings={"producer_lease": LEASE_S})
        address = parse_addresses(shared_url)[0]
        with RawClient((address.host, address.port)) as frozen:
            opened = frozen.request(OpenProducer(topic, "till", b"i" * 16, "single"))
            assert (opened["epoch"], opened["lease_s"]) == (1, LEASE_S)
            async with client.producer(topic, name="till", access="single", wait=None) as producer:
                await producer.send(b"a")
                info = await client.admin.show_producer(topic, "till")
                assert (info.epoch, info.holder, len(info.connections)) == (2, "standby", 2)
            with pytest.raises(Fenced):
                frozen.request(OpenProducer(topic, "till", b"i" * 16, "single", 1))


async def test_a_holder_that_sends_nothing_for_long_keeps_its_lease(shared_url: str, topic: str) -> None:
    async with headpond.connect(shared_url) as one, headpond.connect(shared_url) as two:
        await one.admin.create_topic(topic, settings={"producer_lease": LEASE_S})
        async with one.producer(topic, name="till", access="single") as producer:
            with pytest.raises(ProducerBusy):
                await two.producer(topic, name="till", access="single", wait=4 * LEASE_S).open()
            assert (await producer.send(b"a")).stored


async def test_single_access_needs_a_name(shared_url: str, topic: str) -> None:
    async with headpond.connect(shared_url) as client:
        for options in ({"access": "single"}, {"access": "several"}, {"wait": -1.0}):
            with pytest.raises(BadRequest):
                client.producer(topic, **options)


async def test_the_holder_keeps_its_epoch_over_a_restart_of_the_node(node: RealNode) -> None:
    async with headpond.connect(node.url) as client:
        async with client.producer("t", name="till", access="single", spill_after=60) as producer:
            await producer.send(b"a")
            await asyncio.to_thread(node.restart)
            await producer.send(b"b")
            info = await client.admin.show_producer("t", "till")
            assert (info.epoch, info.holder != "") == (1, True)
        assert await values(client, "t", 2) == [b"a", b"b"]


def test_a_zombie_is_fenced_and_its_undelivered_messages_are_kept_and_sent_late(
    node: RealNode, tmp_path: Path
) -> None:
    refill = tmp_path / "refill"

    async def zombie_and_holder() -> None:
        async with headpond.connect(node.url) as admin:
            await admin.admin.create_topic("t", settings={"producer_lease": LEASE_S})
        async with headpond.connect(node.url, name="zombie", backoff=Backoff(1.5, 1.5)) as one:
            zombie = await one.producer(
                "t", name="till", access="single", refill=refill, spill_after=60, close_timeout=5
            ).open()
            await zombie.send(b"in time")
            there = send_astray(one)
            late = zombie.post(b"late")  # in memory while the connection is away
            async with headpond.connect(node.url, name="holder") as two:
                taken = two.producer("t", name="till", access="single", wait=20, refill=tmp_path / "other")
                async with taken as holder:
                    await holder.send(b"the holder's")
                    one.link.dialling.given = there
                    with pytest.raises(Fenced, match="holder"):
                        await late
                    with pytest.raises(Fenced):
                        await zombie.send(b"never taken")
                    await zombie.close()
                    await holder.send(b"goes on")

    async def next_instance_leaves_it_alone() -> None:
        async with (
            headpond.connect(node.url) as client,
            client.producer("t", name="till", access="single", refill=refill) as producer,
        ):
            await producer.send(b"next")

    async def what_is_there(count: int) -> list[bytes]:
        async with headpond.connect(node.url) as client:
            return await values(client, "t", count)

    asyncio.run(zombie_and_holder())
    disk = OsDisk(refill)
    (slot,) = slots(disk)
    kept = files(disk, slot)
    assert kept, "the refill has the messages that no node took"
    asyncio.run(next_instance_leaves_it_alone())
    assert files(disk, slot) == kept
    plain = asyncio.run(send_slot(refill, slot, token=None, timeout_s=5.0))
    assert not plain.delivered and files(disk, slot) == kept
    late = asyncio.run(send_slot(refill, slot, token=None, timeout_s=10.0, late=True))
    assert late.delivered
    stored = asyncio.run(what_is_there(5))
    assert stored == [b"in time", b"the holder's", b"goes on", b"next", b"late"]


def test_the_next_instance_after_a_crash_sends_the_files_left_behind(node: RealNode, tmp_path: Path) -> None:
    """A restart on the same machine, with no other holder in between: nothing is late."""

    async def leave_something_behind() -> None:
        async with headpond.connect(node.url) as client:
            await client.admin.create_topic("t", settings={"producer_lease": LEASE_S})
            producer = await client.producer(
                "t", name="till", access="single", refill=tmp_path, spill_after=0.0, close_timeout=0.2
            ).open()
            await producer.send(b"first")
            await asyncio.to_thread(node.kill)
            assert (await producer.send(b"spilled")).outcome == "spilled"
            await producer.close()

    async def come_back() -> None:
        async with (
            headpond.connect(node.url) as client,
            client.producer("t", name="till", access="single", refill=tmp_path, wait=20) as producer,
        ):
            await producer.send(b"after")
            assert (await client.admin.show_producer("t", "till")).epoch == 2

    async def what_is_there() -> list[bytes]:
        async with headpond.connect(node.url) as client:
            return await values(client, "t", 3)

    asyncio.run(leave_something_behind())
    node.start()
    asyncio.run(come_back())
    assert asyncio.run(what_is_there()) == [b"first", b"spilled", b"after"]


async def test_an_instance_that_starts_with_the_node_away_gets_the_lease_when_it_is_there(
    node: RealNode, tmp_path: Path
) -> None:
    async with headpond.connect(node.url) as client:
        await client.admin.create_topic("t")
    await asyncio.to_thread(node.kill)
    async with headpond.connect(node.url, wait=False) as client:
        producer = await client.producer("t", name="till", access="single", refill=tmp_path).open()
        assert (await producer.send(b"away")).outcome == "spilled"
        await asyncio.to_thread(node.start)
        await producer.reached()
        await producer.send(b"there")
        await producer.close()
        assert (await client.admin.show_producer("t", "till")).epoch == 1
        assert await values(client, "t", 2) == [b"away", b"there"]


async def test_the_epoch_reaches_every_copy(node: RealNode, tmp_path: Path) -> None:
    with RealNode(tmp_path / "copy") as copy:
        async with headpond.connect(node.url) as client, headpond.connect(copy.url) as there:
            async with client.producer("t", name="till", access="single", copies=[copy.url]) as producer:
                await producer.send(b"a")
            async with client.producer("t", name="till", access="single", copies=[copy.url]) as producer:
                await producer.send(b"b")
            assert (await there.admin.show_producer("t", "till")).epoch == 2
            assert await values(there, "t", 2) == [b"a", b"b"]


async def test_producers_of_a_deleted_tenant_get_an_error(shared_url: str, topic: str) -> None:
    async with headpond.connect(shared_url) as client:
        name = f"{topic}/shop/web/orders"
        producer = await client.producer(name, refill=None).open()
        await producer.send(b"a")
        gone = await client.admin.delete_tenant(topic, recursive=True)
        assert gone.topics == [name]
        with pytest.raises(TopicNotFound):
            await producer.send(b"b")
        await producer.close()


def test_the_blocking_twin_has_it_too(shared_url: str, topic: str) -> None:
    with sync.connect(shared_url, name="one") as one, sync.connect(shared_url) as two:
        with one.producer(topic, name="till", access="single") as producer:
            producer.send(b"a")
            with pytest.raises(ProducerBusy, match="one"):
                two.producer(topic, name="till", access="single")
        one.admin.set_topic(topic, hard_ttl="1h")
        shown = {each.name: each for each in one.admin.show_topic(topic).settings}
        assert (shown["hard_ttl"].value, shown["hard_ttl"].origin) == (3600.0, "topic")
        assert [each.producer for each in two.admin.list_producers(topic)] == ["till"]
        one.admin.create_tenant(f"{topic}-tenant", settings={"max_bytes": "1MiB"})
        assert f"{topic}-tenant" in [each.place for each in one.admin.list_tenants()]
        one.admin.delete_tenant(f"{topic}-tenant")
