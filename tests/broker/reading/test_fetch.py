"""Reading by position, in the core: waits and refusals."""

from __future__ import annotations

import pytest

from headpond.broker.reading.fetch import READS_MAX, WATCHES_MAX
from headpond.model.errors import (
    BadFilter,
    BadRequest,
    HeadpondError,
    IncarnationChanged,
    LimitReached,
    SubscriptionNotFound,
    TopicNotFound,
)
from headpond.storage.memory_disk import MemoryDisk
from headpond.wire.control.catalog import DeleteTopic
from headpond.wire.control.codec import Operation, Request, Response, read_result
from headpond.wire.control.consuming import CreateSubscription, ListSubscriptions
from headpond.wire.control.greeting import Error
from headpond.wire.control.reading import AdvanceSubscription, Ends, Fetched, FetchEntries, FindTime, ReadEnds
from headpond.wire.frame import Frame
from tests.broker.ingest.test_ingest import Sender
from tests.fire.core_shell import CoreClient, CoreShell


@pytest.fixture
def sender() -> Sender:
    """A topic of ten entries, in segments of two."""
    made = Sender(CoreShell(MemoryDisk(), seed=1))
    for number in range(5):
        assert made.ask(number, rows=2).outcome == "stored"
    return made


def fetched(client: CoreClient) -> list[tuple[int, int, int]]:
    """Number, records and next entry of the fetches that were answered, with their records taken."""
    answers = [(each.number, each.records, each.entry_next) for each in client.take(Fetched)]
    assert len(client.take(Frame)) == sum(records for _, records, _ in answers)
    return answers


def test_no_fetch_begins_while_a_connection_has_no_room(sender: Sender) -> None:
    shell, reader = sender.shell, sender.shell.connect()
    shell.core.set_writable(2, False)
    for number in range(3):
        reader.send(Request(number, FetchEntries(sender.info.uuid, 0, 2 * number, 2 * number + 2)))
    shell.work_all()
    assert fetched(reader) == [] and shell.pending == []
    shell.core.set_writable(2, True)
    shell.drain()
    assert len(shell.pending) == 1, "one read a connection"
    shell.work_all()
    assert fetched(reader) == [(0, 1, 2), (1, 1, 4), (2, 1, 6)]


def test_a_connection_that_goes_takes_its_fetches_and_waits_with_it(sender: Sender) -> None:
    shell, reader = sender.shell, sender.shell.connect()
    reader.send(
        Request(1, FetchEntries(sender.info.uuid, 0, 0)), Request(2, FetchEntries(sender.info.uuid, 0, 0))
    )
    reader.send(Request(3, ReadEnds(["orders"], [[10]], 5.0)))
    shell.core.disconnected(2)
    shell.work_all()
    assert reader.take(Fetched) == []
    sender.ask(5)
    assert reader.take(Response) == []


def test_fetches_and_waits_beyond_their_limits_are_refused_and_the_others_answered(sender: Sender) -> None:
    shell, reader = sender.shell, sender.shell.connect()
    for number in range(READS_MAX + 2):  # one of them is under way at once
        reader.send(Request(number, FetchEntries(sender.info.uuid, 0, 0, 2)))
    (refused,) = reader.take(Error)
    assert (refused.code, refused.request) == (LimitReached.code, READS_MAX + 1)
    shell.work_all()
    assert len(fetched(reader)) == READS_MAX + 1
    for number in range(WATCHES_MAX + 1):
        reader.send(Request(number, ReadEnds(["orders"], [[10]], 5.0)))
    (refused,) = reader.take(Error)
    assert (refused.code, refused.request) == (LimitReached.code, WATCHES_MAX)
    sender.ask(5)
    assert len(reader.take(Response)) == WATCHES_MAX


