"""A web service with a worker beside it: the example under uvicorn, and Litestar."""

from __future__ import annotations

import re
import subprocess
import sys
from queue import SimpleQueue

import httpx
import pytest
from litestar import Litestar, post
from litestar.testing import TestClient

import headpond
import headpond.sync
from tests.fire.real_node import RealNode
from tests.root import ROOT

WAIT_S = 20
UVICORN = (sys.executable, "-m", "uvicorn", "--app-dir", str(ROOT / "examples"), "--port", "0")


def test_the_service_stores_orders_and_its_worker_bills_them(
    node: RealNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADPOND_URL", node.url)
    with subprocess.Popen([*UVICORN, "web_service:service"], stderr=subprocess.PIPE, text=True) as service:
        try:
            assert service.stderr is not None
            url = next(found[0] for line in service.stderr if (found := re.search(r"http://\S+", line)))
            stored = httpx.post(f"{url}/orders", json={"item": "tea", "count": 2})
            assert stored.status_code == 201
            assert stored.json()["stored"].startswith(
                "stored (sync): default/default/default/orders shard 0 entry 0 at "
            )
            assert httpx.post(f"{url}/orders", json={"item": "tea", "count": 0}).status_code == 201
            assert httpx.post(f"{url}/orders", json={"count": 2}).status_code == 422
            with headpond.sync.connect(node.url) as client:
                with client.consumer("bills", "test") as consumer:
                    bill = consumer.receive(WAIT_S)
                with client.consumer("orders.dead", "test") as consumer:
                    dead = consumer.receive(WAIT_S)
        finally:
            service.terminate()
    assert bill is not None
    assert (bill.value, bill.key) == (b'{"item":"tea","total":6}', b"tea")
    assert dead is not None
    assert dead.headers["dead.reason"] == "nobody orders 0 of anything"


def test_litestar_takes_the_lifespan_of_the_application(node: RealNode) -> None:
    app = headpond.App(node.url)
    billed = SimpleQueue[str]()

    @app.subscriber("orders", subscription="billing")
    async def bill(order: str) -> None:
        billed.put(order)

    @post("/orders")
    async def take_order() -> None:
        await app.publish("orders", "tea")

    with TestClient(Litestar([take_order], lifespan=[app.lifespan])) as web:
        web.post("/orders")
        assert billed.get(timeout=WAIT_S) == "tea"
