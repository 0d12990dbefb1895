"""Altered frames of every kind harm neither the node nor its other clients."""

from __future__ import annotations

from pathlib import Path

from tests.fire.fuzz_frames import fuzz


def test_a_few_hundred_altered_frames_are_refused_and_a_healthy_pair_continues(tmp_path: Path) -> None:
    lines: list[str] = []
    assert fuzz(tmp_path, frames=300, seed=1, say=lines.append) == [], "\n".join(lines)
