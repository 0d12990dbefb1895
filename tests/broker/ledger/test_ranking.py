"""The rows of a reading are those of the highest ranks, without a list of all."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as some

from headpond.broker.ledger.top import Ranking


@given(some.lists(some.integers(0, 5)), some.integers(1, 10))
def test_it_orders_as_a_sorted_list_does_and_counts_what_it_leaves_out(ranks: list[int], limit: int) -> None:
    ranking: Ranking[int, object] = Ranking(limit)
    rows = [(rank, object()) for rank in ranks]  # which cannot be compared
    for rank, row in rows:
        ranking.add(rank, row)
    assert ranking.ordered() == sorted(rows, key=lambda each: -each[0])[:limit]
    assert ranking.left_out == max(0, len(ranks) - limit)
