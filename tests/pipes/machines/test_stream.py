"""stream: storage in the middle, a committed position, and readers that restart."""

from __future__ import annotations

from headpond.pipes.machines.machine import WAKE, Arrive, Effects, Machine
from headpond.pipes.machines.packet import Kind, Packet
from headpond.pipes.machines.stream import Entries, IndexStorage, ReaderPosition, StreamReceiver, StreamStorage
from tests.pipes.machines.machines import data, packet

EPOCH = 5


def kinds(effects: Effects) -> list[tuple[int, tuple[int, ...]]]:
    return [(each.kind, tuple(each.numbers)) for each in effects.packets]


def passed(effects: Effects) -> list[bytes]:
    return [payload for run in effects.delivered for payload in run.payloads]


def talk(receiver: Machine, *others: Machine, now: float = 0.0) -> list[bytes]:
    """Exchanges packets of a receiver and its storages until there are none; returns the deliveries."""
    got = []
    effects = receiver.step(WAKE, now)
    while effects.packets:
        asked = effects.packets
        answers = [each for other in others for each in other.step(Arrive(asked), now).packets]
        effects = receiver.step(Arrive(answers), now)
        got += passed(effects)
    return got


def filled(count: int) -> Entries:
    entries = Entries()
    entries.payloads += [b"%d" % number for number in range(count)]
    return entries


def test_the_storage_appends_and_confirms_every_copy() -> None:
    storage = StreamStorage(Entries())
    for _ in range(2):
        effects = storage.step(Arrive([data([4, 5])]), 0.0)
        assert kinds(effects) == [(Kind.CONFIRM, (4, 5))]
    assert storage.entries.payloads == [b"4", b"5", b"4", b"5"]


def test_a_full_storage_confirms_only_the_messages_that_it_took() -> None:
    storage = StreamStorage(Entries(capacity=3))
    assert kinds(storage.step(Arrive([data(range(5))]), 0.0)) == [(Kind.CONFIRM, (0, 1, 2))]
    assert (storage.entries.payloads, storage.counts.refused) == ([b"0", b"1", b"2"], 2)


def test_a_full_storage_reports_it_once() -> None:
    storage = StreamStorage(Entries(capacity=1))
    notices = [[each.what for each in storage.step(Arrive([data([n])]), 0.0).notices] for n in range(3)]
    assert notices == [[], ["storage full"], []]


def test_trimming_keeps_the_indices_of_the_rest() -> None:
    entries = filled(3000)
    assert entries.trim(10) == 0, "in large pieces only"
    assert (entries.trim(2000), entries.first, len(entries.payloads)) == (2000, 2000, 1000)
    storage = StreamStorage(entries)
    (answer,) = storage.step(Arrive([Packet(Kind.FETCH, 1, 7, (2500, 2))]), 0.0).packets
    assert (list(answer.numbers), answer.payloads) == ([2500, 2501], [b"2500", b"2501"])
    assert entries.trim(3000) == 1000
    storage.step(Arrive([data([0])]), 0.0)
    (answer,) = storage.step(Arrive([Packet(Kind.FETCH, 1, 7, (3000, 2))]), 0.0).packets
    assert list(answer.numbers) == [3000]


def test_a_receiver_that_asks_for_trimmed_entries_reports_them_and_continues_behind_them() -> None:
    entries = filled(1500)
    entries.trim(1400)
    receiver = StreamReceiver(epoch=1, commit=False)
    question = receiver.step(WAKE, 0.0).packets
    effects = receiver.step(Arrive(StreamStorage(entries).step(Arrive(question), 0.0).packets), 0.0)
    assert passed(effects) == [b"%d" % number for number in range(1400, 1500)]
    assert [(each.what, len(each.numbers)) for each in effects.notices] == [("trimmed", 1400)]


def test_a_fetch_that_finds_nothing_is_answered_at_once_and_again_when_something_comes() -> None:
    storage = StreamStorage(Entries())
    fetch = Packet(Kind.FETCH, 0, 7, (0, 10))
    assert kinds(storage.step(Arrive([fetch]), 0.0)) == [(Kind.FETCHED, ())]
    effects = storage.step(Arrive([data([0])]), 1.0)
    assert kinds(effects) == [(Kind.CONFIRM, (0,)), (Kind.FETCHED, (0,))]
    assert kinds(storage.step(Arrive([data([1])]), 2.0)) == [(Kind.CONFIRM, (1,))]


