"""URLs of nodes: hosts, ports, TLS, and several addresses of one service."""

from __future__ import annotations

import pytest

from headpond.model.address import Address, parse_addresses
from headpond.model.errors import BadURL


@pytest.mark.parametrize(
    ("url", "addresses"),
    [
        ("headpond://127.0.0.1:7000", [Address("127.0.0.1", 7000)]),
        ("headpond://node", [Address("node", 7411)]),
        ("headpond://node:7411/", [Address("node", 7411)]),
        ("headpond://a:1,b:2,c", [Address("a", 1), Address("b", 2), Address("c", 7411)]),
        ("headpond://a:1,headpond://b:2", [Address("a", 1), Address("b", 2)]),
        ("headpond://[::1]:9,[fe80::1%eth0]", [Address("::1", 9), Address("fe80::1%eth0", 7411)]),
        (["headpond://a:1", "headpond://b:2,c:3"], [Address("a", 1), Address("b", 2), Address("c", 3)]),
        (["headpond://a:1", "headpond://a:1"], [Address("a", 1)]),
    ],
)
def test_addresses_are_read_in_order(url: str | list[str], addresses: list[Address]) -> None:
    assert parse_addresses(url) == addresses


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:7411",
        "http://node:7411",
        "headpond://",
        "headpond://:7411",
        "headpond://node:",
        "headpond://node:port",
        "headpond://node:0",
        "headpond://node:65536",
        "headpond://node:٣",
        "headpond://a:1,,b:2",
        "headpond://::1:7411",
        "headpond://[::1",
        "headpond://[::1]7411",
        "headpond://no de:1",
        "headpond://user@node:1",
        "headpond://node:1/path",
        [],
        [7411],
    ],
)
def test_anything_else_is_a_bad_url_with_a_hint(url: str | list[str]) -> None:
    with pytest.raises(BadURL) as caught:
        parse_addresses(url)
    assert caught.value.hint


def test_an_address_without_a_host_says_that() -> None:
    with pytest.raises(BadURL, match="'headpond://' has no host"):
        parse_addresses("headpond://")


@pytest.mark.parametrize("url", ["headpond://node:1", "headpond://[::1]:7411"])
def test_an_address_is_written_as_it_is_read(url: str) -> None:
    assert parse_addresses(url)[0].url == url


@pytest.mark.parametrize(
    ("host", "here"),
    [
        *(("127.0.0.1", True), ("127.8.9.10", True), ("::1", True), ("localhost", True), ("LocalHost", True)),
        *(("127.example.org", False), ("127.0.0.1.example.org", False), ("localhost.example.org", False)),
        *(("0.0.0.0", False), ("::", False), ("10.0.0.1", False), ("", False), ("127.", False)),
    ],
)
def test_only_an_address_of_this_machine_alone_is_on_loopback(host: str, here: bool) -> None:
    """What is on loopback needs no tokens and no TLS."""
    assert Address(host).on_loopback is here
