"""The errors of staged writes."""

from __future__ import annotations

from penstock.model.error import PenstockError


class StageNotFound(PenstockError):
    """A stage is not known to the node: never begun, dropped by an abort, expired, or in a batch already."""

    code = "stage-not-found"
    default_hint = "Stage the rows anew, under another stage, and commit that."


class StageMismatch(PenstockError):
    """A stage is not what its use asks for: unfinished, another writer's, or filled with other rows before."""

    code = "stage-mismatch"
    default_hint = "A batch takes finished stages of its own writer, each once; stage the rows anew."


class StagingFull(PenstockError):
    """As much is staged as the node's settings allow, of one stage, of one writer or in all."""

    code = "staging-full"
    default_hint = (
        "Commit or abort what is staged (`penstock writer list` shows it), or raise `staging` in settings."
    )
    retryable = True


class WriterNotFound(PenstockError):
    """No writer of that name has committed or staged anything."""

    code = "writer-not-found"
    default_hint = "`penstock writer list` shows those that there are."
