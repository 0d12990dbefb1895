"""A type checker knows the values of producers, consumers and messages: mypy checks this file too."""

from __future__ import annotations

from typing import assert_type

import msgspec

import headpond
import headpond.sync


class Order(msgspec.Struct):
    item: str


def of_connecting() -> None:
    assert_type(headpond.connect("headpond://127.0.0.1:7411"), headpond.Client)
    assert_type(headpond.sync.connect(["headpond://127.0.0.1:7411"]), headpond.sync.Client)
    headpond.connect(7411)  # type: ignore[arg-type]


async def of_the_client(client: headpond.Client) -> None:
    async with client.producer("orders", value=Order) as producer:
        assert_type(producer, headpond.Producer[Order])
        await producer.send(Order("tea"), key="table-4")
        await producer.send(b"tea")  # type: ignore[arg-type]
    async with client.consumer("orders", "kitchen", value=Order, kind="shared") as consumer:
        assert_type(consumer, headpond.Consumer[Order])
        async for message in consumer:
            assert_type(message, headpond.Message[Order])
            assert_type(message.value.item, str)
        assert_type(await consumer.receive(timeout=1), headpond.Message[Order] | None)
    async with client.consumer("orders", "kitchen") as plain:
        assert_type((await anext(plain)).value, bytes)
    client.consumer("orders", "kitchen", kind="odd")  # type: ignore[call-overload]


def of_the_twin(client: headpond.sync.Client) -> None:
    with client.producer("orders", value=Order) as producer:
        assert_type(producer, headpond.sync.Producer[Order])
        producer.post(5)  # type: ignore[arg-type]
    with client.consumer("orders", "kitchen", value=list[Order]) as consumer:
        for message in consumer:
            assert_type(message.value, list[Order])
    with client.consumer("orders", "kitchen") as plain, client.producer("orders") as any_bytes:
        for bare in plain:
            assert_type(bare.value, bytes)
            any_bytes.post(bare.value, key=bare.key)


def test_the_names_exist_at_run_time() -> None:
    assert headpond.Message[Order].__origin__ is headpond.Message  # type: ignore[attr-defined]
    assert headpond.sync.Producer[Order].__origin__ is headpond.sync.Producer  # type: ignore[attr-defined]
