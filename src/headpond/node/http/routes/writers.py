"""``/v1/writers``: who commits staged batches, and what is staged. Their names may hold slashes."""

from __future__ import annotations

from litestar import delete, get
from litestar.params import FromPath

from headpond.node.http.asking import Called
from headpond.shapes.resources import WriterDeletedShape, WriterShape, writer_object


@get("/writers", tags=["writers"])
async def list_writers(caller: Called) -> list[WriterShape]:
    """List writers, their newest batch and what they have staged."""
    return [writer_object(info) for info in await caller.client.admin.list_writers()]


@get("/writers/{writer:path}", tags=["writers"])
async def show_writer(caller: Called, writer: FromPath[str]) -> WriterShape:
    """Show a writer: its newest batch, its counts, its topics and its stages."""
    return writer_object(await caller.client.admin.show_writer(writer.removeprefix("/")), whole=True)


@delete("/writers/{writer:path}", status_code=200, tags=["writers"])
async def delete_writer(caller: Called, writer: FromPath[str]) -> WriterDeletedShape:
    """Forget a writer's batches and drop its stages. Its messages stay; a batch sent again is new."""
    name = writer.removeprefix("/")
    return {"deleted": name, "stages": await caller.client.admin.delete_writer(name)}


ROUTES = [list_writers, show_writer, delete_writer]
