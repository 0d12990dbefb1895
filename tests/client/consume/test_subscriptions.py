"""Every kind and mode of subscription over real sockets: order, sharing, deaths, stalls, refusals, cuts."""

from __future__ import annotations

import asyncio

import pytest

import headpond
from headpond.client.options import KindName, ModeName
from headpond.model.errors import BadRequest, SubscriptionBusy, SubscriptionMismatch
from tests.client.consume.cells import (
    QUICK,
    connected,
    cut,
    die,
    each_cell,
    fill,
    in_key_order,
    numbers,
    rest,
    take,
)
from tests.client.peer import until
from tests.client.reading import receive


@each_cell
async def test_a_consumer_that_settles_as_it_goes_gets_everything_in_order(
    shared_url: str, topic: str, kind: KindName, mode: ModeName
) -> None:
    async with headpond.connect(shared_url) as client:
        await fill(client, topic, 120)
        async with client.consumer(topic, "s", kind=kind, mode=mode) as consumer:
            found = numbers(await take(consumer, 120))
            assert sorted(found) == list(range(120))
            assert in_key_order(found)
            if kind != "key_shared":
                assert found == list(range(120))
            await consumer.flush()
            assert await consumer.receive(0.1) is None
        info = await client.admin.show_subscription(topic, "s")
        assert (info.settled, info.unsettled, info.in_flight, info.late) == (120, 0, 0, 0)


@each_cell
async def test_two_consumers_share_as_their_kind_says(
    shared_url: str, topic: str, kind: KindName, mode: ModeName
) -> None:
    async with connected(shared_url, 2) as clients:
        await fill(clients[0], topic, 300, rows=20)
        options = {"kind": kind, "mode": mode, "policy": QUICK}
        async with clients[0].consumer(topic, "s", name="one", **options) as one:  # type: ignore[call-overload]
            other = clients[1].consumer(topic, "s", name="other", **options)  # type: ignore[call-overload]
            if kind == "unique":
                with pytest.raises(SubscriptionBusy, match="one"):
                    await other.open()
                return
            async with other:
                await until(lambda: other.nodes[0].state == "reading")
                if kind == "failover":
                    assert (one.active, other.active) == (True, False)
                    assert await other.receive(0.2) is None
                    assert numbers(await take(one, 300)) == list(range(300))
                    return
                in_hand: set[int] = set()
                most = 0

                async def work(consumer: headpond.Consumer, found: list[int]) -> None:
                    nonlocal most
                    while (message := await consumer.receive(0.6)) is not None:
                        in_hand.add(message.entry)
                        most = max(most, len(in_hand))
                        await asyncio.sleep(0.002)
                        found.append(int(message.value))
                        in_hand.discard(message.entry)
                        await consumer.ack(message)

                found: tuple[list[int], list[int]] = ([], [])
                await asyncio.gather(work(one, found[0]), work(other, found[1]))
                assert sorted(found[0] + found[1]) == list(range(300)), "each message to one of them"
                assert found[0], "and some to each"
                assert found[1]
                if kind == "key_shared":
                    assert in_key_order(found[0])
                    assert in_key_order(found[1])
                if (kind, mode) == ("shared", "resilient"):
                    assert most == 1, "one message is out at a time"


async def opened(client: headpond.Client, topic: str, kind: KindName, mode: ModeName) -> headpond.Consumer:
    """A consumer of a subscription whose holder may have just died: its lease still holds for a moment."""
    while True:
        try:
            return await client.consumer(topic, "s", kind=kind, mode=mode).open()
        except SubscriptionBusy:
            await asyncio.sleep(0.05)


@each_cell
async def test_the_messages_of_a_dead_consumer_come_to_the_next_from_the_first_unsettled_one(
    shared_url: str, topic: str, kind: KindName, mode: ModeName
) -> None:
    async with connected(shared_url, 3) as (admin, first, second):
        await fill(admin, topic, 60)
        dying = await first.consumer(topic, "s", kind=kind, mode=mode, policy=QUICK).open()
        settled = numbers(await take(dying, 20))
        await dying.flush()
        in_hand = await dying.receive(5)  # taken and not settled
        assert in_hand is not None
        die(first)
        async with asyncio.timeout(20):
            async with await opened(second, topic, kind, mode) as consumer:
                messages = await take(consumer, 40)
                found = numbers(messages)
                await consumer.flush()
                assert await consumer.receive(0.1) is None
        assert sorted(found + settled) == list(range(60)), "nothing settled comes again, nothing is forgotten"
        again = next(message for message in messages if message.value == in_hand.value)
        assert again.attempt == 2
        if kind != "key_shared":
            assert found == sorted(found)
        assert in_key_order(found)


