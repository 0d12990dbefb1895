"""Pipes over pipes and pipes in a row."""

from __future__ import annotations

from typing import Any

import pytest

from headpond.model.errors import BadRequest
from headpond.pipes.machines.compose import ReceiverStack, Relay, SenderStack, inject, receiver_of, sender_of
from headpond.pipes.machines.machine import WAKE, Arrive, Effects, Fail, Machine, Settle, Submit
from headpond.pipes.machines.packet import Kind, Packet, Run, decode_packet, encode_packet


def payloads(effects: Effects) -> list[Any]:
    return [payload for run in effects.delivered for payload in run.payloads]


def over_bytes(packets: list[Packet]) -> list[Packet]:
    decoded = [decode_packet(encode_packet(packet)) for packet in packets]
    assert None not in decoded
    return [packet for packet in decoded if packet is not None]


def exchange(sender: Machine, receiver: Machine, sent: Effects, now: float = 0.0) -> list[Any]:
    """Carries packets both ways, as bytes, until there are none; returns the deliveries."""
    got = []
    forward = sent.packets
    while forward:
        effects = receiver.step(Arrive(over_bytes(forward)), now)
        got += payloads(effects)
        forward = sender.step(Arrive(over_bytes(effects.packets)), now).packets if effects.packets else []
    return got


ROUTES = [
    "resend",
    "resend_many",
    "sequential",
    "index",
    "dedup",
    "dedup(by=index)",
    "continuous",
    "resend_many | dedup",
    "resend_many | continuous",
    "resend_many | dedup | index",
    "resend | sequential",
    "resend_many | dedup | continuous | index(strict=false)",
]


@pytest.mark.parametrize("route", ROUTES)
def test_submitted_messages_are_delivered_over_bytes(route: str) -> None:
    sender, receiver = inject(route)
    messages = [b"%d" % number for number in range(50)]
    effects = sender.step(Submit(messages), 0.0)
    assert len(effects.accepted) == 50
    assert exchange(sender, receiver, effects) == messages
    assert sender.unconfirmed == 0


def test_the_outer_pipe_puts_its_number_in_an_envelope() -> None:
    sender = sender_of("resend_many | dedup | index", epoch=3)
    (packet,) = sender.step(Submit([b"a", b"b"]), 0.0).packets
    assert packet.payloads == [(3, 0, (3, 0, b"a")), (3, 1, (3, 1, b"b"))]


def test_the_narrowest_layer_says_how_much_room_there_is() -> None:
    sender = sender_of("resend_many(window=2) | continuous(window=7)", epoch=1)
    assert sender.room == 2
    effects = sender.step(Submit([b"a", b"b", b"c"]), 0.0)
    assert effects.accepted == range(2)
    assert sender.counts.refused == 1


def test_an_answer_of_an_outer_pipe_is_marked_with_its_layer() -> None:
    sender, receiver = inject("resend_many | continuous")
    effects = receiver.step(Arrive(sender.step(Submit([b"a"]), 0.0).packets), 0.1)
    assert [(packet.kind, packet.layer) for packet in effects.packets] == [
        (Kind.CONFIRM, 0),
        (Kind.PROGRESS, 1),
    ]
    confirmed = sender.step(Arrive(effects.packets), 0.2).confirmed
    assert [list(token.numbers) for token in confirmed] == [[0]]


def test_a_packet_for_a_layer_that_is_not_there_is_counted() -> None:
    sender, receiver = inject("resend_many | dedup")
    stray = Packet(Kind.CONFIRM, 1, 1, (0,), None, 7)
    for machine in (sender, receiver, sender_of("resend_many", epoch=1)):
        assert machine.step(Arrive([stray]), 0.0).packets == []
        assert machine.counts.unknown == 1


def test_a_payload_without_an_envelope_is_counted_and_not_delivered() -> None:
    receiver = receiver_of("resend_many | dedup", epoch=1)
    effects = receiver.step(Arrive([Packet(Kind.DATA, 1, 0, [0, 1], [b"bare", (1, 0, b"fine")])]), 0.0)
    assert (payloads(effects), receiver.counts.malformed) == ([b"fine"], 1)


def test_time_reaches_every_layer() -> None:
    sender, receiver = inject("resend_many | continuous")
    sender.step(Submit([b"a"]), 0.0)
    kinds = [(packet.kind, packet.layer) for packet in sender.step(WAKE, 5.0).packets]
    assert kinds == [(Kind.DATA, 0), (Kind.PROBE, 1)]
    receiver.step(Arrive([Packet(Kind.DATA, 1, 0, [0], [(1, 3, b"ahead")])]), 0.0)
    assert [packet.kind for packet in receiver.step(WAKE, 5.0).packets] == [Kind.PROGRESS, Kind.GAP]


