"""A tenant gets its quota of everything and no more, so other tenants have room."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headpond.broker.access.quotas import CREATES_AHEAD_US, CREATES_BURST_US
from headpond.broker.settings import Limits, Settings, StagingSettings
from headpond.broker.stores import Stores
from headpond.model.errors import LimitReached, QuotaReached
from headpond.model.topic_settings import TopicSettings
from headpond.storage.journal import TableState
from headpond.storage.memory_disk import MemoryDisk
from headpond.wire.connection import ConnectionFault
from headpond.wire.control.access import CreateToken
from headpond.wire.control.catalog import (
    ChangeSettings,
    CreatePlace,
    CreateTopic,
    DeletePlace,
    DeleteTopic,
    OpenTopic,
)
from headpond.wire.control.codec import Operation, Request
from headpond.wire.control.consuming import CreateSubscription, DeleteSubscription, Subscribe, Subscribed
from headpond.wire.control.greeting import Error
from headpond.wire.control.operation import Control
from headpond.wire.control.producing import Ack, CreateProducer, DeleteProducer, OpenProducer
from headpond.wire.control.staging import CommitBatch, DeleteWriter, FinishStage, OpenStage
from headpond.wire.frame import FrameType, encode
from headpond.wire.title import Title, encode_title
from tests.fire.core_shell import CoreClient, CoreShell
from tests.fire.raw_client import encode_chunk, segment_body, segment_frame

SECOND_US = 1_000_000


@pytest.fixture
def shell() -> CoreShell:
    it = CoreShell(MemoryDisk(), seed=1, now_us=100 * SECOND_US)
    for tenant in ("acme", "beta"):
        it.connect().request(CreateTopic(f"{tenant}/p/c/t"))
    return it


def quota(shell: CoreShell, **values: int | None) -> None:
    shell.connect().request(ChangeSettings("tenant", "acme", dict(values)))


def subscribe(client: CoreClient, tenant: str, number: int) -> Control:
    return Subscribe(number, f"{tenant}/p/c/t", f"s{number}", "shared", "non_resilient", "latest", 1)


MAKING: dict[str, Callable[[str, int], Operation]] = {
    "topics": lambda tenant, number: CreateTopic(f"{tenant}/p/c/t{number}"),
    "shards": lambda tenant, number: CreateTopic(f"{tenant}/p/c/t{number}"),
    "places": lambda tenant, number: CreatePlace("product", f"{tenant}/p{number}"),
    "subscriptions": lambda tenant, number: CreateSubscription(f"{tenant}/p/c/t", f"s{number}"),
    "producers": lambda tenant, number: CreateProducer(f"{tenant}/p/c/t", f"p{number}"),
}
HAS = {"topics": 1, "shards": 1, "places": 3, "subscriptions": 0, "producers": 0}
"""The usage of a new tenant: tenant, product and component are places."""


@pytest.mark.parametrize("what", MAKING)
def test_one_tenant_at_its_limit_does_not_stop_another(shell: CoreShell, what: str) -> None:
    quota(shell, **{f"tenant_{what}": HAS[what] + 3})
    client = shell.connect()
    for number in range(3):
        client.request(MAKING[what]("acme", number))
    with pytest.raises(QuotaReached, match=rf"tenant acme may have {HAS[what] + 3} .*\(tenant_{what}\)"):
        client.request(MAKING[what]("acme", 3))
    client.request(MAKING[what]("beta", 3))
    quota(shell, **{f"tenant_{what}": None})
    client.request(MAKING[what]("acme", 3))


def test_a_deletion_makes_room_at_once(shell: CoreShell) -> None:
    quota(shell, tenant_subscriptions=1, tenant_topics=2, tenant_producers=1)
    client = shell.connect()
    for _ in range(3):
        client.request(CreateTopic("acme/p/c/more"))
        client.request(CreateSubscription("acme/p/c/t", "s"))
        client.request(CreateProducer("acme/p/c/t", "p"))
        client.request(DeleteSubscription("acme/p/c/t", "s"))
        client.request(DeleteProducer("acme/p/c/t", "p"))
        client.request(DeleteTopic("acme/p/c/more"))


def test_what_tenants_have_is_counted_right_over_changes_and_restarts() -> None:
    disk = MemoryDisk()
    client = (shell := CoreShell(disk, seed=1)).connect()
    for number in range(40):  # so that the journals are compacted
        tenant = ("acme", "beta", "gone")[number % 3]
        client.request(CreateTopic(f"{tenant}/p/c/t{number}", shards=2))
        for each in range(3):
            client.request(CreateSubscription(f"{tenant}/p/c/t{number}", f"s{each}"))
            client.request(CreateProducer(f"{tenant}/p/c/t{number}", f"p{each}"))
        client.request(DeleteSubscription(f"{tenant}/p/c/t{number}", "s1"))
        client.request(DeleteProducer(f"{tenant}/p/c/t{number}", "p1"))
        if number % 4 == 0:
            client.request(DeleteTopic(f"{tenant}/p/c/t{number}"))
    client.request(DeletePlace("tenant", "gone", recursive=True))
    shell.drain()

    def check(stores: Stores) -> None:
        catalog, subscriptions = stores.catalog, stores.subscriptions
        for tenant in ("acme", "beta", "gone"):
            topics = [topic for topic in catalog if topic.tenant == tenant]
            has = catalog.tenant(tenant)
            assert (len(has.topics), has.shards) == (len(topics), sum(len(each.shards) for each in topics))
            assert has.producers == sum(len(each.producers) for each in topics)
            counts = [subscriptions.count_of(each.uuid) for each in topics]
            assert subscriptions.of_tenant(tenant) == sum(counts)
        assert (catalog.shards, catalog.producers) == (40, 40)
        assert len(subscriptions) == len(list(subscriptions.all())) == 40
        names = [topic.name for topic in catalog]
        assert names == sorted(names) and len(names) == len(catalog) == 20

    tables: list[TableState] = [shell.core.stores.catalog, shell.core.stores.subscriptions]
    for table in tables:
        for change in list(table.snapshot()):  # after a compaction some records are read twice
            table.apply(change)
    check(shell.core.stores)
    check(CoreShell(disk.copy(), seed=2).core.stores)
    shell.core.close()
    check(CoreShell(disk, seed=3).core.stores)


def test_a_consumer_beyond_the_quota_gets_no_subscription_and_keeps_its_connection(shell: CoreShell) -> None:
    quota(shell, tenant_subscriptions=2)
    client = shell.connect()
    for number in range(3):
        client.send(subscribe(client, "acme", number))
    shell.work_all()
    assert len(client.take(Subscribed)) == 2
    (error,) = client.take(Error)
    assert (error.code, error.consumer, error.retryable) == ("quota", 2, True)
    client.send(subscribe(client, "beta", 3))
    shell.work_all()
    assert len(client.take(Subscribed)) == 1


def test_topics_that_are_being_made_count(shell: CoreShell) -> None:
    quota(shell, tenant_topics=3)
    client = shell.connect()
    client.send(*(Request(number, OpenTopic(f"acme/p/c/t{number}", True)) for number in range(5)))
    assert [error.request for error in client.take(Error)] == [2, 3, 4]


def test_a_name_beyond_the_quota_may_send_and_is_not_registered(shell: CoreShell) -> None:
    quota(shell, tenant_producers=1)
    client = shell.connect()

    def opened(name: str) -> bool:
        asked = OpenProducer("acme/p/c/t", name, name.encode() * 16)
        return bool(client.request(asked)["registered"])

    assert opened("a") and not opened("b")
    with pytest.raises(QuotaReached, match="tenant_producers"):
        client.request(OpenProducer("acme/p/c/t", "c", b"c" * 16, "single"))


# --- rates --------------------------------------------------------------------------------------------


def waits_us(shell: CoreShell, client: CoreClient) -> int:
    """How long the node does not read from a connection."""
    return max(0, client.session.resume_us - shell.now_us)


def test_a_script_that_makes_many_things_is_slowed_down_to_the_rate(shell: CoreShell) -> None:
    quota(shell, tenant_creates_s=10)
    client = shell.connect()
    at_once = 10 * CREATES_BURST_US // SECOND_US
    for number in range(at_once - 5):  # a few were made before
        client.request(CreateSubscription("acme/p/c/t", f"s{number}"))
    assert waits_us(shell, client) == 0
    for number in range(20):
        client.request(CreateSubscription("acme/p/c/t", f"more-{number}"))
        shell.wait(waits_us(shell, client))
    assert shell.now_us >= 101 * SECOND_US, "twenty of them took more than a second"
    client.request(CreateSubscription("beta/p/c/t", "s"))
    assert waits_us(shell, client) == 0, "another tenant has a rate of its own"


def test_a_client_that_continues_over_many_connections_is_refused_for_a_while(shell: CoreShell) -> None:
    quota(shell, tenant_creates_s=10)
    asks = [Request(number, CreateSubscription("acme/p/c/t", f"s{number}")) for number in range(300)]
    made, refused = 0, list[Error]()
    for number in range(0, 300, 10):
        client = shell.connect()
        client.send(*asks[number : number + 10])
        shell.work_all()
        made += 10 - len(refused := client.take(Error))
    most = 10 * (CREATES_BURST_US + CREATES_AHEAD_US) // SECOND_US
    assert most - 10 <= made <= most + 1
    assert {error.code for error in refused} == {"quota"} and "tenant_creates_s" in refused[0].message
    shell.wait(SECOND_US)
    shell.connect().request(CreateSubscription("acme/p/c/t", "later"))


# --- blocks, stages, writers, connections ---------------------------------------------------------------


def send_block(client: CoreClient, shell: CoreShell, tenant: str, number: int, segment: int = 0) -> str:
    """The answer to a segment of a producer's run."""
    topic = shell.core.stores.catalog.by_name(f"{tenant}/p/c/t")
    assert topic is not None
    title = encode_title(number.to_bytes(16, "big"), 0, Title(topic.name, topic.uuid))
    client.send(encode(FrameType.TITLE, title), segment_frame([b"x"], segment=segment))
    shell.work_all()
    (ack,) = client.take(Ack)
    return ack.items[0].code or ack.items[0].outcome


