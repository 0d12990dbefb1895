"""Errors about state topics: the latest value a key, and None to delete it."""

from __future__ import annotations

from headpond.model.error import HeadpondError


class KeyMissing(HeadpondError):
    """A message without a key came to a state topic, which keeps the latest value of every key."""

    code = "key-missing"
    default_hint = (
        'Give every message a key: producer.send(value, key=b"..."), or `headpond produce --key-separator`.'
    )


class ValueMissing(HeadpondError):
    """A message without a value came to a topic that is no state topic, where nothing can be deleted by key."""

    code = "value-missing"
    default_hint = (
        "A value of None deletes a key of a state topic (`headpond topic create TOPIC --state`); "
        "elsewhere send empty bytes."
    )
