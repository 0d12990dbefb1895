"""Every input of the corpus passes its target, and so do altered ones; live nodes withstand a short attack."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from tests.fuzz.alter import mutations
from tests.fuzz.live_frames import live_frames
from tests.fuzz.targets import TARGETS, inputs

EXAMPLES = 60


@pytest.mark.parametrize("name", TARGETS)
def test_the_corpus_and_altered_inputs_pass(name: str) -> None:
    corpus = inputs(name)
    for data in corpus:
        TARGETS[name](data)

    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
    @given(mutations(corpus))
    def alter(data: bytes) -> None:
        TARGETS[name](data)

    alter()


def test_a_few_hundred_altered_frames_are_refused_and_a_healthy_pair_continues(tmp_path: Path) -> None:
    frames, wrong = live_frames(tmp_path, seconds=60, frames_max=300)
    assert frames and not wrong