@pytest.mark.parametrize(
    ("route", "word"),
    [
        ("dedup | stream", "stands first"),
        ("resend_many(confirm=settled) | continuous", "settled"),
        ("resend(confirm=settled) | sequential", "settled"),
        ("resend_many(confirm=settled) | dedup | index", "settled"),
        ("resend_many(confirm=settled) | dedup(by=index)", "settled"),
        ("resend_man", "no pipe"),
    ],
)
def test_a_composition_that_cannot_work_is_refused(route: str, word: str) -> None:
    with pytest.raises(BadRequest, match=word) as raised:
        inject(route)
    assert raised.value.hint


# --- confirm after processing -----------------------------------------------------------------------


def test_a_message_is_confirmed_when_the_worker_is_done() -> None:
    sender, receiver = inject("resend_many(confirm=settled) | dedup")
    assert receiver.settles
    effects = receiver.step(Arrive(sender.step(Submit([b"a", b"b"]), 0.0).packets), 0.1)
    assert effects.packets == []
    (run,) = effects.delivered
    confirms = receiver.step(Settle(run.epoch, run.numbers[:1]), 0.2).packets
    sender.step(Arrive(confirms), 0.3)
    assert sender.unconfirmed == 1


def test_a_message_that_the_worker_failed_comes_again_through_every_layer() -> None:
    sender, receiver = inject("resend_many(confirm=settled) | dedup")
    (run,) = receiver.step(Arrive(sender.step(Submit([b"a"]), 0.0).packets), 0.1).delivered
    receiver.step(Fail(run.epoch, run.numbers), 0.2)
    assert payloads(receiver.step(Arrive(sender.step(WAKE, 5.0).packets), 5.1)) == [b"a"]


def test_a_copy_that_an_outer_pipe_drops_is_confirmed_all_the_same() -> None:
    sender, receiver = inject("resend_many(confirm=settled) | dedup")
    first = sender.step(Submit([b"a"]), 0.0).packets
    (run,) = receiver.step(Arrive(first), 0.1).delivered
    receiver.step(Settle(run.epoch, run.numbers), 0.2)  # and this confirm is lost
    effects = receiver.step(Arrive(first), 0.3)
    assert (payloads(effects), [packet.kind for packet in effects.packets]) == ([], [Kind.CONFIRM])


# --- cascade ----------------------------------------------------------------------------------------

HOP = "resend_many(confirm=settled)"


def relay(before: str, after: str, epoch: int = 1) -> Relay:
    return Relay(receiver_of(before, epoch=epoch), sender_of(after, epoch=epoch))


def chain(stages: int) -> tuple[SenderStack, list[Relay], ReceiverStack]:
    relays = [relay(HOP, HOP) for _ in range(stages)]
    return sender_of(HOP, epoch=1), relays, receiver_of(HOP, epoch=1)


@pytest.mark.parametrize("stages", [1, 2, 5])
def test_a_confirm_comes_back_through_every_stage_and_only_when_the_last_is_settled(stages: int) -> None:
    sender, relays, receiver = chain(stages)
    packets = sender.step(Submit([b"a", b"b"]), 0.0).packets
    for each in relays:
        effects = each.step(Arrive(packets), 0.1)
        assert {packet.kind for packet in effects.packets} == {Kind.DATA}
        packets = effects.packets
    (run,) = receiver.step(Arrive(packets), 0.2).delivered
    packets = receiver.step(Settle(run.epoch, run.numbers), 0.3).packets
    for each in reversed(relays):
        assert each.unconfirmed == 2
        packets = each.step(Arrive(packets), 0.4).packets
        assert {packet.kind for packet in packets} == {Kind.CONFIRM}
    sender.step(Arrive(packets), 0.5)
    assert sender.unconfirmed == 0


def test_a_relay_that_crashes_loses_nothing() -> None:
    sender, _, receiver = chain(0)
    first = relay(HOP, HOP, epoch=1)
    first.step(Arrive(sender.step(Submit([b"a"]), 0.0).packets), 0.1)  # and it is gone with the message
    second = relay(HOP, HOP, epoch=2)
    forwarded = second.step(Arrive(sender.step(WAKE, 5.0).packets), 5.1)
    assert payloads(receiver.step(Arrive(forwarded.packets), 5.2)) == [b"a"]


def test_a_relay_that_confirms_on_arrival_loses_its_messages_in_a_crash() -> None:
    sender = sender_of("resend_many", epoch=1)
    first = relay("resend_many", "resend_many")
    effects = first.step(Arrive(sender.step(Submit([b"a"]), 0.0).packets), 0.1)
    sender.step(Arrive([packet for packet in effects.packets if packet.kind == Kind.CONFIRM]), 0.2)
    assert sender.unconfirmed == 0  # so no side has it when the relay crashes now


def test_a_message_that_the_next_pipe_has_no_room_for_is_not_confirmed_and_comes_again() -> None:
    sender = sender_of(HOP, epoch=1)
    narrow = relay(HOP, "resend_many(window=1, confirm=settled)")
    effects = narrow.step(Arrive(sender.step(Submit([b"a", b"b"]), 0.0).packets), 0.1)
    (packet,) = effects.packets
    assert list(packet.payloads or ()) == [b"a"]
    confirms = narrow.step(Arrive([Packet(Kind.CONFIRM, 1, 1, (0,))]), 0.2).packets
    sender.step(Arrive(confirms), 0.3)
    assert sender.unconfirmed == 1
    (packet,) = narrow.step(Arrive(sender.step(WAKE, 5.0).packets), 5.1).packets
    assert list(packet.payloads or ()) == [b"b"]


