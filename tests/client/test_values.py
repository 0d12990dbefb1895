"""Producers and consumers of values of one type: what they send, what they read, and what they refuse."""

from __future__ import annotations

import asyncio
import dataclasses
import subprocess
import sys
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest

import headpond
import headpond.sync
from headpond.client.codecs import codec_of
from headpond.errors import BadRequest, BadValue
from tests.client.reading import receive

WAIT_S = 20


class Struct(msgspec.Struct):
    item: str
    count: int = 1


@dataclasses.dataclass
class Data:
    item: str


class Model(pydantic.BaseModel):
    item: str


class Fields(TypedDict):
    item: str


Zipped = headpond.Codec[str](
    lambda text: text.upper().encode(), lambda data: data.decode().lower(), "loud text"
)
CASES: list[tuple[Any, Any, bytes]] = [
    (bytes, b"\xff", b"\xff"),
    (str, "tea ☕", "tea ☕".encode()),
    (Struct, Struct("tea"), b'{"item":"tea","count":1}'),
    (Data, Data("tea"), b'{"item":"tea"}'),
    (Model, Model(item="tea"), b'{"item":"tea"}'),
    (Fields, {"item": "tea"}, b'{"item":"tea"}'),
    (dict, {"a": [1, None]}, b'{"a":[1,null]}'),
    (list[Struct], [Struct("tea", 2)], b'[{"item":"tea","count":2}]'),
    (float, 5, b"5"),
    (Zipped, "tea", b"TEA"),
]


@pytest.mark.parametrize(("kind", "value", "data"), CASES, ids=[str(case[2][:12]) for case in CASES])
async def test_a_value_is_sent_as_bytes_and_comes_back_as_it_was(
    shared_url: str, topic: str, kind: Any, value: Any, data: bytes
) -> None:
    async with headpond.connect(shared_url) as client:
        async with client.producer(topic, value=kind) as producer:
            await producer.send(value, key="k")
            await producer.post(value)
            await (await producer.post_when_room(value))
        async with client.consumer(topic, "raw") as consumer:
            message = await anext(consumer)
            assert (message.value, message.key) == (data, b"k")
        async with client.consumer(topic, "s", value=kind) as consumer:
            assert (await anext(consumer)).value == value
            for _ in range(2):
                received = await receive(consumer)
                assert received.value == value


def test_the_blocking_twin_has_the_same_values(shared_url: str, topic: str) -> None:
    with headpond.sync.connect(shared_url) as client:
        with client.producer(topic, value=Struct) as producer:
            producer.send(Struct("1"), key="k")
            producer.post(Struct("2")).result(WAIT_S)
            producer.post_when_room(Struct("3")).result(WAIT_S)
            with pytest.raises(BadValue, match="Struct, not bytes"):
                producer.post(b"4")  # type: ignore[arg-type]
            with pytest.raises(BadValue, match="Struct, not bytes"):
                producer.send(b"5")  # type: ignore[arg-type]
        with client.consumer(topic, "s", value=Struct) as consumer:
            first = consumer.receive(WAIT_S)
            assert first is not None
            items = [first.value.item]
            for message in consumer:
                items.append(message.value.item)
                consumer.ack(message)
                if len(items) == 3:
                    break
            assert items == ["1", "2", "3"]
            consumer.dead_letter(first, reason="no")
            consumer.flush()
        with client.consumer(f"{topic}.dead", "d") as consumer:
            dead = consumer.receive(WAIT_S)
            assert dead is not None
            assert dead.headers["dead.reason"] == "no"


async def test_a_value_that_does_not_decode_names_its_place_and_can_be_settled(
    shared_url: str, topic: str
) -> None:
    async with headpond.connect(shared_url) as client:
        async with client.producer(topic) as plain:
            await plain.send(b'{"item": 1}')
            await plain.send(b'{"item": "tea"}')
        async with client.consumer(topic, "s", value=Struct) as consumer:
            with pytest.raises(
                BadValue, match=rf"entry 0 of shard 0 of .*{topic} .* Struct: .*\$\.item"
            ) as bad:
                await anext(consumer)
            assert bad.value.raw.value == b'{"item": 1}'
            await consumer.nack(bad.value.raw, 3600.0, reason=bad.value.message)
            assert (await anext(consumer)).value == Struct("tea")
            await consumer.flush()
        (refused, *_) = [entry async for entry in client.admin.unacked(topic, "s")]
        assert (refused.entry, refused.reason) == (0, bad.value.message)


async def test_a_key_of_a_state_topic_is_deleted_with_none(shared_url: str, topic: str) -> None:
    async with headpond.connect(shared_url) as client:
        await client.admin.create_topic(topic, state=True)
        async with client.producer(topic, value=Struct) as producer:
            await producer.send(None, key="k")
        async with client.consumer(topic, "s", value=Struct) as consumer:
            assert (await anext(consumer)).value is None


@pytest.mark.parametrize("kind", [5, "json", print, object, asyncio.Lock])
def test_what_is_no_type_of_values_is_refused(kind: Any) -> None:
    with pytest.raises(BadRequest, match="it must be bytes, str"):
        codec_of(kind)


def test_a_codec_that_fails_is_a_bad_value() -> None:
    def fail(value: Any) -> Any:
        raise ZeroDivisionError("once")

    codec: headpond.Codec[Any] = headpond.Codec(fail, fail, "nothing")
    with pytest.raises(BadValue, match="int cannot be written as nothing: once"):
        codec.to_bytes(5)


def test_pydantic_is_not_imported_for_other_types() -> None:
    code = "import sys, headpond, headpond.client.codecs as c; headpond.App; c.codec_of(dict); "
    subprocess.run([sys.executable, "-c", code + "assert 'pydantic' not in sys.modules"], check=True)


async def test_post_when_room_waits_where_post_refuses(shared_url: str, topic: str) -> None:
    options: dict[str, Any] = {"memory_max": 10_000, "batch_rows": 10}
    async with headpond.connect(shared_url) as client, client.producer(topic, **options) as producer:
        promises = [await producer.post_when_room(bytes(1000)) for _ in range(100)]
        assert [(await promise).stored for promise in promises] == [True] * 100
        with pytest.raises(headpond.errors.BufferFull):
            for _ in range(100):
                producer.post(bytes(1000))
