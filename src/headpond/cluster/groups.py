"""The map of groups: which group has the topics of a tenant, and where the members of each group are.

A NATS cluster has one map, a JSON document in a key-value bucket. Members add themselves, operators place
tenants; a change replaces the document that it was made from, or is refused and made again. A tenant that no
entry places is on ``main``. A cluster with one group has every tenant on it, whatever its name is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from headpond.model.address import Address, parse_addresses, service_url
from headpond.model.errors import BadURL, WrongGroup

MAIN = "main"
MAP_BYTES_MAX = 512 * 1024
"""Room for some 10,000 tenants; one message to NATS has it."""
ANY_HOST = ("0.0.0.0", "::")


class GroupMember(msgspec.Struct, frozen=True):
    url: str
    http: str = ""
    """Its HTTP, as a URL; empty: none."""


class Group(msgspec.Struct, frozen=True):
    active: str = ""
    """The member that became active last."""
    members: dict[str, GroupMember] = {}

    @property
    def url(self) -> str:
        """All members as one service, the active one first; empty if none is known."""
        first = [self.members[self.active]] if self.active in self.members else []
        urls = [each.url for each in (*first, *self.members.values())]
        try:
            return service_url(parse_addresses(urls)) if urls else ""
        except BadURL:  # some with TLS and some without: nobody can use that as one service
            return urls[0]

    @property
    def http(self) -> str:
        active = self.members.get(self.active)
        return active.http if active is not None else ""


class GroupMap(msgspec.Struct, frozen=True):
    groups: dict[str, Group] = {}
    tenants: dict[str, str] = {}
    """Tenants that are placed, and their groups."""

    def group_of(self, tenant: str) -> str:
        placed = self.tenants.get(tenant)
        if placed is not None:
            return placed
        return next(iter(self.groups)) if len(self.groups) == 1 else MAIN

    def elsewhere(self, tenant: str, here: str) -> WrongGroup | None:
        """The error of group ``here`` for operations of a tenant on another group; None if it is on this."""
        group = self.group_of(tenant)
        if group == here:
            return None
        found = self.groups.get(group, Group())
        at = f"at {found.url}" if found.url else "which has no members yet"
        error = WrongGroup(f"tenant {tenant} is on group {group}, {at}; this is group {here}")
        error.group, error.successor, error.http = group, found.url, found.http
        return error

    def place(self, tenant: str, group: str) -> GroupMap:
        return msgspec.structs.replace(self, tenants={**self.tenants, tenant: group})

    def unplace(self, tenant: str) -> GroupMap:
        """The tenant is where it would be without an entry."""
        tenants = {name: group for name, group in self.tenants.items() if name != tenant}
        return msgspec.structs.replace(self, tenants=tenants)

    def add_member(self, group: str, name: str, member: GroupMember) -> GroupMap:
        found = self.groups.get(group, Group())
        if found.members.get(name) == member:
            return self
        return self._with(group, msgspec.structs.replace(found, members={**found.members, name: member}))

    def set_active(self, group: str, name: str, there: Collection[str]) -> GroupMap:
        """Notes which member became active, and drops members that are not ``there``: each adds itself again
        when it is back."""
        members = {each: member for each, member in self.groups[group].members.items() if each in there}
        return self._with(group, Group(name, members))

    def claim(self, group: str, tenants: Iterable[str]) -> GroupMap:
        """The only group of a cluster places its tenants on itself, unless it is ``main``: they stay when
        another group is added."""
        if list(self.groups) != [group] or group == MAIN:
            return self
        missing = {tenant: group for tenant in sorted(tenants) if tenant not in self.tenants}
        return msgspec.structs.replace(self, tenants={**self.tenants, **missing}) if missing else self

    def _with(self, group: str, found: Group) -> GroupMap:
        return msgspec.structs.replace(self, groups={**self.groups, group: found})


def encode_map(groups: GroupMap) -> bytes:
    return msgspec.json.encode(groups)


def decode_map(text: bytes) -> GroupMap:
    """An empty map for an empty text; raises ``msgspec.DecodeError``."""
    return msgspec.json.decode(text, type=GroupMap) if text else GroupMap()


def http_url(listens: tuple[str, int] | None, url: str) -> str:
    """Where others reach the HTTP of a member with this ``url``; empty if it has none, or on any free port."""
    if listens is None or not listens[1]:
        return ""
    reached = parse_addresses(url)[0]
    host = reached.host if listens[0] in ANY_HOST else listens[0]
    return f"{'https' if reached.tls else 'http'}://{Address(host, listens[1])}"