@each_cell
async def test_a_message_that_is_not_settled_in_time_goes_to_a_consumer_that_can_take_it(
    shared_url: str, topic: str, kind: KindName, mode: ModeName
) -> None:
    policy = headpond.Policy(deadline=0.3, lease=0.4, failover_after=1)
    async with connected(shared_url, 2) as clients:
        await fill(clients[0], topic, 10, rows=10)
        async with clients[0].consumer(topic, "s", kind=kind, mode=mode, policy=policy) as stuck:
            assert stuck.policy.deadline == 0.3
            held = await receive(stuck)
            if kind == "unique":  # there is no other consumer: it comes again here
                again = await stuck.receive(5)
                while again is not None and again.entry != held.entry:
                    await stuck.ack(again)
                    again = await stuck.receive(5)
                assert again is not None
                assert again.attempt == 2
                return
            async with clients[1].consumer(topic, "s", kind=kind, mode=mode) as consumer:
                found: list[headpond.Message] = []
                async with asyncio.timeout(20):
                    while held.entry not in [message.entry for message in found]:
                        message = await receive(consumer)
                        found.append(message)
                        await consumer.ack(message)
                assert found[[each.entry for each in found].index(held.entry)].attempt == 2
                await consumer.flush()
                await stuck.ack(held)  # it wakes up, too late
                await stuck.flush()
                info = await clients[0].admin.show_subscription(topic, "s")
                assert info.late >= 1


@each_cell
async def test_a_refused_message_comes_again_and_a_skipped_one_does_not(
    shared_url: str, topic: str, kind: KindName, mode: ModeName
) -> None:
    async with headpond.connect(shared_url) as client:
        await fill(client, topic, 20)
        async with client.consumer(topic, "s", kind=kind, mode=mode, policy=QUICK) as consumer:
            found: list[tuple[int, int]] = []
            async with asyncio.timeout(20):
                while len(found) < 22:
                    message = await receive(consumer)
                    found.append((int(message.value), message.attempt))
                    if message.entry == 5 and message.attempt < 3:
                        await consumer.nack(message)
                    elif message.entry == 7:
                        await consumer.skip(message)
                    else:
                        await consumer.ack(message)
            await consumer.flush()
            assert await consumer.receive(0.1) is None
            assert [item for item in found if item[0] == 5] == [(5, 1), (5, 2), (5, 3)]
            assert sorted(number for number, attempt in found if attempt == 1) == list(range(20))
            if mode == "resilient" and kind != "key_shared":
                at = found.index((5, 1))
                assert found[at : at + 3] == [(5, 1), (5, 2), (5, 3)], "the same one, before any other"
            if mode == "resilient":
                assert in_key_order([number for number, _ in found])
        info = await client.admin.show_subscription(topic, "s")
        assert (info.acked, info.skipped, info.nacked, info.unsettled) == (19, 1, 2, 0)


@each_cell
async def test_messages_settled_out_of_order_do_not_come_again(
    shared_url: str, topic: str, kind: KindName, mode: ModeName
) -> None:
    async with headpond.connect(shared_url) as client:
        await fill(client, topic, 50)
        async with client.consumer(topic, "s", kind=kind, mode=mode) as consumer:
            await consumer.ack_range(0, 30, 39)
            await consumer.skip_range(0, 10, 14)
            await consumer.flush()
            await consumer.ack_range(0, 12, 12)
            await consumer.flush()
        async with client.consumer(topic, "s", kind=kind, mode=mode) as consumer:
            found = numbers(await take(consumer, 35))
            assert sorted(found) == [*range(10), *range(15, 30), *range(40, 50)]
            await consumer.flush()
        info = await client.admin.show_subscription(topic, "s")
        assert (info.acked, info.skipped, info.late, info.positions) == (45, 5, 1, [50])


@each_cell
async def test_a_lost_connection_neither_loses_nor_repeats_settlements(
    shared_url: str, topic: str, kind: KindName, mode: ModeName
) -> None:
    async with connected(shared_url, 2) as (client, other):
        await fill(client, topic, 100)
        async with other.consumer(topic, "s", kind=kind, mode=mode, policy=QUICK) as consumer:
            found = numbers(await take(consumer, 30))
            cut(other)  # with acknowledgements in the air
            found += numbers(await take(consumer, 30))
            held = await receive(consumer)
            await until(lambda: other.connected)
            cut(other)  # with a message in hand, which stays good
            await asyncio.sleep(0.05)
            await consumer.ack(held)
            found += numbers([held, *await take(consumer, 39)])
            await consumer.flush()
            assert await consumer.receive(0.1) is None
        assert sorted(found) == list(range(100))
        assert in_key_order(found)
        info = await client.admin.show_subscription(topic, "s")
        assert (info.settled, info.unsettled) == (100, 0)


async def test_an_existing_subscription_keeps_its_kind_mode_and_policy(shared_url: str, topic: str) -> None:
    async with headpond.connect(shared_url) as client:
        await fill(client, topic, 1)
        await client.admin.create_subscription(
            topic, "s", kind="shared", policy=headpond.Policy(max_attempts=3)
        )
        with pytest.raises(SubscriptionMismatch):
            await client.consumer(topic, "s").open()
        other = headpond.Policy(max_attempts=9)
        async with client.consumer(topic, "s", kind="shared", policy=other) as consumer:
            assert consumer.policy.max_attempts == 3
            assert consumer.policy.dead_letter == f"default/default/default/{topic}.dead"
            assert consumer.policy.deadline is None
        with pytest.raises(BadRequest):
            headpond.Policy(deadline=-1.0).checked()