def test_a_wait_for_growth_ends_by_time_by_growth_and_by_a_deletion(sender: Sender) -> None:
    shell, reader = sender.shell, sender.shell.connect()

    def ends() -> list[Ends]:
        (response,) = reader.take(Response)
        return read_result(response.result, list[Ends])

    reader.send(Request(1, ReadEnds(["orders", "other"], [[10], []], 2.0)))
    shell.wait(1_900_000)
    assert reader.take(Response) == []
    shell.wait(200_000)
    assert [(each.uuid is None, len(each.shards)) for each in ends()] == [(False, 1), (True, 0)]
    reader.send(Request(2, ReadEnds(["orders"], [[10]], 2.0)))
    sender.send(5)
    assert reader.take(Response) == [], "nothing is told before its sync"
    shell.work_all()
    assert ends()[0].shards[0].entry_next == 11
    reader.send(Request(3, ReadEnds(["orders"], [[10]], 2.0)))
    assert ends()[0].shards[0].entry_next == 11, "what has grown already needs no wait"
    reader.send(Request(4, ReadEnds(["orders"], [[11]], 2.0)))
    sender.client.request(DeleteTopic("orders"))
    assert ends()[0].uuid is None


def test_a_fetch_that_waits_is_answered_when_its_topic_is_deleted(sender: Sender) -> None:
    shell, reader = sender.shell, sender.shell.connect()
    shell.core.set_writable(2, False)
    reader.send(Request(1, FetchEntries(sender.info.uuid, 0, 0)))
    sender.client.request(DeleteTopic("orders"))
    shell.core.set_writable(2, True)
    shell.work_all()
    shell.drain()
    (refused,) = reader.take(Error)
    assert refused.code == TopicNotFound.code


