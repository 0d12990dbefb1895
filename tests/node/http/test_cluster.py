"""The metrics of a cluster's member: a stream without an answer is left out."""

from __future__ import annotations

from headpond.cluster.journal import StreamState
from headpond.node.http.cluster import MemberReadings
from tests.metrics_page import STATUS, STREAM


def samples(stream: StreamState | None) -> dict[str, float]:
    families = MemberReadings("main", STATUS, stream).collect()
    return {sample.name: sample.value for family in families for sample in family.samples}


def test_a_stream_that_does_not_answer_has_no_numbers() -> None:
    found = samples(None)
    assert found["headpond_cluster_stream_up"] == 0 and found["headpond_cluster_seq"] == 7
    assert "headpond_cluster_lag" not in found and "headpond_cluster_stream_bytes" not in found


def test_lag_and_current_replicas_are_counted() -> None:
    found = samples(STREAM)
    assert (found["headpond_cluster_lag"], found["headpond_cluster_lag_seconds"]) == (2, 0.5)
    assert found["headpond_cluster_stream_replicas"] == 3
    assert found["headpond_cluster_stream_replicas_current"] == 2
