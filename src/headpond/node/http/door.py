"""The door itself: a listener of its own beside the node's, with the node's certificates."""

from __future__ import annotations

import asyncio
import errno
import logging
import ssl

from uvicorn.config import Config
from uvicorn.server import ServerState

from headpond.broker.settings import Settings
from headpond.model.address import Address
from headpond.model.errors import AddressInUse, DiskFull, NodeStopping
from headpond.node.http.app import make_app
from headpond.node.http.callers import Callers
from headpond.node.http.gate import Gate, OwnNames
from headpond.node.http.protocol import DoorProtocol, protocol_with
from headpond.node.server import Server

logger = logging.getLogger("headpond.http")

STOP_S_MAX = 2.0
"""How long requests that are under way may take to end when the node stops; waits end at once."""


class Door:
    """``url`` is where it listens."""

    def __init__(self, node: Server, settings: Settings, tls: ssl.SSLContext | None) -> None:
        address = settings.http_address
        assert address is not None, "it is opened where HTTP is asked for"
        self._settings = settings
        self._address = address
        self._tls = tls
        self._state = ServerState()
        self._state.default_headers = [(b"server", b"headpond"), (b"x-content-type-options", b"nosniff")]
        self.url = ""
        tokens = node.core.stores.tokens
        self.callers = Callers(node.accept, settings.http_limits, lambda: tokens.guarded)
        names = OwnNames(address[0], settings.http_names)
        self.gate = Gate(make_app(self), settings.http_limits, lambda: tokens.guarded, names)
        self.stopping = asyncio.Event()
        self._node = node
        self._listener: asyncio.Server | None = None

    @property
    def hindrance(self) -> NodeStopping | DiskFull | None:
        """Why the node does not take what it is sent now; None while it does."""
        if self.stopping.is_set() or self._node.core.context.stopping:
            return NodeStopping("the node is shutting down")
        return self._node.core.watermark.lack()

    @property
    def connections(self) -> int:
        return len(self._state.connections)

    async def start(self) -> None:
        host, port = self._address
        limits = self._settings.http_limits
        config = Config(
            self.gate,
            http=protocol_with(limits),  # type: ignore[arg-type]
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            h11_max_incomplete_event_size=limits.header_bytes,
            timeout_keep_alive=round(limits.idle_s) + 1,  # the protocol's own clock is before it
        )
        config.load()
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # who sends no HTTP must not fill the log
        loop = asyncio.get_running_loop()

        def connect() -> DoorProtocol:
            made: DoorProtocol = config.http_protocol_class(  # type: ignore[assignment, call-arg]
                config=config, server_state=self._state, app_state={}, _loop=loop
            )
            return made

        try:
            self._listener = await loop.create_server(
                connect,
                host,
                port,
                backlog=1024,
                ssl=self._tls,
                ssl_handshake_timeout=self._settings.limits.handshake_s if self._tls else None,
            )
        except OSError as error:
            reason = f"cannot listen on {self._settings.http} for HTTP: {error.strerror or error}"
            hint = None if error.errno == errno.EADDRINUSE else "Choose an address of this machine."
            raise AddressInUse(reason, hint=hint) from error
        self.callers.start()
        where = Address(host, self._listener.sockets[0].getsockname()[1])
        self.url = f"{'https' if self._tls is not None else 'http'}://{where}"

    async def stop(self) -> None:
        """Takes nothing new; waits and streams end, other requests have a moment to."""
        assert self._listener is not None
        self.stopping.set()
        self._listener.close()
        for connection in list(self._state.connections):
            connection.shutdown()
        if self._state.tasks:
            await asyncio.wait(list(self._state.tasks), timeout=STOP_S_MAX)
        for connection in list(self._state.connections):
            connection.transport.abort()
        for task in list(self._state.tasks):
            task.cancel()
        await self.callers.stop()


async def open_door(node: Server, settings: Settings, tls: ssl.SSLContext | None) -> Door:
    door = Door(node, settings, tls)
    await door.start()
    return door
