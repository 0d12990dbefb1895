"""A web service whose lifespan is the application's, with a worker beside it: the example, and FastAPI.

mypy checks this file and the example: both frameworks accept the application as it is.
"""

from __future__ import annotations

import asyncio
import runpy
from typing import Any, cast

import pytest
from fastapi import FastAPI
from litestar.testing import AsyncTestClient
from litestar.types import ASGIApp

import headpond
from tests.fire.real_node import RealNode
from tests.root import ROOT

WAIT_S = 20


def test_the_service_stores_orders_and_its_worker_bills_them(
    node: RealNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADPOND_URL", node.url)
    program: dict[str, Any] = runpy.run_path(str(ROOT / "examples" / "web_service.py"))

    async def scenario() -> list[headpond.Message]:
        async with AsyncTestClient(program["service"]) as web:
            answer = await web.post("/orders", json={"item": "tea", "count": 2})
            assert answer.status_code == 201
            stored = answer.json()["stored"]
            assert stored.startswith("stored (sync): default/default/default/orders shard 0 entry 0 at ")
            await web.post("/orders", json={"item": "tea", "count": 0})
            async with headpond.connect() as client:
                found = []
                for topic in ("bills", "orders.dead"):
                    async with client.consumer(topic, "test") as consumer:
                        message = await consumer.receive(WAIT_S)
                        assert message is not None
                        found.append(message)
                return found

    bill, dead = asyncio.run(scenario())
    assert (bill.value, bill.key) == (b'{"item":"tea","total":6}', b"tea")
    assert dead.headers["dead.reason"] == "nobody orders 0 of anything"


def test_fastapi_takes_the_application_as_its_lifespan(node: RealNode) -> None:
    app = headpond.App(node.url)
    service = FastAPI(lifespan=lambda _: app)
    billed = asyncio.Queue[str]()

    @service.post("/orders")
    async def take_order() -> None:
        await app.publish("orders", "tea")

    @app.subscriber("orders", subscription="billing")
    async def bill(order: str) -> None:
        await billed.put(order)

    async def scenario() -> str:
        async with AsyncTestClient(cast(ASGIApp, service)) as web:  # begins and ends the lifespan
            assert (await web.post("/orders")).status_code == 200
            return await asyncio.wait_for(billed.get(), WAIT_S)

    assert asyncio.run(scenario()) == "tea"
