"""The metrics of a cluster's member: docs/cluster.md has each, and a stream without an answer is left out."""

from __future__ import annotations

from headpond.cluster.journal import StreamState
from headpond.cluster.member import MemberStatus
from headpond.node.http.cluster import MemberReadings
from tests.root import ROOT

STATUS = MemberStatus("a", "standby", "headpond://a", "", 3, 7, 5, lag_s=0.5)
STREAM = StreamState(1, 9, 100, 1000, "n1", {"n1": "leader", "n2": "current", "n3": "3 behind"})


def samples(stream: StreamState | None) -> dict[str, float]:
    families = MemberReadings("main", STATUS, stream).collect()
    return {sample.name: sample.value for family in families for sample in family.samples}


def test_every_metric_is_documented() -> None:
    page = (ROOT / "docs" / "cluster.md").read_text()
    for name in samples(STREAM):
        rest = name.removeprefix("headpond_cluster")
        forms = (f"`{name}`", f"`{name}{{", f"`{rest}`", f"`_{name.rpartition('_')[2]}`")
        assert any(form in page for form in forms), name


def test_a_stream_that_does_not_answer_has_no_numbers() -> None:
    found = samples(None)
    assert found["headpond_cluster_stream_up"] == 0 and found["headpond_cluster_seq"] == 7
    assert "headpond_cluster_lag" not in found and "headpond_cluster_stream_bytes" not in found


def test_lag_and_current_replicas_are_counted() -> None:
    found = samples(STREAM)
    assert (found["headpond_cluster_lag"], found["headpond_cluster_lag_seconds"]) == (2, 0.5)
    assert found["headpond_cluster_stream_replicas"] == 3
    assert found["headpond_cluster_stream_replicas_current"] == 2
