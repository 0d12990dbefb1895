"""The errors of staged writes."""

from __future__ import annotations

from headpond.model.error import HeadpondError


class StageNotFound(HeadpondError):
    """A stage is not known to the node: never begun, dropped by an abort, expired, or in a batch already."""

    code = "stage-not-found"
    default_hint = "Stage the rows anew, under another stage, and commit that."


class StageMismatch(HeadpondError):
    """A stage is not what its use asks for: unfinished, another writer's, or filled with other rows before."""

    code = "stage-mismatch"
    default_hint = "A batch takes finished stages of its own writer, each once; stage the rows anew."


class StagingFull(HeadpondError):
    """As much is staged as the node's settings allow, of one stage, of one writer or in all."""

    code = "staging-full"
    default_hint = (
        "Commit or abort what is staged (`headpond writer list` shows it), or raise `staging` in settings."
    )
    retryable = True


class BatchDiffers(HeadpondError):
    """A batch that was committed came again with other rows. Neither was it written nor are its rows lost."""

    code = "batch-differs"
    default_hint = (
        "Is a second query using this `sinkId`, or a copy of the checkpoint? Was the checkpoint lost or put "
        "back, or a limit a trigger changed? Use another `sinkId`, or the checkpoint that was written last. "
        "If the query itself gives other rows each time (rand(), uuid(), sums of doubles), set `onRepeat` to "
        "drop: the rows of the first time stay."
    )


class BatchOutOfTurn(HeadpondError):
    """A batch does not follow those that its writer committed, and cannot be told from one that was."""

    code = "batch-out-of-turn"
    default_hint = (
        "Is another query or job using this `sinkId`? Was the checkpoint lost or put back? Use another "
        "`sinkId`, or the checkpoint that was written last. `headpond writer show NAME` tells the newest "
        "batch. After `headpond writer delete NAME` everything is written again; with `onRepeat` = drop, "
        "batches up to the newest are passed over unseen."
    )


class WriterHeld(HeadpondError):
    """Another query commits under this writer's name, and did so a moment ago."""

    code = "writer-held"
    default_hint = (
        "Give each query its own `sinkId`. If the other one has ended, start this one again in a moment "
        "(`staging.lease_s`)."
    )
    retryable = True


class WriterNotFound(HeadpondError):
    """No writer of that name has committed or staged anything."""

    code = "writer-not-found"
    default_hint = "`headpond writer list` shows those that there are."
