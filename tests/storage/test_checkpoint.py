"""A generation of the commit journal retires only when nothing can have lost what it names."""

from __future__ import annotations

import errno

from headpond.storage.commit_lane import Committer
from headpond.storage.commit_rounds import Checkpoint, CommitRounds, Generation


def full(checkpoint: Checkpoint, *paths: str) -> Generation:
    generation = Generation(1, 4096, None, paths=set(paths))
    checkpoint.full.append(generation)
    return generation


def test_a_generation_is_not_retired_while_another_write_may_still_report_a_failure() -> None:
    checkpoint = Checkpoint(lambda path: None)
    full(checkpoint, "a")
    other: Committer = CommitRounds(generation_bytes=4096, alone_max=1, clock_us=lambda: 0)
    checkpoint.done(checkpoint.take(), None, 0, {other})
    assert not checkpoint.due(0)
    checkpoint.ended(other)
    assert checkpoint.due(0) and checkpoint.take().retires


def test_a_file_that_became_doubtful_during_the_checkpoint_is_written_again() -> None:
    checkpoint = Checkpoint(lambda path: None)
    generation = full(checkpoint, "a")
    write = checkpoint.take()
    generation.doubtful.add("a")
    checkpoint.done(write, None, 0, set())
    again = checkpoint.take()
    assert not again.retires and again.doubtful == {"a"}


def test_every_file_of_a_checkpoint_that_failed_is_doubtful() -> None:
    suspects: set[str] = set()
    checkpoint = Checkpoint(suspects.add)
    full(checkpoint, "a", "b")
    checkpoint.done(checkpoint.take(), OSError(errno.EIO, "no"), 0, set())
    assert suspects == {"a", "b"} and not checkpoint.full[0].synced


def test_a_generation_that_could_not_retire_is_past_every_doubt() -> None:
    """It may have lost its name already, so that nothing could be written again from it."""
    rounds = CommitRounds(generation_bytes=4096, alone_max=1, clock_us=lambda: 0)
    checkpoint = rounds.checkpoint
    generation = full(checkpoint, "a")
    rounds.checkpoint_done(checkpoint.take(), None)
    rounds.checkpoint_done(checkpoint.take(), OSError(errno.ENOSPC, "no"))
    rounds.suspect("a")
    again = checkpoint.take()
    assert again.retires and generation.broken
    rounds.checkpoint_done(again, None)
    assert not checkpoint.full and not checkpoint.spares