def test_the_masks_of_an_answer_fit_into_it_however_many_rows_there_are(
    sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headpond.broker.reading.chosen.MASK_BYTES_MAX", 2)
    reader = sender.shell.connect()
    reader.send(Request(1, FetchEntries(sender.info.uuid, 0, 1, 9, filter="entry != 4")))
    sender.shell.work_all()
    (answer,) = reader.take(Fetched)
    assert (answer.records, answer.entry_next, answer.masks) == (2, 4, [b"\x03", b"\x03"])
    assert len(reader.take(Frame)) == 2
    reader.send(Request(2, FetchEntries(sender.info.uuid, 0, 4, 9, filter="entry = 5")))
    sender.shell.work_all()
    (answer,) = reader.take(Fetched)
    assert (answer.records, answer.entry_next, answer.masks) == (1, 9, [b"\x02"])


def test_invalid_requests_are_refused_and_the_connection_stays(sender: Sender) -> None:
    uuid = sender.info.uuid
    sender.client.request(CreateSubscription("orders", "s"))
    bad: list[tuple[Operation, type[HeadpondError]]] = [
        (FetchEntries(bytes(16), 0, 0), TopicNotFound),
        (FetchEntries(uuid, 1, 0), BadRequest),
        (FetchEntries(uuid, -1, 0), BadRequest),
        (FetchEntries(uuid, 0, -1), BadRequest),
        (FetchEntries(uuid, 0, 5, 4), BadRequest),
        (FetchEntries(uuid, 0, 2**63 + 1), BadRequest),
        (FetchEntries(uuid, 0, 0, bytes_max=0), BadRequest),
        (FetchEntries(uuid, 0, 0, filter="entry = 'x'"), BadFilter),
        (FetchEntries(uuid, 0, 0, filter="entry"), BadFilter),
        (ReadEnds([]), BadRequest),
        (ReadEnds(["orders"] * 2000), BadRequest),
        (ReadEnds(["orders"], [], 1.0), BadRequest),
        (ReadEnds(["orders"], [[1]], -1.0), BadRequest),
        (ReadEnds(["orders"], [[1]], float("nan")), BadRequest),
        (FindTime(uuid, 2**63), BadRequest),
        (FindTime(bytes(16), 0), TopicNotFound),
        (AdvanceSubscription("orders", "none", [0]), SubscriptionNotFound),
        (AdvanceSubscription("orders", "s", [11]), BadRequest),
        (AdvanceSubscription("orders", "s", [-1]), BadRequest),
        (CreateSubscription("orders", "t", positions=[1, 2]), BadRequest),
    ]
    for operation, kind in bad:
        with pytest.raises(kind):
            sender.client.request(operation)
    assert sender.client.request(AdvanceSubscription("orders", "s", [10])) == {"positions": [10]}
    assert sender.client.request(FindTime(uuid, 0)) == [0]


# --- an old copy was restored --------------------------------------------------------------------------


def position(shell: CoreShell) -> tuple[int, int]:
    """Incarnation and next entry of the topic's only shard."""
    (ends,) = read_result(shell.connect().request(ReadEnds(["orders"])), list[Ends])
    return ends.shards[0].incarnation, ends.shards[0].entry_next


def begun(disk: MemoryDisk, now_us: int, block: bytes, segments: int) -> Sender:
    """A node that was started on a disk, and stored segments of two rows."""
    made = Sender(CoreShell(disk, seed=now_us, now_us=now_us), block)
    for number in range(segments):
        assert made.ask(number, rows=2).outcome == "stored"
    return made


def refused(made: Sender, incarnation: int, entry: int, end: int | None = None) -> bool:
    """Whether each operation with a position refuses it as that of another log."""
    client, uuid = made.shell.connect(), made.info.uuid
    client.send(Request(1, FetchEntries(uuid, 0, entry, end, incarnation)))
    made.shell.work_all()
    codes = [error.code for error in client.take(Error)]
    assert codes in ([], ["incarnation-changed"]) and len(codes) + len(client.take(Fetched)) == 1
    if end is None:
        settles: list[Operation] = [
            AdvanceSubscription("orders", "s", [entry], incarnations=[incarnation]),
            CreateSubscription(
                "orders", f"at-{entry}", exist_ok=True, positions=[entry], incarnations=[incarnation]
            ),
        ]
        for ask in settles:
            if codes:
                before = made.client.request(ListSubscriptions("orders"))
                with pytest.raises(IncarnationChanged):
                    made.client.request(ask)
                assert made.client.request(ListSubscriptions("orders")) == before
            else:
                made.client.request(ask)
    return bool(codes)


@pytest.mark.parametrize("stopped", [False, True], ids=["copied while it ran", "copied while it was stopped"])
@pytest.mark.parametrize("grown", [0, 1, 2, 5])
def test_a_position_of_a_run_that_a_restored_copy_never_had_is_refused_by_name(
    stopped: bool, grown: int
) -> None:
    disk = MemoryDisk()
    first = begun(disk, 1_000, b"a" * 16, segments=2)
    first.client.request(CreateSubscription("orders", "s"))
    at_copy = position(first.shell)
    if stopped:
        first.shell.core.close()
        copy = disk.copy()
        second = begun(disk, 2_000, b"b" * 16, segments=3)
    else:
        copy = disk.copy()
        second = first
        for number in range(2, 5):
            assert second.ask(number, rows=2).outcome == "stored"
    ahead = position(second.shell)
    assert (at_copy[1], ahead[1]) == (4, 10)
    assert not refused(second, *at_copy) and not refused(second, *ahead) and not refused(second, 0, 0)

    restored = begun(copy, 3_000, b"c" * 16, segments=grown)
    assert refused(restored, *ahead)
    assert refused(restored, ahead[0], 0, 10) == (stopped or grown > 0)
    assert not refused(restored, *at_copy) and not refused(restored, at_copy[0], 0, 4)
    assert not refused(restored, *position(restored.shell))


def test_positions_stay_valid_over_restarts_and_continue_from_the_answer_to_a_fetch() -> None:
    disk = MemoryDisk()
    positions = [(0, 0)]
    for run in range(1, 4):
        made = begun(disk, run * 1_000, bytes([run]) * 16, segments=2)
        if run == 1:
            made.client.request(CreateSubscription("orders", "s"))
        assert all(not refused(made, *each) for each in positions)
        positions.append(position(made.shell))
        made.shell.core.close()
    assert len(dict(positions)) == 4
    client = (made := begun(disk, 9_000, b"z" * 16, segments=0)).shell.connect()
    at, incarnation, found = 0, 0, []
    while at < 12:
        client.send(Request(at, FetchEntries(made.info.uuid, 0, at, None, incarnation, 1)))
        made.shell.work_all()
        (answer,) = client.take(Fetched)
        at, incarnation = answer.entry_next, answer.incarnation
        found.append((incarnation, at))
    assert set(found) >= set(positions[1:])
