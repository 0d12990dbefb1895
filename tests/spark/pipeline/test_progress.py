"""The progress reports of Spark as samples of batches."""

from __future__ import annotations

import json
from typing import Any

from headpond.spark.pipeline.progress import QueryProgress, line, table


def said(batch: int, second: int, **more: Any) -> dict[str, Any]:
    return {
        "batchId": batch,
        "timestamp": f"2026-01-01T00:00:{second:02}.000Z",
        "numInputRows": 10,
        "inputRowsPerSecond": 5.0,
        "processedRowsPerSecond": 20.0,
        "durationMs": {"triggerExecution": 500},
        "stateOperators": [{"numRowsTotal": 7, "memoryUsedBytes": 99, "numRowsDroppedByWatermark": 2}],
        "sources": [],
    } | more


def test_rows_and_late_rows_add_up_batch_by_batch() -> None:
    following = QueryProgress("out")
    first, again, second = (following.take(one) for one in (said(0, 1), said(0, 1), said(1, 2)))
    assert again is None, "the same progress counts once"
    assert first is not None and (first.rows, first.rows_all, first.late_rows_all) == (10, 10, 2)
    assert second is not None and (second.rows_all, second.late_rows, second.late_rows_all) == (20, 2, 4)
    assert (second.state_rows, second.state_bytes, second.batch_s, second.lag) == (7, 99, 0.5, None)


def test_no_batch_is_skipped_if_a_clock_goes_back_or_spark_reports_it_before_it_begins() -> None:
    following = QueryProgress("out")
    idle = said(1, 50, numInputRows=0, stateOperators=[])
    late = [following.take(one) for one in (said(0, 40), idle, said(1, 20), said(2, 30), idle)]
    assert [None if one is None else one.late_rows_all for one in late] == [2, 2, 4, 6, None]


def test_a_number_that_spark_leaves_out_is_zero() -> None:
    bare = {"batchId": 0, "timestamp": "t", "inputRowsPerSecond": "NaN", "processedRowsPerSecond": float("inf")}
    sample = QueryProgress("out").take(bare)
    assert sample is not None and (sample.rows, sample.rows_per_s, sample.done_per_s) == (0, 0.0, 0.0)


def test_a_batch_is_a_line_and_a_row() -> None:
    sample = QueryProgress("out").take(said(3, 1))
    assert sample is not None
    assert line(sample) == "out: batch 3, 10 rows in 0.50 s, state 7 rows, late 2"
    assert table([("out", sample, "waiting"), ("other", None, "starting")]).row_count == 2


def test_the_lag_counts_entries_beyond_the_batch() -> None:
    def offset(*entries: int) -> str:
        ones = [1] * len(entries)
        topic = {"uuid": "00", "incarnations": ones, "entries": list(entries), "stored": ones}
        return json.dumps({"version": 1, "topics": {"a/b/c/t": topic}})

    sources = [{"endOffset": offset(10, 5), "latestOffset": offset(12, 9)}, {"endOffset": {"logOffset": 3}}]
    sample = QueryProgress("out").take(said(0, 1, sources=sources))
    assert sample is not None and sample.lag == 6
