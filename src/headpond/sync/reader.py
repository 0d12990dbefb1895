"""Reading by position, blocking."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headpond.client.reader import Part
from headpond.client.reader import Reader as AsyncReader
from headpond.sync.background import Background, Mirror, ScopeTwin, blocking, mirrored
from headpond.wire.control.catalog import TopicInfo
from headpond.wire.typed.versions import SchemaVersions


class Reader(ScopeTwin[AsyncReader]):
    """Any range of a topic by position. ``client.reader`` makes one."""

    def __init__(self, reader: AsyncReader, background: Background) -> None:
        super().__init__(reader, background)

    close = blocking(AsyncReader.close)
    ends = blocking(AsyncReader.ends)
    entries_at = blocking(AsyncReader.entries_at)

    def fetch(self, shard: int, entry: int, end: int | None = None, **options: Any) -> Part:
        """The messages from ``entry`` up to ``end``, as far as ``bytes_max`` goes; also ``incarnation``."""
        return self._background.run(self._twin.fetch(shard, entry, end, **options))

    def read(self, shard: int, start: int, end: int, **options: Any) -> Iterator[Part]:
        """All messages of a range, part by part; it fetches the next part while the caller has one."""
        parts = self._twin.read(shard, start, end, **options)

        async def following() -> Part | None:
            return await anext(parts, None)

        while (part := self._background.run(following())) is not None:
            yield part

    @property
    def topic(self) -> str:
        return self._twin.topic

    info: Mirror[TopicInfo] = mirrored(AsyncReader.info)
    uuid: Mirror[bytes] = mirrored(AsyncReader.uuid)
    shards: Mirror[int] = mirrored(AsyncReader.shards)
    schemas: Mirror[SchemaVersions | None] = mirrored(AsyncReader.schemas)
