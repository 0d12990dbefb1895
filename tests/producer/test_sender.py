"""Every row of the sender's table, and the answers of a hostile or forgetful node."""

from __future__ import annotations

from math import inf

import pytest

from headpond.producer.sender import GO_BACKS_FREE, HOLD_MAX_S, PATIENCE_S, InFlight, SegmentHole, Sender, Step
from headpond.wire.control.producing import AckItem


def up(first: int = 0, *, typed: bool = False, flight: InFlight | None = None) -> Sender:
    sender = Sender(3, first, flight or InFlight(), lambda: 0.5, typed=typed)
    sender.connected()
    return sender


def send(sender: Sender, count: int = 1, now: float = 0.0) -> list[int]:
    """Sends the next segments; returns their numbers."""
    sent = []
    for _ in range(count):
        wanted = sender.wanted
        assert wanted is not None
        sender.send(b"frame %d" % wanted, now)
        sent.append(wanted)
    return sent


def stored(segment: int) -> AckItem:
    return AckItem(segment, "stored", 0)


def refused(segment: int, code: str, expected: int | None = None) -> AckItem:
    return AckItem(segment, "rejected", None, code, code, expected)


def test_segments_are_sent_in_order_from_the_first() -> None:
    sender = up(5)
    assert send(sender, 3) == [5, 6, 7] and sender.floor == 5


@pytest.mark.parametrize("outcome", ["stored", "duplicate"])
def test_confirmations_count_in_whatever_order_they_come(outcome: str) -> None:
    sender = up()
    send(sender, 3)
    for segment, floor in ((2, 0), (0, 1), (1, 3)):
        assert sender.answer(AckItem(segment, outcome, 0), 1.0) is Step.DONE
        assert sender.floor == floor


@pytest.mark.parametrize("code", ["conflict", "bad-segment", "schema-mismatch", "a code from the future"])
def test_a_final_refusal_uses_the_number_up(code: str) -> None:
    sender = up()
    send(sender, 2)
    assert sender.answer(refused(0, code), 1.0) is Step.DONE
    assert sender.floor == 1 and sender.held_until is None


def test_a_gap_goes_back_to_the_first_unconfirmed() -> None:
    sender = up()
    send(sender, 3)
    sender.answer(stored(0), 1.0)
    assert sender.answer(refused(1, "gap", 1), 1.0) is Step.AGAIN
    assert send(sender, 2) == [1, 2] and sender.resent == 2


def test_a_window_of_stale_gaps_makes_one_step_back() -> None:
    sender = up()
    send(sender, 4)
    assert sender.answer(refused(0, "gap", 0), 1.0) is Step.AGAIN
    send(sender, 4)
    for segment in (1, 2, 3):
        assert sender.answer(refused(segment, "gap", 0), 1.0) is Step.NOTHING, "it is sent again already"
    assert sender.cursor == 4
    for segment in range(4):
        sender.answer(stored(segment), 2.0)
    assert sender.floor == 4


def test_a_gap_before_the_first_existing_segment_declares_a_hole() -> None:
    sender = up(7)
    send(sender)
    sender.answer(refused(7, "gap", 2), 1.0)
    assert sender.declare(7) and sender.holes == [SegmentHole(3, 2, 7)]
    assert not sender.declare(7), "once"


def test_a_gap_of_a_lost_connection_is_not_declared_on_the_next_one() -> None:
    sender = up(7)
    send(sender)
    sender.answer(refused(7, "gap", 2), 1.0)
    sender.disconnected()
    sender.connected()
    assert not sender.declare(7) and sender.holes == [], "the node is asked again, and may have it by now"


def test_a_gap_that_is_filled_declares_nothing() -> None:
    sender = up(7)
    send(sender)
    sender.answer(refused(7, "gap", 7), 1.0)
    assert not sender.declare(7) and sender.holes == []