def test_a_tenant_has_as_many_runs_of_producers_remembered_as_it_may(shell: CoreShell) -> None:
    quota(shell, tenant_blocks=3)
    client = shell.connect()
    assert [send_block(client, shell, "acme", number) for number in range(4)] == [*["stored"] * 3, "quota"]
    assert send_block(client, shell, "acme", 2, 1) == "stored", "one that is known goes on"
    assert send_block(client, shell, "beta", 9) == "stored"
    quota(shell, tenant_blocks=4)
    assert send_block(client, shell, "acme", 3) == "stored", "what was refused can be sent again"


def stage(client: CoreClient, shell: CoreShell, tenant: str, number: int, size: int = 10) -> bytes:
    uuid = tenant.encode()[:1] * 15 + bytes([number])
    client.request(OpenStage(uuid, f"{tenant}/nightly", f"{tenant}/p/c/t"))
    client.send(encode_chunk(uuid, 0, 0, segment_body([bytes(size)])))
    client.request(FinishStage(uuid, 1))
    return uuid


def test_a_tenant_stages_as_much_as_it_may(shell: CoreShell) -> None:
    quota(shell, tenant_stages=2, tenant_staged_bytes=2000)
    client = shell.connect()
    stage(client, shell, "acme", 1)
    with pytest.raises(QuotaReached, match="tenant_staged_bytes"):
        stage(client, shell, "acme", 2, 3000)
    with pytest.raises(QuotaReached, match="tenant_stages"):
        stage(client, shell, "acme", 3)
    stage(client, shell, "beta", 4, 3000)


