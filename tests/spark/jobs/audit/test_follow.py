"""An audit that follows two topics reports closed windows, and counts all other messages as open or late."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

import headpond.sync
from headpond.spark.jobs.audit.follow import FollowedAudit, _watch, follow
from headpond.spark.jobs.work import Work
from tests.fire.real_node import RealNode

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)


def test_following_reports_closed_windows_and_counts_other_messages_as_open(
    spark: SparkSession, node: RealNode, tmp_path: Path
) -> None:
    with RealNode(tmp_path / "other") as other:
        for url in (node.url, other.url):
            with headpond.sync.connect(url) as client:
                client.admin.create_topic("followed")
        for copies, count in (([other.url], 40), ([], 10), ([other.url], 40)):
            with (
                headpond.sync.connect(node.url) as client,
                client.producer("followed", copies=copies) as producer,
            ):
                for n in range(count):
                    producer.post(b"%d" % n)
                producer.flush()
            time.sleep(0.01)  # the next are sent in another window
        heard: list[int] = []
        found = follow(
            "followed",
            "followed",
            url=node.url,
            received_url=other.url,
            window="1 ms",
            late="1 ms",
            caught_up=True,
            update=lambda so_far: heard.append(so_far.sent),
        )
    assert (found.missing, found.repeated, found.strangers, found.late) == (10, 0, 0, 0)
    assert (found.sent >= 50, found.sent + found.open) == (True, 90)
    assert found.open > 0
    assert (found.sent - 10) / found.sent == found.R
    assert heard[-1] == found.sent == sum(window.sent for window in found.windows)


class Progressing:
    """The part of a query that the follower needs: one progress report per call."""

    def __init__(self, *looks: list[tuple[int, int, int]]) -> None:
        self._looks, self.recentProgress = list(looks), list[SimpleNamespace]()

    def awaitTermination(self, _seconds: int) -> bool:
        for batch, second, late in self._looks.pop(0):
            state = SimpleNamespace(numRowsTotal=1, numRowsDroppedByWatermark=late)
            said = SimpleNamespace(batchId=batch, timestamp=f"{second}", stateOperators=[state])
            self.recentProgress.append(said)
        return not self._looks

    def stop(self) -> None:
        pass


def test_following_counts_late_rows_of_a_batch_that_spark_reported_before_it_began() -> None:
    found = FollowedAudit()
    query: Any = Progressing([(0, 10, 1)], [(1, 20, 0)], [(1, 30, 5), (2, 31, 2)], [])
    _watch(Work(cast("Any", None), None), query, found, None)
    assert found.late == 8
