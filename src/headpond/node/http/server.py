"""The HTTP server: its own listener beside the node's, with the node's certificates.

uvicorn parses HTTP; a connection has deadlines that uvicorn lacks:

=====================================  =========================================  ==========================
a connection that                      is closed after                            setting (http_limits)
=====================================  =========================================  ==========================
sends no whole headers                 10 s from its start, or their first byte   ``header_s``
does not end a body that it began      60 s from the headers                      ``body_s``
has no request                         30 s                                       ``idle_s``
reads nothing of what it is sent       60 s                                       ``unread_s``
is one too many, or waits while        at once, the longest idle first            ``connections``
another one comes that is too many
=====================================  =========================================  ==========================
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from typing import TYPE_CHECKING, cast

import h11
from litestar.types import ASGIApp
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from headpond.broker.settings import HttpLimits, Settings
from headpond.broker.steps import run
from headpond.model.errors import HeadpondError, NodeStopping
from headpond.node.http.app import make_app
from headpond.node.http.callers import Callers
from headpond.node.http.gate import Gate, OwnNames
from headpond.node.http.history import History
from headpond.node.http.request import HttpState
from headpond.node.server import Server, listen, now_us
from headpond.wire.control.status import ShowTop, TopInfo

if TYPE_CHECKING:
    from headpond.node.http.cluster import ClusterView  # a node that is alone loads nothing of clusters
    from headpond.node.lossy_link import LossyLink

logger = logging.getLogger("headpond.http")

STOP_S_MAX = 2.0
"""How long requests under way may take to end when the node stops; waits end at once."""
UNREAD_BODY_S = 2.0
"""How long a client may still send its body after it was answered, so that it reads the answer."""


class HttpConnection(H11Protocol):
    def __init__(self, limits: HttpLimits, config: Config, server_state: ServerState) -> None:
        super().__init__(config, server_state, app_state={})
        self.limits = limits
        self._deadline: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self.idle_since: float | None = None
        """Since when it has had no request with complete headers."""
        self._between = False
        """Whether a request was answered and no byte of the next one has come."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.idle_since = self.loop.time()
        self._within(self.limits.header_s)
        if len(self.connections) > self.limits.connections:
            self._cut_one()

    def _cut_one(self) -> None:
        """Aborts the connection that has been without a request for longest: it may be the newest."""
        others = cast("set[HttpConnection]", self.connections)
        idle = [each for each in others if each.idle_since is not None and not each.transport.is_closing()]
        if idle:
            min(idle, key=lambda each: each.idle_since or 0.0).transport.abort()

    def data_received(self, data: bytes) -> None:
        is_first, self._between = self._between, False
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete:  # the headers of a request are not complete
            if is_first:
                self._within(self.limits.header_s)
        elif not self.cycle.more_body:
            self.idle_since = None
            self._within(None)
        elif self.idle_since is not None:
            self.idle_since = None
            self._within(self.limits.body_s)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            return
        if self.conn.their_state is h11.SEND_BODY:  # it was answered, and still sends
            self._within(UNREAD_BODY_S)
        elif self.cycle.response_complete:
            self.idle_since = self.loop.time()
            self._between = True
            self._within(self.limits.idle_s)
        else:  # the next request came with this one
            self._within(self.limits.body_s if self.cycle.more_body else None)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(self.limits.unread_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._within(None)
        if self._unread is not None:
            self._unread.cancel()
        super().connection_lost(exc)

    def _within(self, seconds: float | None) -> None:
        """Aborts the connection after ``seconds``, unless another call comes first; None: no deadline."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None if seconds is None else self.loop.call_later(seconds, self.transport.abort)


class HttpListener:
    """Serves an application at ``settings.http``; ``url`` is where it listens."""

    def __init__(self, app: ASGIApp, settings: Settings, tls: ssl.SSLContext | None) -> None:
        address = settings.http_address
        assert address is not None, "settings.http says where to listen"
        self.url = ""
        self._address = address
        self._app = app
        self._settings = settings
        self._tls = tls
        self._uvicorn = ServerState()
        self._uvicorn.default_headers = [(b"server", b"headpond"), (b"x-content-type-options", b"nosniff")]
        self._listener: asyncio.Server | None = None

    @property
    def connections(self) -> int:
        return len(self._uvicorn.connections)

    async def start(self) -> None:
        limits = self._settings.http_limits
        config = Config(
            self._app,
            interface="asgi3",
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            h11_max_incomplete_event_size=limits.header_bytes,
            timeout_keep_alive=round(limits.idle_s) + 1,  # after the connection's own deadline
        )
        config.load()
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # noise must not fill the log
        self._listener, place = await listen(
            lambda: HttpConnection(limits, config, self._uvicorn),
            self._address,
            self._settings,
            self._tls,
            " for HTTP",
        )
        self.url = f"{'https' if self._tls is not None else 'http'}://{place}"

    async def stop(self) -> None:
        """Accepts no more requests; those under way have a moment."""
        assert self._listener is not None
        self._listener.close()
        for connection in list(self._uvicorn.connections):
            connection.shutdown()
        if self._uvicorn.tasks:
            await asyncio.wait(list(self._uvicorn.tasks), timeout=STOP_S_MAX)
        for connection in list(self._uvicorn.connections):
            connection.transport.abort()
        for task in list(self._uvicorn.tasks):
            task.cancel()


class HttpServer:
    """The HTTP of a node."""

    def __init__(
        self,
        node: Server,
        settings: Settings,
        tls: ssl.SSLContext | None,
        cluster: ClusterView | None = None,
        lossy_link: LossyLink | None = None,
    ) -> None:
        self._node = node
        self._stopping = asyncio.Event()
        self._callers = Callers(node, settings.http_limits)
        self._history = History(self._read_top, now_us)
        app = make_app(
            HttpState(
                self._callers,
                self._stopping,
                self._hindrance,
                self._gauges,
                node.core.context.timings,
                self._history,
                cluster,
                lossy_link,
            )
        )
        address = settings.http_address
        assert address is not None, "settings.http says where to listen"
        names = OwnNames(address[0], settings.http_names)
        tokens = node.core.stores.tokens
        self._gate = Gate(app, settings.http_limits, lambda: tokens.guarded, names)
        self._listener = HttpListener(self._gate, settings, tls)

    @property
    def url(self) -> str:
        return self._listener.url

    def _hindrance(self) -> HeadpondError | None:
        if self._stopping.is_set() or self._node.core.context.stopping:
            return NodeStopping("the node is shutting down")
        return self._node.core.watermark.lack()

    async def _read_top(self, ask: ShowTop) -> TopInfo:
        """A reading for the node itself, so that it needs no token."""
        found: asyncio.Future[TopInfo] = asyncio.get_running_loop().create_future()

        def answer(top: TopInfo) -> None:
            if not found.done():
                found.set_result(top)

        run(self._node.core.operations.steps(None, ask), answer, found.set_exception)
        self._node.drain()
        return await found

    def _gauges(self) -> dict[str, int]:
        gate = self._gate
        return {
            "connections": self._listener.connections,
            "requests": gate.requests,
            "bodies_bytes": gate.bodies_bytes,
            "answers_bytes": gate.answers.bytes,
            "refused": gate.refused,
            "hung_up": gate.hung_up,
            "consumers": self._callers.consumers,
        }

    async def start(self) -> None:
        await self._listener.start()
        self._callers.start()
        self._history.start()

    async def stop(self) -> None:
        """Waits and streams end at once."""
        self._stopping.set()
        self._history.stop()
        await self._listener.stop()
        await self._callers.stop()
