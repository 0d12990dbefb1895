"""Questions about writers, and their deletion."""

from __future__ import annotations

from headpond.client.arguments import checked_methods
from headpond.client.link import Link
from headpond.wire.control import DeleteWriter, ListWriters, ShowWriter, WriterInfo, read_result


@checked_methods
class WriterAdmin:
    """The part of ``client.admin`` that is about the writers of staged batches."""

    _link: Link

    async def list_writers(self) -> list[WriterInfo]:
        """All writers that committed a batch or have something staged."""
        return read_result(await self._link.request(ListWriters(), retry=True), list[WriterInfo])

    async def show_writer(self, writer: str) -> WriterInfo:
        """One writer: its newest batch, its counts and what it has staged."""
        return read_result(await self._link.request(ShowWriter(writer), retry=True), WriterInfo)

    async def delete_writer(self, writer: str) -> int:
        """Forgets a writer's batches and drops its stages, whose number is returned; its messages stay.

        A batch that it sends again afterwards is published again.
        """
        result = read_result(await self._link.request(DeleteWriter(writer)), dict[str, int | str | bool])
        return int(result["stages"])
