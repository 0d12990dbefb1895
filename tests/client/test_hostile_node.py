"""A node with invalid answers: the producer loses nothing, does not hang, and ignores impossible answers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import headpond
from headpond.client.link.dialling import Backoff
from headpond.model.errors import ProtocolError, TopicMismatch, TopicNotFound
from headpond.wire.control.producing import Ack, AckItem, Hole
from headpond.wire.frame import Frame, FrameType
from tests.client.peer import serving
from tests.client.test_connecting import quick
from tests.fire.real_node import RealNode


def strange_answers(block: bytes) -> list[Ack]:
    """Answers to segments that were never sent, and answers that mean nothing."""
    strange = [
        AckItem(10**9, "stored", 5),
        AckItem(2**32 - 1, "rejected", None, "gap", "", 3),
        AckItem(0, "spilled", 5),
        AckItem(0, "gone to lunch", 5),
        AckItem(1, "rejected", None, "gap", "", 2**32),
    ]
    return [
        Ack(block, 0, "sync", strange),
        Ack(block, 7, "sync", [AckItem(0, "stored", 5)]),
        Ack(b"another block!!!", 0, "sync", [AckItem(0, "stored", 5)]),
        Ack(block, 0, "sync", []),
    ]


async def test_answers_to_segments_that_were_never_sent_are_ignored() -> None:
    async with serving() as peer, quick(peer) as client, client.producer("t", batch_rows=1) as producer:
        conversation = await peer.conversation()
        promise = producer.post(b"a")
        frame = await conversation.next(Frame)
        conversation.say(*strange_answers(producer.block))
        await asyncio.sleep(0.05)
        assert not promise.done() and client.connected
        conversation.answer(frame)
        assert (await promise).stored
        later = producer.post(b"b")
        conversation.answer(await conversation.next(Frame))
        assert (await later).entry == 100
        assert producer.stats.holes == ()


@pytest.mark.parametrize(
    "wrong",
    [
        AckItem(-1, "stored", 5),
        AckItem(2**32, "stored", 5),
        AckItem(0, "stored", 2**63),
        AckItem(0, "rejected", None, "gap", "", -5),
    ],
    ids=repr,
)
async def test_after_an_answer_beyond_its_bounds_the_client_connects_again_and_sends_again(
    wrong: AckItem,
) -> None:
    async with serving() as peer, quick(peer) as client, client.producer("t", batch_rows=1) as producer:
        conversation = await peer.conversation()
        promise = producer.post(b"a")
        await conversation.next(Frame)
        conversation.say(Ack(producer.block, 0, "sync", [wrong]))
        again = await peer.conversation()
        again.answer(await again.next(Frame))
        assert (await promise).stored


async def test_a_durability_that_nobody_knows_is_a_receipt_without_one() -> None:
    async with serving() as peer, quick(peer) as client, client.producer("t") as producer:
        conversation = await peer.conversation()
        promise = producer.post(b"a")
        frame = await conversation.next(Frame)
        conversation.say(Ack(producer.block, 0, "engraved", [AckItem(frame.segment, "stored", 7)]))
        receipt = await promise
        assert receipt.stored and receipt.durability is None


@pytest.mark.parametrize(
    ("code", "expected"), [("snapshot", None), ("gap", 0), ("gap", 10**12), ("predecessor", None)]
)
def test_a_node_that_refuses_for_ever_is_spilled_for_and_not_hammered(
    code: str, expected: int | None, state_folder: Path
) -> None:
    async def scenario() -> None:
        async with serving() as peer, quick(peer) as client:
            producer = await client.producer("t", spill_after=0.3, close_timeout=0.2).open()
            conversation = await peer.conversation()
            sendings = 0

            async def refuse() -> None:
                nonlocal sendings
                while True:
                    frame = await conversation.next(Frame)
                    sendings += 1
                    assert frame.type == FrameType.SEGMENT, "a plain topic has no snapshots"
                    conversation.reject(frame, code, expected)

            refusing = asyncio.create_task(refuse())
            assert (await producer.send(b"a")).outcome == "spilled"
            await producer.close()
            refusing.cancel()
            assert sendings < 30

    asyncio.run(scenario())
    assert len(list(state_folder.glob("**/*.refill"))) == 1


async def test_a_gap_far_behind_declares_a_hole_once_and_names_it() -> None:
    async with serving() as peer, quick(peer) as client, client.producer("t", batch_rows=1) as producer:
        conversation = await peer.conversation()
        for _ in range(3):
            promise = producer.post(b"x")
            conversation.answer(await conversation.next(Frame))
            await promise
        promise = producer.post(b"y")
        conversation.reject(await conversation.next(Frame), "gap", expected=1)
        assert (await conversation.next(Hole)).segment == 3
        conversation.answer(await conversation.next(Frame))
        assert (await promise).stored
        (hole,) = producer.stats.holes
        assert "segments 1–2" in hole and producer.block.hex() in hole


@pytest.mark.parametrize("shards", [0, 3, -4, 2**40])
async def test_a_topic_that_cannot_be_is_not_believed(shards: int) -> None:
    async with serving(shards=shards) as peer, quick(peer) as client:
        with pytest.raises(ProtocolError, match="shards"):
            await client.producer("t").open()


async def test_a_topic_that_is_deleted_in_the_middle_refuses_and_one_created_again_is_another(
    node: RealNode, topic: str
) -> None:
    backoff = Backoff(0.01, 0.05)
    async with (
        headpond.connect(node.url, backoff=backoff) as client,
        headpond.connect(node.url) as other,
    ):
        producer = await client.producer(topic).open()
        await producer.send(b"a")
        await other.admin.delete_topic(topic)
        with pytest.raises((TopicNotFound, TopicMismatch)):
            await producer.send(b"b")
        await other.admin.create_topic(topic, shards=4)
        with pytest.raises((TopicNotFound, TopicMismatch)):
            await producer.send(b"c")
        await producer.close()
        async with client.producer(topic) as again:
            assert again.shards == 4 and (await again.send(b"d")).stored


async def test_answers_twice_and_out_of_order_and_none_lose_nothing() -> None:
    async with serving() as peer, quick(peer) as client, client.producer("t", batch_rows=1) as producer:
        conversation = await peer.conversation()
        promises = [producer.post(b"%d" % number) for number in range(20)]
        frames = [await conversation.next(Frame) for _ in range(20)]
        for frame in reversed(frames[10:]):
            conversation.answer(frame)
            conversation.answer(frame)
        await promises[10]
        conversation.abort()
        again = await peer.conversation()
        for _ in range(10):
            frame = await again.next(Frame)
            assert frame.segment < 10, "a confirmed segment is not sent again"
            again.answer(frame)
        assert [(await promise).stored for promise in promises] == [True] * 20
