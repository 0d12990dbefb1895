"""The URLs of nodes: ``headpond://HOST:PORT``, or ``headponds://HOST:PORT`` with TLS.

Several addresses, with commas between or as a list of URLs, are one service; a client tries them in order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_address

from headpond.model.errors import BadURL

SCHEME = "headpond://"
TLS_SCHEME = "headponds://"
PORT_DEFAULT = 7411
DEFAULT_URL = f"{SCHEME}127.0.0.1:{PORT_DEFAULT}"
"""Where a node listens by default."""

_HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,253})")
_BRACKETED = re.compile(r"\[([0-9A-Fa-f:.]+(?:%[A-Za-z0-9._-]+)?)\](?::(.*))?")


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int = PORT_DEFAULT
    tls: bool = False

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def on_loopback(self) -> bool:
        """Whether only this machine can reach it; False for every name but localhost."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host.lower() == "localhost"

    @property
    def url(self) -> str:
        return (TLS_SCHEME if self.tls else SCHEME) + str(self)


def parse_addresses(url: str | Sequence[str]) -> list[Address]:
    """The addresses of a URL or of a list of URLs, in order and without repeats."""
    if not isinstance(url, str | Sequence):
        raise BadURL(f"an address is text or a list of texts, not {type(url).__name__}")
    urls = [url] if isinstance(url, str) else list(url)
    if not urls:
        raise BadURL("no address was given")
    found = list(dict.fromkeys(address for one in urls for address in _parse_url(one)))
    plain = next((address for address in found if not address.tls), None)
    if plain is not None and any(address.tls for address in found):
        raise BadURL(
            f"the addresses of one service must all use TLS or none; {plain.url} does not",
            hint="Otherwise the loss of one node would end encryption. Write headponds:// for each.",
        )
    return found


def service_url(addresses: Sequence[Address]) -> str:
    """All addresses as one URL for ``parse_addresses``."""
    pairs = zip([None, *addresses], addresses, strict=False)
    return ",".join(str(each) if last and last.tls == each.tls else each.url for last, each in pairs)


def _parse_url(url: str) -> list[Address]:
    if not isinstance(url, str):
        raise BadURL(f"an address is text, not {type(url).__name__}")
    if not url.startswith((SCHEME, TLS_SCHEME)):
        raise BadURL(f"address {url!r} does not begin with {SCHEME} or {TLS_SCHEME}")
    found: list[Address] = []
    tls = False
    for place in url.split(","):
        scheme, _, rest = place.strip().rpartition("://")
        if scheme not in ("", "headpond", "headponds"):
            raise BadURL(f"address {url!r} does not begin with {SCHEME} or {TLS_SCHEME}")
        tls = scheme == "headponds" if scheme else tls  # a scheme also holds for the addresses after it
        found.append(replace(parse_place(rest.removesuffix("/"), url), tls=tls))
    return found


def parse_place(text: str, url: str | None = None) -> Address:
    """One ``HOST:PORT``, ``HOST`` or ``[IPV6]:PORT``; errors name ``url``."""
    url = url or text
    if text.startswith("["):
        bracketed = _BRACKETED.fullmatch(text)
        if bracketed is None:
            raise BadURL(f"address {url!r}: {text!r} is not [IPV6]:PORT")
        return Address(bracketed[1], _parse_port(bracketed[2], url))
    host, colon, port = text.partition(":")
    if ":" in port:
        raise BadURL(f"address {url!r}: write an IPv6 address in brackets, as in headpond://[::1]:7411")
    if not _HOST.fullmatch(host):
        raise BadURL(
            f"address {url!r}: {host!r} is not a host name" if host else f"address {url!r} has no host"
        )
    return Address(host, _parse_port(port if colon else None, url))


def _parse_port(text: str | None, url: str) -> int:
    if text is None:
        return PORT_DEFAULT
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and 1 <= int(text) <= 65535):
        raise BadURL(f"address {url!r}: {text!r} is not a port (1 to 65535)")
    return int(text)
