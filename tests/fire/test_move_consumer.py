"""A consumer that moves to a following node after its own was killed."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.fire.move_consumer import scenario
from tests.fire.real_node import RealNode


def test_a_consumer_continues_at_the_follower_with_nothing_lost_and_repeats_marked(tmp_path: Path) -> None:
    with RealNode(tmp_path / "a") as a, RealNode(tmp_path / "b") as b:
        outcome = asyncio.run(asyncio.wait_for(scenario(a, b, 1500), 90))
    assert outcome.faults == []
    assert len(outcome.sent) == 3000
    assert outcome.copy is not None and outcome.copy.passive
    assert 0 < outcome.copy.settled <= len(outcome.at_a), "settlements had come before the kill"
    assert len(outcome.at_b) <= 3000 - outcome.copy.settled, "what the copy had settled does not come again"
    assert outcome.end_b is not None and (outcome.end_b.epoch, outcome.end_b.unsettled) == (1, 0)
