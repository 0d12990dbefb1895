"""The errors of reading from several nodes at once."""

from __future__ import annotations

from headpond.model.error import HeadpondError


class NotAcrossNodes(HeadpondError):
    """What was asked of a consumer with copies can be had from one node alone.

    A resilient order is that of one node's log; who of several consumers gets a message each node decides for
    itself, so another consumer may get its copy; and an entry is a place in one node's log.
    """

    code = "not-across-nodes"
    default_hint = (
        "Read several nodes with kind=unique and mode=non_resilient; with dedup=False any kind of a "
        "non-resilient subscription, each node's copies included."
    )
