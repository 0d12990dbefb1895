"""The map of groups: where tenants are, and how members and operators change it."""

from __future__ import annotations

import msgspec
import pytest

from headpond.cluster.groups import Group, GroupMap, GroupMember, decode_map, encode_map, http_url

MAIN = GroupMember("headpond://a:7411", "http://a:7412")
WEST = GroupMember("headpond://a:7511")


def two_groups() -> GroupMap:
    return GroupMap().add_member("main", "a", MAIN).add_member("west", "a", WEST)


def test_a_cluster_with_one_group_has_every_tenant_on_it() -> None:
    for group in ("main", "west"):
        alone = GroupMap().add_member(group, "a", MAIN)
        assert alone.elsewhere("acme", group) is None


def test_a_tenant_that_is_not_placed_is_on_main() -> None:
    groups = two_groups()
    assert groups.elsewhere("acme", "main") is None
    error = groups.elsewhere("acme", "west")
    assert error is not None
    assert (error.group, error.successor, error.http) == ("main", "headpond://a:7411", "")
    assert "tenant acme is on group main, at headpond://a:7411" in error.message


def test_a_tenant_that_is_placed_is_there_and_nowhere_else() -> None:
    groups = two_groups().place("acme", "west")
    assert groups.elsewhere("acme", "west") is None
    error = groups.elsewhere("acme", "main")
    assert error is not None and error.group == "west"
    assert groups.elsewhere("other", "main") is None
    assert groups.unplace("acme") == two_groups()


def test_the_addresses_of_a_group_begin_with_its_active_member() -> None:
    groups = GroupMap()
    for name in "abc":
        groups = groups.add_member("main", name, GroupMember(f"headpond://{name}:7411", f"http://{name}:7412"))
    assert groups.groups["main"].url == "headpond://a:7411,b:7411,c:7411"
    groups = groups.set_active("main", "b", ["a", "b", "c"])
    assert groups.groups["main"].url == "headpond://b:7411,a:7411,c:7411"
    assert groups.groups["main"].http == "http://b:7412"


def test_a_new_active_member_drops_members_that_are_gone_and_they_add_themselves_again() -> None:
    groups = two_groups().add_member("main", "b", MAIN).set_active("main", "b", ["b"])
    assert list(groups.groups["main"].members) == ["b"]
    assert list(groups.add_member("main", "a", MAIN).groups["main"].members) == ["b", "a"]


def test_an_entry_that_is_there_already_changes_nothing() -> None:
    groups = two_groups()
    assert groups.add_member("west", "a", WEST) is groups


def test_the_only_group_keeps_its_tenants_when_main_is_added() -> None:
    alone = GroupMap().add_member("west", "a", WEST).claim("west", ["acme", "default"])
    both = alone.add_member("main", "a", MAIN)
    assert both.elsewhere("acme", "west") is None and both.elsewhere("default", "west") is None
    assert both.elsewhere("new", "main") is None
    assert both.claim("west", ["new"]) is both, "a copy that a link made is no claim"


def test_main_claims_nothing() -> None:
    alone = GroupMap().add_member("main", "a", MAIN)
    assert alone.claim("main", ["acme"]) is alone


def test_a_group_without_members_is_named_without_an_address() -> None:
    error = two_groups().place("acme", "east").elsewhere("acme", "main")
    assert error is not None and error.successor == ""
    assert "group east, which has no members yet" in error.message


def test_members_with_and_without_tls_are_no_service() -> None:
    group = Group("b", {"a": MAIN, "b": GroupMember("headponds://b:7411")})
    assert group.url == "headponds://b:7411", "the active one alone"


def test_the_map_is_a_json_document() -> None:
    groups = two_groups().place("acme", "west")
    assert decode_map(encode_map(groups)) == groups
    assert decode_map(b"") == GroupMap()
    assert decode_map(b'{"tenants":{"acme":"west"},"later":1}').tenants == {"acme": "west"}
    with pytest.raises(msgspec.DecodeError):
        decode_map(b"acme=west")


def test_http_is_at_the_host_that_clients_reach() -> None:
    assert http_url(("0.0.0.0", 7412), "headponds://a:7411") == "https://a:7412"
    assert http_url(("127.0.0.1", 7412), "headpond://a:7411") == "http://127.0.0.1:7412"
    assert http_url(("127.0.0.1", 0), "headpond://a:7411") == ""
    assert http_url(None, "headpond://a:7411") == ""
