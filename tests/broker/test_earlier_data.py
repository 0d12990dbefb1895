"""A data folder that was written before tenants and producers were kept: it opens as it is."""

from __future__ import annotations

import asyncio
import tarfile
from pathlib import Path

import headpond
from headpond.client.connect import Client
from headpond.wire.control.catalog import ListPlaces, PlaceInfo
from headpond.wire.control.codec import read_result
from tests.fire.raw_client import RawClient
from tests.fire.real_node import RealNode
from tests.root import ROOT

ARCHIVE = ROOT / "tests" / "fixtures" / "data_folder_0_1_0.tar.gz"
CLICKS = "acme/shop/web/clicks"


async def read_on(url: str) -> list[bytes]:
    """What the subscription that had settled twelve of twenty orders has still to get."""
    found: list[bytes] = []
    async with (
        headpond.connect(url) as client,
        client.consumer("orders", subscription="billing", create=False) as consumer,
    ):
        async for message in consumer:
            found.append(message.value)
            await consumer.ack(message)
            if len(found) == 8:
                break
        await consumer.flush()
    return found


async def check_ledgers(client: Client) -> None:
    """They balance, though what was stored then was counted by nobody."""
    for topic in ("orders", CLICKS):
        ledger = await client.admin.ledger(topic)
        assert ledger.balanced, ledger
        old = next(account for account in ledger.producers if not account.producer)
        assert old.stored > 0 and not old.counted and not old.exact


async def look_and_change(url: str) -> None:
    async with headpond.connect(url) as client:
        await check_ledgers(client)
        topics = await client.admin.list_topics()
        assert [(info.topic, info.shards) for info in topics] == [
            (CLICKS, 1),
            ("default/default/default/orders", 2),
        ]
        shown = await client.admin.show_topic(CLICKS)
        assert [shard.entry_next for shard in shown.shard_list] == [5]
        assert {each.origin for each in shown.settings} == {"default", "node"}
        await client.admin.set_tenant("acme", hard_ttl="7d")
        async with client.producer(CLICKS, name="till-1", access="single") as producer:
            await producer.send(b"click 5")
        await check_ledgers(client)


def test_data_of_an_earlier_version_opens_and_goes_on(tmp_path: Path) -> None:
    node = RealNode(tmp_path)
    node.data.mkdir()
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(node.data, filter="data")
    with node:
        with RawClient(node.address) as raw:
            places = read_result(raw.request(ListPlaces("component")), list[PlaceInfo])
        assert [each.place for each in places] == ["acme/shop/web", "default/default/default"]
        asyncio.run(look_and_change(node.url))
        left = asyncio.run(read_on(node.url))
        assert len({*left}) == 8 and {value[:6] for value in left} == {b"order "}
        node.restart()

        async def once_more() -> None:
            async with headpond.connect(node.url) as client:
                shown = await client.admin.show_topic(CLICKS)
                assert [shard.entry_next for shard in shown.shard_list] == [6]
                origin = {each.name: each for each in shown.settings}["hard_ttl"]
                assert (origin.value, origin.place) == (604_800.0, "acme")
                assert (await client.admin.show_producer(CLICKS, "till-1")).epoch == 1
                await check_ledgers(client)
                till = (await client.admin.ledger(CLICKS, producer="till-1")).producers[0]
                assert (till.stored, till.messages, till.counted) == (1, 1, True)

        asyncio.run(once_more())
        assert "cannot" not in node.errors and "damaged" not in node.errors
