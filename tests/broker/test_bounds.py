"""Spans and times from clients cost no more memory than the existing entries."""

from __future__ import annotations

import pytest

from headpond.broker.operations import REQUEST_COST_BYTES
from headpond.broker.reading.fetch import READS_MAX
from headpond.broker.subscriptions.attachment import Attachment, Deadlines
from headpond.model.entry_set import EntrySet
from headpond.model.errors import BadRequest
from headpond.model.policy import Policy
from headpond.storage.memory_disk import MemoryDisk
from headpond.wire.control.catalog import CreateTopic, ShowTopic, TopicInfo
from headpond.wire.control.codec import Operation, Request, Response, read_result
from headpond.wire.control.consuming import Browse, Extend, GiveBack, Settle, Settled, Unsubscribe, Unsubscribed
from headpond.wire.control.greeting import Error, Ping, Pong
from headpond.wire.control.reading import Fetched, FetchEntries, FindTime, ReadEnds
from tests.broker.subscriptions.core_readers import PLAIN, Reader, Writer
from tests.fire.core_shell import CoreShell

ENDLESS = (0, 2**62)
"""A bitmap of it would need more memory than any machine has."""


@pytest.fixture
def shell() -> CoreShell:
    return CoreShell(MemoryDisk(), seed=1, settings=PLAIN)


@pytest.mark.parametrize("kind", ["unique", "shared", "failover", "key_shared"])
def test_a_consumer_that_gives_back_everything_there_could_be_gives_back_what_it_holds(
    shell: CoreShell, kind: str
) -> None:
    Writer(shell).write(4)
    reader = Reader(shell, kind=kind)
    assert reader.got() == [(entry, 1) for entry in range(4)]
    reader.settle(acked=[(1, 2)])
    reader.client.send(GiveBack(1, 0, [ENDLESS, (2, 3), ENDLESS]))
    shell.work_all()
    assert reader.got() == [(0, 1), (2, 1), (3, 1)]


def test_a_consumer_that_leaves_having_seen_everything_there_could_be_has_seen_what_it_held(
    shell: CoreShell,
) -> None:
    Writer(shell).write(4)
    reader = Reader(shell)
    reader.client.send(Unsubscribe(1, [(0, *ENDLESS), (4095, *ENDLESS)]))
    shell.work_all()
    assert reader.client.take(Unsubscribed)
    assert Reader(shell).got() == [(entry, 2) for entry in range(4)]


def test_a_consumer_extends_the_deadline_of_what_it_holds_and_of_nothing_else(shell: CoreShell) -> None:
    Writer(shell).write(4)
    reader = Reader(shell, policy=Policy(deadline=1.0))
    reader.client.send(Extend(1, 0, [ENDLESS, ENDLESS], 5.0), Ping(1))
    assert reader.client.take(Pong)
    shell.wait(2_000_000)
    shell.work_all()
    assert reader.got() == [(entry, 1) for entry in range(4)], "nothing came back after its first deadline"
    shell.wait(4_000_000)
    reader.client.send(GiveBack(1, 0, [], done=True))
    shell.work_all()
    assert reader.got() == [(entry, 2) for entry in range(4)]


def test_extensions_of_any_length_share_a_bounded_number_of_deadlines() -> None:
    deadlines, holder, held = Deadlines(), Attachment(1, 1, "a", 1), EntrySet.of([(0, 9)])
    for number in range(20_000):
        deadlines.set(holder, 0, held, number * 50, 0.001 * 1.0012**number)
    due = deadlines.take(2**62)
    assert len(due) < 4000
    assert [len(entries) for _, _, entries in due if entries] == [9], "each entry has one deadline"


def test_a_settlement_that_names_entries_many_times_settles_each_once(shell: CoreShell) -> None:
    Writer(shell).write(100)
    reader = Reader(shell)
    reader.client.send(Settle(1, 1, 0, acked=[(1, 100)] * 16_384))
    shell.work_all()
    (settled,) = reader.client.take(Settled)
    assert (settled.number, settled.late) == (1, 0)
    reader.client.send(Unsubscribe(1, []))
    shell.work_all()
    assert Reader(shell).got() == [(0, 1)]


def reading(uuid: bytes) -> list[Operation]:
    """Requests whose answer needs a read of a log."""
    return [Browse("orders", 0, 0), FindTime(uuid, 1), FetchEntries(uuid, 0, 0)]


def test_a_connection_that_asks_for_many_reads_has_one_of_them_under_way(shell: CoreShell) -> None:
    """Otherwise the reads of one client would block all others."""
    Writer(shell).write(4)
    client = shell.connect()
    uuid = read_result(client.request(ShowTopic("orders")), TopicInfo).uuid
    operations = [each for _ in range(10) for each in reading(uuid)]
    for number, operation in enumerate(operations):
        client.send(Request(number, operation))
        assert len(shell.pending) == 1
    shell.work_all()
    assert len(client.take(Response)) + len(client.take(Fetched)) == len(operations)


@pytest.mark.parametrize("number", range(3))
def test_a_connection_has_a_bounded_number_of_reads_waiting(shell: CoreShell, number: int) -> None:
    Writer(shell).write(4)
    client = shell.connect()
    uuid = read_result(client.request(ShowTopic("orders")), TopicInfo).uuid
    client.send(*(Request(each, reading(uuid)[number]) for each in range(READS_MAX + 2)))
    (refused,) = client.take(Error)
    assert (refused.code, refused.request) == ("limit", READS_MAX + 1)


def test_requests_that_are_not_answered_count_against_the_window_of_their_connection(shell: CoreShell) -> None:
    client = shell.connect()
    (session,) = shell.core.sessions
    client.send(*(Request(number, CreateTopic(f"t{number}")) for number in range(100)))
    assert session.unacked_bytes == 100 * REQUEST_COST_BYTES
    client.send(Request(100, ShowTopic("none")))
    assert len(client.take(Error)) == 1
    assert session.unacked_bytes == 100 * REQUEST_COST_BYTES
    shell.work_all()
    assert len(client.take(Response)) == 100
    assert session.unacked_bytes == 0


def test_a_question_about_topics_names_each_once(shell: CoreShell) -> None:
    Writer(shell).write(1)
    with pytest.raises(BadRequest, match="names a topic twice"):
        shell.connect().request(ReadEnds(["orders", "default/default/default/orders"]))