async def test_a_subscription_keeps_messages_while_no_consumer_is_connected(
    shared_url: str, topic: str
) -> None:
    async with headpond.connect(shared_url) as client:
        await fill(client, topic, 3)
        await client.admin.create_subscription(topic, "s", start="latest")
        await fill(client, topic, 4, first=3)
        async with client.consumer(topic, "s") as consumer:
            assert numbers(await rest(consumer)) == [3, 4, 5, 6]


async def test_a_cumulative_acknowledgement_settles_all_before_it_and_is_refused_where_others_read(
    shared_url: str, topic: str
) -> None:
    async with headpond.connect(shared_url) as client:
        await fill(client, topic, 30)
        async with client.consumer(topic, "s") as consumer:
            messages = [await receive(consumer) for _ in range(20)]
            await consumer.ack_upto(messages[14])
            await consumer.flush()
            info = await client.admin.show_subscription(topic, "s")
            assert (info.acked, info.positions, info.late) == (15, [15], 0)
        async with client.consumer(topic, "shared", kind="shared") as consumer:
            message = await receive(consumer)
            with pytest.raises(BadRequest, match="cumulative"):
                await consumer.ack_upto(message)


async def test_an_extended_message_is_not_taken_away(shared_url: str, topic: str) -> None:
    async with headpond.connect(shared_url) as client:
        await fill(client, topic, 2, rows=2)
        policy = headpond.Policy(deadline=0.2)
        async with client.consumer(topic, "s", policy=policy) as consumer:
            extended, other = await receive(consumer), await receive(consumer)
            await consumer.extend(extended, 30.0)
            again = await receive(consumer)
            assert (again.entry, again.attempt) == (other.entry, 2)
            assert await consumer.receive(0.1) is None
            await consumer.ack(extended)
            await consumer.flush()


async def test_messages_that_were_only_sent_ahead_do_not_miss_their_deadline(
    shared_url: str, topic: str
) -> None:
    async with headpond.connect(shared_url) as client:
        await fill(client, topic, 40, rows=10)
        async with client.consumer(topic, "s", policy=headpond.Policy(deadline=0.3)) as consumer:
            found = []
            while (message := await consumer.receive(0.5)) is not None:
                found.append((message.entry, message.attempt))
                await asyncio.sleep(0.03)  # 1.2 s in all
                await consumer.ack(message)
            assert found == [(entry, 1) for entry in range(40)]


async def test_a_resilient_consumer_that_does_not_settle_waits(shared_url: str, topic: str) -> None:
    async with headpond.connect(shared_url) as client:
        await fill(client, topic, 3)
        async with client.consumer(topic, "s", mode="resilient") as consumer:
            first = await receive(consumer)
            assert await consumer.receive(0.2) is None
            waiting = asyncio.create_task(consumer.receive(5))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            await consumer.ack(first)
            second = await waiting
            assert second is not None
            assert second.entry == 1
            await consumer.ack(second)
            batch = await anext(consumer.batches())
            assert (len(batch), batch.spans) == (1, [(2, 3)])
            await consumer.ack(batch)
            await consumer.flush()


async def test_a_failover_consumer_steps_back_after_it_failed_one_message_too_often(
    shared_url: str, topic: str
) -> None:
    policy = headpond.Policy(failover_after=2, backoff=0.01, lease=1.0)
    async with connected(shared_url, 2) as clients:
        await fill(clients[0], topic, 10)
        options = {"kind": "failover", "mode": "resilient", "policy": policy}
        async with (
            clients[0].consumer(topic, "s", **options) as one,  # type: ignore[call-overload]
            clients[1].consumer(topic, "s", **options) as other,  # type: ignore[call-overload]
        ):
            for attempt in (1, 2):
                message = await receive(one)
                assert (message.entry, message.attempt) == (0, attempt)
                await one.nack(message)
            found = await take(other, 10)
            assert [(each.entry, each.attempt) for each in found] == [
                (0, 3),
                *((n, 1) for n in range(1, 10)),
            ]
            assert (one.active, other.active) == (False, True)


async def test_a_consumer_whose_lease_went_to_another_hands_out_nothing(shared_url: str, topic: str) -> None:
    async with connected(shared_url, 2) as clients:
        await fill(clients[0], topic, 20)
        options = {"kind": "failover", "mode": "resilient", "policy": QUICK}
        async with (
            clients[0].consumer(topic, "s", **options) as stalled,  # type: ignore[call-overload]
            clients[1].consumer(topic, "s", **options) as other,  # type: ignore[call-overload]
        ):
            held = await receive(stalled)
            stalled.core._heartbeat.stop()  # it hangs for longer than its lease
            first = await receive(other)
            assert (first.entry, first.attempt) == (0, 2), "exactly at the first that was not settled"
            await other.ack(first)
            await stalled.ack(held)
            assert await stalled.receive(0.2) is None
            assert numbers(await take(other, 19)) == list(range(1, 20))
            await other.flush()
            await stalled.flush()
            assert (await clients[0].admin.show_subscription(topic, "s")).late == 1
