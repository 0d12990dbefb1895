"""Real nodes that serve HTTP too, and clients of that."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import httpx

from headpond.node.bootstrap import bootstrap
from tests.fire.real_node import RealNode

TIMEOUT_S = 60.0


class HttpNode(RealNode):
    """A real node with an HTTP door on a free port; ``http`` is its address, ``token`` its admin's."""

    def __init__(self, folder: Path, *, guarded: bool = False, more: str = "") -> None:
        super().__init__(folder, config=f'http = "127.0.0.1:0"\n{more}')
        self.http = ""
        self.token: str | None = bootstrap(self.data, "admin")[1] if guarded else None

    def start(self) -> Self:
        super().start()
        assert self.process is not None and self.process.stdout is not None
        word, _, self.http = self.process.stdout.readline().decode().strip().partition(" ")
        assert word == "http"
        config = self._config.read_text()  # the next start takes the same port
        self._config.write_text(config.replace('"127.0.0.1:0"', f'"127.0.0.1:{self.port}"'))
        return self

    @property
    def port(self) -> int:
        return int(self.http.rpartition(":")[2])

    def client(self, token: str | None = None, **more: Any) -> httpx.Client:
        token = token or self.token
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return httpx.Client(base_url=self.http, headers=headers, timeout=TIMEOUT_S, **more)
