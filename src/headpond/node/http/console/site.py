"""Serves the files of the console. They hold no data; what a person may see is decided by the API.

Messages are hostile input. The page shows them as text alone, and the browser enforces it: it runs only scripts
that are files of the node, takes no markup from a script (trusted types), sends nothing to another site, and
puts the page into no frame.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from litestar import Request, Response, get

from headpond.model.errors import NoRoute

FOLDER = Path(__file__).parent / "static"
PREFIX = "/console/"
MEDIA = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",  # the browser keeps the file, and asks whether it is still the same
}


@dataclass(frozen=True, slots=True)
class File:
    body: bytes
    media: str
    etag: str


def read_files() -> dict[str, File]:
    """By path below ``static``: the files that browsers load."""
    found: dict[str, File] = {}
    for path in sorted(FOLDER.rglob("*")):
        if path.suffix in MEDIA:
            body = path.read_bytes()
            etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
            found[path.relative_to(FOLDER).as_posix()] = File(body, MEDIA[path.suffix], etag)
    return found


FILES = read_files()


class FileAnswer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


def answer_file(path: str, known_etag: str | None) -> FileAnswer:
    """The answer to a request for ``/`` or a path below ``/console/``; ``NoRoute`` for any other."""
    found = FILES.get("index.html" if path == "/" else path.removeprefix(PREFIX))
    if found is None or not (path == "/" or path.startswith(PREFIX)):
        raise NoRoute("the console has no such file", hint="It begins at the path /.")
    headers = {**HEADERS, "ETag": found.etag}
    if known_etag == found.etag:
        return FileAnswer(304, headers, b"")
    return FileAnswer(200, {**headers, "Content-Type": found.media}, found.body)


@get(["/", PREFIX + "{path:path}"], include_in_schema=False)
async def file(request: Request[Any, Any, Any]) -> Response[bytes]:
    status, headers, body = answer_file(request.scope["path"], request.headers.get("if-none-match"))
    return Response(body, status_code=status, headers=headers)
