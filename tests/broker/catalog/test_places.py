"""Tenants, products and components in the node's core: created, configured, deleted."""

from __future__ import annotations

from typing import Any

import pytest

from headpond.broker.settings import LogSettings, Settings
from headpond.model.errors import (
    BadRequest,
    BadSetting,
    HeadpondError,
    NotEmpty,
    PlaceExists,
    PlaceNotFound,
    TopicNotFound,
)
from headpond.storage.memory_disk import MemoryDisk
from headpond.wire.control.catalog import (
    ChangeSettings,
    CreatePlace,
    CreateTopic,
    DeletePlace,
    DeleteTopic,
    ListPlaces,
    ListTopics,
    OpenTopic,
    PlaceDeleted,
    PlaceInfo,
    ShowPlace,
    ShowTopic,
    TopicInfo,
)
from headpond.wire.control.codec import Request, Response, read_result
from headpond.wire.control.consuming import CreateSubscription, ShowSubscription, Subscribe, SubscriptionInfo
from headpond.wire.control.greeting import Error
from headpond.wire.control.producing import Ack
from tests.fire.core_shell import CoreClient, CoreShell
from tests.fire.raw_client import segment_frame, title_frame

ORDERS = "acme/shop/web/orders"
BLOCK = bytes(range(16))


def started(disk: MemoryDisk | None = None, **settings: Any) -> tuple[CoreShell, CoreClient]:
    plain = Settings(data="memory", log=LogSettings(preallocate_bytes=1024), **settings)
    shell = CoreShell(disk or MemoryDisk(), seed=len(settings), settings=plain)
    return shell, shell.connect()


def topic(client: CoreClient, name: str = ORDERS) -> TopicInfo:
    return read_result(client.request(ShowTopic(name)), TopicInfo)


def place(client: CoreClient, level: str, name: str) -> PlaceInfo:
    return read_result(client.request(ShowPlace(level, name)), PlaceInfo)


def origins(info: TopicInfo | PlaceInfo, *names: str) -> list[tuple[object, str, str]]:
    by_name = {each.name: each for each in info.settings}
    return [(by_name[name].value, by_name[name].origin, by_name[name].place) for name in names]


def send(shell: CoreShell, client: CoreClient, info: TopicInfo, *segments: int) -> list[tuple[str, str, str]]:
    frames = [segment_frame([b"message %d" % segment], segment=segment) for segment in segments]
    client.send(title_frame(BLOCK, info.uuid, topic=info.topic), *frames)
    shell.work_all()
    return [(item.outcome, item.code, ack.durability) for ack in client.take(Ack) for item in ack.items]


def test_a_topic_inherits_from_all_levels_and_each_value_says_from_where() -> None:
    shell, client = started(topics={"backoff": "3s"})
    client.request(CreatePlace("tenant", "acme", {"hard_ttl": "7d", "soft_ttl": "1d"}))
    client.request(CreatePlace("product", "acme/shop", {"hard_ttl": "2d"}))
    client.request(CreateTopic(ORDERS, settings={"max_bytes": "1MiB"}))
    wanted = [
        (2 * 86_400.0, "product", "acme/shop"),
        (86_400.0, "tenant", "acme"),
        (2**20, "topic", ORDERS),
        (3.0, "node", ""),
        ("sync", "default", ""),
    ]
    names = ("hard_ttl", "soft_ttl", "max_bytes", "backoff", "durability")
    assert origins(topic(client), *names) == wanted
    client.request(ChangeSettings("component", "acme/shop/web", {"soft_ttl": None, "durability": "os"}))
    client.request(ChangeSettings("product", "acme/shop", {}, ["hard_ttl"]))
    after = origins(topic(client), "hard_ttl", "soft_ttl", "durability")
    assert after == [
        (7 * 86_400.0, "tenant", "acme"),
        (None, "component", "acme/shop/web"),
        ("os", "component", "acme/shop/web"),
    ]
    effective = shell.core.stores.catalog.by_name(ORDERS)
    assert effective is not None and effective.settings.hard_ttl == 7 * 86_400.0


