"""Which incarnation goes with a position, and which positions are good."""

from __future__ import annotations

from headpond.model.bounds import ENTRY_MAX
from headpond.storage.log.incarnations import KEPT_MAX, NONE, Incarnations


def history(*begun: tuple[int, int]) -> Incarnations:
    made = Incarnations()
    for name, first in begun:
        made.add(name, first)
    return made


def test_a_position_belongs_to_the_incarnation_of_the_entry_before_it() -> None:
    runs = history((100, 0), (200, 5), (300, 5), (400, 9))
    assert [runs.at(entry) for entry in (0, 1, 5, 6, 9, 10)] == [NONE, 100, 100, 300, 300, 400]


def test_positions_of_an_incarnation_end_where_the_next_begins() -> None:
    runs = history((100, 0), (200, 5), (300, 5), (400, 9))
    assert [runs.end_of(name) for name in (NONE, 100, 200, 300, 400)] == [0, 5, 5, 9, ENTRY_MAX]
    assert runs.end_of(150) == -1
    assert history().end_of(NONE) == ENTRY_MAX


def test_two_incarnations_of_a_log_never_share_a_name_whatever_the_clock_says() -> None:
    runs = Incarnations()
    names = [runs.begin(now_us, first) for first, now_us in enumerate([7, 7, -3, 0, 7, 1])]
    assert len({*names}) == len(names) and NONE not in names
    runs.take_back()
    assert runs.end_of(names[-1]) == -1 and runs.end_of(names[-2]) == ENTRY_MAX


def test_the_oldest_are_forgotten_and_their_positions_foreign() -> None:
    runs = history(*((name, 10 * name) for name in range(1, KEPT_MAX + 3)))
    assert len(runs) == KEPT_MAX and [runs.end_of(name) for name in (1, 2, 3)] == [-1, -1, 40]
    again = Incarnations.decode(runs.encode())
    assert again.encode() == runs.encode() and again.end_of(3) == 40