def test_a_message_that_the_next_pipe_gave_up_comes_again_from_the_one_before() -> None:
    sender = sender_of(HOP, epoch=1)
    middle = relay(HOP, "resend_many(tries=1, confirm=settled)")
    middle.step(Arrive(sender.step(Submit([b"a"]), 0.0).packets), 0.1)
    assert [list(token.numbers) for token in middle.step(WAKE, 50.0).abandoned] == [[0]]
    (packet,) = middle.step(Arrive(sender.step(WAKE, 51.0).packets), 51.1).packets
    assert list(packet.payloads or ()) == [b"a"]


@pytest.mark.parametrize(("before", "comes_again"), [(HOP, True), ("resend_many", False)])
def test_a_message_that_the_work_between_two_pipes_failed_comes_again_if_confirms_wait(
    before: str, comes_again: bool
) -> None:
    fates = [["b"], []]  # the first time it fails on b

    def work(run: Run) -> tuple[Run, list[int]]:
        failing = fates.pop(0) if fates else []
        good = [pair for pair in zip(run.numbers, run.payloads, strict=True) if pair[1].decode() not in failing]
        failed = sorted(set(run.numbers) - {number for number, _ in good})
        return Run(run.epoch, [number for number, _ in good], [payload for _, payload in good]), failed

    sender = sender_of(before, epoch=1)
    middle = Relay(receiver_of(before, epoch=1), sender_of(HOP, epoch=1), work)
    first = middle.step(Arrive(sender.step(Submit([b"a", b"b"]), 0.0).packets), 0.1)
    sender.step(Arrive([packet for packet in first.packets if packet.kind == Kind.CONFIRM]), 0.2)
    again = middle.step(Arrive(sender.step(WAKE, 5.0).packets), 5.1)
    passed = [
        payload for packet in again.packets if packet.kind == Kind.DATA for payload in packet.payloads or ()
    ]
    assert passed == ([b"b"] if comes_again else [])


def test_a_relay_without_cascade_reports_messages_that_it_gives_up() -> None:
    sender = sender_of("resend_many", epoch=1)
    narrow = relay("resend_many", "resend_many(window=1)")
    effects = narrow.step(Arrive(sender.step(Submit([b"a", b"b"]), 0.0).packets), 0.1)
    assert [(notice.what, list(notice.numbers)) for notice in effects.notices] == [("given up", [1])]
    assert narrow.counts.abandoned == 1


# --- what is refused --------------------------------------------------------------------------------


def test_a_message_that_a_layer_refused_comes_again_where_the_pipe_beneath_waits() -> None:
    sender = sender_of("resend_many(confirm=settled) | dedup(sessions=1)", epoch=2)
    receiver = receiver_of("resend_many(confirm=settled) | dedup(sessions=1)", epoch=1)
    other = sender_of("resend_many(confirm=settled) | dedup(sessions=1)", epoch=1)
    receiver.step(Arrive(other.step(Submit([b"first"]), 0.0).packets), 0.0)
    packets = sender.step(Submit([b"second"]), 1.0).packets
    for now in (1.0, 2.0):
        refused = receiver.step(Arrive(packets), now)
        assert (refused.packets, refused.delivered, refused.refused) == ([], [], [])
        assert [notice.what for notice in refused.notices] == ["refused"]
    taken = receiver.step(Arrive(packets), 4000.0)
    assert payloads(taken) == [b"second"], "the silent one has made room"


def test_a_message_confirmed_beneath_and_refused_above_is_reported_to_the_driver() -> None:
    sender, receiver = inject("resend_many | continuous(gaps=false, queue=1)")
    sender.step(Submit([b"lost on the way"]), 0.0)
    packets = sender.step(Submit([b"a", b"b"]), 0.0).packets
    effects = receiver.step(Arrive(packets), 0.0)
    assert effects.refused == [(1, [2])]
    assert [(notice.what, list(notice.numbers)) for notice in effects.notices] == [("refused", [2])]


def test_no_index_past_a_refused_message_is_committed() -> None:
    receiver = receiver_of("stream | dedup(sessions=1)", epoch=1)
    receiver.step(WAKE, 0.0)
    receiver.step(Arrive([Packet(Kind.POSITION, 1, 1, (0,))]), 0.0)
    committed = []
    for entry, session in enumerate((7, 8, 7)):
        fetched = Packet(Kind.FETCHED, 1, 1, range(entry, entry + 1), [(session, entry, b"x")])
        packets = receiver.step(Arrive([fetched]), 0.0).packets
        committed += [packet.numbers for packet in packets if packet.kind == Kind.COMMIT]
    assert committed == [(1,)]
