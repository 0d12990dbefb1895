"""Every row of the exchange's table."""

from __future__ import annotations

import gc

import pytest

from headpond.model.errors import Closed
from headpond.model.identity import SegmentKey
from headpond.model.receipt import Durability, Fate, Outcome
from headpond.producer.exchange import AWAITED, Exchange
from tests.producer.promises import Heard

SYNC = Durability.SYNC
STORED = Fate(Outcome.STORED, "a", 7, SYNC)
REFUSED = Fate(Outcome.REJECTED, "a", error=Closed("no"))


def exchange(destinations: int = 2) -> Exchange:
    return Exchange(tuple("abc"[:destinations]))


def put(
    held: Exchange, segment: int = 0, *, shard: int = 0, at: float = 0.0, redundant: object = None
) -> Heard:
    promise = Heard()
    held.put(SegmentKey(shard, segment), b"frame %d" % segment, redundant, promise, at)
    return promise


KEY = SegmentKey(0, 0)


def test_a_segment_that_was_not_put_yet_is_awaited() -> None:
    held = exchange()
    assert held.get(KEY) is AWAITED
    put(held)
    assert held.get(KEY) == b"frame 0"
    assert held.get(SegmentKey(0, 1)) is AWAITED and held.get(SegmentKey(1, 0)) is AWAITED


def test_segments_of_a_shard_are_put_one_after_the_other() -> None:
    held = exchange()
    put(held)
    with pytest.raises(AssertionError):
        put(held, 2)
    assert Exchange(("a",), {0: 5}).get(SegmentKey(0, 4)) is None, "those before the first are gone"


def test_a_segment_leaves_when_every_destination_confirmed_it() -> None:
    held = exchange()
    promise = put(held)
    held.ack(KEY, 0, STORED)
    assert held.get(KEY) == b"frame 0" and promise.freed == 0 and held.bytes == 7
    held.ack(KEY, 1, STORED)
    assert held.get(KEY) is None and promise.freed == 1 and held.bytes == 0 and len(held) == 0
    assert promise.fates == [(0, "stored"), (1, "stored")]


def test_an_ack_that_comes_twice_is_heard_once() -> None:
    held = exchange()
    promise = put(held)
    held.ack(KEY, 0, STORED)
    held.ack(KEY, 0, REFUSED)
    assert promise.fates == [(0, "stored")]


def test_a_rejected_segment_stays_in_memory_until_it_is_written() -> None:
    held = exchange(1)
    promise = put(held)
    held.reject(KEY, 0)
    assert held.rejected() == [KEY] and held.get(KEY) == b"frame 0" and promise.fates == []
    held.written([KEY])
    assert held.rejected() == [] and held.get(KEY) is None
    assert promise.fates == [(0, "spilled")] and promise.freed == 1 and held.bytes == 0


def test_rejected_segments_are_named_by_shard_and_segment() -> None:
    held = exchange(1)
    for shard, segment in ((1, 0), (0, 0), (1, 1), (0, 1)):
        put(held, segment, shard=shard)
    for key in (SegmentKey(1, 1), SegmentKey(0, 1), SegmentKey(1, 0)):
        held.reject(key, 0)
    assert held.rejected() == [SegmentKey(0, 1), SegmentKey(1, 0), SegmentKey(1, 1)]


def test_a_rejected_segment_that_the_refill_has_already_is_spilled_at_once() -> None:
    held = exchange()
    promise = put(held)
    held.reject(KEY, 0)
    held.written([KEY])
    assert held.get(KEY) is None and len(held) == 1, "the other destination is still open"
    held.reject(KEY, 1)
    assert promise.fates == [(0, "spilled"), (1, "spilled")] and promise.freed == 1 and len(held) == 0


def test_written_spills_only_where_it_was_rejected() -> None:
    held = exchange()
    promise = put(held)
    held.reject(KEY, 1)
    assert held.claims(KEY) == ([1], [])
    held.written([KEY])
    assert promise.fates == [(1, "spilled")]
    held.ack(KEY, 0, STORED)
    assert promise.fates == [(1, "spilled"), (0, "stored")]


