"""A link changes each message independently, at the given rates."""

from __future__ import annotations

from random import Random

import pytest

from headpond.pipes.calculus.interval import wilson
from headpond.pipes.lab.faults import Delay, Faults
from headpond.pipes.lab.link import LabLink, TickInbox
from headpond.pipes.machines.packet import Kind, Packet

MESSAGES = 20_000
TICKS = 4


class QuarterTicks(Faults, frozen=True):
    """A tick is a quarter of a second, whatever the delay."""

    @property
    def tick_s(self) -> float:
        return 1 / TICKS

    @property
    def late_s(self) -> float:
        return 1.0


class Road:
    """A link and what arrives from it, by tick."""

    def __init__(
        self, loss: float = 0.0, duplicate: float = 0.0, reorder: float = 0.0, delay: str = "fixed:1"
    ) -> None:
        self.inboxes: dict[int, TickInbox] = {}
        self.link = LabLink(
            "a>b",
            (loss, duplicate, reorder),
            QuarterTicks(delay=Delay.parse(delay)),
            Random(1),
            post=lambda tick: self.inboxes.setdefault(tick, TickInbox()),
            record=None,
        )

    def send(self, *runs: range, kind: Kind = Kind.DATA) -> None:
        for numbers in runs:
            payloads = [-number for number in numbers] if kind is Kind.DATA else None
            self.link.carry(Packet(kind, 1, 0, numbers, payloads), 0)

    def arrived(self) -> list[tuple[int, int]]:
        """Number and tick of each, in the order of arrival."""
        got = []
        for tick in sorted(self.inboxes):
            for packet in self.inboxes[tick].packets():
                assert packet.payloads is None or list(packet.payloads) == [-each for each in packet.numbers]
                got += [(number, tick) for number in packet.numbers]
        return got


def pieces(size: int) -> list[range]:
    return [range(first, min(first + size, MESSAGES)) for first in range(0, MESSAGES, size)]


def test_without_faults_everything_arrives_once_in_order_after_the_delay() -> None:
    road = Road()
    road.send(*pieces(100))
    assert road.arrived() == [(number, TICKS) for number in range(MESSAGES)]


@pytest.mark.parametrize("size", [1, 7, 1000, MESSAGES])
@pytest.mark.parametrize("delay", ["fixed:1", "exponential:1"])
def test_rates_do_not_depend_on_how_messages_are_put_in_packets(size: int, delay: str) -> None:
    road = Road(loss=0.2, duplicate=0.1, delay=delay)
    road.send(*pieces(size))
    numbers = [number for number, _ in road.arrived()]
    assert wilson(len(set(numbers)), MESSAGES).holds(0.8)
    assert wilson(len(numbers) - len(set(numbers)), len(set(numbers))).holds(0.1)
    assert road.link.lost == MESSAGES - len(set(numbers))


def test_a_late_copy_is_late_by_at_least_a_tick_and_at_most_the_set_time() -> None:
    road = Road(reorder=0.3)
    road.send(*pieces(100))
    late = [tick - TICKS for _, tick in road.arrived() if tick > TICKS]
    assert wilson(len(late), MESSAGES).holds(0.3)
    assert (min(late), max(late)) == (1, TICKS)


def test_losses_are_independent_of_their_neighbours() -> None:
    road = Road(loss=0.5)
    road.send(range(MESSAGES))
    there = {number for number, _ in road.arrived()}
    both = sum(number in there and number + 1 in there for number in range(MESSAGES - 1))
    assert wilson(both, MESSAGES - 1).holds(0.25)


@pytest.mark.parametrize(
    ("delay", "mean"), [("uniform:0.5,1.5", 1.0), ("exponential:1", 1.0), ("fixed:2", 2.0)]
)
def test_delays_have_the_mean_asked_for(delay: str, mean: float) -> None:
    road = Road(delay=delay)
    road.send(range(MESSAGES))
    ticks = [tick for _, tick in road.arrived()]
    assert sum(ticks) / len(ticks) / TICKS == pytest.approx(mean, rel=0.05)


def test_a_question_is_lost_doubled_or_late_as_a_whole() -> None:
    road = Road(loss=0.5)
    for _ in range(1000):
        road.send(range(10), kind=Kind.GAP)
    arrived = len(road.arrived())
    assert arrived % 10 == 0
    assert wilson(arrived // 10, 1000).holds(0.5)


@pytest.mark.parametrize("loss", [0.0, 1.0])
def test_never_and_always_are_meant(loss: float) -> None:
    road = Road(loss=loss)
    road.send(*pieces(10))
    assert len(road.arrived()) == (0 if loss else MESSAGES)


def test_nothing_passes_a_link_that_is_down() -> None:
    road = Road()
    road.link.down_until = 1
    road.send(range(10))
    assert (road.arrived(), road.link.lost) == ([], 10)
