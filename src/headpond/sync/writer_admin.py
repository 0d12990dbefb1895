"""Writers looked after, blocking."""

from __future__ import annotations

from headpond.client.admin import Admin as AsyncAdmin
from headpond.sync.background import Background
from headpond.wire.control import WriterInfo


class WriterAdmin:
    """The part of ``client.admin`` that is about the writers of staged batches."""

    _admin: AsyncAdmin
    _background: Background

    def list_writers(self) -> list[WriterInfo]:
        """All writers that committed a batch or have something staged."""
        return self._background.run(self._admin.list_writers())

    def show_writer(self, writer: str) -> WriterInfo:
        """One writer: its newest batch, its counts and what it has staged."""
        return self._background.run(self._admin.show_writer(writer))

    def delete_writer(self, writer: str) -> int:
        """Forgets a writer's batches and drops its stages, whose number is returned; its messages stay."""
        return self._background.run(self._admin.delete_writer(writer))
