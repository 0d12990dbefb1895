"""A typed topic's schemas over its life, oldest first. Stored records name theirs by number; the first is 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from headpond.model.errors import BadSegment
from headpond.wire.title import Title
from headpond.wire.typed.rows import message_schema
from headpond.wire.typed.schema import decode_schema, width_bytes

VERSIONS_BYTES_MAX: Final = 512 * 1024
"""One frame carries all schemas of a topic to a reader."""


class SchemaVersions:
    """An immutable list of schemas; a new version makes a new object."""

    __slots__ = ("_beginnings", "_messages", "_schemas", "encoded", "row_bytes")

    def __init__(self, encoded: Sequence[bytes]) -> None:
        """Needs at least one schema; an invalid one is a ``SchemaMismatch``."""
        assert encoded, "a topic without a schema is plain"
        self.encoded = tuple(encoded)
        self._schemas = [decode_schema(data) for data in encoded]
        self._messages = [message_schema(schema) for schema in self._schemas]
        self.row_bytes = sum(width_bytes(field.type) for field in self._messages[-1])
        """The least memory of a message in the newest version."""
        self._beginnings: dict[tuple[int, int], bytes] = {}

    @property
    def version(self) -> int:
        """The number of the newest version."""
        return len(self._schemas)

    @property
    def newest(self) -> pa.Schema:
        return self._schemas[-1]

    def messages(self, version: int) -> pa.Schema:
        """The columns of a batch of messages in a version."""
        if not 1 <= version <= self.version:
            raise BadSegment(
                f"a record of schema version {version}; {self.version} are known",
                hint="The topic was altered since it was opened here; open it again.",
            )
        return self._messages[version - 1]

    def beginning(self, version: int, mask: int) -> bytes:
        """The beginning of an Arrow stream of messages in a version, of the columns in ``mask``; cached."""
        found = self._beginnings.get((version, mask))
        if found is None:
            schema = self.messages(version)
            part = pa.schema([schema.field(name) for name in chosen(schema, mask)])
            found = self._beginnings[version, mask] = bytes(part.serialize())
        return found

    def and_then(self, encoded: bytes) -> SchemaVersions:
        """These versions and a newer one."""
        return SchemaVersions([*self.encoded, encoded])


def versions_of(title: Title) -> SchemaVersions | None:
    """The versions that a title lists; None for a plain topic."""
    return SchemaVersions(title.schemas) if title.schemas else None


def chosen(schema: pa.Schema, mask: int) -> list[str]:
    """The names of the columns in ``mask``, whose bit i stands for column i."""
    return [name for index, name in enumerate(schema.names) if mask >> index & 1]
