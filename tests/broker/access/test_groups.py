"""A group of a cluster refuses operations on topics of tenants that are on another."""

from __future__ import annotations

from typing import Any

import pytest

from headpond.broker.access.groups import check_group
from headpond.model.errors import NotAcrossNodes, WrongGroup
from headpond.model.policy import Policy
from headpond.wire.control.access import ShowAccess
from headpond.wire.control.catalog import (
    ChangeSettings,
    CreatePlace,
    CreateTopic,
    DeletePlace,
    ListTopics,
    OpenTopic,
    ShowPlace,
)
from headpond.wire.control.consuming import ListSubscriptions, ShowSubscription, Subscribe
from headpond.wire.control.links import AddPeer, OpenFeed
from headpond.wire.control.producing import OpenProducer
from headpond.wire.control.reading import ReadEnds
from headpond.wire.control.staging import OpenStage

HERE, THERE = "here/a/b/t", "there/a/b/t"


def elsewhere(tenant: str) -> WrongGroup | None:
    if tenant == "here":
        return None
    error = WrongGroup(f"{tenant} is on another group")
    error.group = tenant
    return error


def operations(topic: str) -> list[Any]:
    tenant = topic.partition("/")[0]
    return [
        OpenTopic(topic),
        CreateTopic(topic),
        CreatePlace("tenant", tenant),
        ShowPlace("product", f"{tenant}/a"),
        DeletePlace("tenant", tenant, False),
        ChangeSettings("topic", topic, {}),
        ShowSubscription(topic, "s"),
        ListSubscriptions(topic),
        Subscribe(1, topic, "s", "unique", "non_resilient", "earliest", 0),
        OpenProducer(topic, "p", bytes(16)),
        OpenStage(bytes(16), "w", topic, True),
        ReadEnds([topic]),
    ]


@pytest.mark.parametrize("operation", operations(THERE), ids=lambda each: type(each).__name__)
def test_an_operation_on_a_tenant_of_another_group_is_refused(operation: Any) -> None:
    with pytest.raises(WrongGroup):
        check_group(operation, elsewhere)


@pytest.mark.parametrize("operation", operations(HERE), ids=lambda each: type(each).__name__)
def test_an_operation_on_a_tenant_of_this_group_is_carried_out(operation: Any) -> None:
    check_group(operation, elsewhere)


def test_what_concerns_no_tenant_is_carried_out_by_every_group() -> None:
    for operation in (
        ListTopics(),
        ListSubscriptions(""),
        ShowAccess(),
        AddPeer("headpond://b:7411", ["there/*"]),
    ):
        check_group(operation, elsewhere)


def test_a_link_copies_topics_to_a_group_before_their_tenant_is_placed_there() -> None:
    check_group(OpenFeed(THERE, "n" * 32, bytes(16), 1), elsewhere)


def test_one_operation_for_topics_of_two_groups_is_refused() -> None:
    for topics in ([HERE, THERE], ["x/a/b/t", THERE]):
        with pytest.raises(NotAcrossNodes):
            check_group(ReadEnds(topics), elsewhere)


def test_dead_letters_do_not_go_to_a_tenant_of_another_group() -> None:
    for operation in (
        Subscribe(1, HERE, "s", "unique", "non_resilient", "earliest", 0, policy=Policy(dead_letter=THERE)),
        ChangeSettings("topic", HERE, {"dead_letter": THERE}),
    ):
        with pytest.raises(NotAcrossNodes):
            check_group(operation, elsewhere)