def test_a_tenant_has_as_many_writers_as_it_may_over_a_restart_too() -> None:
    disk = MemoryDisk()
    shell = CoreShell(disk, seed=1)
    client = shell.connect()
    client.request(CreateTopic("acme/p/c/t"))
    quota(shell, tenant_writers=2)
    for batch in range(30):  # so that their journal is compacted
        for name in ("acme/a", "acme/b", "nobodys"):
            client.request(CommitBatch(name, batch, []))
    shell.core.close()
    again = CoreShell(disk, seed=2).connect()
    again.request(CommitBatch("acme/a", 30, []))
    with pytest.raises(QuotaReached, match="tenant_writers"):
        again.request(CommitBatch("acme/c", 0, []))
    again.request(DeleteWriter("acme/a"))
    again.request(CommitBatch("acme/c", 0, []))


def test_a_connection_counts_for_its_tenant_from_its_greeting_on(shell: CoreShell) -> None:
    quota(shell, tenant_connections=2)
    admin = shell.connect()
    whole = admin.request(CreateToken("admin", ["admin"], ["*"]))["secret"]
    admin = shell.connect(whole)
    secrets = {
        scopes: admin.request(CreateToken(scopes, ["consume"], scopes.split(",")))["secret"]
        for scopes in ("acme", "beta", "acme,beta", "*")
    }
    holding = [shell.connect(secrets["acme"]) for _ in range(2)]
    (fault,) = shell.connect(secrets["acme"]).take(ConnectionFault)
    assert (fault.error.code, fault.error.retryable) == ("quota", True)
    assert not any(shell.connect(secrets[each]).take(ConnectionFault) for each in ("beta", "acme,beta", "*"))
    shell.core.disconnected(holding[0].session.connection)
    assert not shell.connect(secrets["acme"]).take(ConnectionFault)


# --- defaults -----------------------------------------------------------------------------------------


def test_a_tenant_may_have_half_of_what_the_node_holds() -> None:
    node = {
        name: getattr(Limits(), name)
        for name in ("connections", "topics", "shards", "subscriptions", "producers")
    }
    staging = StagingSettings()
    node |= {"writers": staging.writers_max, "stages": staging.stages_max, "staged_bytes": staging.bytes_max}
    assert {name: getattr(TopicSettings(), f"tenant_{name}") for name in node} == {
        name: limit // 2 for name, limit in node.items()
    }


def test_the_nodes_own_limits_hold_whatever_a_tenant_may_have() -> None:
    settings = Settings(data="memory", limits=Limits(subscriptions=1))
    client = CoreShell(MemoryDisk(), seed=1, settings=settings).connect()
    client.request(CreateTopic("t"))
    client.request(CreateSubscription("t", "a"))
    with pytest.raises(LimitReached, match=r"limits\.subscriptions"):
        client.request(CreateSubscription("t", "b"))
