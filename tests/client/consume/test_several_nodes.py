"""Readers and clients of several nodes: each message once, whichever node delivers it or is lost."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pyarrow as pa
import pytest

import headpond
import headpond.sync
from headpond.client.consume.consumer import Consumer
from headpond.client.consume.spread import Spread
from headpond.client.link.dialling import Backoff
from headpond.client.options import ModeName
from headpond.model.errors import BadRequest, IncarnationChanged, NotAcrossNodes, TopicMismatch, TopicNotFound
from headpond.model.policy import Policy
from headpond.wire.control.consuming import SubscriptionInfo
from tests.client.consume.test_reconnecting import hold_up
from tests.client.peer import until
from tests.fire.real_node import RealNode

QUICK = Backoff(0.01, 0.05)
COUNT = 60
EVERY = [b"%d" % number for number in range(COUNT)]
Pair = tuple[RealNode, RealNode]


@pytest.fixture(scope="module")
def two_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("several")
    with RealNode(folder / "one") as one, RealNode(folder / "two") as two:
        yield one, two


@pytest.fixture
def pair(two_nodes: Pair) -> Iterator[Pair]:
    """Two running nodes, which a test may kill."""
    yield two_nodes
    for node in two_nodes:
        if not node.alive:
            node.start()


async def fill(pair: Pair, topic: str, values: list[bytes] = EVERY, *, rows: int = 7) -> None:
    """Sends everything to both nodes, under the same identities."""
    one, two = pair
    async with (
        headpond.connect(one.url, backoff=QUICK) as client,
        client.producer(topic, copies=[two.url], refill=None) as producer,
    ):
        for at in range(0, len(values), rows):
            await producer.send_batch(pa.table({"value": values[at : at + rows]}))


@asynccontextmanager
async def reading(
    pair: Pair, topic: str, *, copies: bool = True, policy: Policy | None = None
) -> AsyncIterator[Consumer]:
    one, two = pair
    async with (
        headpond.connect(one.url, backoff=QUICK) as client,
        client.consumer(topic, "s", copies=[two.url] if copies else (), policy=policy) as consumer,
    ):
        assert isinstance(consumer.core, Spread)
        yield consumer


async def take(consumer: Consumer, count: int) -> list[headpond.Message]:
    async with asyncio.timeout(30):
        return [await anext(consumer) for _ in range(count)]


async def nothing_more(consumer: Consumer) -> None:
    assert await consumer.receive(0.3) is None


async def standing(node: RealNode, topic: str) -> SubscriptionInfo:
    async with headpond.connect(node.url) as client:
        return await client.admin.show_subscription(topic, "s")


def _done(info: SubscriptionInfo) -> int:
    return info.settled + info.dead


async def until_settled(nodes: Sequence[RealNode], topic: str, count: int = COUNT) -> None:
    """Returns when the nodes have this many settled, and nothing in flight."""
    async with asyncio.timeout(30):
        for node in nodes:
            while _done(await standing(node, topic)) < count:  # noqa: ASYNC110  # at another process
                await asyncio.sleep(0.02)


async def until_state(consumer: Consumer, *states: str) -> None:
    await until(lambda: tuple(each.state for each in consumer.nodes) == states)


async def test_a_consumer_of_two_nodes_gets_each_message_once_and_settles_it_at_both(
    pair: Pair, topic: str
) -> None:
    async with headpond.connect(pair[0].url) as client:
        await client.admin.create_topic(topic, shards=2)
    await fill(pair, topic)
    async with reading(pair, topic) as consumer:
        messages = await take(consumer, COUNT)
        assert {message.shard for message in messages} == {0, 1}
        assert sorted(message.value for message in messages) == sorted(EVERY)
        assert len({message.identity for message in messages}) == COUNT
        for number, message in enumerate(messages):
            await (consumer.skip if number % 10 == 0 else consumer.ack)(message)
        await nothing_more(consumer)
        await consumer.flush()
        assert consumer.copies == COUNT
        assert [each.state for each in consumer.nodes] == ["reading", "reading"]
        assert sum(each.messages for each in consumer.nodes) == COUNT
    for node in pair:
        info = await standing(node, topic)
        assert (info.settled, info.unsettled) == (COUNT, 0)
    skipped = [(await standing(node, topic)).skipped for node in pair]
    assert max(skipped) == COUNT // 10, "as skipped at the node that brought it first"


async def test_batches_have_the_rows_alone_that_did_not_come_before(pair: Pair, topic: str) -> None:
    one, two = pair
    await fill(pair, topic, rows=COUNT)
    async with headpond.connect(one.url) as client, client.consumer(topic, "s") as before:
        (first,) = await before.next_batches(1)
        await before.ack(first, rows=list(range(0, COUNT, 2)))  # so one node has settled some of it
    async with reading((two, one), topic) as consumer:
        rows: list[int] = []
        async with asyncio.timeout(30):
            async for batch in consumer.batches():
                values = batch.arrow.column("value").to_pylist()
                assert len(values) == len(batch) == len(batch.entries)
                rows += [int(value) for value in values]
                await consumer.ack(batch)
                if len(rows) == COUNT:
                    break
        await nothing_more(consumer)
    assert sorted(rows) == list(range(COUNT)), "each once, whichever node brought which"
    await until_settled(pair, topic)


async def test_a_refused_message_comes_again_once_and_its_copy_follows(pair: Pair, topic: str) -> None:
    await fill(pair, topic)
    async with reading(pair, topic) as consumer:
        messages = await take(consumer, COUNT)
        await consumer.nack(messages[7], delay=0.05)
        (again,) = await take(consumer, 1)
        assert (again.identity, again.attempt) == (messages[7].identity, 2)
        for message in [*messages[:7], *messages[8:], again]:
            await consumer.ack(message)
        await nothing_more(consumer)
    await until_settled(pair, topic)


async def test_a_message_in_hand_when_its_node_dies_is_settled_at_both_once_it_is_back(
    pair: Pair, topic: str
) -> None:
    one, two = pair
    await fill(pair, topic)
    async with reading(pair, topic) as consumer:
        messages = await take(consumer, COUNT)
        one.kill()
        await until_state(consumer, "away", "reading")
        for message in messages:
            await consumer.ack(message)
        async with asyncio.timeout(20):
            await consumer.flush()  # does not wait for the one that is away
        await nothing_more(consumer)  # copies that come late are settled as they come
        await until_settled([two], topic)
        await asyncio.to_thread(one.start)
        await until_state(consumer, "reading", "reading")
        await nothing_more(consumer)
        await until_settled(pair, topic)


async def test_a_refused_message_comes_from_the_other_node_when_its_own_dies(pair: Pair, topic: str) -> None:
    await fill(pair, topic)
    async with reading(pair, topic) as consumer:
        messages = await take(consumer, COUNT)
        victim = next(node for node in pair if _first_of(consumer, node) == messages[5].node)
        await consumer.nack(messages[5], delay=3600)  # it would be long in coming
        await consumer.flush()
        victim.kill()
        (again,) = await take(consumer, 1)
        assert again.identity == messages[5].identity
        assert again.node != messages[5].node
        await asyncio.to_thread(victim.start)
        await until_state(consumer, "reading", "reading")
        for message in [*messages[:5], *messages[6:], again]:
            await consumer.ack(message)
        await nothing_more(consumer)
        await until_settled(pair, topic)


def _first_of(consumer: Consumer, node: RealNode) -> str | None:
    return next(each.node for each in consumer.nodes if each.url == node.url)


async def test_a_node_that_is_away_at_the_start_is_read_when_it_comes(pair: Pair, topic: str) -> None:
    _, two = pair
    await fill(pair, topic)
    two.kill()
    async with reading(pair, topic) as consumer:
        for message in await take(consumer, COUNT):
            await consumer.ack(message)
        assert [each.state for each in consumer.nodes] == ["reading", "away"]
        await asyncio.to_thread(two.start)
        waiting = asyncio.create_task(consumer.receive(30))  # somebody waits, as a program does
        await until_state(consumer, "reading", "reading")
        await until_settled(pair, topic)
        waiting.cancel()
        assert consumer.copies == COUNT


async def test_a_topic_that_a_copy_does_not_have_yet_is_waited_for_and_not_made(pair: Pair, topic: str) -> None:
    one, two = pair
    async with headpond.connect(one.url) as client:
        await client.admin.create_topic(topic, shards=4)
    async with reading(pair, topic) as consumer:
        waiting = asyncio.create_task(take(consumer, COUNT))
        await until(lambda: isinstance(consumer.nodes[1].error, TopicNotFound))
        await fill(pair, topic)
        assert {message.value for message in await waiting} == set(EVERY)
        waiting = asyncio.create_task(take(consumer, 1))
        await until_state(consumer, "reading", "reading")
        waiting.cancel()
    async with headpond.connect(two.url) as client:
        assert (await client.admin.show_topic(topic)).shards == 4, "made by who knew it"


async def test_a_node_that_fails_for_good_is_reported_and_the_others_are_read(pair: Pair, topic: str) -> None:
    one, two = pair
    await fill(pair, topic)
    async with reading(pair, topic) as consumer, headpond.connect(two.url) as admin:
        messages = await take(consumer, COUNT)
        await admin.admin.delete_topic(topic)
        waiting = asyncio.create_task(take(consumer, 1))
        await until_state(consumer, "reading", "failed")
        assert isinstance(consumer.nodes[1].error, TopicNotFound)
        for message in messages:  # whichever node they came from
            await consumer.ack(message)
        await consumer.flush()
        async with headpond.connect(one.url) as client, client.producer(topic) as producer:
            await producer.send(b"more")
        (more,) = await waiting
        assert more.value == b"more"
        assert (await standing(one, topic)).settled == COUNT
        await consumer.ack(more)
        async with headpond.connect(one.url) as client:
            await client.admin.delete_topic(topic)
        with pytest.raises(TopicNotFound):
            await take(consumer, 1)


async def test_the_messages_of_a_lost_reader_come_to_the_next_one_once(pair: Pair, topic: str) -> None:
    await fill(pair, topic)
    async with reading(pair, topic) as first:
        await take(first, COUNT)  # in flight at both nodes, and counted as an attempt at both
    async with reading(pair, topic) as consumer:
        messages = await take(consumer, COUNT)
        assert len({message.identity for message in messages}) == COUNT
        for message in messages:
            await consumer.ack(message)
        await nothing_more(consumer)
    await until_settled(pair, topic)


async def test_a_subscription_set_back_at_both_nodes_brings_each_message_once_more(
    pair: Pair, topic: str
) -> None:
    await fill(pair, topic)
    async with reading(pair, topic) as consumer:
        for message in await take(consumer, COUNT):
            await consumer.ack(message)
        await consumer.flush()
        await nothing_more(consumer)
        for step in ("pause", "seek", "resume"):  # what comes between two seeks would come twice
            for node in pair:
                async with headpond.connect(node.url) as client:
                    to = ["earliest"] if step == "seek" else []
                    await getattr(client.admin, step)(topic, "s", *to)
        again = await take(consumer, COUNT)
        assert len({message.identity for message in again}) == COUNT
        for message in again:
            await consumer.ack(message)
        await nothing_more(consumer)


async def test_the_copy_of_a_dead_letter_is_not_wanted_and_a_redrive_passes(pair: Pair, topic: str) -> None:
    await fill(pair, topic, [b"bad"])
    policy = Policy(max_attempts=2, backoff=0.01)
    async with reading(pair, topic, policy=policy) as consumer:
        for _ in range(2):
            (message,) = await take(consumer, 1)
            await consumer.nack(message)
        await until_settled(pair, topic, 1)
        states = [await standing(node, topic) for node in pair]
        assert sorted((state.dead, state.skipped) for state in states) == [(0, 1), (1, 0)]
        place = next(node for node, state in zip(pair, states, strict=True) if state.dead)
        async with headpond.connect(place.url) as client:
            await client.admin.redrive(topic, "s")
        (message,) = await take(consumer, 1)
        await consumer.ack(message)
        await nothing_more(consumer)


async def test_a_consumer_of_two_nodes_reports_the_bytes_that_wait_for_its_program(
    pair: Pair, topic: str
) -> None:
    await fill(pair, topic)
    async with reading(pair, topic) as consumer:
        await take(consumer, 1)
        await until(lambda: consumer.ahead_bytes > 0)
        messages = await take(consumer, COUNT - 1)
        assert len(messages) == COUNT - 1


async def test_a_resilient_order_holds_at_a_service_of_two_addresses_and_at_the_second_one(
    pair: Pair, topic: str
) -> None:
    one, two = pair
    await fill(pair, topic)
    policy = Policy(backoff=0.0, lease=1.0)
    async with (
        headpond.connect(f"{one.url},{two.url}", backoff=QUICK) as client,
        client.consumer(topic, "s", mode="resilient", policy=policy) as consumer,
    ):
        assert isinstance(consumer.core, Spread)
        first = (await take(consumer, 1))[0]
        assert await consumer.receive(0.1) is None, "the first one is not settled"
        await consumer.nack(first)
        again = (await take(consumer, 1))[0]
        assert (again.identity, again.attempt) == (first.identity, 2)
        await consumer.ack(again)
        batch = await anext(consumer.batches())
        assert (len(batch), batch.messages()[0].value) == (1, EVERY[1])
        await consumer.ack(batch)
        values = [EVERY[0], EVERY[1]]
        for number in range(2, COUNT):
            if number == COUNT // 2:
                await consumer.flush()
                await asyncio.to_thread(one.kill)
            message = (await take(consumer, 1))[0]
            values.append(message.value)
            await consumer.ack(message)
        assert values == EVERY, "also over the change of the node, each one once"
        await nothing_more(consumer)


async def test_without_dedup_every_copy_comes(pair: Pair, topic: str) -> None:
    one, two = pair
    await fill(pair, topic)
    async with (
        headpond.connect(one.url) as client,
        client.consumer(topic, "s", kind="shared", copies=[two.url], dedup=False) as consumer,
    ):
        for message in await take(consumer, 2 * COUNT):
            await consumer.ack(message)
        await nothing_more(consumer)
    await until_settled(pair, topic)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"mode": "resilient"}, "order"),
        ({"kind": "shared"}, "none of them can recognise"),
        ({"kind": "key_shared"}, "none of them can recognise"),
        ({"kind": "failover"}, "none of them can recognise"),
        ({"mode": "resilient", "dedup": False}, "order"),
    ],
)
async def test_options_that_do_not_work_with_several_nodes_are_refused_with_a_reason(
    pair: Pair, topic: str, options: dict[str, object], why: str
) -> None:
    one, two = pair
    async with headpond.connect(one.url) as client:
        with pytest.raises(NotAcrossNodes, match=why):
            client.consumer(topic, "s", copies=[two.url], **options)  # type: ignore[call-overload]
        with pytest.raises(BadRequest, match="already"):
            client.consumer(topic, "s", copies=[one.url])
        async with client.consumer(topic, "s", copies=[two.url]) as consumer:
            with pytest.raises(NotAcrossNodes):
                await consumer.ack_range(0, 0, 5)


def test_the_blocking_twin_reads_two_nodes_too(pair: Pair, topic: str) -> None:
    one, two = pair
    asyncio.run(fill(pair, topic))
    with (
        headpond.sync.connect(one.url, backoff=QUICK) as client,
        client.consumer(topic, "s", copies=[two.url]) as consumer,
    ):
        got = []
        while (message := consumer.receive(0.5)) is not None:
            got.append(message.value)
            consumer.ack(message)
        consumer.flush()
        assert sorted(got) == sorted(EVERY)
        assert consumer.copies == COUNT
        assert [each.state for each in consumer.nodes] == ["reading", "reading"]
    asyncio.run(until_settled(pair, topic))


# --- one service of several addresses ---------------------------------------------------------------


@pytest.mark.parametrize("mode", ["non_resilient", "resilient"])
async def test_a_consumer_continues_at_the_next_address_and_back_and_repeats_nothing_it_settled(
    pair: Pair, topic: str, mode: ModeName
) -> None:
    one, two = pair
    await fill(pair, topic)
    async with (
        headpond.connect([one.url, two.url], backoff=QUICK) as client,
        client.consumer(topic, "s", mode=mode, credit_bytes=1, policy=Policy(lease=1.0)) as consumer,
    ):
        got = await take_settling(consumer, COUNT // 3)
        (held,) = await take(consumer, 1)
        one.kill()
        await until(lambda: consumer.nodes[0].state == "away")
        await consumer.ack(held)  # its node is gone; the copy elsewhere is settled with it
        got += [held, *await take_settling(consumer, COUNT // 3)]
        await asyncio.to_thread(one.start)
        two.kill()
        got += await take_settling(consumer, COUNT - len(got))
        assert sorted(int(message.value) for message in got) == list(range(COUNT))
        assert len({message.node for message in got}) == 2
        await nothing_more(consumer)
        await consumer.flush()
    assert (await standing(one, topic)).unsettled == 0


async def take_settling(consumer: Consumer, count: int) -> list[headpond.Message]:
    got = []
    for _ in range(count):
        got += await take(consumer, 1)
        await consumer.ack(got[-1])
    return got


async def test_a_producer_moves_to_the_next_node_in_mid_stream_and_a_reader_of_both_gets_all_once(
    pair: Pair, topic: str
) -> None:
    one, two = pair
    async with (
        headpond.connect([one.url, two.url], backoff=QUICK) as client,
        client.producer(topic, batch_rows=3) as producer,
    ):
        block = producer.block
        receipts = [await producer.send(value) for value in EVERY[:20]]
        one.kill()
        receipts += [await producer.send(value) for value in EVERY[20:40]]  # as copies of nothing: a hole
        await asyncio.to_thread(one.start)
        two.kill()
        receipts += [await producer.send(value) for value in EVERY[40:]]
        assert producer.block == block, "one block, of which each node has parts"
    assert {str(receipt.outcome) for receipt in receipts} <= {"stored", "spilled", "duplicate"}
    await asyncio.to_thread(two.start)
    async with reading(pair, topic) as consumer:
        messages = await take(consumer, COUNT)
        assert {message.value for message in messages} == set(EVERY), "nothing acknowledged is lost"
        assert len({message.identity for message in messages}) == COUNT
        for message in messages:
            await consumer.ack(message)
        await nothing_more(consumer)


async def test_a_writer_does_not_count_its_batches_at_another_node(pair: Pair, topic: str) -> None:
    one, two = pair
    async with (
        headpond.connect([one.url, two.url], backoff=QUICK) as client,
        client.writer(f"w-{topic}") as writer,
    ):
        stage = await writer.stage(topic, pa.table({"value": [b"x"]}))
        one.kill()
        await until(lambda: client.connected and client.link.destination == two.url)
        with pytest.raises(NotAcrossNodes, match="answers now"):
            await writer.commit(1, [stage])
        await client.admin.list_topics()  # administration continues there


async def test_a_reader_by_position_does_not_take_another_node_for_the_first(pair: Pair, topic: str) -> None:
    one, two = pair
    await fill(pair, topic)
    async with (
        headpond.connect([one.url, two.url], backoff=QUICK) as client,
        client.reader(topic) as reader,
    ):
        assert (await reader.fetch(0, 0)).batches
        one.kill()
        with pytest.raises(TopicMismatch):
            await reader.ends()


async def test_a_node_restored_from_an_old_folder_is_reported_and_gets_no_settlements(
    pair: Pair, topic: str, tmp_path: Path
) -> None:
    one, two = pair
    later = [b"%d" % number for number in range(COUNT, COUNT + 7)]
    await fill(pair, topic, EVERY[:7])
    async with reading(pair, topic) as consumer:
        for message in await take(consumer, 7):
            await consumer.ack(message)
        await consumer.flush()
        await until_settled(pair, topic, 7)
        shutil.copytree(two.data, tmp_path / "copy")
        await fill(pair, topic, EVERY[7:14])
        in_hand = await take(consumer, 7)
        await until(lambda: consumer.copies == 14)  # it knows what stood at both
        go = hold_up(consumer._links[1])
        two.kill()
        shutil.rmtree(two.data)
        (tmp_path / "copy").rename(two.data)
        two.start()
        async with headpond.connect(two.url) as client, client.producer(topic) as producer:
            for value in later:
                await producer.send(value)
        go.set()
        waiting = asyncio.create_task(take(consumer, 1))
        await until_state(consumer, "reading", "failed")
        assert isinstance(consumer.nodes[1].error, IncarnationChanged)
        for message in in_hand:
            await consumer.ack(message)
        await consumer.flush()
        assert (await standing(one, topic)).settled == 14
        assert (await standing(two, topic)).settled == 7, "what stands there now was not handed out"
        async with headpond.connect(one.url) as client, client.producer(topic) as producer:
            await producer.send(b"more")
        assert [message.value for message in await waiting] == [b"more"]
