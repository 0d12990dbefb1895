"""A wrong call raises at once, where it is made."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import headpond
from headpond.errors import BadRequest, Closed, HeadpondError
from tests.client.reading import receive


@pytest.mark.parametrize(
    "arguments",
    [
        {"subscription": None},
        {"subscription": 5},
        {"subscription": "s", "start": None},
        {"subscription": "s", "start": 2.5},
        {"subscription": "s", "kind": 5},
        {"subscription": "s", "name": 5},
        {"subscription": "s", "credit_bytes": 2.5},
    ],
)
async def test_a_consumers_argument_of_a_wrong_type_is_refused_at_once(
    shared_url: str, topic: str, arguments: dict[str, Any]
) -> None:
    async with headpond.connect(shared_url) as client:
        with pytest.raises(BadRequest):
            async with client.consumer(topic, **arguments):
                pass
        assert client.connected


async def test_a_producers_name_and_a_number_of_shards_are_checked(shared_url: str, topic: str) -> None:
    async with headpond.connect(shared_url) as client:
        with pytest.raises(BadRequest, match="shards"):
            await client.admin.create_topic(topic, "4", exist_ok=True)  # type: ignore[arg-type]
        with pytest.raises(BadRequest, match="name"):
            async with client.producer(topic, name=5):  # type: ignore[call-overload]
                pass


@pytest.mark.parametrize("table", [[b"x"], {"value": [b"x"]}, None, 5])
async def test_a_batch_is_an_arrow_table(shared_url: str, topic: str, table: Any) -> None:
    async with headpond.connect(shared_url) as client, client.producer(topic) as producer:
        with pytest.raises(BadRequest, match="Arrow table"):
            await producer.send_batch(table)


@pytest.mark.parametrize("url", [5, ["headpond://a", None], []])
def test_an_address_is_text(url: Any) -> None:
    with pytest.raises(BadRequest):
        headpond.connect(url)


def test_a_client_cannot_be_used_on_another_loop(shared_url: str, topic: str) -> None:
    client = headpond.connect(shared_url)
    here, there = asyncio.new_event_loop(), asyncio.new_event_loop()
    try:
        here.run_until_complete(client.open())
        producer = client.producer(topic)
        here.run_until_complete(producer.open())
        for misuse in (client.admin.list_topics(), producer.send(b"x"), client.close()):
            with pytest.raises(BadRequest, match="another event loop"):
                there.run_until_complete(misuse)
        here.run_until_complete(client.close())
    finally:
        here.close()
        there.close()


async def test_a_wait_for_a_message_can_be_given_up_and_taken_up_again(shared_url: str, topic: str) -> None:
    async with (
        headpond.connect(shared_url) as client,
        client.producer(topic) as producer,
        client.consumer(topic, "s") as consumer,
    ):
        messages = aiter(consumer)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(messages), 0.05)
        await producer.send(b"late")
        assert (await asyncio.wait_for(anext(messages), 10)).value == b"late"


async def test_rows_chosen_of_a_single_message_are_refused(shared_url: str, topic: str) -> None:
    async with (
        headpond.connect(shared_url) as client,
        client.producer(topic) as producer,
        client.consumer(topic, "s") as consumer,
    ):
        await producer.send(b"one")
        message = await receive(consumer)
        with pytest.raises(BadRequest):
            await consumer.ack(message, rows=[0])


async def test_a_message_that_was_put_back_is_not_an_attempt(shared_url: str, topic: str) -> None:
    async with headpond.connect(shared_url) as client:
        async with client.producer(topic) as producer:
            for number in range(6):
                producer.post(b"%d" % number)
        async with client.consumer(topic, "s") as consumer:
            batch = await anext(consumer.batches())
            await consumer.ack(batch, rows=[0, 1])
            consumer.put_back(batch, rows=[3, 4, 5])
        async with client.consumer(topic, "s") as consumer:
            found = [await receive(consumer) for _ in range(4)]
        assert [(m.value, m.attempt) for m in found] == [
            (b"2", 2),
            (b"3", 1),
            (b"4", 1),
            (b"5", 1),
        ]


def test_messages_posted_by_a_blocking_producer_are_sent_when_the_program_ends(
    shared_url: str, topic: str
) -> None:
    script = (
        "import sys, headpond.sync\n"
        "client = headpond.sync.connect(sys.argv[1])\n"
        "producer = client.producer(sys.argv[2])\n"
        "for number in range(1000): producer.post(b'%d' % number)\n"
    )
    ended = subprocess.run([sys.executable, "-c", script, shared_url, topic], capture_output=True, timeout=60)
    assert ended.returncode == 0
    assert b"left a headpond client open" in ended.stderr
    with headpond.sync.connect(shared_url) as client:
        info = client.admin.show_topic(topic)
    assert sum(shard.entry_next for shard in info.shard_list) == 1000


def test_a_blocking_client_can_be_closed_twice(shared_url: str) -> None:
    client = headpond.sync.connect(shared_url)
    client.close()
    client.close()


def test_what_a_closed_blocking_client_made_says_that_it_is_closed(shared_url: str, topic: str) -> None:
    client = headpond.sync.connect(shared_url)
    producer, consumer = client.producer(topic), client.consumer(topic, "s")
    reader, writer, admin = client.reader(topic), client.writer("w"), client.admin
    client.close()
    calls: list[Callable[[], object]] = [
        lambda: producer.send(b"x"),
        lambda: producer.post_when_room(b"x"),
        producer.flush,
        consumer.flush,
        lambda: consumer.receive(timeout=1),
        reader.ends,
        lambda: admin.show_topic(topic),
        lambda: client.producer(topic),
    ]
    for call in calls:
        with pytest.raises(Closed):
            call()
    for each in (producer, consumer, reader, writer):
        each.close()


def test_a_key_that_is_a_number_gets_a_hint_about_keys(shared_url: str, topic: str) -> None:
    with headpond.sync.connect(shared_url) as client, client.producer(topic) as producer:
        with pytest.raises(BadRequest, match="key is bytes or text, not int") as raised:
            producer.send(b"x", key=5)  # type: ignore[arg-type]
        assert "key=str(number)" in raised.value.hint


def test_the_catalogue_can_be_imported_by_its_public_name() -> None:
    assert issubclass(BadRequest, HeadpondError)
    assert headpond.errors.BadRequest is BadRequest
