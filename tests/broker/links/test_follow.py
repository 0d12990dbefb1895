"""Subscriptions that follow their data: settlements of one node reach the other, by identity."""

from __future__ import annotations

import random

import pytest

from headpond.broker.links import follow_source
from headpond.broker.links import positions as follow_places
from headpond.model.errors import BadRequest, SubscriptionPassive
from headpond.model.policy import Policy
from headpond.storage.log import marks
from headpond.storage.log import segments as log_segments
from headpond.wire.control.codec import read_result
from headpond.wire.control.consuming import DeleteSubscription, Redrive, SeekSubscription, ShowSubscription
from headpond.wire.control.greeting import Error
from headpond.wire.control.links import (
    AddPeer,
    ApplySettled,
    OpenCopy,
    PromoteSubscription,
    ReadSettled,
    Settlements,
)
from headpond.wire.control.reading import AdvanceSubscription
from tests.broker.links.follow_world import (
    NAME,
    MemoryConsumer,
    alike,
    dead,
    deliveries,
    follow,
    of,
    rows,
    settled,
    subscribe,
    until,
)
from tests.broker.links.peer_world import TOPIC, MemoryNode, linked, pull

X, Y, Z = b"x" * 16, b"y" * 16, b"z" * 16


def pair(segments: int = 20) -> tuple[MemoryNode, MemoryNode]:
    """Two nodes with the same messages in another order, and a subscription on the first."""
    a, b = MemoryNode("a"), MemoryNode("b")
    a.create()
    b.create()
    for number in range(segments):
        a.produce(X, range(number, number + 1))
        b.produce(Y, range(number, number + 1))
    subscribe(a)
    return a, b


async def mix(a: MemoryNode, b: MemoryNode) -> None:
    """Copies the messages of each node to the other, behind its own."""
    async with linked(pull(a, b), pull(b, a)):
        await until(lambda: len(rows(a)) == len(rows(b)) == 120)
    assert list(rows(a).values()) != list(rows(b).values())


# --- what follows -------------------------------------------------------------------------------------


