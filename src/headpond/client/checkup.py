"""A checkup of a service: what each of its addresses answers, what the token may do there, and advice."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from headpond.client.connect import connect
from headpond.client.link.dialling import Dialling
from headpond.client.link.tls import Certificate
from headpond.model.address import Address, parse_addresses
from headpond.model.errors import HeadpondError, NotActive
from headpond.wire.control.access import AccessInfo

SKEW_S_MAX = 2.0
EXPIRES_SOON_S = 7 * 86_400.0


@dataclass(slots=True)
class Checkup:
    """The answer of one address."""

    address: Address
    serves: bool = False
    """Whether a client of the service would use this address now."""
    node: str = ""
    software: str = ""
    answered_in_s: float | None = None
    skew_s: float | None = None
    """Seconds that the node's clock is ahead of this machine's, as far as one request can tell."""
    access: AccessInfo | None = None
    error: HeadpondError | None = None
    successor: str = ""
    """The URL that the node names to its clients when it stops; of a standby, that of the active member."""
    certificate: Certificate | None = None
    advice: list[str] = field(default_factory=list)

    def as_object(self) -> dict[str, Any]:
        access = self.access
        return {
            "address": self.address.url,
            "answered": self.error is None or self.standby,
            "serves": self.serves,
            "standby": self.standby,
            "node": self.node or None,
            "software": self.software or None,
            "tls": self.address.tls,
            "answered_in_s": self.answered_in_s,
            "clock_ahead_s": self.skew_s,
            "tokens_needed": None if access is None else access.guarded,
            "token": None if access is None else access.token or None,
            "rights": None if access is None else access.rights,
            "scopes": None if access is None else access.scopes,
            "producer": None if access is None else access.producer or None,
            "subscription": None if access is None else access.subscription or None,
            "expires_in_s": self.expires_in_s,
            "free_bytes": None if access is None else access.free_bytes,
            "disk_full": None if access is None else access.disk_full,
            "last_stop": None if access is None else access.last_stop or None,
            "recovered": [] if access is None else access.recovered,
            "successor": self.successor or None,
            "certificate": None if self.certificate is None else self.certificate.as_object(),
            "error": None if self.error is None else {"code": self.error.code, "message": self.error.message},
            "advice": self.advice,
        }

    @property
    def standby(self) -> bool:
        """Whether it is a member of a cluster that is not the active one."""
        return isinstance(self.error, NotActive)

    @property
    def expires_in_s(self) -> float | None:
        if self.access is None or self.access.expires_at_us is None:
            return None
        return (self.access.expires_at_us - self.access.now_us) / 1e6


async def check_up(url: str, token: str | None) -> list[Checkup]:
    """Asks every address separately; the first that answers serves."""
    found: list[Checkup] = []
    addresses = parse_addresses(url)
    for address in addresses:
        checkup = await _check(address, token)
        checkup.serves = checkup.error is None and not any(each.serves for each in found)
        checkup.advice = [*_advice(checkup), *_successor_advice(checkup, addresses)]
        found.append(checkup)
    return found


def _successor_advice(checkup: Checkup, addresses: list[Address]) -> list[str]:
    """A warning, if a client of these addresses would not follow to the node's successor."""
    if not checkup.successor:
        return []
    refused = Dialling(addresses).heard(checkup.address, checkup.successor)
    if refused is None:
        return []
    return [f"Clients do not follow to its successor {checkup.successor}: {refused}."]


async def _check(address: Address, token: str | None) -> Checkup:
    checkup = Checkup(address)
    started = time.monotonic()
    try:
        async with connect(address.url, token) as client:
            checkup.answered_in_s = time.monotonic() - started
            if (welcome := client.link.welcome) is not None:
                checkup.node, checkup.software = welcome.node, welcome.software
                checkup.successor = welcome.successor
            checkup.certificate = client.link.certificate
            asked_us = time.time_ns() // 1000
            checkup.access = await client.admin.show_access()
            answered_us = time.time_ns() // 1000
            checkup.skew_s = (checkup.access.now_us - (asked_us + answered_us) // 2) / 1e6
    except HeadpondError as error:
        checkup.error = error
        if isinstance(error.__cause__, NotActive):
            checkup.error, checkup.successor = error.__cause__, error.__cause__.successor
            checkup.answered_in_s = time.monotonic() - started
    return checkup


def _advice(checkup: Checkup) -> list[str]:
    if checkup.error is not None:
        return [checkup.error.hint]
    found: list[str] = []
    access = checkup.access
    if checkup.skew_s is not None and abs(checkup.skew_s) > SKEW_S_MAX:
        found.append(
            f"The clocks differ by {abs(checkup.skew_s):.1f} s: times to live and expiries go by the node's. "
            "Set both by NTP."
        )
    expires_in_s = checkup.expires_in_s
    if expires_in_s is not None and expires_in_s < EXPIRES_SOON_S:
        found.append(f"The token ends in {expires_in_s / 3600:.0f} h: have a new one made in time.")
    if checkup.certificate is not None and (ends_in_s := checkup.certificate.ends_in_s) < EXPIRES_SOON_S:
        found.append(f"The node's certificate ends in {ends_in_s / 3600:.0f} h: renew it in time.")
    if access is not None and access.guarded and not (checkup.address.tls or checkup.address.on_loopback):
        found.append("The token travels in the clear: give the node TLS, and use headponds://.")
    if access is not None and access.recovered:
        found.append("The node found its data folder not as it was left: read the lines above, and its log.")
    if access is not None and access.disk_full:
        found.append("The node's disk is full: sends are refused (disk-full). Free some, or lower retention.")
    elif access is not None and (access.free_bytes or 0) < 4 * (access.free_bytes_min or 0):
        found.append("The node's disk is nearly full: sends are refused soon. Free some.")
    return found
