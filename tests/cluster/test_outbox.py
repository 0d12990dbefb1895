"""Records on their way: nothing counts before its own answer, and doubt is resolved by looking."""

from __future__ import annotations

from random import Random

import pytest

from headpond.cluster.apply import Diverged, Position
from headpond.cluster.outbox import FLIGHT_RECORDS_MAX, Fenced, Outbox
from headpond.cluster.records import Kind, OpKind, decode_record, encode_record, extend_chain


def outbox(count: int = 0) -> Outbox:
    """In epoch 3, with so many records in flight."""
    box = Outbox(Position(seq=10, epoch=3))
    for number in range(count):
        box.put(OpKind.WRITE, f"f{number}", data=b"x")
        box.take()
    return box


def stranger(epoch: int) -> bytes:
    return encode_record(Kind.BEAT, 1, epoch, 0, b"")


def test_a_record_counts_only_behind_confirmed_ones() -> None:
    box = Outbox(Position(seq=10, epoch=3))
    sent = []
    for number in range(3):
        box.put(OpKind.WRITE, f"f{number}", data=b"x")
        sent += box.take()
    assert [each.expected_seq for each in sent] == [10, 11, 12]
    assert box.confirm(sent[1], 12) == []
    assert [(each.seq, each.number) for each in box.confirm(sent[0], 11)] == [(11, 1), (12, 2)]


def test_records_that_landed_are_found_and_the_others_sent_again() -> None:
    box = outbox(3)
    raws = [each.raw for each in box.flight]
    confirmed, again = box.resolve([(11, raws[0])])
    assert [each.raw for each in confirmed] == raws[:1]
    assert [(each.raw, each.expected_seq) for each in again] == [(raws[1], 11), (raws[2], 12)]


def test_an_answer_that_comes_during_the_look_is_not_counted_again() -> None:
    box = Outbox(Position(seq=10, epoch=3))
    box.put(OpKind.WRITE, "f", data=b"x")
    (sent,) = box.take()
    behind = [(11, sent.raw)]
    assert len(box.confirm(sent, 11)) == 1
    assert box.resolve(behind) == ([], [])


def test_a_late_answer_to_an_earlier_sending_does_not_count() -> None:
    box = Outbox(Position(seq=10, epoch=3))
    box.put(OpKind.WRITE, "f", data=b"x")
    (early,) = box.take()
    _, (again,) = box.resolve([])
    assert box.confirm(early, 11) == []
    assert len(box.confirm(again, 11)) == 1


def test_a_record_of_a_replaced_member_takes_a_place_and_changes_nothing_else() -> None:
    box = outbox(2)
    raws = [each.raw for each in box.flight]
    confirmed, again = box.resolve([(11, stranger(2)), (12, raws[0])])
    assert [each.seq for each in confirmed] == [12]
    assert [(each.raw, each.expected_seq) for each in again] == [(raws[1], 12)]


def test_a_record_of_a_higher_epoch_ends_this_member() -> None:
    box = outbox(2)
    with pytest.raises(Fenced, match="record 11 is of epoch 4"):
        box.resolve([(11, stranger(4)), (12, box.flight[1].raw)])


def test_a_foreign_record_of_its_own_epoch_is_an_alarm() -> None:
    with pytest.raises(Diverged, match="did not write it"):
        outbox(1).resolve([(11, stranger(3))])


def test_what_is_in_flight_is_bounded() -> None:
    box = outbox(FLIGHT_RECORDS_MAX + 20)
    assert len(box.flight) == FLIGHT_RECORDS_MAX
    assert len(box.queue) == 20
    _, again = box.resolve([(11 + at, each.raw) for at, each in enumerate(box.flight)])
    assert again == [] and not box.flight
    assert len(box.take()) == 1  # all twenty


@pytest.mark.parametrize("seed", range(100))
def test_every_operation_is_in_the_stream_once_and_in_order_whatever_is_lost(seed: int) -> None:
    chance, box, stream = Random(seed), Outbox(Position(epoch=1)), list[bytes]()
    answers = []
    for number in range(40):
        box.put(OpKind.WRITE, f"f{number}")
        for sent in box.take():
            if sent.expected_seq == len(stream) and chance.random() < 0.8:
                stream.append(sent.raw)
                answers.append(sent)
            if chance.random() < 0.1 and sent.expected_seq == len(stream):
                stream.append(stranger(0))
        while answers and chance.random() < 0.7:
            sent = answers.pop(0)
            box.confirm(sent, sent.expected_seq + 1)
        if chance.random() < 0.3 or number == 39:
            while box.flight or box.queue:
                _, again = box.resolve(list(enumerate(stream, 1))[box.confirmed_seq :])
                for sent in (*again, *box.take()):
                    if sent.expected_seq == len(stream) and chance.random() < 0.8:
                        stream.append(sent.raw)
    chain, paths = 0, list[str]()
    for raw in stream:
        record = decode_record(raw)
        if record.epoch == 1 and record.chain == chain:  # the others are void
            chain = extend_chain(chain, raw)
            paths += [op.path for op in record.ops()]
    assert paths == [f"f{number}" for number in range(40)]
