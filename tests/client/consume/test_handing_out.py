"""A client hands out what is still to be done, and continues when it is its turn again."""

from __future__ import annotations

import asyncio

import pytest

from headpond.client.options import KindName, ModeName
from headpond.model.errors import SubscriptionBusy
from headpond.model.message import Message
from headpond.model.policy import Policy
from tests.client.consume.cells import each_cell
from tests.client.consume.sim_stage import KEYS, TOPIC, Reader, SimStage, on_stage

WAIT_S = 30.0
STALL_S = 8.0


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
def test_a_consumer_that_stepped_back_continues_when_the_other_has_settled_what_it_refused(
    mode: ModeName,
) -> None:
    async def scenario(stage: SimStage) -> None:
        stage.policy = Policy(failover_after=3, backoff=0.01)
        first, second = await stage.open(), await stage.open()
        await stage.write(1)
        for attempt in (1, 2, 3):
            message = await got(first)
            assert (message.entry, message.attempt) == (0, attempt)
            await first.consumer.nack(message)
        assert await take(second, 1) == [(0, 4)]
        assert (first.consumer.active, second.consumer.active) == (False, True)
        await stage.write(3)
        await second.consumer.close()
        assert await take(first, 3) == [(1, 1), (2, 1), (3, 1)]

    on_stage(scenario, "failover", mode)


def test_a_consumer_does_not_wait_for_a_refused_message_that_another_settled() -> None:
    async def scenario(stage: SimStage) -> None:
        stage.policy = Policy(lease=2.0, deadline=1.0, failover_after=1)
        first, second = await stage.open(), await stage.open()
        await stage.write(3)
        slow = await got(first)
        assert await take(second, 2) == [(0, 2), (1, 2)]
        await first.consumer.nack(slow)
        await second.consumer.close()
        assert await take(first, 1) == [(2, 2)], "flagged: it may have had it"

    on_stage(scenario, "failover", "resilient")


def test_a_standby_does_not_wait_for_what_it_refuses() -> None:
    async def scenario(stage: SimStage) -> None:
        reader = await stage.open()
        await stage.write(1)
        message, gate = await got(reader), reader.consumer._gate
        standing = {"strict": True, "paused": False, "lease_s": 60.0, "since": stage.loop.time()}
        gate.stand(active=False, **standing)  # type: ignore[arg-type]
        await reader.consumer.nack(message)
        gate.stand(active=True, **standing)  # type: ignore[arg-type]
        assert not gate.shut

    on_stage(scenario, "failover", "resilient")


def test_a_consumer_may_refuse_a_message_that_its_predecessor_settles_late() -> None:
    async def scenario(stage: SimStage) -> None:
        stage.policy = Policy(lease=1.0)
        first, second = await stage.open(), await stage.open()
        await stage.write(2)
        slow = await got(first)
        first.stall(3.0)
        again = await got(second)
        assert (again.entry, again.attempt) == (0, 2)
        await first.consumer.ack(slow)
        await asyncio.sleep(5.0)
        await second.consumer.nack(again)
        assert await take(second, 1) == [(1, 2)]

    on_stage(scenario, "failover", "resilient")


def test_a_message_refused_while_the_connection_was_lost_comes_again_as_a_further_attempt() -> None:
    async def scenario(stage: SimStage) -> None:
        reader = await stage.open()
        await stage.write(2)
        message = await got(reader)
        reader.cut()
        await reader.consumer.nack(message)
        assert await take(reader, 2) == [(0, 2), (1, 1)]

    on_stage(scenario, "unique", "resilient")


def test_a_refused_message_that_another_settled_while_the_connection_was_lost_is_not_waited_for() -> None:
    async def scenario(stage: SimStage) -> None:
        stage.policy = Policy(lease=1.0, backoff=0.5)
        first, second = await stage.open(), await stage.open()
        await stage.write(2)
        await first.consumer.nack(await got(first))
        await first.consumer.flush()
        first.stall(10.0)
        first.cut()
        assert await take(second, 1) == [(0, 2)]
        await second.consumer.close()
        assert [entry for entry, _ in await take(first, 1)] == [1]

    on_stage(scenario, "failover", "resilient")


@pytest.mark.parametrize("kind", ["unique", "failover"])
def test_a_message_in_hand_does_not_hold_up_those_of_a_node_that_was_put_back_to_an_old_copy(
    kind: KindName,
) -> None:
    async def scenario(stage: SimStage) -> None:
        reader = await stage.open()
        await stage.write(1)
        assert await take(reader, 1) == [(0, 1)]
        await reader.consumer.flush()
        copy = stage.node.machine.disk.copy()
        await stage.write(1)
        assert (await got(reader)).entry == 1
        stage.node.machine.cut_power("none")
        stage.node.machine.disk = copy
        await stage.node.start()
        await stage.write(1)
        assert (await got(reader)).entry == 1, "another message"

    on_stage(scenario, kind, "resilient")