def test_an_ack_takes_a_rejection_back() -> None:
    held = exchange(1)
    promise = put(held)
    held.reject(KEY, 0)
    held.ack(KEY, 0, STORED)
    assert held.rejected() == [] and promise.fates == [(0, "stored")]
    held.written([KEY])  # it was written meanwhile, for nothing
    assert promise.fates == [(0, "stored")] and promise.freed == 1


def test_the_promise_of_a_spilled_segment_is_settled_again_when_it_is_delivered() -> None:
    held = exchange(1)
    promise = put(held)
    held.reject(KEY, 0)
    held.written([KEY])
    held.ack(KEY, 0, STORED)
    held.ack(KEY, 0, STORED)
    assert promise.fates == [(0, "spilled"), (0, "stored")]


def test_the_exchange_does_not_keep_alive_the_promise_of_a_spilled_segment() -> None:
    held = exchange(1)
    promise = put(held)
    held.reject(KEY, 0)
    held.written([KEY])
    del promise
    gc.collect()
    assert len(held._spilled) == 0


def test_a_second_exchange_of_the_block_informs_the_waiters_of_the_first() -> None:
    held, next_one = exchange(1), Exchange(("a",), {0: 1})
    promise = put(held)
    held.reject(KEY, 0)
    held.written([KEY])
    next_one.follow(held)
    next_one.ack(KEY, 0, STORED)
    assert promise.fates == [(0, "spilled"), (0, "stored")]


def test_promises_of_spilled_segments_are_forgotten_on_request() -> None:
    held = exchange(1)
    promise = put(held)
    held.reject(KEY, 0)
    held.written([KEY])
    held.forget()
    held.ack(KEY, 0, STORED)
    assert promise.forgotten == 1 and promise.fates == [(0, "spilled")]


def test_a_destination_that_is_through_with_a_segment_cannot_reject_it() -> None:
    held = exchange()
    put(held)
    held.ack(KEY, 0, STORED)
    held.reject(KEY, 0)
    held.reject(SegmentKey(0, 9), 0)
    assert held.rejected() == []


def test_given_up_it_is_refused_where_it_is_open() -> None:
    held = exchange()
    promise = put(held)
    held.ack(KEY, 0, STORED)
    held.reject(KEY, 1)
    held.give_up(KEY, REFUSED)
    assert promise.fates == [(0, "stored"), (1, "rejected")] and promise.freed == 1
    assert held.rejected() == [] and len(held) == 0


def test_the_oldest_is_the_oldest_that_nobody_rejected() -> None:
    held = exchange()
    put(held, at=1.0)
    put(held, 1, at=2.0)
    assert held.oldest_at == 1.0
    held.reject(KEY, 0)
    assert held.oldest_at == 1.0, "the other destination still waits"
    held.reject(KEY, 1)
    assert held.oldest_at == 2.0
    assert held.older_than(2.0) == [(SegmentKey(0, 1), (0, 1))]
    assert held.older_than(1.9) == []


def test_the_next_in_memory_is_the_first_whose_frame_is_here() -> None:
    held = exchange(1)
    for segment in range(4):
        put(held, segment)
    held.reject(KEY, 0)
    held.written([KEY])
    held.ack(SegmentKey(0, 1), 0, STORED)
    assert held.next_in_memory(KEY) == 2
    assert held.next_in_memory(SegmentKey(0, 3)) == 3
    assert held.next_in_memory(SegmentKey(0, 4)) == 4, "the one that comes next"


def test_redundants_are_kept_from_the_first_segment_in_memory_on() -> None:
    held = exchange(1)
    for segment in range(3):
        put(held, segment, redundant=f"r{segment}")
    held.ack(SegmentKey(0, 1), 0, STORED)
    assert held.redundants(KEY) == ["r0", "r1", "r2"], "a snapshot at 0 needs those of all behind it"
    held.ack(KEY, 0, STORED)
    assert held.redundants(SegmentKey(0, 2)) == ["r2"]
    assert held.redundants(SegmentKey(0, 3)) == []
