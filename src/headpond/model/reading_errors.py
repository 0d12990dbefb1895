"""The errors of reading entries by position, without a subscription: Spark's source and whoever fetches."""

from __future__ import annotations

from headpond.model.error import HeadpondError


class IncarnationChanged(HeadpondError):
    """A shard does not have what stood before a position: it lost entries, or an old copy was restored.

    The position may name another message now.
    """

    code = "incarnation-changed"
    default_hint = "Begin with a new position: `start` as it is wanted now, and a new checkpoint in Spark."


class EntriesMissing(HeadpondError):
    """Entries that were to be read are not there any more: deleted by retention, or damaged."""

    code = "entries-missing"
    default_hint = (
        "Read on with onGap = report (a row for each missing range) or skip, or let the topic keep more."
    )


class BadFilter(HeadpondError):
    """A filter that cannot be read, or that the topic's columns cannot be held against."""

    code = "bad-filter"
    default_hint = "For example: key = 'k-1' and headers['till'] = '4' and value.price > 3.5."


class SchemaChanged(HeadpondError):
    """A typed topic got a new schema while a query was reading it with the columns it had before."""

    code = "schema-changed"
    default_hint = "Start the query again: it goes on where it stopped, with the columns of the new schema."
