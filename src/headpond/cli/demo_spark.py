"""The second half of ``headpond demo``: a pipeline on Spark carries the topic on, and an audit compares."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

CARRIED = "demo.carried"
ENTRIES_A_BATCH = 40_000


@dataclass(frozen=True, slots=True)
class Carried:
    """What the audit found."""

    sent: int
    received: int
    unique: int
    missing: int
    repeated: int
    R: float
    UR: float

    @property
    def exact(self) -> bool:
        return self.sent == self.received == self.unique and not self.missing and not self.repeated


def carry(url: str, topic: str, folder: Path) -> Carried:
    """From a topic, through a shuffle, to another one, in several batches; then audited by the ids."""
    from headpond.spark.jobs.audit import audit
    from headpond.spark.pipeline import Pipeline
    from headpond.spark.session import session

    spark = session("headpond demo", master="local[2]")
    pipeline = (
        Pipeline("demo", checkpoint=folder / "checkpoint", url=url, trigger={"available_now": True})
        .source("messages", topic=topic, subscription="spark", max_entries_per_trigger=ENTRIES_A_BATCH)
        .step("spread", sql="select /*+ repartition(2, key) */ key, id, value from messages")
        .sink("carried", from_="spread", topic=CARRIED)
    )
    pipeline.start(spark).wait()
    found = audit(topic, CARRIED, by="id", url=url)
    spark.stop()
    return Carried(
        found.sent, found.received, found.unique, found.missing, found.repeated, found.R or 0.0, found.UR or 0.0
    )
