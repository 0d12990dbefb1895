"""Batchers of values of one type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headpond.client.codecs import Codec
from headpond.client.produce.batcher import Batcher
from headpond.client.produce.promise import Promise


def encoding(kind: type[Batcher], codec: Codec[Any]) -> type[Batcher]:
    """A kind of batcher that encodes each value, and then adds it as ``kind`` does."""

    class EncodingBatcher(kind):  # type: ignore[misc, valid-type]  # a class that mypy cannot know
        def add(self, value: Any, key: Any, id: str | None, headers: Mapping[str, str] | None) -> Promise:
            data = None if value is None else codec.to_bytes(value)
            added: Promise = super().add(data, key, id, headers)
            return added

    return EncodingBatcher
