"""Re-send: the same number every time, a window with a bound, and no confirm that can do harm."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headpond.pipes.machines.machine import WAKE, Arrive, Effects, Fail, Settle, Submit
from headpond.pipes.machines.packet import NUMBERS_MAX, Kind, Packet
from headpond.pipes.machines.resend import ResendReceiver, ResendSender
from headpond.pipes.machines.timeout import TimeoutSettings
from tests.pipes.machines.machines import data

EPOCH = 5
FIRST_TIMEOUT_S = 1.0


def sender(window: int = 4, buffer: int = 0) -> ResendSender:
    return ResendSender(epoch=EPOCH, window=window, buffer=buffer)


def confirm(*numbers: int, epoch: int = EPOCH, origin: int = 1) -> Arrive:
    return Arrive([Packet(Kind.CONFIRM, epoch, origin, numbers)])


def sent(effects: Effects) -> list[tuple[int, Any]]:
    pairs = []
    for packet in effects.packets:
        assert packet.kind == Kind.DATA
        pairs += list(zip(packet.numbers, packet.payloads or (), strict=True))
    return pairs


def test_messages_are_numbered_from_0_and_sent_at_once() -> None:
    effects = sender().step(Submit([b"a", b"b"]), 0.0)
    assert effects.accepted == range(2)
    assert sent(effects) == [(0, b"a"), (1, b"b")]


def test_a_full_window_takes_no_more_and_says_so() -> None:
    machine = sender(window=2)
    effects = machine.step(Submit([b"a", b"b", b"c"]), 0.0)
    assert (effects.accepted, machine.room, machine.counts.refused) == (range(2), 0, 1)
    assert machine.step(Submit([b"c"]), 0.0).accepted == range(0)
    machine.step(confirm(0), 0.1)
    assert machine.step(Submit([b"c"]), 0.1).accepted == range(2, 3)


def test_messages_beyond_the_window_wait_in_the_buffer_and_move_up() -> None:
    machine = sender(window=2, buffer=1)
    effects = machine.step(Submit([b"a", b"b", b"c", b"d"]), 0.0)
    assert effects.accepted == range(3)
    assert [number for number, _ in sent(effects)] == [0, 1]
    assert sent(machine.step(confirm(1), 0.1)) == [(2, b"c")]


def test_every_sending_of_a_message_has_the_same_number() -> None:
    machine = sender()
    machine.step(Submit([b"a"]), 0.0)
    for _ in range(5):
        wake_at = machine.wake_at
        assert wake_at is not None
        assert sent(machine.step(WAKE, wake_at)) == [(0, b"a")]
    assert machine.counts.resent == 5


def test_a_round_trip_longer_than_the_timeout_still_confirms() -> None:
    """Each message is sent several times before its first confirm; that counts, and the timeout learns."""
    machine = sender(window=1)
    round_trip_s = 10 * FIRST_TIMEOUT_S
    now = 0.0
    sends_a_message = []
    for message in range(12):
        effects = machine.step(Submit([message]), now)
        sends, back_at = len(sent(effects)), now + round_trip_s
        while (wake_at := machine.wake_at) is not None and wake_at < back_at:
            sends += len(sent(machine.step(WAKE, wake_at)))
        now = back_at
        assert machine.step(confirm(message), now).confirmed == [(EPOCH, [message])]
        sends_a_message.append(sends)
    assert sends_a_message[0] > 2
    assert sends_a_message[-1] == 1


def test_a_confirm_of_an_earlier_sending_counts() -> None:
    machine = sender()
    machine.step(Submit([b"a"]), 0.0)
    machine.step(WAKE, 1.0)
    assert machine.step(confirm(0), 1.01).confirmed == [(EPOCH, [0])]
    assert machine.wake_at is None


def test_a_message_sent_twice_does_not_teach_the_timeout() -> None:
    machine = sender()
    machine.step(Submit([b"a"]), 0.0)
    machine.step(WAKE, 1.0)
    machine.step(confirm(0), 1.001)  # the answer to the first sending, not a round trip of a millisecond
    machine.step(Submit([b"b"]), 2.0)
    assert machine.wake_at is not None
    assert machine.wake_at >= 3.0


def test_while_confirms_flow_a_loss_does_not_slow_the_others() -> None:
    machine = sender(window=8)
    now = 0.0
    for number in range(0, 40, 2):
        machine.step(Submit([b"lost", b"fine"]), now)
        machine.step(confirm(number + 1), now + 0.01)
        assert machine.wake_at is not None
        now = machine.wake_at
        assert sent(machine.step(WAKE, now)) == [(number, b"lost")]
        now += 0.01
        machine.step(confirm(number), now)
    machine.step(Submit([b"x"]), now)
    assert machine.wake_at is not None
    assert machine.wake_at - now < 0.05


def test_a_silent_receiver_is_asked_more_and_more_slowly_up_to_a_limit() -> None:
    limit = TimeoutSettings(initial_s=1.0, max_s=8.0)
    machine = ResendSender(epoch=EPOCH, timeout=limit)
    machine.step(Submit([b"a"]), 0.0)
    waits, now = [], 0.0
    for _ in range(6):
        wake_at = machine.wake_at
        assert wake_at is not None
        waits.append(wake_at - now)
        now = wake_at
        machine.step(WAKE, now)
    assert waits == [1.0, 2.0, 4.0, 8.0, 8.0, 8.0]


def test_a_message_is_given_up_after_its_last_try_and_the_buffer_moves_up() -> None:
    machine = ResendSender(epoch=EPOCH, window=2, buffer=2, tries=2)
    machine.step(Submit([b"a", b"b", b"c"]), 0.0)
    machine.step(confirm(1), 0.1)  # and c goes out
    assert sent(machine.step(WAKE, 2.0)) == [(0, b"a"), (2, b"c")]
    effects = machine.step(WAKE, 100.0)
    assert [list(token.numbers) for token in effects.abandoned] == [[0, 2]]
    assert [(notice.what, list(notice.numbers)) for notice in effects.notices] == [("given up", [0, 2])]
    assert (machine.unconfirmed, machine.counts.abandoned, machine.wake_at) == (0, 2, None)
    assert machine.step(confirm(0), 101.0).confirmed == []


def test_tries_are_counted_by_message_however_they_fly_together() -> None:
    machine = ResendSender(epoch=EPOCH, window=4, tries=3)
    machine.step(Submit([b"a"]), 0.0)
    assert sent(machine.step(WAKE, 1.5)) == [(0, b"a")]
    machine.step(Submit([b"b"]), 1.6)
    tries = {0: 2, 1: 1}
    now = 1.6
    given_up: dict[int, int] = {}
    while machine.unconfirmed:
        now += 100.0
        effects = machine.step(WAKE, now)
        for number, _ in sent(effects):
            tries[number] += 1
        given_up |= {number: tries[number] for token in effects.abandoned for number in token.numbers}
    assert given_up == {0: 3, 1: 3}


def test_jitter_moves_the_timer_a_little() -> None:
    draws = iter((0.0, 0.5))
    machine = ResendSender(epoch=EPOCH, jitter=lambda: next(draws))
    machine.step(Submit([b"a"]), 0.0)
    assert machine.wake_at == pytest.approx(1.0)
    machine.step(confirm(0), 0.5)
    machine.step(Submit([b"b"]), 0.5)
    assert machine.wake_at == pytest.approx(0.5 + 1.5 * 1.05)


def test_confirms_that_name_nothing_are_counted_and_do_nothing() -> None:
    machine = sender()
    machine.step(Submit([b"a", b"b"]), 0.0)
    machine.step(confirm(0), 0.1)
    effects = machine.step(confirm(0, 0, 7), 0.2)
    assert effects.confirmed == []
    assert (machine.counts.duplicate, machine.counts.unknown) == (2, 1)
    assert machine.unconfirmed == 1


def test_a_restarted_sender_does_not_take_confirms_of_its_earlier_session() -> None:
    machine = ResendSender(epoch=EPOCH + 1)
    machine.step(Submit([b"new"]), 0.0)
    assert machine.step(confirm(0, epoch=EPOCH), 0.1).confirmed == []
    assert (machine.counts.stale, machine.unconfirmed) == (1, 1)


def test_a_receiver_that_started_again_is_noticed() -> None:
    machine = sender()
    machine.step(Submit([b"a", b"b", b"c"]), 0.0)
    machine.step(confirm(0, origin=1), 0.1)
    machine.step(confirm(1, origin=2), 0.2)
    assert machine.counts.restarts == 1


def test_a_packet_never_holds_more_numbers_than_its_bytes_may() -> None:
    machine = ResendSender(epoch=EPOCH, window=2 * NUMBERS_MAX)
    effects = machine.step(Submit([b""] * (NUMBERS_MAX + 1)), 0.0)
    assert [len(packet.numbers) for packet in effects.packets] == [NUMBERS_MAX, 1]


def test_the_newest_number_stays_near_the_oldest_unconfirmed_one() -> None:
    machine = sender(window=4)
    machine.step(Submit([b"stuck"]), 0.0)
    taken = 0
    for _ in range(1000):
        accepted = machine.step(Submit([b"x"]), 0.0).accepted
        taken += len(accepted)
        machine.step(confirm(*accepted) if accepted else WAKE, 0.0)
    assert taken == 63
    machine.step(confirm(0), 0.0)
    assert machine.room == 4


def test_resend_keeps_one_message_on_its_way() -> None:
    machine = ResendSender(epoch=EPOCH, window=1, buffer=2)
    effects = machine.step(Submit([b"a", b"b", b"c", b"d"]), 0.0)
    assert (effects.accepted, sent(effects)) == (range(3), [(0, b"a")])
    assert sent(machine.step(confirm(0), 0.1)) == [(1, b"b")]


# --- the receiver -----------------------------------------------------------------------------------


def test_the_receiver_passes_on_every_copy_and_confirms_it_under_its_sender_session() -> None:
    machine = ResendReceiver(epoch=9)
    for _ in range(2):
        effects = machine.step(Arrive([data([3, 4])]), 0.0)
        assert [list(run.numbers) for run in effects.delivered] == [[3, 4]]
        assert effects.packets == [Packet(Kind.CONFIRM, EPOCH, 9, [3, 4])]


def test_a_receiver_that_waits_confirms_only_settled_messages() -> None:
    machine = ResendReceiver(epoch=9, confirm="settled")
    effects = machine.step(Arrive([data([0, 1])]), 0.0)
    assert (len(effects.delivered), effects.packets) == (1, [])
    assert machine.step(Settle(EPOCH, (1,)), 0.0).packets == [Packet(Kind.CONFIRM, EPOCH, 9, (1,))]


def test_a_pending_message_is_not_passed_on_twice() -> None:
    machine = ResendReceiver(epoch=9, confirm="settled")
    machine.step(Arrive([data([0])]), 0.0)
    effects = machine.step(Arrive([data([0])]), 0.0)
    assert (effects.delivered, effects.packets, machine.counts.duplicate) == ([], [], 1)


def test_the_next_copy_of_a_failed_message_is_passed_on() -> None:
    machine = ResendReceiver(epoch=9, confirm="settled")
    machine.step(Arrive([data([0])]), 0.0)
    machine.step(Fail(EPOCH, (0,)), 0.0)
    assert len(machine.step(Arrive([data([0])]), 0.0).delivered) == 1


def test_a_receiver_holds_no_more_than_it_may_and_does_not_confirm_the_rest() -> None:
    machine = ResendReceiver(epoch=9, confirm="settled", pending_max=2)
    effects = machine.step(Arrive([data([0, 1, 2])]), 0.0)
    assert [list(run.numbers) for run in effects.delivered] == [[0, 1]]
    assert machine.counts.refused == 1
    machine.step(Settle(EPOCH, (0,)), 0.0)
    assert [list(run.numbers) for run in machine.step(Arrive([data([2])]), 0.0).delivered] == [[2]]


def test_a_packet_whose_payloads_do_not_match_its_numbers_is_counted() -> None:
    machine = ResendReceiver(epoch=9)
    effects = machine.step(Arrive([Packet(Kind.DATA, EPOCH, 0, [1, 2], [b"a"])]), 0.0)
    assert (effects.delivered, effects.packets, machine.counts.malformed) == ([], [], 1)


# --- whatever happens -------------------------------------------------------------------------------

steps = st.lists(
    st.one_of(
        st.integers(1, 5),  # so many submitted
        st.lists(st.integers(0, 40), min_size=1, max_size=6),  # these confirmed
        st.just("wake"),
    ),
    max_size=40,
)


@given(steps, st.integers(1, 6), st.integers(0, 4))
def test_whatever_comes_numbers_are_stable_and_bounds_hold(
    script: list[int | list[int] | str], window: int, buffer: int
) -> None:
    machine = sender(window, buffer)
    payload_of: dict[int, Any] = {}
    confirmed: set[int] = set()
    now, taken = 0.0, 0
    for step in script:
        if isinstance(step, int):
            room = machine.room
            effects = machine.step(Submit(range(taken, taken + step)), now)
            assert len(effects.accepted) == min(step, room)
            taken += len(effects.accepted)
        elif isinstance(step, list):
            effects = machine.step(confirm(*step), now)
        else:
            now = max(now, machine.wake_at or now)
            effects = machine.step(WAKE, now)
        for token in effects.confirmed:
            assert confirmed.isdisjoint(token.numbers)
            confirmed.update(token.numbers)
        for number, payload in sent(effects):
            assert payload_of.setdefault(number, payload) == payload == number
            assert number not in confirmed
        assert machine.unconfirmed == taken - len(confirmed) <= window + buffer
        assert (machine.wake_at is None) == (machine.unconfirmed == 0)