@pytest.mark.parametrize("expected", [10**12, -5, None])
def test_a_gap_that_cannot_be_leads_to_waiting_and_not_to_nonsense(expected: int | None) -> None:
    sender = up(3)
    steps = []
    for _ in range(GO_BACKS_FREE + 1):
        send(sender)
        steps.append(sender.answer(refused(3, "gap", expected), 1.0))
        assert not sender.declare(3) or sender.holes == [SegmentHole(3, 0, 3)]
    assert steps[-1] is Step.HELD, "a node that repeats itself is not hammered"


def test_snapshot_goes_back_with_a_fresh_session() -> None:
    sender = up()
    send(sender, 2)
    fresh_before = sender.fresh
    assert sender.answer(refused(1, "snapshot"), 1.0) is Step.AGAIN
    assert (fresh_before, sender.fresh, sender.cursor) == (False, True, 0)


def test_going_back_without_progress_is_held_and_progress_frees() -> None:
    sender = up()
    for _ in range(GO_BACKS_FREE):
        send(sender)
        assert sender.answer(refused(0, "snapshot"), 1.0) is Step.AGAIN
    send(sender)
    assert sender.answer(refused(0, "snapshot"), 1.0) is Step.HELD
    sender.wake(10.0)
    send(sender)
    sender.answer(stored(0), 10.0)
    send(sender)
    assert sender.answer(refused(1, "snapshot"), 10.0) is Step.AGAIN


@pytest.mark.parametrize("code", ["disk-full", "storage-failed", "limit", "stopping", "predecessor"])
def test_a_retryable_refusal_holds_and_then_goes_back_to_it(code: str) -> None:
    sender = up()
    send(sender, 2)
    assert sender.answer(refused(0, code), 1.0) is Step.HELD
    until = sender.wake_at
    assert sender.wanted is None and until is not None and until > 1.0
    assert sender.waits_for_predecessor is (code == "predecessor")
    assert sender.wake(until - 0.001) == [] and sender.wanted is None
    sender.wake(until)
    assert sender.wanted == 0


def test_holds_grow_and_are_bounded() -> None:
    sender, now, delays = up(), 0.0, []
    for _ in range(20):
        send(sender)
        sender.answer(refused(0, "disk-full"), now)
        assert sender.held_until is not None
        delays.append(round(sender.held_until - now, 6))
        now = sender.held_until
        sender.wake(now)
    assert delays == sorted(delays) and delays[0] < 0.2 and HOLD_MAX_S / 2 < delays[-1] <= HOLD_MAX_S


def test_refusals_of_a_whole_window_hold_once() -> None:
    sender = up()
    send(sender, 3)
    assert sender.answer(refused(0, "disk-full"), 1.0) is Step.HELD
    until = sender.held_until
    assert [sender.answer(refused(n, "gap", 0), 1.0) for n in (1, 2)] == [Step.NOTHING] * 2
    assert sender.held_until == until


def test_an_unanswered_segment_is_sent_again_with_the_same_bytes() -> None:
    sender = up()
    send(sender, 2)
    sender.answer(stored(1), 1.0)
    assert sender.wake(1.0) == []
    assert sender.wake(1.0 + 2 * PATIENCE_S) == [b"frame 0"]
    assert sender.resent == 1


def test_an_answer_that_never_came_does_not_hide_a_refusal_of_the_next_sending() -> None:
    sender = up()
    send(sender)
    assert sender.wake(1.0 + 2 * PATIENCE_S) == [b"frame 0"], "the first sending was never answered"
    assert sender.answer(refused(0, "gap", 0), 40.0) is Step.AGAIN


def test_a_new_connection_begins_at_the_first_unconfirmed_and_waits_for_no_old_answer() -> None:
    flight = InFlight()
    sender = up(flight=flight)
    send(sender, 3)
    sender.answer(stored(0), 1.0)
    sender.disconnected()
    assert (sender.wanted, sender.wake_at, flight.segments, flight.bytes) == (None, inf, 0, 0)
    sender.connected()
    assert (sender.wanted, sender.fresh) == (1, True)
    send(sender)
    assert sender.answer(refused(1, "gap", 1), 2.0) is Step.AGAIN, "only this connection's sending counts"


