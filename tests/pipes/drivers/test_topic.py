"""A stream over a real node's topic: who may die in the middle, and how other clients see it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import headpond
from headpond.model.errors import BadRequest, NotSupported, PipeFull
from headpond.pipes.calculus.route import parse_route
from headpond.pipes.drivers import topic as pipe
from headpond.pipes.drivers.lane import Delivery, SenderLane
from headpond.pipes.drivers.topic import TopicLane
from headpond.pipes.machines.machine import Notice, Token
from tests.client.peer import until
from tests.fire.real_node import RealNode
from tests.pipes.drivers.child import Child
from tests.pipes.drivers.ends import reading, send_in_bursts


def payloads(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


@pytest.mark.parametrize(
    "route", ["stream", "stream | dedup", "stream | index", "stream | dedup | continuous(gaps=false)"]
)
async def test_messages_arrive_in_order(shared_url: str, topic: str, route: str) -> None:
    async with (
        headpond.connect(shared_url) as client,
        pipe.receiver(client, topic, subscription="s", route=route) as receiver,
        pipe.sender(client, topic, route=route) as sender,
        reading(receiver) as got,
    ):
        await sender.send_many(payloads(5000))
        await sender.flush()
        assert (sender.stats.confirmed, sender.stats.retransmissions) == (5000, 0)
        await until(lambda: len(got) == 5000)
        assert got == list(range(5000))
        assert receiver.stats.transmissions == receiver.stats.delivered == 5000


async def test_flush_means_that_the_node_has_it(shared_url: str, topic: str) -> None:
    async with headpond.connect(shared_url) as client, pipe.sender(client, topic, name="till") as sender:
        await sender.send_many(payloads(100))
        await sender.flush()
        async with client.consumer(topic, "plain") as consumer:
            values = [(await anext(aiter(consumer))).value for _ in range(100)]
            assert values == payloads(100), "any consumer can read what a stream carries"


async def test_messages_of_any_producer_can_be_received(shared_url: str, topic: str) -> None:
    async with headpond.connect(shared_url) as client, client.producer(topic) as producer:
        await producer.send(b"1")
        async with (
            pipe.receiver(client, topic, subscription="s") as receiver,
            pipe.receiver(client, topic, subscription="d", route="stream | dedup") as named,
        ):
            item = await receiver.receive(20)
            assert item is not None and item.payload == b"1"
            await until(lambda: named.stats.malformed == 1)
            assert await named.receive(0.01) is None, "dedup cannot know a message without a name"


@pytest.mark.parametrize("name", ["1." + "9" * 5000, "1." + "9" * 19, "9" * 20 + ".0", "1.0,1.0", "1", "x.y"])
async def test_a_name_that_is_none_stops_no_receiver(shared_url: str, topic: str, name: str) -> None:
    route = "stream | dedup"
    async with headpond.connect(shared_url) as client:
        async with client.producer(topic) as producer:
            await producer.send(b"1", id=name)
        async with pipe.sender(client, topic, route=route) as sender:
            await sender.send(b"2")
        async with (
            pipe.receiver(client, topic, subscription="s", route=route) as receiver,
            reading(receiver) as got,
        ):
            await until(lambda: got == [2])
            assert receiver.stats.malformed == 1


async def test_a_receiver_continues_behind_the_messages_that_its_program_confirmed(
    shared_url: str, topic: str
) -> None:
    async with headpond.connect(shared_url) as client, pipe.sender(client, topic) as sender:
        await sender.send_many(payloads(50))
        await sender.flush()
        async with pipe.receiver(client, topic, subscription="s") as receiver:
            items = [await anext(receiver.items()) for _ in range(20)]
            # 10 is not done, so what is done behind it does not count yet.
            for item in [*items[:10], *items[11:]]:
                receiver.confirm(item)
            await receiver.flush()
        async with pipe.receiver(client, topic, subscription="s") as receiver:
            again = [int((await anext(receiver.items())).payload) for _ in range(40)]
            assert again == list(range(10, 50))


async def test_a_receiver_over_dedup_continues_at_a_run_that_its_program_confirmed(
    shared_url: str, topic: str
) -> None:
    route = "stream | dedup"
    async with headpond.connect(shared_url) as client, pipe.sender(client, topic, route=route) as sender:
        await sender.send_many(payloads(20))
        await sender.flush()
        await sender.send_many(payloads(30)[20:])
        await sender.flush()
        async with pipe.receiver(client, topic, subscription="s", route=route) as receiver:
            for _ in range(25):
                receiver.confirm(await anext(receiver.items()))
        async with pipe.receiver(client, topic, subscription="s", route=route) as receiver:
            again = [int((await anext(receiver.items())).payload) for _ in range(10)]
            assert again == list(range(20, 30))


async def test_many_sender_sessions_share_a_topic_under_dedup(shared_url: str, topic: str) -> None:
    route = "stream | dedup"
    async with headpond.connect(shared_url) as client:
        for session in range(80):
            async with pipe.sender(client, topic, route=route) as sender:
                await sender.send(b"%d" % session)
        async with (
            pipe.receiver(client, topic, subscription="s", route=route) as receiver,
            reading(receiver) as got,
        ):
            await until(lambda: len(got) == 80)
            assert got == list(range(80))
            assert receiver.stats.refused == 0


async def test_a_message_that_a_pipe_over_the_topic_refuses_stops_the_receiver_and_is_not_settled(
    shared_url: str, topic: str
) -> None:
    async with headpond.connect(shared_url) as client:
        for session in range(4):
            async with pipe.sender(client, topic, route="stream | dedup") as sender:
                await sender.send(b"%d" % session)
        route = "stream | dedup(sessions=2)"
        async with pipe.receiver(client, topic, subscription="s", route=route) as receiver:
            with pytest.raises(PipeFull, match="no room for message 0"):
                while (item := await receiver.receive(20)) is not None:
                    receiver.confirm(item)
            await receiver.flush()
        async with (
            pipe.receiver(client, topic, subscription="s", route="stream | dedup") as receiver,
            reading(receiver) as got,
        ):
            await until(lambda: bool(got) and got[-1] == 3)
            assert {2, 3} <= set(got), "the next receiver reads the refused messages"


class _JumpingLoop(asyncio.SelectorEventLoop):
    """A loop whose clock can be put forward."""

    ahead_s = 0.0

    def time(self) -> float:
        return super().time() + self.ahead_s


class _Inbox:
    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.notices: list[str] = []
        self.refused: list[Token] = []

    def deliver(self, deliveries: list[Delivery]) -> None:
        self.got += [payload for each in deliveries for payload in each.payloads]

    def notice(self, notices: list[Notice]) -> None:
        self.notices += [each.what for each in notices]

    def refuse(self, lane: SenderLane, tokens: list[Token]) -> None:
        self.refused += tokens


def test_sessions_that_were_silent_for_an_hour_make_room_since_the_lanes_clock_runs() -> None:
    async def scenario(loop: _JumpingLoop) -> None:
        inbox, commits = _Inbox(), list[int]()
        lane = TopicLane("t", parse_route("stream | dedup(sessions=2)"), 1, inbox, commits.append)
        lane.begin()
        lane.start_at(0)
        for entry in range(2):
            lane.fetched(entry, [(entry + 1, 0, b"%d" % entry)])
        loop.ahead_s += 3601
        lane.fetched(2, [(3, 0, b"2")])
        assert (inbox.got, inbox.notices, lane.halted) == ([b"0", b"1", b"2"], ["retired"], False)
        lane.fetched(3, [(4, 0, b"3")])
        assert inbox.notices == ["retired", "retired"]
        lane.fetched(4, [(5, 0, b"4")])
        assert (lane.halted, inbox.refused) == (True, [(5, (0,))]), "both are recent now"
        lane.fetched(5, [(3, 1, b"5")])
        assert inbox.got == [b"0", b"1", b"2", b"3"], "nothing behind it is delivered"
        lane.settle(1, (0,), range(4))
        assert commits == [4], "and nothing past it is committed"
        lane.close()

    with asyncio.Runner(loop_factory=_JumpingLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, _JumpingLoop)
        runner.run(scenario(loop))


async def test_without_commit_a_receiver_starts_from_the_beginning(shared_url: str, topic: str) -> None:
    async with headpond.connect(shared_url) as client, pipe.sender(client, topic) as sender:
        await sender.send_many(payloads(10))
        await sender.flush()
        for _ in range(2):
            route = "stream(commit=false)"
            async with pipe.receiver(client, topic, subscription="s", route=route) as receiver:
                got = []
                for _ in range(10):
                    item = await anext(receiver.items())
                    receiver.confirm(item)
                    got.append(int(item.payload))
                assert got == list(range(10))


async def test_entries_settled_by_another_consumer_are_reported_and_skipped(
    shared_url: str, topic: str
) -> None:
    async with headpond.connect(shared_url) as client, pipe.sender(client, topic) as sender:
        await sender.send_many(payloads(10))
        await sender.flush()
        async with client.consumer(topic, "s") as consumer:
            messages = [await anext(aiter(consumer)) for _ in range(10)]
            for message in messages[4:7]:
                await consumer.ack(message)
        async with pipe.receiver(client, topic, subscription="s") as receiver, reading(receiver) as got:
            await until(lambda: len(got) == 7)
            assert got == [0, 1, 2, 3, 7, 8, 9]
            assert [(notice.what, list(notice.numbers)) for notice in receiver.notices] == [("lost", [4, 5, 6])]


async def test_the_receiver_after_a_killed_one_continues_from_the_settled_position(node: RealNode) -> None:
    async with headpond.connect(node.url) as client, pipe.sender(client, "numbers") as sender:
        await sender.send_many(payloads(10_000))
        await sender.flush()
        async with Child("receive-topic", node.url, "numbers", "s", 5000) as first:
            await until(lambda: len(first.numbers) == 5000)
            await first.kill()
        done = len(first.numbers)
        assert first.numbers == list(range(done))
        async with Child("receive-topic", node.url, "numbers", "s", 1_000_000) as second:
            await until(lambda: bool(second.numbers) and second.numbers[-1] == 9_999)
        start = second.numbers[0]
        assert second.numbers == list(range(start, 10_000))
        assert 0 < start <= done, "from where it was, and not from the beginning"


async def test_a_node_killed_in_the_middle_loses_and_repeats_nothing(node: RealNode) -> None:
    async with (
        headpond.connect(node.url) as client,
        pipe.receiver(client, "numbers", subscription="s") as receiver,
        pipe.sender(client, "numbers") as sender,
        reading(receiver) as got,
    ):
        sending = asyncio.create_task(send_in_bursts(sender, range(1500), burst=5))
        for goal in (200, 800):
            await until(lambda goal=goal: len(got) > goal)  # type: ignore[misc]
            await asyncio.to_thread(node.restart)
        await sending
        await sender.flush()
        await until(lambda: len(got) >= 1500)
        assert got == list(range(1500))
        assert sender.stats.reconnects == 2
        assert sender.stats.retransmissions == 0


async def test_messages_that_the_node_does_not_have_are_neither_confirmed_nor_kept_elsewhere(
    node: RealNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADPOND_STATE", str(tmp_path / "state"))
    async with headpond.connect(node.url) as client:
        sender = await pipe.sender(client, "numbers", name="till")
        await sender.send(b"0")
        await sender.flush()
        await asyncio.to_thread(node.kill)
        await sender.send_many(payloads(100))
        await sender.abort()
        assert sender.stats.confirmed == 1
    # A refill would send them later, though the sender has said that they may be lost.
    assert not list((tmp_path / "state").rglob("*.refill*")) and not (tmp_path / "state" / "refill").exists()


async def test_a_topic_of_several_shards_is_refused_by_both_ends(shared_url: str, topic: str) -> None:
    async with headpond.connect(shared_url) as client:
        await client.admin.create_topic(topic, shards=2)
        with pytest.raises(NotSupported, match="2 shards"):
            await pipe.sender(client, topic)
        with pytest.raises(NotSupported, match="2 shards"):
            await pipe.receiver(client, topic, subscription="s")


async def test_routes_that_need_a_way_back_are_refused(shared_url: str) -> None:
    async with headpond.connect(shared_url) as client:
        for route in ("resend_many", "stream | continuous", "stream | sequential"):
            with pytest.raises(BadRequest):
                pipe.sender(client, "t", route=route)
            with pytest.raises(BadRequest):
                pipe.receiver(client, "t", subscription="s", route=route)


async def test_a_refusal_of_the_node_is_raised_to_the_sender(shared_url: str, topic: str) -> None:
    async with headpond.connect(shared_url) as client:
        sender = await pipe.sender(client, topic)
        await client.admin.delete_topic(topic)
        await sender.send(b"1")
        with pytest.raises(headpond.HeadpondError) as caught:
            await sender.flush()
        assert not caught.value.retryable
        await sender.abort()