@pytest.mark.parametrize("kind", ["shared", "key_shared"])
def test_a_message_that_another_consumer_settled_is_removed_from_the_queue(kind: KindName) -> None:
    async def scenario(stage: SimStage) -> None:
        stage.policy = Policy(deadline=1.0)
        first = await stage.open()
        await stage.write(1)
        slow = await got(first)
        second = await stage.open()
        await asyncio.sleep(3.0)
        assert second.consumer.ahead_bytes > 0, "it came to the other one"
        await first.consumer.ack(slow)
        await asyncio.sleep(1.0)
        assert await second.consumer.receive(3.0) is None

    on_stage(scenario, kind, "non_resilient")


@pytest.mark.parametrize("kind", ["unique", "failover", "shared", "key_shared"])
@pytest.mark.parametrize("mode", ["resilient", "non_resilient"])
def test_a_range_that_was_settled_is_not_handed_out(kind: KindName, mode: ModeName) -> None:
    async def scenario(stage: SimStage) -> None:
        reader = await stage.open()
        await stage.write(6)
        await asyncio.sleep(1.0)
        await reader.consumer.ack_range(0, 0, 1)
        first = await got(reader)
        await reader.consumer.skip_range(0, 3, 4)
        await reader.consumer.ack(first)
        assert sorted([first.entry, *(entry for entry, _ in await take(reader, 1))]) == [2, 5]
        assert await reader.consumer.receive(3.0) is None

    on_stage(scenario, kind, mode)


@pytest.mark.parametrize("kind", ["unique", "failover", "shared", "key_shared"])
@pytest.mark.parametrize("mode", ["resilient", "non_resilient"])
def test_a_message_whose_deadline_passed_in_a_stalled_client_comes_to_it_again_once(
    kind: KindName, mode: ModeName
) -> None:
    async def scenario(stage: SimStage) -> None:
        stage.policy = Policy(lease=60.0, deadline=1.0)
        reader = await stage.open()
        await stage.write(5)
        first = await got(reader)
        reader.stall(3.0)
        await asyncio.sleep(4.0)
        await reader.consumer.ack(first)
        await reader.consumer.flush()
        found = await take(reader, 4)
        assert sorted(entry for entry, _ in found) == [1, 2, 3, 4]
        assert await reader.consumer.receive(3.0) is None

    on_stage(scenario, kind, mode)


async def opened_when_free(stage: SimStage) -> Reader:
    """Another consumer; the lease of the first may hold for a moment."""
    while True:
        try:
            return await stage.open()
        except SubscriptionBusy:
            await asyncio.sleep(0.1)


@each_cell
def test_a_stalled_consumer_holds_nobody_up_and_breaks_nothing_when_it_wakes(
    kind: KindName, mode: ModeName
) -> None:
    async def scenario(stage: SimStage) -> None:
        stage.policy = Policy(deadline=0.5, lease=0.5, backoff=0.02, failover_after=1, max_attempts=0)
        count, single = 20, kind in ("unique", "failover")
        first = await stage.open()
        await stage.write(count)
        slow = await got(first)
        first.stall(STALL_S)
        over_s = stage.loop.time() + STALL_S
        found: list[tuple[int, int]] = []
        if (kind, mode) != ("unique", "non_resilient"):  # there no other may read, and there is no lease
            second = await opened_when_free(stage)
            found = await take(second, count)
            await second.consumer.close()
        await asyncio.sleep(over_s - stage.loop.time() - 0.1)  # what others did is not known here yet
        await first.consumer.ack(slow)
        woken = []
        while (message := await first.consumer.receive(3.0)) is not None:
            woken.append(message.entry)
            await first.consumer.ack(message)
        await first.consumer.flush()
        info = await stage.admin.show_subscription(TOPIC, "s")
        assert (info.acked, info.unsettled, info.dead) == (count, 0, 0), "each is settled, once"
        if not found:
            assert {0, *woken} == set(range(count))
            return
        entries = [entry for entry, _ in found]
        assert sorted(entries) == list(range(count)), "the other one got everything, and nothing twice"
        assert dict(found)[0] >= 2, "the attempt says that another consumer may have had it"
        of_keys = [[entry for entry in entries if entry % KEYS == key] for key in range(KEYS)]
        assert of_keys == [sorted(each) for each in of_keys], "every key in order"
        assert not single or entries == list(range(count)), "in order"
        assert not (single and mode == "resilient" and woken), "another has the lease"
        assert info.late == 1 + len(woken), "what it acknowledges too late is counted"

    on_stage(scenario, kind, mode)
