"""Durations are counted in the bucket that holds them, and in those above it."""

from __future__ import annotations

from headpond.model.histogram import BOUNDS_S, Histogram


def test_a_duration_counts_in_its_bucket_and_in_all_larger_ones() -> None:
    histogram = Histogram()
    for duration_us in (0, 500, 501, 2_000_000, 5_000_000_000):
        histogram.observe(duration_us)
    counts = dict(histogram.buckets)
    assert (counts["0.0005"], counts["0.001"], counts["1.0"]) == (2, 3, 3), "a bound belongs to its bucket"
    assert (counts["2.5"], counts["3600.0"], counts["+Inf"]) == (4, 4, 5)
    assert histogram.sum_s == 5002.001001


def test_an_empty_one_has_all_buckets() -> None:
    assert [count for _, count in Histogram().buckets] == [0] * (len(BOUNDS_S) + 1)


def test_a_negative_duration_counts_as_none() -> None:
    histogram = Histogram()
    histogram.observe(-7)
    assert histogram.buckets[0] == ("0.0005", 1) and histogram.sum_s == 0
