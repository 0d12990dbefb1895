"""Hundreds of lives of a producer: kills, cuts, lost and repeated answers, lost disks, faults, rot.

``make lives`` runs many thousands.
"""

from __future__ import annotations

import pytest

from tests.producer.lives import Life

SEEDS = 300
A_TEST = 10


@pytest.mark.parametrize("first", range(0, SEEDS, A_TEST))
def test_whatever_happens_all_that_was_safe_arrives_once_in_order_or_is_named(first: int) -> None:
    for seed in range(first, first + A_TEST):
        Life(seed).run()


def test_a_life_is_the_same_each_time() -> None:
    one, two = Life(7).run(), Life(7).run()
    assert one.disk.operations == two.disk.operations
    assert [parcel.fates for parcel in one.parcels] == [parcel.fates for parcel in two.parcels]
