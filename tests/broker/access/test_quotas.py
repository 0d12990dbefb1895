"""Quotas of tenants: rates slow senders down, other quotas refuse for now, and all are counted."""

from __future__ import annotations

import pytest

from headpond.broker.settings import Settings
from headpond.model.errors import BadSetting, QuotaReached
from headpond.model.policy import Policy
from headpond.storage.memory_disk import MemoryDisk
from headpond.wire.control.catalog import ChangeSettings, CreateTopic, OpenTopic, PlaceInfo, ShowPlace
from headpond.wire.control.codec import Request, read_result
from headpond.wire.control.consuming import Settle, ShowSubscription, Subscribe, Subscribed, SubscriptionInfo
from headpond.wire.control.greeting import Error
from headpond.wire.control.producing import Ack, AckItem
from headpond.wire.control.staging import AbortStages, OpenStage
from tests.fire.core_shell import SMALL_FILES, CoreClient, CoreShell
from tests.fire.raw_client import encode_chunk, segment_body, segment_frame, title_frame

TOPIC = "acme/shop/till/orders"
SECOND_US = 1_000_000


class Sender:
    """A producer made by hand."""

    def __init__(self, shell: CoreShell, topic: str = TOPIC) -> None:
        self._shell = shell
        self.client: CoreClient = shell.connect()
        self.uuid = self.client.request(CreateTopic(topic, exist_ok=True))["uuid"]
        self._topic = topic
        self._next = 0
        self.block = bytes([len(shell.clients)]) * 16

    def send(self, *values: bytes) -> AckItem:
        frame = segment_frame(list(values), segment=self._next)
        self.client.send(title_frame(self.block, self.uuid, topic=self._topic), frame)
        self._shell.work_all()
        (ack,) = self.client.take(Ack)
        if ack.items[0].outcome == "stored":
            self._next += 1
        return ack.items[0]

    @property
    def waits_us(self) -> int:
        """How long the node does not read from it."""
        return max(0, self.client.session.resume_us - self._shell.now_us)


def quota(shell: CoreShell, **values: int | None) -> None:
    shell.connect().request(ChangeSettings("tenant", "acme", dict(values)))


def usage(shell: CoreShell) -> PlaceInfo:
    return read_result(shell.connect().request(ShowPlace("tenant", "acme")), PlaceInfo)


@pytest.fixture
def shell() -> CoreShell:
    return CoreShell(MemoryDisk(), seed=1, now_us=10 * SECOND_US)


def test_without_a_quota_no_connection_is_slowed_down(shell: CoreShell) -> None:
    sender = Sender(shell)
    assert sender.send(b"x" * 100_000).outcome == "stored"
    assert sender.waits_us == 0 and usage(shell).quota_slowed == 0


@pytest.mark.parametrize("name", ["tenant_messages_s", "connection_messages_s"])
def test_a_sender_beyond_its_message_rate_waits_in_proportion(shell: CoreShell, name: str) -> None:
    sender = Sender(shell)
    quota(shell, **{name: 10})
    assert sender.send(*[b"x"] * 21).outcome == "stored", "what came is taken"
    assert sender.waits_us == 2 * SECOND_US, "the first of them was free, as a tenth of a second is"
    shell.wait(2 * SECOND_US)
    assert sender.waits_us == 0
    sender.send(b"x")
    assert sender.waits_us == SECOND_US // 10
    assert usage(shell).quota_slowed == 2 and shell.core.context.counters["quota_slowed"] == 2


@pytest.mark.parametrize("name", ["tenant_bytes_s", "connection_bytes_s"])
def test_bytes_are_paid_for_whether_they_are_stored_or_not(shell: CoreShell, name: str) -> None:
    sender = Sender(shell)
    quota(shell, **{name: 1000})
    frame = segment_frame([b"x" * 5000], segment=7)  # far too early
    sender.client.send(title_frame(sender.block, sender.uuid, topic=TOPIC), frame)
    (ack,) = sender.client.take(Ack)
    assert ack.items[0].code == "gap"
    assert sender.waits_us > 4 * SECOND_US


def test_a_tenants_rate_is_shared_by_its_connections_and_by_no_other_tenants(shell: CoreShell) -> None:
    one, two, other = Sender(shell), Sender(shell), Sender(shell, "beta/a/b/c")
    quota(shell, tenant_messages_s=10)
    one.send(*[b"x"] * 11)
    two.send(*[b"x"] * 10)
    other.send(*[b"x"] * 100)
    assert (one.waits_us, two.waits_us, other.waits_us) == (SECOND_US, 2 * SECOND_US, 0)


def test_a_connections_rate_is_its_own(shell: CoreShell) -> None:
    one, two = Sender(shell), Sender(shell)
    quota(shell, connection_messages_s=10)
    one.send(*[b"x"] * 11)
    two.send(*[b"x"] * 11)
    assert one.waits_us == two.waits_us == SECOND_US


