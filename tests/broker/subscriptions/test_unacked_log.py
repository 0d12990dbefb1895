"""The unacked log stores the waits of refused entries in little memory, and starves none of them."""

from __future__ import annotations

import random

from headpond.broker.subscriptions.cursor import ShardCursor
from headpond.broker.subscriptions.unacked_log import IN_FLIGHT_ENTRIES, UnackedLog, bound_step_up, due_step_up
from headpond.model.entry_set import EntrySet


def hand_out(cursor: ShardCursor, end: int, count: int) -> list[int]:
    """The next entries, as a consumer with this much room would get them."""
    found: list[int] = []
    while len(found) < count:
        cursor.release(end)
        entry = cursor.next_wanted(end)
        if entry is None:
            break
        cursor.take([(entry, entry + 1)])
        cursor.advance(entry, entry + 1)
        found.append(entry)
    return found


def test_on_a_busy_topic_a_refused_entry_comes_before_later_ones() -> None:
    cursor, end = ShardCursor(), 5
    assert hand_out(cursor, end, 1) == [0]
    cursor.nack(0, 1, bound=end)
    cursor.unacked_log.wake(1)
    found: list[int] = []
    for _ in range(10):  # twice as many are stored as are taken: there is always something new
        end += 2
        found += hand_out(cursor, end, 1)
        cursor.settle(found[-1], found[-1] + 1)
    assert found[:6] == [1, 2, 3, 4, 0, 5]


def test_a_consumer_that_is_stuck_delays_it_by_one_more_backlog_at_most() -> None:
    cursor, end = ShardCursor(), 5
    assert hand_out(cursor, end, 2) == [0, 1]
    cursor.nack(0, 1, bound=end)
    cursor.unacked_log.wake(1)
    found: list[int] = []
    while 0 not in found:  # entry 1 is never settled, and there is always something new
        end += 2
        found += hand_out(cursor, end, 1)
        cursor.settle(found[-1], found[-1] + 1)
    assert found == [*range(2, 5 + IN_FLIGHT_ENTRIES), 0]


def test_in_flight_entries_are_waited_for_while_there_is_something_new() -> None:
    cursor = ShardCursor()
    assert hand_out(cursor, 4, 3) == [0, 1, 2]
    cursor.nack(0, 1, bound=3)
    cursor.unacked_log.wake(1)
    assert hand_out(cursor, 6, 1) == [3], "1 and 2 are with a consumer"
    cursor.settle(1, 3)
    assert hand_out(cursor, 6, 2) == [0, 4]


def test_when_all_is_delivered_a_refused_entry_waits_for_no_entry_in_flight() -> None:
    cursor = ShardCursor()
    assert hand_out(cursor, 4, 4) == [0, 1, 2, 3]
    cursor.nack(0, 1, bound=4)
    assert hand_out(cursor, 4, 1) == [], "its time has not come"
    cursor.unacked_log.wake(1)
    assert hand_out(cursor, 4, 1) == [0]


def test_a_hundred_thousand_entries_with_as_many_delays_and_bounds_are_a_few_hundred_sets() -> None:
    count, chance = 100_000, random.Random(1)
    log = UnackedLog()
    for entry in range(0, 2 * count, 2):
        wait_us = round(chance.uniform(0, 3600e6))
        due_us, bound = due_step_up(wait_us, wait_us), bound_step_up(count + entry, count)
        one = EntrySet.of([(entry, entry + 1)])
        log.put([(due_us, one)], [(bound, one)])
    everything = log.entries.copy()
    by_due_us, by_bound = log.by_due_us(everything), log.by_bound(everything)
    assert len(by_due_us) < 2000
    assert len(by_bound) < 200
    assert sum(len(entries) for _, entries in by_due_us) == count
    assert sum(len(entries) for _, entries in by_bound) == count
    log.advance(5 * count, 5 * count, 5 * count)
    log.wake(2 * 3600 * 1_000_000)
    assert len(log.take(nothing_new=False)) == count
    assert not log


def test_times_and_bounds_are_rounded_up_by_about_a_hundredth() -> None:
    for wait_us in (0, 1, 20_000, 100_000, 5_000_000, 60_000_000, 86_400_000_000):
        late_us = due_step_up(10**15 + 7 + wait_us, wait_us) - (10**15 + 7 + wait_us)
        assert 0 <= late_us <= max(20_000, wait_us / 64)
    for ahead in (0, 1, 127, 128, 1000, 10**9):
        assert 0 <= bound_step_up(10**12 + ahead, ahead) - (10**12 + ahead) <= ahead / 64
