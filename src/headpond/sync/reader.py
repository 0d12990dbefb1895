"""Reading by position, blocking."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Self

from headpond.client.reader import Part
from headpond.client.reader import Reader as AsyncReader
from headpond.sync.background import Background
from headpond.wire.control.catalog import TopicInfo
from headpond.wire.control.reading import ShardEnds
from headpond.wire.typed.versions import SchemaVersions


class Reader:
    """Any range of a topic by position. ``client.reader`` makes one."""

    def __init__(self, reader: AsyncReader, background: Background) -> None:
        self._reader = reader
        self._background = background

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._background.run(self._reader.close())

    @property
    def topic(self) -> str:
        return self._reader.topic

    @property
    def info(self) -> TopicInfo:
        """The topic as it was when the reader was opened."""
        return self._reader.info

    @property
    def uuid(self) -> bytes:
        return self._reader.uuid

    @property
    def shards(self) -> int:
        return self._reader.shards

    @property
    def schemas(self) -> SchemaVersions | None:
        """Of a typed topic: its schema versions up to the one that rows come in."""
        return self._reader.schemas

    def ends(self, known: Sequence[int] | None = None, wait: float = 0.0) -> list[ShardEnds]:
        """Incarnation, first kept and next entry of each shard; waits until there is more than ``known``."""
        return self._background.run(self._reader.ends(known, wait))

    def entries_at(self, when: datetime) -> list[int]:
        """The first entry of each shard that was stored at ``when`` or later."""
        return self._background.run(self._reader.entries_at(when))

    def fetch(self, shard: int, entry: int, end: int | None = None, **options: Any) -> Part:
        """The messages from ``entry`` up to ``end``, as far as ``bytes_max`` goes; also ``incarnation``."""
        return self._background.run(self._reader.fetch(shard, entry, end, **options))

    def read(self, shard: int, start: int, end: int, **options: Any) -> Iterator[Part]:
        """All messages of a range, part by part; the next is on its way while one is looked at."""
        parts = self._reader.read(shard, start, end, **options)

        async def following() -> Part | None:
            return await anext(parts, None)

        while (part := self._background.run(following())) is not None:
            yield part