def test_a_receiver_reads_everything_in_the_order_of_the_storage() -> None:
    storage, index = StreamStorage(filled(3000)), IndexStorage(ReaderPosition())
    assert talk(StreamReceiver(epoch=1), storage, index) == filled(3000).payloads
    assert index.position.index == 3000


def test_a_restarted_receiver_continues_at_the_committed_position() -> None:
    entries, position = filled(5), ReaderPosition()
    talk(StreamReceiver(epoch=1), StreamStorage(entries), IndexStorage(position))
    entries.payloads += [b"new"]
    assert talk(StreamReceiver(epoch=2), StreamStorage(entries), IndexStorage(position)) == [b"new"]


def test_without_an_index_storage_a_restarted_receiver_reads_from_the_start() -> None:
    storage = StreamStorage(filled(3))
    for session in (1, 2):
        assert talk(StreamReceiver(epoch=session, commit=False), storage) == [b"0", b"1", b"2"]


def test_an_answer_that_comes_twice_is_passed_on_once() -> None:
    receiver = StreamReceiver(epoch=1, commit=False)
    receiver.step(WAKE, 0.0)
    answer = Packet(Kind.FETCHED, 1, 1, range(2), [b"a", b"b"])
    assert passed(receiver.step(Arrive([answer, answer]), 0.1)) == [b"a", b"b"]
    assert receiver.counts.duplicate == 2


def test_an_answer_to_an_earlier_session_is_not_taken() -> None:
    receiver = StreamReceiver(epoch=2, commit=False)
    receiver.step(WAKE, 0.0)
    stale = Packet(Kind.FETCHED, 1, 1, range(2), [b"a", b"b"])
    assert passed(receiver.step(Arrive([stale]), 0.1)) == []
    assert receiver.counts.stale == 1


def test_a_lost_fetch_or_answer_is_asked_for_again() -> None:
    receiver = StreamReceiver(epoch=1, commit=False)
    assert kinds(receiver.step(WAKE, 0.0)) == [(Kind.FETCH, (0, 1024))]
    assert receiver.wake_at is not None
    assert kinds(receiver.step(WAKE, receiver.wake_at)) == [(Kind.FETCH, (0, 1024))]


def test_a_lost_position_is_asked_for_again() -> None:
    receiver = StreamReceiver(epoch=1)
    assert kinds(receiver.step(WAKE, 0.0)) == [(Kind.READ, (0,))]
    assert receiver.wake_at is not None
    assert kinds(receiver.step(WAKE, receiver.wake_at)) == [(Kind.READ, (0,))]


def test_a_storage_that_lost_its_data_is_recognised_and_read_from_its_beginning() -> None:
    receiver = StreamReceiver(epoch=1, commit=False)
    talk(receiver, StreamStorage(filled(5)))
    fresh = Entries(incarnation=2)
    fresh.payloads += [b"after"]
    assert receiver.wake_at is not None
    assert talk(receiver, StreamStorage(fresh), now=receiver.wake_at) == [b"after"]
    assert receiver.counts.restarts == 1


def test_entries_that_do_not_follow_each_other_are_no_answer() -> None:
    receiver = StreamReceiver(epoch=1, commit=False)
    receiver.step(WAKE, 0.0)
    torn = Packet(Kind.FETCHED, 1, 1, [0, 2], [b"a", b"c"])
    assert passed(receiver.step(Arrive([torn]), 0.1)) == []
    assert receiver.counts.malformed == 1


def test_a_position_moves_forwards_only() -> None:
    index = IndexStorage(ReaderPosition())
    for numbers in ((7,), (3,)):
        index.step(Arrive([packet(Kind.COMMIT, numbers, epoch=1)]), 0.0)
    assert kinds(index.step(Arrive([packet(Kind.READ, (0,))]), 0.0)) == [(Kind.POSITION, (7,))]


def test_a_position_in_a_lost_storage_gives_way_to_one_in_its_successor() -> None:
    index = IndexStorage(ReaderPosition())
    index.step(Arrive([packet(Kind.COMMIT, (7,), epoch=1)]), 0.0)
    index.step(Arrive([packet(Kind.COMMIT, (2,), epoch=2)]), 0.0)
    assert (index.position.incarnation, index.position.index) == (2, 2)