@pytest.mark.parametrize("compact", [False, True])
def test_places_and_settings_are_there_after_a_restart(compact: bool) -> None:
    disk = MemoryDisk()
    _, client = started(disk, journal_compact_bytes=256 if compact else 2**20)
    client.request(CreatePlace("tenant", "acme", {"hard_ttl": 60}))
    client.request(CreatePlace("component", "acme/shop/web"))
    client.request(CreateTopic(ORDERS))
    for size in range(1, 30):
        client.request(ChangeSettings("topic", ORDERS, {"max_bytes": size}))
    client.request(CreatePlace("tenant", "gone"))
    client.request(DeletePlace("tenant", "gone"))
    before = topic(client), place(client, "tenant", "acme"), place(client, "component", "acme/shop/web")
    disk.crash(keep="none")
    _, client = started(disk)
    assert before == (
        topic(client),
        place(client, "tenant", "acme"),
        place(client, "component", "acme/shop/web"),
    )
    tenants = read_result(client.request(ListPlaces("tenant")), list[PlaceInfo])
    assert [each.place for each in tenants] == ["acme"]


def test_settings_of_a_later_version_survive_a_compaction() -> None:
    disk = MemoryDisk()
    shell, client = started(disk, journal_compact_bytes=256)
    client.request(CreatePlace("tenant", "acme"))
    holding = next(iter(shell.core.stores.catalog.tree))
    holding.own["colour"] = "blue"
    for _ in range(30):
        client.request(ChangeSettings("tenant", "acme", {"hard_ttl": 60}))
    disk.crash(keep="none")
    shell, client = started(disk)
    assert next(iter(shell.core.stores.catalog.tree)).own == {"colour": "blue", "hard_ttl": 60.0}
    assert origins(place(client, "tenant", "acme"), "hard_ttl") == [(60.0, "tenant", "acme")]


@pytest.mark.parametrize("again", [False, True])
def test_durability_takes_effect_and_answers_name_it(again: bool) -> None:
    disk = MemoryDisk()
    shell, client = started(disk)
    info = read_result(client.request(CreateTopic(ORDERS)), TopicInfo)
    assert send(shell, client, info, 0) == [("stored", "", "sync")]
    client.request(ChangeSettings("tenant", "acme", {"durability": "os"}))
    assert topic(client).durability == "os"
    assert send(shell, client, info, 1) == [("stored", "", "os")]
    if again:
        client.request(ChangeSettings("topic", ORDERS, {"durability": "sync"}))
        assert send(shell, client, info, 2) == [("stored", "", "sync")]
    disk.crash(keep="none")
    _, client = started(disk)
    assert topic(client).shard_list[0].entry_next == (3 if again else 1), "what os took goes with the power"
    assert topic(client).durability == ("sync" if again else "os")


def test_a_segment_in_flight_when_durability_changes_does_not_claim_too_much() -> None:
    shell, client = started()
    info = read_result(client.request(CreateTopic(ORDERS)), TopicInfo)
    send(shell, client, info, 0)
    client.send(title_frame(BLOCK, info.uuid, topic=info.topic), segment_frame([b"x"], segment=1))
    catalog_topic = shell.core.stores.catalog.by_name(ORDERS)
    assert catalog_topic is not None
    catalog_topic.own["durability"] = "os"
    catalog_topic.settings_changed()
    shell.work_all()
    assert [ack.durability for ack in client.take(Ack)] == ["os"]


def test_a_new_subscription_takes_the_topics_redelivery_defaults() -> None:
    _, client = started()
    client.request(CreatePlace("tenant", "acme", {"max_attempts": 2, "backoff": "5s", "deadline": "1m"}))
    client.request(CreateTopic(ORDERS))
    client.request(CreateSubscription(ORDERS, "s"))
    found = read_result(client.request(ShowSubscription(ORDERS, "s")), SubscriptionInfo).policy
    assert found is not None and (found.max_attempts, found.backoff, found.deadline) == (2, 5.0, 60.0)


# --- coming into being --------------------------------------------------------------------------------


def test_a_topic_brings_the_places_it_stands_below_and_they_stay_without_it() -> None:
    _, client = started()
    client.request(OpenTopic(ORDERS, create=True))
    client.request(DeleteTopic(ORDERS))
    assert place(client, "component", "acme/shop/web").topics == 0


def test_first_use_can_be_turned_off_for_a_node_and_on_for_a_tenant() -> None:
    _, client = started(create_on_first_use=False)
    with pytest.raises(TopicNotFound):
        client.request(OpenTopic(ORDERS, create=True))
    with pytest.raises(PlaceNotFound, match="tenant acme"):
        client.request(CreateTopic(ORDERS))
    client.request(CreateTopic("bare"))
    client.request(CreatePlace("tenant", "acme", {"create_on_first_use": True}))
    client.request(OpenTopic(ORDERS, create=True))
    client.request(ChangeSettings("component", "acme/shop/web", {"create_on_first_use": "no"}))
    with pytest.raises(TopicNotFound):
        client.request(OpenTopic("acme/shop/web/more", create=True))
    client.request(OpenTopic("acme/shop/other/more", create=True))


