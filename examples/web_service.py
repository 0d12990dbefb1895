"""A web service that takes orders, and the worker that bills them, in one process.

    pip install fastapi
    headpond node &
    uvicorn --app-dir examples web_service:service
    curl -s http://127.0.0.1:8000/orders -H 'Content-Type: application/json' -d '{"item": "tea", "count": 2}'

``headpond run web_service:app``, in the folder of this file, runs the worker alone.
"""

from __future__ import annotations

from fastapi import FastAPI
from pydantic import BaseModel

import headpond

app = headpond.App()
service = FastAPI(lifespan=app.lifespan)


class Order(BaseModel):
    item: str
    count: int = 1


class Bill(BaseModel):
    item: str
    total: int


@app.subscriber("orders", subscription="billing", kind="shared", concurrency=8)
async def bill(order: Order) -> None:
    if order.count < 1:
        raise headpond.DeadLetter(f"nobody orders {order.count} of anything")
    await app.publish("bills", Bill(item=order.item, total=3 * order.count), key=order.item)


@service.post("/orders", status_code=201)
async def take_order(order: Order) -> dict[str, str]:
    receipt = await app.publish("orders", order, key=order.item)
    return {"stored": str(receipt)}
