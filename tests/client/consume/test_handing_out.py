"""A client hands out what is still to be done, and continues when it is its turn again."""

from __future__ import annotations

import asyncio

import pytest

from headpond.model.errors import ConnectionLost
from headpond.model.message import Message
from headpond.model.policy import Policy
from tests.fire.client_world import ClientWorld, Reader, in_world

WAIT_S = 30.0


async def opened(world: ClientWorld) -> Reader:
    reader = await world.open()
    assert reader is not None
    return reader


async def got(reader: Reader) -> Message:
    message = await reader.consumer.receive(WAIT_S)
    assert message is not None, "nothing comes"
    return message


async def take(reader: Reader, count: int) -> list[tuple[int, int]]:
    """Receives and acknowledges this many messages; returns entry and attempt of each."""
    found = []
    for _ in range(count):
        message = await got(reader)
        found.append((message.entry, message.attempt))
        await reader.consumer.ack(message)
    return found


@pytest.mark.parametrize("mode", ["resilient", "non_resilient"])
def test_a_consumer_that_stepped_back_continues_when_the_other_has_settled_what_it_refused(mode: str) -> None:
    async def scenario(world: ClientWorld) -> None:
        world.policy = Policy(failover_after=3, backoff=0.01)
        first, second = await opened(world), await opened(world)
        world.write(1)
        for attempt in (1, 2, 3):
            message = await got(first)
            assert (message.entry, message.attempt) == (0, attempt)
            await first.consumer.nack(message)
        assert await take(second, 1) == [(0, 4)]
        assert (first.consumer.active, second.consumer.active) == (False, True)
        world.write(3)
        await second.consumer.close()
        assert await take(first, 3) == [(1, 1), (2, 1), (3, 1)]

    in_world(scenario, 1, "failover", mode, shards=1)


def test_a_consumer_does_not_wait_for_a_refused_message_that_another_settled() -> None:
    async def scenario(world: ClientWorld) -> None:
        world.policy = Policy(lease=2.0, deadline=1.0, failover_after=1)
        first, second = await opened(world), await opened(world)
        world.write(3)
        slow = await got(first)
        assert await take(second, 2) == [(0, 2), (1, 2)]
        await first.consumer.nack(slow)
        await second.consumer.close()
        assert await take(first, 1) == [(2, 2)], "flagged: it may have had it"

    in_world(scenario, 1, "failover", "resilient", shards=1)


def test_a_standby_does_not_wait_for_what_it_refuses() -> None:
    async def scenario(world: ClientWorld) -> None:
        reader = await opened(world)
        world.write(1)
        message, gate = await got(reader), reader.consumer._gate
        standing = {"strict": True, "paused": False, "lease_s": 60.0, "since": world.loop.time()}
        gate.stand(active=False, **standing)  # type: ignore[arg-type]
        await reader.consumer.nack(message)
        gate.stand(active=True, **standing)  # type: ignore[arg-type]
        assert not gate.shut

    in_world(scenario, 1, "failover", "resilient", shards=1)


def test_a_consumer_may_refuse_a_message_that_its_predecessor_settles_late() -> None:
    async def scenario(world: ClientWorld) -> None:
        world.policy = Policy(lease=1.0)
        first, second = await opened(world), await opened(world)
        world.write(2)
        slow = await got(first)
        world.stall(first, 3.0)
        again = await got(second)
        assert (again.entry, again.attempt) == (0, 2)
        await first.consumer.ack(slow)
        await asyncio.sleep(5.0)
        await second.consumer.nack(again)
        assert await take(second, 1) == [(1, 2)]

    in_world(scenario, 1, "failover", "resilient", shards=1)


def test_a_message_refused_while_the_connection_was_lost_comes_again_as_a_further_attempt() -> None:
    async def scenario(world: ClientWorld) -> None:
        reader = await opened(world)
        world.write(2)
        message = await got(reader)
        connection = reader.client.link._connection
        assert connection is not None
        connection.abort(ConnectionLost("cut by the test"))
        await reader.consumer.nack(message)
        assert await take(reader, 2) == [(0, 2), (1, 1)]

    in_world(scenario, 1, "unique", "resilient", shards=1)


@pytest.mark.parametrize("kind", ["shared", "key_shared"])
def test_a_message_that_another_consumer_settled_is_removed_from_the_queue(kind: str) -> None:
    async def scenario(world: ClientWorld) -> None:
        world.policy = Policy(deadline=1.0)
        first = await opened(world)
        world.write(1)
        slow = await got(first)
        second = await opened(world)
        await asyncio.sleep(3.0)
        assert second.consumer.ahead_bytes > 0, "it came to the other one"
        await first.consumer.ack(slow)
        await first.consumer.flush()
        assert await second.consumer.receive(3.0) is None

    in_world(scenario, 1, kind, "non_resilient", shards=1)


@pytest.mark.parametrize("kind", ["unique", "failover", "shared", "key_shared"])
@pytest.mark.parametrize("mode", ["resilient", "non_resilient"])
def test_a_range_that_was_settled_is_not_handed_out(kind: str, mode: str) -> None:
    async def scenario(world: ClientWorld) -> None:
        reader = await opened(world)
        world.write(6)
        await asyncio.sleep(1.0)
        await reader.consumer.ack_range(0, 0, 1)
        first = await got(reader)
        await reader.consumer.skip_range(0, 3, 4)
        await reader.consumer.ack(first)
        assert sorted([first.entry, *(entry for entry, _ in await take(reader, 1))]) == [2, 5]
        assert await reader.consumer.receive(3.0) is None

    in_world(scenario, 1, kind, mode, shards=1)


@pytest.mark.parametrize("kind", ["unique", "failover", "shared", "key_shared"])
@pytest.mark.parametrize("mode", ["resilient", "non_resilient"])
def test_a_message_whose_deadline_passed_in_a_stalled_client_comes_to_it_again_once(
    kind: str, mode: str
) -> None:
    async def scenario(world: ClientWorld) -> None:
        world.policy = Policy(lease=60.0, deadline=1.0)
        reader = await opened(world)
        world.write(5)
        first = await got(reader)
        world.stall(reader, 3.0)
        await asyncio.sleep(4.0)
        await reader.consumer.ack(first)
        await reader.consumer.flush()
        found = await take(reader, 4)
        assert sorted(entry for entry, _ in found) == [1, 2, 3, 4]
        assert await reader.consumer.receive(3.0) is None

    in_world(scenario, 1, kind, mode, shards=1)