def test_one_connection_too_many_is_refused_until_another_goes(shell: CoreShell) -> None:
    first = Sender(shell)
    quota(shell, tenant_connections=1)
    first.send(b"x")
    with pytest.raises(QuotaReached, match="tenant_connections"):
        shell.connect().request(OpenTopic(TOPIC))
    second = Sender(shell)
    assert second.send(b"x").code == "quota", "also who never asked"
    reader = shell.connect()
    reader.send(Subscribe(1, TOPIC, "s", "unique", "non_resilient", "earliest", 1024))
    shell.work_all()
    (error,) = reader.take(Error)
    assert (error.code, error.retryable) == ("quota", True)
    with pytest.raises(QuotaReached, match="tenant_connections"):
        shell.connect().request(OpenStage(b"s" * 16, "nightly", TOPIC))
    first.client.request(OpenTopic(TOPIC))  # it is in already
    assert (usage(shell).connections, usage(shell).quota_refused) == (1, 4)
    shell.core.disconnected(first.client.session.connection)
    assert second.send(b"x").outcome == "stored", "without saying anything anew"
    quota(shell, tenant_connections=None)
    reader.send(Subscribe(1, TOPIC, "s", "unique", "non_resilient", "earliest", 1024))
    shell.work_all()
    assert reader.take(Subscribed)


def test_a_connection_that_ends_while_its_topic_is_made_is_not_counted_for_ever(shell: CoreShell) -> None:
    client = shell.connect()
    client.send(Request(1, OpenTopic(TOPIC, create=True)))
    assert shell.pending, "the topic is on its way to the disk"
    shell.core.disconnected(client.session.connection)
    shell.work_all()
    assert usage(shell).connections == 0


def test_a_tenant_that_stores_as_much_as_it_may_is_refused_until_there_is_room(shell: CoreShell) -> None:
    sender = Sender(shell)
    quota(shell, tenant_stored_bytes=20_000)
    outcomes = [sender.send(b"x" * 4000) for _ in range(6)]
    assert [item.outcome for item in outcomes[:4]] == ["stored"] * 4
    assert (outcomes[-1].code, "tenant_stored_bytes" in outcomes[-1].message) == ("quota", True)
    assert usage(shell).bytes <= 20_000
    shell.wait(2 * SECOND_US)
    assert sender.send(b"x" * 4000).code == "quota"
    shell.connect().request(CreateTopic("acme/shop/till/other"))
    quota(shell, tenant_stored_bytes=100_000)
    assert sender.send(b"x" * 4000).outcome == "stored", "the same segment, once there is room"
    assert shell.core.context.counters["quota_refused_stored_bytes"] == usage(shell).quota_refused > 0


def test_staged_bytes_count_as_stored(shell: CoreShell) -> None:
    sender = Sender(shell)
    quota(shell, tenant_stored_bytes=20_000)
    stage = b"s" * 16
    sender.client.request(OpenStage(stage, "w", TOPIC))
    for number in range(3):
        sender.client.send(encode_chunk(stage, 0, number, segment_body([b"x" * 5000])))
    shell.work_all()
    shell.wait(2 * SECOND_US)  # the node looks again
    assert sender.send(b"x" * 5000).code == "quota"
    sender.client.request(AbortStages("w", [stage]))
    shell.wait(2 * SECOND_US)
    assert sender.send(b"x" * 5000).outcome == "stored"


def test_dead_letters_wait_for_room_as_segments_do(shell: CoreShell) -> None:
    sender = Sender(shell)
    reader = shell.connect()
    policy = Policy(max_attempts=1, backoff=0.0)
    ask = Subscribe(1, TOPIC, "s", "unique", "non_resilient", "earliest", 1 << 20, policy=policy)
    sender.send(b"x" * 5000)
    reader.send(ask)
    shell.work_all()
    quota(shell, tenant_stored_bytes=9000)
    reader.send(Settle(1, 1, 0, nacked=[(0, 0.0)]))
    shell.work_all()

    def shown() -> SubscriptionInfo:
        return read_result(sender.client.request(ShowSubscription(TOPIC, "s")), SubscriptionInfo)

    assert (shown().dead, shown().settled, "tenant_stored_bytes" in shown().bury_fault) == (0, 0, True)
    quota(shell, tenant_stored_bytes=90_000)
    shell.wait(2 * SECOND_US)
    shell.work_all()
    assert (shown().dead, shown().bury_fault) == (1, "")


def test_quotas_are_a_tenants_or_the_nodes(shell: CoreShell) -> None:
    with pytest.raises(BadSetting):
        shell.connect().request(CreateTopic("t", settings={"tenant_bytes_s": 1}))
    settings = Settings(
        data="memory", topics={"connection_messages_s": 10}, journal_compact_bytes=2048, log=SMALL_FILES.log
    )
    sender = Sender(CoreShell(MemoryDisk(), seed=1, settings=settings, now_us=10 * SECOND_US))
    sender.send(*[b"x"] * 11)
    assert sender.waits_us == SECOND_US
