from __future__ import annotations

import pytest

import headpond
from headpond.model.errors import TopicExists, TopicNotFound


async def test_topics_are_created_listed_shown_and_deleted(shared_url: str, topic: str) -> None:
    async with headpond.connect(shared_url) as client:
        admin = client.admin
        made = await admin.create_topic(topic, shards=4)
        assert (made.topic, made.shards) == (f"default/default/default/{topic}", 4)
        with pytest.raises(TopicExists):
            await admin.create_topic(topic, shards=4)
        assert (await admin.create_topic(topic, shards=4, exist_ok=True)).uuid == made.uuid
        async with client.producer(topic) as producer:
            await producer.send(b"x")
        shown = await admin.show_topic(topic)
        assert sorted(shard.entry_next for shard in shown.shard_list) == [0, 0, 0, 1]
        assert made.topic in [info.topic for info in await admin.list_topics()]
        await admin.delete_topic(topic)
        assert made.topic not in [info.topic for info in await admin.list_topics()]
        for ask in (admin.show_topic(topic), admin.delete_topic(topic)):
            with pytest.raises(TopicNotFound):
                await ask


async def test_the_node_says_how_it_is(shared_url: str) -> None:
    async with headpond.connect(shared_url) as client:
        assert await client.admin.show_node()
