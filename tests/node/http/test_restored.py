"""An old copy of the data folder is restored under clients that hold positions: each is refused by its name."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import httpx
import pytest

import headpond
from headpond.client.connect import Client
from headpond.client.reader import Reader
from headpond.model.errors import IncarnationChanged
from tests.node.http.nodes import HttpNode
from tests.node.http.test_consuming import fetch, settle
from tests.node.http.test_reading import read, send


async def fill(client: Client, *values: bytes) -> None:
    async with client.producer("orders") as producer:
        for value in values:
            await producer.send(value)


def event_id(http: httpx.Client, last: str | None = None) -> str | httpx.Response:
    """The id of the first event; or the answer that refuses the stream."""
    headers = {} if last is None else {"Last-Event-ID": last}
    params = {"start": "4"}
    with http.stream("GET", "/v1/topics/orders/events", headers=headers, params=params) as answer:
        if answer.status_code != 200:
            answer.read()
            return answer
        return next(line[4:] for line in answer.iter_lines() if line.startswith("id: "))


async def position(reader: Reader) -> tuple[int, int]:
    (end,) = await reader.ends()
    return end.incarnation, end.entry_next


def test_positions_of_a_node_that_was_restored_from_an_old_copy(tmp_path: Path) -> None:
    with HttpNode(tmp_path / "node") as node:

        async def before() -> tuple[int, int]:
            async with headpond.connect(node.url) as client:
                await fill(client, b"a", b"b")
                await client.admin.create_subscription("orders", "place")
                shutil.copytree(node.data, tmp_path / "copy")
                await fill(client, b"c", b"d")
                async with client.reader("orders") as reader:
                    known = await position(reader)
            node.restart()
            async with headpond.connect(node.url) as client, client.reader("orders") as reader:
                await fill(client, b"e")
                part = await reader.fetch(0, known[1], incarnation=known[0])
                assert part.entry_next == 5, "a restart costs no position"
                assert (part.incarnation, 5) == await position(reader) and part.incarnation != known[0]
                return part.incarnation, 5

        incarnation, entry = asyncio.run(before())
        with node.client() as http:
            part = read(http, "orders", entry=1)
            assert (part["incarnation"], part["entry_next"]) == (incarnation, entry)
            assert read(http, "orders", entry=entry, incarnation=incarnation)["messages"] == []
            old = fetch(http, "orders", count=10, wait=5)
            last = event_id(http)
            assert isinstance(last, str)
        node.kill()
        shutil.rmtree(node.data)
        (tmp_path / "copy").rename(node.data)
        node.start()

        async def after() -> None:
            async with headpond.connect(node.url) as client, client.reader("orders") as reader:
                with pytest.raises(IncarnationChanged):
                    await reader.fetch(0, entry, incarnation=incarnation)
                await fill(client, b"v", b"w", b"x", b"y", b"z")
                for start, end in ((entry, None), (0, entry)):
                    with pytest.raises(IncarnationChanged):
                        await reader.fetch(0, start, end, incarnation=incarnation)
                with pytest.raises(IncarnationChanged):
                    await client.admin.advance("orders", "place", [entry], incarnations=[incarnation])
                assert (await client.admin.show_subscription("orders", "place")).positions == [0]

        asyncio.run(after())
        with node.client() as http:
            params = {"entry": entry, "incarnation": incarnation}
            answer = http.get("/v1/topics/orders/messages", params=params)
            assert (answer.status_code, answer.json()["code"]) == (409, "incarnation-changed")
            refused = event_id(http, last)
            assert isinstance(refused, httpx.Response)
            assert (refused.status_code, refused.json()["code"]) == (409, "incarnation-changed")
            new = fetch(http, "orders", count=10, wait=5)
            assert [each["value"] for each in new] == [*"abvwxyz"]
            settled = settle(http, "ack", "orders", *(each["position"] for each in old))
            assert (settled.status_code, settled.json()["code"]) == (409, "not-held")
            assert settled.json()["positions"] == [each["position"] for each in old[2:]]
            send(http, "orders", "once more")
            shown = http.get("/v1/topics/orders/subscriptions/s").json()
            assert shown["acked"] == 2, "a and b are the same as before"
