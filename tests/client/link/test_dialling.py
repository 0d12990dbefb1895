"""Which addresses are tried, and where a node may send its clients."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from pathlib import Path

import pytest

import headpond
from headpond.client.consume.spread import Spread
from headpond.client.link.dialling import HOPS_MAX, LEARNT_MAX, Dialling
from headpond.model.address import Address, parse_addresses
from headpond.model.errors import BadRequest, BadURL
from tests.client.consume.test_several_nodes import QUICK, fill, take_settling
from tests.client.peer import until
from tests.fire.real_node import RealNode

PLAIN = parse_addresses("headpond://a,b")
SECRET = parse_addresses("headponds://a,b")


def urls(dialling: Dialling) -> list[str]:
    return [address.url for address in dialling.order()]


def test_an_address_that_was_given_is_tried_first_until_it_answered() -> None:
    dialling = Dialling(PLAIN)
    assert dialling.heard(PLAIN[0], "headpond://b") is None
    assert urls(dialling) == ["headpond://b:7411", "headpond://a:7411"]
    dialling.connected(PLAIN[1], "")
    assert urls(dialling) == ["headpond://a:7411", "headpond://b:7411"]


@pytest.mark.parametrize(
    ("redirects", "given", "named", "why"),
    [
        ("listed", PLAIN, "headpond://c", "not among"),
        ("listed", PLAIN, "headpond://b:9", "not among"),
        ("listed", PLAIN, "headpond://b,c", "not among"),
        ("none", PLAIN, "headpond://b", "turned off"),
        ("any", SECRET, "headpond://b", "no TLS"),
        ("any", SECRET, "headpond://c", "no TLS"),
        ("listed", SECRET, "headponds://c", "not among"),
        ("any", PLAIN, "http://c", "does not begin"),
        ("any", PLAIN, "headpond://:1", "no host"),
    ],
)
def test_the_reason_for_not_following_a_redirect_is_reported(
    redirects: str, given: list[Address], named: str, why: str
) -> None:
    dialling = Dialling(given, redirects)
    before = dialling.order()
    assert why in (dialling.heard(given[0], named) or "")
    assert dialling.order() == before


def test_a_stranger_is_followed_where_that_is_allowed_and_tried_last_from_then_on() -> None:
    dialling = Dialling(SECRET, "any")
    assert dialling.heard(SECRET[0], "headponds://c") is None
    assert urls(dialling)[0] == "headponds://c:7411"
    dialling.connected(SECRET[0], "headpond://d")
    assert urls(dialling) == ["headponds://a:7411", "headponds://b:7411", "headponds://c:7411"]
    dialling.connected(SECRET[0], "headponds://e")
    assert urls(dialling)[-1] == "headponds://e:7411", "known before it is needed"


def test_nodes_that_name_each_other_are_followed_so_often_and_no_more() -> None:
    dialling = Dialling(PLAIN)
    for hop in range(HOPS_MAX):
        assert dialling.heard(PLAIN[hop % 2], "headpond://a") is None
    assert "in a row" in (dialling.heard(PLAIN[0], "headpond://b") or "")
    dialling.lasted()
    assert dialling.heard(PLAIN[0], "headpond://b") is None


def test_no_more_than_so_many_are_learnt() -> None:
    dialling = Dialling(PLAIN, "any")
    for number in range(3 * LEARNT_MAX):
        dialling.lasted()
        dialling.heard(PLAIN[0], f"headpond://c{number}")
    dialling.connected(PLAIN[0], "")
    assert len(dialling.order()) == len(PLAIN) + LEARNT_MAX


@pytest.mark.parametrize("url", ["headponds://a,headpond://b", ["headpond://a", "headponds://b"]])
def test_one_service_is_with_tls_or_without(url: str | list[str]) -> None:
    with pytest.raises(BadURL, match="must all use TLS or none"):
        headpond.connect(url)


def test_the_word_for_redirects_is_checked() -> None:
    with pytest.raises(BadRequest, match="redirects"):
        headpond.connect("headpond://a", redirects="some")


def test_clients_of_a_node_that_stops_continue_at_its_successor(tmp_path: Path, topic: str) -> None:
    async def scenario(one: RealNode, two: RealNode) -> None:
        await fill((one, two), topic)
        async with (
            headpond.connect(one.url, backoff=QUICK, redirects="any") as client,
            headpond.connect(one.url, backoff=QUICK) as careful,
            client.consumer(topic, "s", credit_bytes=1) as consumer,
            client.producer(topic) as producer,
        ):
            assert isinstance(consumer.core, Spread)
            got = await take_settling(consumer, 20)
            await asyncio.to_thread(one.stop)
            assert (await producer.send(b"late")).outcome == "stored"
            got += await take_settling(consumer, 41)
            assert len({message.identity for message in got}) == 61
            assert client.link.destination == two.url
            await until(lambda: not careful.connected)
            assert careful.link.dialling.order() == parse_addresses(one.url), "it may not follow"

    with ExitStack() as stack:
        two = stack.enter_context(RealNode(tmp_path / "two"))
        one = stack.enter_context(RealNode(tmp_path / "one", config=f'successor = "{two.url}"'))
        asyncio.run(scenario(one, two))
