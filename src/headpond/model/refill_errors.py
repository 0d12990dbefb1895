"""The errors of a producer's refill: the files that keep what a destination did not take."""

from __future__ import annotations

from headpond.model.error import HeadpondError


class UnknownSegment(HeadpondError):
    """A refill file does not hold the segment asked for, or cannot read it any more."""

    code = "unknown-segment"
    default_hint = "Run `headpond refill show FILE`: it lists what the file holds and what is damaged."


class UnknownShard(HeadpondError):
    """A refill file holds neither a snapshot nor the segments before the one in question.

    A typed topic's segment can be decoded only behind those before it, or behind a snapshot made at it.
    """

    code = "unknown-shard"
    default_hint = (
        "Write a snapshot of the shard first; one that is lost in a damaged file cannot be had again."
    )


class RefillFull(HeadpondError):
    """The refill holds as many bytes as it may; nothing of the segment was written, and nothing deleted."""

    code = "refill-full"
    default_hint = (
        "Bring the destination back, raise the refill's limit, or see `headpond refill list` for what it holds."
    )
    retryable = True


class RefillInUse(HeadpondError):
    """A live process uses the refill folder."""

    code = "refill-in-use"
    default_hint = "Close the producer in the process named, or wait until it ends; it sends its own refill."
    retryable = True
