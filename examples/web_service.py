"""A web service that takes orders, and the worker that bills them, in one process.

    headpond node --data ./headpond-data &
    uvicorn --app-dir examples web_service:service
    curl -s http://127.0.0.1:8000/orders -H 'Content-Type: application/json' -d '{"item": "tea", "count": 2}'

``headpond run web_service:app``, in the folder of this file, runs the worker alone.
"""

from __future__ import annotations

import msgspec
from litestar import Litestar, post
from litestar.params import JSONBody

import headpond

app = headpond.App()


class Order(msgspec.Struct):
    item: str
    count: int = 1


class Bill(msgspec.Struct):
    item: str
    total: int


@app.subscriber("orders", subscription="billing", kind="shared", concurrency=8)
async def bill(order: Order, message: headpond.Message[Order]) -> None:
    if order.count < 1:
        raise headpond.DeadLetter(f"nobody orders {order.count} of anything")
    await app.publish("bills", Bill(order.item, 3 * order.count), key=message.key)


@post("/orders")
async def take_order(data: JSONBody[Order]) -> dict[str, str]:
    receipt = await app.publish("orders", data, key=data.item)
    return {"stored": str(receipt)}


service = Litestar([take_order], lifespan=[lambda _: app])  # FastAPI(lifespan=lambda _: app) is the same