@pytest.mark.parametrize("direction", ["pull", "push"])
@pytest.mark.parametrize("small", [False, True])
async def test_settlements_are_copied_whatever_order_the_logs_have(
    direction: str, small: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if small:  # nothing is in memory, and pieces are short
        monkeypatch.setattr(marks, "RECENT_MAX", 1)
        monkeypatch.setattr(follow_places, "INDEX_SEGMENTS_MAX", 8)
        monkeypatch.setattr(follow_source, "SPANS_MAX", 2)
        monkeypatch.setattr(log_segments, "HEADS_MAX", 3)
    a, b = pair()
    chance = random.Random(7)
    await mix(a, b)
    consumer = MemoryConsumer(a)
    entries = [entry for _, entry in consumer.take()]
    assert len(entries) == 120
    async with linked(follow(a, b, direction)):
        for _ in range(4):
            chosen = chance.sample(entries, len(entries) // 3)
            consumer.settle(chosen[1:], nacked=chosen[:1])
            entries = [entry for entry in entries if entry not in chosen]
            await until(lambda: alike(a, b))
    assert 0 < len(settled(b)) < 120
    assert len(deliveries(b)) == 120 - len(settled(b)), "what is not done with is out, or came back"
    info = b.admin.request(ShowSubscription(TOPIC, NAME))
    assert (info["passive"], info["node"], info["link"], info["behind"]) == (True, "a", "link", 0)
    assert (info["kind"], info["mode"]) == ("shared", "non_resilient")


def test_settlements_wait_for_their_data() -> None:
    a, _ = pair()
    MemoryConsumer(a).settle(list(range(60)))
    topic, made = a.topic(), of(a).created_at_us

    def read(upto: int, number: int) -> Settlements:
        ask = ReadSettled(topic.uuid, NAME, 0, made, 0, upto, 0, number)
        return read_result(a.admin.request(ask), Settlements)

    nothing = read(0, 0)
    assert (nothing.whole, nothing.parts, nothing.left, nothing.floor) == ([], [], 60, 0)
    some = read(31, nothing.number)
    assert (some.whole, some.left, some.floor) == ([(X, 0, 10)], 29, 31)
    assert [(part.segment, part.settled) for part in some.parts] == [(10, [(0, 1)])]
    unheard = read(31, nothing.number)
    assert (unheard.whole, unheard.parts) == (some.whole, some.parts), "what was not applied is told again"
    rest = read(60, unheard.number)
    assert (rest.whole, rest.left, rest.floor) == ([(X, 10, 20)], 0, 60)
    assert read(60, rest.number).whole == []


@pytest.mark.parametrize("who", ["source", "sink"])
async def test_after_a_power_cut_of_either_nothing_is_missing(who: str) -> None:
    a, b = pair()
    for round_ in range(3):
        consumer = MemoryConsumer(a)
        out = [entry for _, entry in consumer.take()]
        consumer.settle(out[1::2])
        async with linked(follow(a, b)):
            await until(lambda: alike(a, b))
            before = settled(b)
        (a if who == "source" else b).crash()
        assert settled(b) == before and of(b).copy.passive
        a.produce(X, range(20 + round_, 21 + round_))
        async with linked(follow(a, b)):
            await until(lambda: len(rows(b)) == len(rows(a)) + 60 and settled(b) == settled(a))
            await until(lambda: deliveries(a).items() <= deliveries(b).items())
        assert before <= settled(b)


async def test_a_node_restored_from_an_old_copy_gets_all_reports_again() -> None:
    a, b = pair()
    async with linked(follow(a, b)):
        await until(lambda: alike(a, b) and len(rows(b)) == 120)
    old = b.disk.copy()
    a.produce(X, range(20, 30))
    consumer = MemoryConsumer(a)
    consumer.settle(list(range(80)))
    async with linked(follow(a, b)):
        await until(lambda: alike(a, b) and len(rows(b)) == 150)
    b.crash(old)
    assert settled(b) == set()
    async with linked(follow(a, b)):
        await until(lambda: alike(a, b) and len(rows(b)) == 150)
    assert len(settled(b)) == 80


async def test_a_seek_and_a_redrive_replace_earlier_reports() -> None:
    a, b = pair()
    a.admin.request(DeleteSubscription(TOPIC, NAME))
    subscribe(a, policy=Policy(max_attempts=1))
    consumer = MemoryConsumer(a)
    consumer.settle(list(range(40)), nacked=[50, 51])
    async with linked(follow(a, b)):
        await until(lambda: alike(a, b) and len(dead(b)) == 2)
        a.admin.request(Redrive(TOPIC, NAME))
        await until(lambda: alike(a, b) and not dead(b))
        a.admin.request(SeekSubscription(TOPIC, NAME, 10))
        await until(lambda: alike(a, b) and len(settled(b)) == 10)
        consumer = MemoryConsumer(a)
        consumer.settle([20, 21])
        await until(lambda: alike(a, b) and len(settled(b)) == 12)
    b.crash()
    assert alike(a, b)


async def test_entries_that_the_receiver_dropped_do_not_delay_other_settlements() -> None:
    a, b = pair(60)
    async with linked(follow(a, b)):
        await until(lambda: alike(a, b) and len(rows(b)) == 360)
        log = b.topic().shards[0].log
        assert log.drop_before(150) > 0
        b.drain()
        consumer = MemoryConsumer(a)
        consumer.settle(list(range(180)))
        await until(lambda: alike(a, b) and not sum(of(b).copy.left.values()))


async def test_entries_that_the_source_dropped_are_settled_and_those_it_never_had_are_not() -> None:
    a, b = pair(60)
    async with linked(pull(a, b)):
        await until(lambda: len(rows(b)) == 360)
    a.admin.request(DeleteSubscription(TOPIC, NAME))
    kept = a.topic().shards[0].log.drop_before(100)
    a.drain()
    assert kept > 0
    subscribe(a)
    async with linked(follow(a, b)):
        await until(lambda: len(b.shell.core.stores.subscriptions) == 1 and len(settled(b)) == kept)
    assert settled(b) == {(X, entry // 3, entry % 3) for entry in range(kept)}


# --- a copy -------------------------------------------------------------------------------------------


async def test_a_copy_cannot_be_read_or_moved_and_survives_its_link() -> None:
    a, b = pair()
    async with linked(follow(a, b)):
        await until(lambda: alike(a, b))
    consumer = MemoryConsumer(b)
    (refusal,) = consumer.client.take(Error)
    assert refusal.code == "subscription-passive"
    assert "node a at headpond://other" in refusal.message and "sub promote" in refusal.hint
    for ask in (SeekSubscription(TOPIC, NAME, 0), Redrive(TOPIC, NAME), AdvanceSubscription(TOPIC, NAME, [0])):
        with pytest.raises(SubscriptionPassive):
            b.admin.request(ask)
    b.shell.core.stores.settlements.compact()
    b.drain()
    b.crash()
    assert of(b).copy.passive


async def test_reports_count_only_while_the_data_is_known_to_be_there() -> None:
    a, b = pair()
    MemoryConsumer(a).settle(list(range(30)))
    async with linked(follow(a, b)):
        await until(lambda: alike(a, b) and len(settled(b)) == 30)
    made, policy = of(a).created_at_us, of(a).policy
    ask = OpenCopy(b.topic().uuid, "a", NAME, "shared", "non_resilient", policy, made, 0, 0, "link")
    assert b.admin.request(ask) == {"state": "following", "floors": [30], "epoch": 0}
    b.shell.core.peering.links.places.clear()
    assert b.admin.request(ask)["floors"] == [0]


async def test_others_of_that_name_stay_what_they_are_and_a_source_that_is_gone_leaves_its_copy() -> None:
    a, b = pair()
    b.shell.now_us += 1
    subscribe(b)
    subscribe(a, "audit-1")
    subscribe(a, "mail")
    way = follow(a, b, names="audit-*")
    way.made.subscriptions.append(NAME)

    def states() -> dict[str, str]:
        return {name: info.state for (_, _, name), info in way.status.subscriptions.items()}

    async with linked(way):
        await until(lambda: states() == {NAME: "own", "audit-1": "following"})
        assert not of(b).copy.passive
        a.admin.request(DeleteSubscription(TOPIC, "audit-1"))
        await until(lambda: states()["audit-1"] == "orphan")
        assert of(b, "audit-1").copy.passive
        a.shell.now_us += 1
        subscribe(a, "audit-1")
        MemoryConsumer(a, "audit-1").settle([3])
        await until(lambda: alike(a, b, "audit-1") and states()["audit-1"] == "following")
        assert len(settled(b, "audit-1")) == 1
    assert len(b.shell.core.stores.subscriptions) == 2
    with pytest.raises(BadRequest, match="names no subscriptions"):
        b.admin.request(AddPeer("headpond://a:1", ["*"], subscriptions=["a*b"]))


async def test_of_two_nodes_that_tell_of_one_name_the_first_keeps_its_copy() -> None:
    a, b = pair()
    c = MemoryNode("c")
    c.create()
    c.shell.now_us += 5
    subscribe(c)
    first, second = follow(a, b), follow(c, b)
    async with linked(first):
        await until(lambda: alike(a, b))
        async with linked(second):
            await until(lambda: "own" in {each.state for each in second.status.subscriptions.values()})
            MemoryConsumer(a).settle([0, 1])
            await until(lambda: alike(a, b) and len(settled(b)) == 2)
    record = of(b).copy.record
    assert record is not None and record.node == "a"


# --- promotion ----------------------------------------------------------------------------------------


async def test_after_a_promotion_a_consumer_continues_and_deliveries_come_again_with_their_attempt() -> None:
    a, b = pair()
    await mix(a, b)
    consumer = MemoryConsumer(a)
    taken = len(consumer.take())
    consumer.settle(list(range(0, taken, 2)), nacked=[1])
    async with linked(follow(a, b)):
        await until(lambda: alike(a, b))
    done, out = settled(a), deliveries(a)
    b.produce(Z, range(2))
    info = b.admin.request(PromoteSubscription(TOPIC, NAME))
    assert (info["passive"], info["epoch"]) == (False, 1)
    b.crash()
    again = {rows(b)[entry]: attempt for (_, entry), attempt in MemoryConsumer(b).take().items()}
    assert again.keys() == {*rows(b).values()} - done, "nothing is missing, and nothing that was settled comes"
    assert all(again[row] == count + 1 for row, count in out.items())
    assert all(attempt > 1 for attempt in again.values()), "who was handed what at last is not known"


async def test_messages_that_only_the_old_node_had_are_marked_after_a_promotion() -> None:
    a, b = pair()
    consumer = MemoryConsumer(a)
    async with linked(follow(a, b)):
        await until(lambda: alike(a, b) and len(rows(b)) == 120)
    a.produce(X, range(20, 30))
    consumer.settle([entry for _, entry in consumer.take()])
    b.shell.now_us += 10
    b.admin.request(PromoteSubscription(TOPIC, NAME))
    moved = MemoryConsumer(b)
    moved.take()
    async with linked(pull(a, b)):
        await until(lambda: len(rows(b)) == 150)
        assert list(moved.take().values()) == [2] * 30
        a.shell.now_us += 10_000_000
        a.produce(X, range(30, 32))
        await until(lambda: len(rows(b)) == 156)
        assert list(moved.take().values()) == [1] * 6


async def test_a_copy_whose_source_had_no_consumer_begins_with_first_attempts() -> None:
    a, b = pair()
    async with linked(follow(a, b)):
        await until(lambda: alike(a, b) and len(rows(b)) == 120)
    b.admin.request(PromoteSubscription(TOPIC, NAME))
    assert {*MemoryConsumer(b).take().values()} == {1}


async def test_a_link_does_not_change_a_promoted_subscription() -> None:
    a, b = pair()
    way = follow(a, b)
    async with linked(way):
        await until(lambda: alike(a, b))
        b.admin.request(PromoteSubscription(TOPIC, NAME))
        MemoryConsumer(a).settle(list(range(30)))
        key = ("pull", TOPIC, NAME)
        await until(lambda: key in way.status.subscriptions and bool(of(a).copy.elsewhere))
        assert way.status.subscriptions[key].state == "promoted"
    assert settled(b) == set()
    assert a.admin.request(ShowSubscription(TOPIC, NAME))["elsewhere"] == "b"
    made = of(a).created_at_us
    late = ApplySettled(b.topic().uuid, "a", NAME, 0, made, 0, 0, [(X, 0, 9)], [], 5, 0, 0)
    assert b.admin.request(late)["state"] == "ignored"
    assert settled(b) == set()
    assert b.admin.request(ShowSubscription(TOPIC, NAME))["ignored"] >= 1


async def test_with_links_in_both_directions_the_old_side_becomes_the_copy() -> None:
    a, b = pair()
    ways = [follow(a, b), follow(b, a, "push")]
    async with linked(*ways):
        await until(lambda: alike(a, b) and len(rows(a)) == len(rows(b)) == 120)
        reader = MemoryConsumer(a)
        reader.settle([0, 1])
        await until(lambda: alike(a, b) and len(settled(b)) == 2)
        b.admin.request(PromoteSubscription(TOPIC, NAME))
        await until(lambda: of(a).copy.passive)
        refusals = [refusal.code for refusal in reader.client.take(Error)]
        assert refusals == ["subscription-passive"]
        consumer = MemoryConsumer(b)
        consumer.settle([entry for _, entry in consumer.take()][:50])
        await until(lambda: alike(b, a))
        a.admin.request(PromoteSubscription(TOPIC, NAME))
        await until(lambda: of(b).copy.passive)
    assert (of(a).copy.epoch, of(b).copy.epoch) == (2, 2)