def test_flight_counts_unanswered_segments() -> None:
    flight = InFlight()
    sender = up(flight=flight)
    send(sender, 2)
    assert (flight.segments, flight.bytes) == (2, 14)
    sender.answer(stored(0), 1.0)
    sender.answer(stored(0), 1.0)
    assert (flight.segments, flight.bytes) == (1, 7)
    sender.wake(100.0)
    assert (flight.segments, flight.bytes) == (1, 7), "sent again, it is on its way once"
    sender.answer(refused(1, "disk-full"), 100.0)
    assert (flight.segments, flight.bytes) == (0, 0)


@pytest.mark.parametrize(
    "item",
    [
        stored(9),
        refused(9, "gap", 0),
        AckItem(-1, "stored", 0),
        AckItem(0, "spilled", 0),
        AckItem(0, "", 0),
        refused(1, "gap", 0),
    ],
)
def test_answers_to_nothing_that_was_sent_and_without_meaning_are_counted_and_ignored(item: AckItem) -> None:
    sender = up()
    send(sender, 2)
    sender.answer(stored(1), 1.0)
    before = (sender.cursor, sender.floor, sender.held_until)
    assert sender.answer(item, 1.0) is Step.NOTHING
    assert (sender.cursor, sender.floor, sender.held_until) == before and sender.unknown == 1


def test_an_answer_from_before_a_step_back_counts() -> None:
    sender = up()
    send(sender, 2)
    sender.answer(refused(1, "gap", 0), 1.0)
    assert sender.answer(stored(0), 1.0) is Step.DONE
    assert sender.cursor == 0, "the outlet finds that segment 0 is gone, and skips it"


# --- the probe of a typed topic -----------------------------------------------------------------------


def test_a_plain_topic_and_a_first_segment_are_not_probed() -> None:
    assert not up(5).probes
    sender = up(0, typed=True)
    assert send(sender, 3) == [0, 1, 2], "nothing was confirmed that could be lost"


def test_a_typed_topic_begins_a_connection_with_one_segment_alone() -> None:
    sender = up(5, typed=True)
    assert (sender.probes, send(sender)) == (True, [5])
    assert (sender.wanted,) == (None,), "nothing more before the answer"
    assert sender.answer(refused(5, "snapshot"), 1.0) is Step.AGAIN
    assert (sender.probes, sender.fresh, send(sender, 2)) == (False, True, [5, 6])


def test_a_probe_that_finds_a_gap_names_it() -> None:
    sender = up(5, typed=True)
    send(sender)
    assert sender.answer(refused(5, "gap", 2), 1.0) is Step.AGAIN
    assert sender.lacking == 2 and not sender.probes and sender.declare(5)


def test_after_a_probe_that_is_a_duplicate_a_snapshot_follows() -> None:
    sender = up(5, typed=True)
    send(sender)
    assert sender.answer(AckItem(5, "duplicate", 0), 1.0) is Step.DONE
    assert sender.wanted == 6 and sender.fresh and not sender.probes


def test_a_probe_is_asked_again_after_a_hold_and_on_the_next_connection() -> None:
    sender = up(5, typed=True)
    send(sender)
    sender.answer(refused(5, "disk-full"), 1.0)
    sender.wake(100.0)
    assert sender.probes and send(sender) == [5]
    sender.connected()
    assert sender.probes and send(sender) == [5]


def test_expected_snapshots_do_not_count_as_setbacks() -> None:
    sender = up(5, typed=True)
    for _ in range(5):
        send(sender)
        assert sender.answer(refused(5, "snapshot"), 1.0) is Step.AGAIN
        sender.connected()
    assert sender.held_until is None


def test_a_session_that_begins_earlier_sends_confirmed_segments_once_more() -> None:
    sender = up()
    send(sender, 3)
    for segment in range(3):
        sender.answer(stored(segment), 1.0)
    sender.begin_at(1)
    assert sender.floor == 1 and sender.fresh and send(sender, 2) == [1, 2]
