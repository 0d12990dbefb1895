"""The application: all subscribers of a program, their start, their drain and its signals."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from headpond.app.handler import Handler
from headpond.app.subscriber import Handle, Subscriber
from headpond.client.arguments import checked
from headpond.client.codecs import codec_of
from headpond.client.connect import Client, Tokens, connect
from headpond.client.options import ConsumerKeywords
from headpond.client.produce.producer import Producer
from headpond.client.scope import PublicNames
from headpond.model.errors import BadRequest, Closed
from headpond.model.message import Message
from headpond.model.names import TopicName
from headpond.model.receipt import Receipt

log = logging.getLogger("headpond.app")

SIGNALS = (signal.SIGTERM, signal.SIGINT)

Function = TypeVar("Function", bound=Callable[..., Any])
Middleware = TypeVar("Middleware", bound=Callable[[Message[Any], Handle], Any])


class App(PublicNames):
    """A program's handlers. ``await app.run()`` runs them until a signal, ``async with app`` beside other work.

    Without ``url`` it connects like ``headpond.connect``; ``options`` are further ones of that function.
    Closing takes no further messages and lets the handlers that run finish, within ``drain_timeout`` seconds;
    then it brings the settlements to the node's disk. Messages of other handlers are redelivered.
    """

    @checked
    def __init__(
        self,
        url: str | Sequence[str] | None = None,
        token: Tokens = None,
        *,
        drain_timeout: float = 30.0,
        **options: Any,
    ) -> None:
        self.url = url
        self.token = token
        self.drain_timeout = drain_timeout
        self.error: BaseException | None = None
        """What ended a subscriber, if something did: no message comes to it any longer."""
        self.unfinished = 0
        """Handlers that did not finish in time when the application closed."""
        self._options = options
        self._subscribers: list[Subscriber] = []
        self._middleware: list[Callable[[Message[Any], Handle], Any]] = []
        self._client: Client | None = None
        self._producers: dict[str, asyncio.Task[Producer]] = {}
        """By topic, opened at the first use."""
        self._takers: list[asyncio.Task[None]] = []
        self._stopping = asyncio.Event()
        self._impatient = asyncio.Event()
        self._opening: asyncio.Timeout | None = None
        """While ``run`` opens, which takes as long as the node is away: what ends that."""

    # --- what a program declares --------------------------------------------------------------------

    @checked
    def subscriber(
        self,
        topic: str,
        subscription: str,
        *,
        concurrency: int = 1,
        value: Any = None,
        **options: Unpack[ConsumerKeywords],
    ) -> Callable[[Function], Function]:
        """Makes a function the handler of a subscription; the function itself is unchanged.

        When it returns, its message is acknowledged; see ``Retry``, ``Skip`` and ``DeadLetter``. Any other
        exception refuses the message, with the exception's text as the reason. ``concurrency`` is how many
        messages it handles at a time; ``value`` is the type of values, if its annotation does not say it; the
        other options are those of ``client.consumer``.
        """

        def add(function: Function) -> Function:
            handler = Handler(function, value)
            self._subscribers.append(Subscriber(handler, topic, subscription, concurrency, options))
            return function

        return add

    def middleware(self, function: Middleware) -> Middleware:
        """Puts a coroutine function around every handler: ``async def (message, handle)``.

        It calls ``await handle(message)`` and returns the result. The first one is the outermost.
        """
        self._middleware.append(function)
        return function

    # --- life ---------------------------------------------------------------------------------------

    @asynccontextmanager
    async def lifespan(self, service: object) -> AsyncIterator[None]:
        """The lifespan of a web service beside the handlers: ``FastAPI(lifespan=app.lifespan)``."""
        async with self:
            yield

    async def __aenter__(self) -> Self:
        self._stopping, self._impatient = asyncio.Event(), asyncio.Event()
        self.error, self.unfinished = None, 0
        async with AsyncExitStack() as opened:
            client = await opened.enter_async_context(connect(self.url, self.token, **self._options))
            for subscriber in self._subscribers:
                opened.push_async_callback(subscriber.close)
                await subscriber.open(client)
            opened.pop_all()
        self._client = client
        for subscriber in self._subscribers:
            taker = asyncio.create_task(subscriber.take(self._wrapped(subscriber.call)))
            taker.add_done_callback(partial(self._ended, subscriber))
            self._takers.append(taker)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        takers, self._takers = self._takers, []
        assert self._client is not None, "it is open"
        for taker in takers:
            taker.cancel()
        await asyncio.gather(*takers, return_exceptions=True)
        async with AsyncExitStack() as closing:
            closing.push_async_exit(self._client)
            for subscriber in self._subscribers:
                closing.push_async_callback(subscriber.close)
            await self._drain()  # handlers that finish may publish
            self._client = None
            self._producers.clear()

    async def _drain(self) -> None:
        """Waits for the handlers that run, within the limit, and cancels the others."""
        running = {task for subscriber in self._subscribers for task in subscriber.running}
        if not running:
            return
        log.info("waiting for %d running handlers, %g s at most", len(running), self.drain_timeout)
        all_done = asyncio.ensure_future(asyncio.wait(running))
        impatient = asyncio.ensure_future(self._impatient.wait())
        first = asyncio.FIRST_COMPLETED
        await asyncio.wait({all_done, impatient}, timeout=self.drain_timeout, return_when=first)
        impatient.cancel()
        left = [task for task in running if not task.done()]
        self.unfinished = len(left)
        for task in left:
            task.cancel()
        await all_done
        if left:
            log.warning("%d handlers did not finish; their messages will be redelivered", len(left))

    async def run(self) -> None:
        """Runs until SIGTERM, SIGINT or ``stop()``, then drains; a second signal does not wait for handlers.

        Raises what ended a subscriber, or ``BadRequest`` if there is none.
        """
        if not self._subscribers:
            raise BadRequest(
                "the application has no handlers", hint="Declare one with @app.subscriber(TOPIC, SUBSCRIPTION)."
            )
        loop = asyncio.get_running_loop()
        with suppress(NotImplementedError, RuntimeError, ValueError):  # not the main thread
            for number in SIGNALS:
                loop.add_signal_handler(number, self.stop)
        try:
            async with AsyncExitStack() as opened:
                if await self._opens(opened):
                    log.info("runs %s", ", ".join(each.shown for each in self._subscribers))
                    await self._stopping.wait()
        finally:
            for number in SIGNALS:
                loop.remove_signal_handler(number)
        if self.error is not None:
            raise self.error

    async def _opens(self, opened: AsyncExitStack) -> bool:
        """Opens the application; False if ``stop`` is called first."""
        opening = self._opening = asyncio.timeout(None)
        try:
            async with opening:
                await opened.enter_async_context(self)
        except TimeoutError:
            if not opening.expired():
                raise
            return False
        finally:
            self._opening = None
        return True

    def stop(self) -> None:
        """Ends ``run``, also while it waits for its node; a second call does not wait for running handlers."""
        if self._stopping.is_set():
            self._impatient.set()
        elif self._opening is not None:
            self._opening.reschedule(0)
        self._stopping.set()

    def _wrapped(self, call: Handle) -> Handle:
        for middleware in reversed(self._middleware):
            call = partial(_call_around, middleware, call)
        return call

    def _ended(self, subscriber: Subscriber, taker: asyncio.Task[None]) -> None:
        if taker.cancelled():
            return
        self.error = taker.exception() or Closed(f"the consumer of {subscriber.shown} was closed")
        log.error("%s ended: %s", subscriber.shown, self.error)
        self._stopping.set()

    # --- publishing ---------------------------------------------------------------------------------

    async def publish(
        self,
        topic: str,
        value: Any,
        *,
        key: bytes | str | None = None,
        id: str | None = None,
        headers: Mapping[str, str] | None = None,
        ttl: float | None = None,
    ) -> Receipt:
        """Sends a message while the application is open; the type of the value decides how it is encoded."""
        if self._client is None:
            raise Closed("the application is not open", hint="Use it inside `async with app`, or in a handler.")
        name = str(TopicName.parse(topic))
        opening = self._producers.get(name)
        if opening is None or (opening.done() and opening.exception() is not None):
            opening = self._producers[name] = asyncio.create_task(self._client.producer(name).open())
        producer = await asyncio.shield(opening)
        codec = None if value is None else codec_of(type(value))
        data = value if codec is None else codec.to_bytes(value)
        return await producer.send(data, key=key, id=id, headers=headers, ttl=ttl)


async def _call_around(middleware: Callable[[Message[Any], Handle], Any], call: Handle, message: Any) -> Any:
    return await middleware(message, call)