def test_a_node_that_listens_beyond_loopback_creates_nothing_on_first_use() -> None:
    for listen, expected in (
        ("127.0.0.1:1", True),
        ("[::1]:1", True),
        ("0.0.0.0:1", False),
        ("10.0.0.1:1", False),
    ):
        assert Settings(listen=listen).creates_on_first_use is expected
    assert Settings(listen="0.0.0.0:1", create_on_first_use=True).creates_on_first_use


def test_invalid_requests_are_refused_and_change_nothing() -> None:
    _, client = started()
    client.request(CreatePlace("tenant", "acme"))
    wrong: list[tuple[Any, type[HeadpondError]]] = [
        (CreatePlace("tenant", "acme"), PlaceExists),
        (CreatePlace("tenant", "new", {"hard_ttl": "soon"}), BadSetting),
        (CreatePlace("topic", "t"), BadRequest),
        (ShowPlace("product", "acme/none"), PlaceNotFound),
        (ChangeSettings("tenant", "none", {"hard_ttl": 1}), PlaceNotFound),
        (ChangeSettings("tenant", "acme", {"hard_ttl": 1}, ["hard_ttl"]), BadRequest),
        (ChangeSettings("tenant", "acme", {"nothing": 1}), BadSetting),
        (ChangeSettings("topic", "none", {"hard_ttl": 1}), TopicNotFound),
        (CreateTopic("t", settings={"hard_ttl": -1}), BadSetting),
    ]
    for ask, error in wrong:
        with pytest.raises(error):
            client.request(ask)
    assert client.request(CreatePlace("tenant", "acme", exist_ok=True))["place"] == "acme"
    assert [each.place for each in read_result(client.request(ListPlaces("tenant")), list[PlaceInfo])] == [
        "acme"
    ]


# --- deleting -----------------------------------------------------------------------------------------


def test_a_place_that_holds_something_is_deleted_only_with_all_of_it() -> None:
    disk = MemoryDisk()
    shell, client = started(disk)
    info = read_result(client.request(CreateTopic(ORDERS)), TopicInfo)
    other = read_result(client.request(CreateTopic("acme2/shop/web/orders")), TopicInfo)
    send(shell, client, info, 0, 1)
    send(shell, client, other, 0)
    reader = shell.connect()
    reader.send(Subscribe(1, ORDERS, "secret-reader", "unique", "non_resilient", "earliest", 1 << 20))
    shell.work_all()
    with pytest.raises(NotEmpty, match="acme/shop"):
        client.request(DeletePlace("tenant", "acme"))
    gone = read_result(client.request(DeletePlace("tenant", "acme", recursive=True)), PlaceDeleted)
    assert (gone.topics, gone.places) == ([ORDERS], ["acme/shop", "acme/shop/web"])
    products = read_result(client.request(ListPlaces("product")), list[PlaceInfo])
    assert [each.place for each in products] == ["acme2/shop"]
    assert [error.code for error in reader.take(Error)] == ["topic-not-found"], "its consumer is told"
    assert send(shell, client, info, 2) == [("rejected", "topic-not-found", "sync")], "and its producer"
    assert not [path for path in disk.paths() if info.uuid.hex() in path], "its files are gone"
    assert [path for path in disk.paths() if other.uuid.hex() in path]
    kept = b"".join(disk.contents(path) for path in disk.paths() if path.startswith("settlements/"))
    assert b"secret-reader" not in kept, "what its subscriptions settled is gone"
    disk.crash(keep="none")
    _, client = started(disk)
    assert [each.topic for each in read_result(client.request(ListTopics()), list[TopicInfo])] == [other.topic]
    with pytest.raises(PlaceNotFound):
        place(client, "tenant", "acme")


def test_a_topic_that_is_just_being_made_keeps_its_place_from_being_deleted() -> None:
    shell, client = started()
    client.request(CreatePlace("component", "acme/shop/web"))
    client.send(Request(90, CreateTopic(ORDERS)), Request(91, DeletePlace("component", "acme/shop/web")))
    shell.work_all()
    assert [error.code for error in client.take(Error)] == ["not-empty"]
    assert [response.number for response in client.take(Response)] == [90]
    assert topic(client).topic == ORDERS


def test_a_place_that_comes_again_has_nothing_of_the_old_one() -> None:
    _, client = started()
    client.request(CreatePlace("tenant", "acme", {"hard_ttl": 60}))
    client.request(DeletePlace("tenant", "acme"))
    client.request(CreateTopic(ORDERS))
    assert origins(topic(client), "hard_ttl") == [(None, "default", "")]
