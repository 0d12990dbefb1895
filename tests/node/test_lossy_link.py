"""A lossy link loses messages and answers; what the node has at the end is whole, and R and UR tell of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

import headpond
from headpond.client.link.dialling import Backoff
from headpond.model.address import parse_addresses
from headpond.model.ledger import ProducerAccount
from headpond.node.lossy_link import Faults, Harm, LossyLink
from tests.fire.real_node import RealNode

MESSAGES = 60
QUICK = Backoff(min_s=0.01, max_s=0.05)


async def over(url: str, faults: Faults) -> tuple[list[bytes], ProducerAccount, Harm]:
    """Sends and receives over the link; returns what was received, the producer's account, and the harm."""
    (address,) = parse_addresses(url)
    async with (
        LossyLink(address.host, address.port, faults, seed=7) as link,
        headpond.connect(link.url, backoff=QUICK) as sender,
        headpond.connect(link.url, backoff=QUICK) as reader,
    ):
        await sender.admin.create_topic("t")
        async with sender.producer("t", refill=None, window_bytes=1) as producer:
            for number in range(MESSAGES):
                await producer.send(b"%d" % number)
        received: list[bytes] = []
        async with reader.consumer("t", "s", start="earliest", credit_bytes=1) as consumer:
            while len(set(received)) < MESSAGES:
                message = await consumer.receive(timeout=5)
                if message is not None:
                    received.append(message.value)
                    await consumer.ack(message)
            link.faults = Faults(delay_s=0, cut_s=None)
            await consumer.flush()
        (account,) = (await sender.admin.ledger("t")).producers
        return received, account, link.harm


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    with RealNode(tmp_path / "node") as node:
        yield node.url


def test_without_faults_everything_passes_once(url: str) -> None:
    received, account, harm = asyncio.run(over(url, Faults(delay_s=0, cut_s=None)))
    assert received == [b"%d" % number for number in range(MESSAGES)]
    assert (account.messages, account.duplicates, harm.cuts) == (MESSAGES, 0, 0)
    assert harm.segments.given == MESSAGES and harm.deliveries.given > 0
    assert harm.segments.lost == harm.segments.answers_lost == harm.deliveries.lost == 0


def test_what_is_lost_is_sent_again_and_stored_once(url: str) -> None:
    received, account, harm = asyncio.run(over(url, Faults(loss=0.2, delay_s=0, cut_s=None)))
    assert sorted(set(received)) == sorted(b"%d" % number for number in range(MESSAGES))
    assert account.messages == MESSAGES and account.pending == 0
    assert 0 < harm.segments.lost < harm.segments.given - MESSAGES + 1
    assert harm.cuts >= harm.segments.lost + harm.deliveries.lost > harm.segments.lost


def test_a_lost_answer_brings_a_segment_again_which_lowers_ur(url: str) -> None:
    _, account, harm = asyncio.run(over(url, Faults(duplicates=0.2, delay_s=0, cut_s=None)))
    assert account.messages == MESSAGES and harm.segments.lost == 0
    assert account.duplicates >= harm.segments.answers_lost > 0
    assert account.use_ratio.value is not None and account.use_ratio.value < 1
