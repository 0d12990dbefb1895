"""A subscriber: takes the messages of one subscription, calls the handler, and settles as it decides.

At most ``concurrency`` messages are with the handler at a time. In a key_shared subscription the messages of
one key are handled one after the other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from headpond.app.handler import Handler
from headpond.app.verdicts import DeadLetter, Retry, Skip
from headpond.client.codecs import codec_of
from headpond.client.connect import Client
from headpond.client.consume.consumer import Consumer
from headpond.client.options import ConsumerKeywords, ConsumerOptions
from headpond.client.tracing import Tracing
from headpond.model.bounds import REASON_LENGTH_MAX
from headpond.model.errors import BadRequest, BadValue, HeadpondError
from headpond.model.message import Message

log = logging.getLogger("headpond.app")

CONCURRENCY_MAX = 1024

Handle = Callable[[Message[Any]], Awaitable[Any]]
"""What a middleware calls to go on."""


class Subscriber:
    def __init__(
        self, handler: Handler, topic: str, subscription: str, concurrency: int, options: ConsumerKeywords
    ) -> None:
        if not 1 <= concurrency <= CONCURRENCY_MAX:
            raise BadRequest(f"concurrency is {concurrency}; it must be in 1 .. {CONCURRENCY_MAX}")
        own: Any = {name: each for name, each in options.items() if name != "name"}
        ConsumerOptions(**own)  # raises if they are wrong, where the program gives them
        self.handler = handler
        self.shown = f"{handler.name} of {topic}/{subscription}"
        self.running: set[asyncio.Task[None]] = set()
        """One task per message with the handler."""
        self._codec = codec_of(handler.value)
        self._topic = topic
        self._subscription = subscription
        self._concurrency = concurrency
        self._options = options
        self._turns: dict[bytes, asyncio.Future[None]] | None = None
        """In a key_shared subscription, by key: done when the last message of that key is."""
        if options.get("kind") == "key_shared":
            self._turns = {}
        self._threads: ThreadPoolExecutor | None = None
        self._consumer: Consumer | None = None
        self._tracing: Tracing | None = None

    async def open(self, client: Client) -> None:
        self._tracing = client.tracing
        self._consumer = await client.consumer(self._topic, self._subscription, **self._options).open()
        if not self.handler.is_async:
            self._threads = ThreadPoolExecutor(self._concurrency, f"headpond-{self.handler.name}")

    async def close(self) -> None:
        """Brings the settlements to the node's disk. Threads that still run are left to themselves."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        if self._consumer is not None:
            await self._consumer.close()

    async def take(self, handle: Handle) -> None:
        """Takes messages until it is cancelled, or the consumer ends."""
        assert self._consumer is not None, "it is open"
        if self._tracing is not None:
            handle = self._tracing.around(handle, self._subscription)
        slots = asyncio.Semaphore(self._concurrency)
        while True:
            await slots.acquire()
            message = await self._consumer.receive()
            if message is None:
                return
            task = asyncio.create_task(self._handle_in_turn(message, handle))
            self.running.add(task)
            task.add_done_callback(self.running.discard)
            task.add_done_callback(lambda task: slots.release())

    async def call(self, message: Message[Any]) -> Any:
        """Calls the handler."""
        return await self.handler.call(message, self._threads)

    async def _handle_in_turn(self, message: Message[Any], handle: Handle) -> None:
        turns, key = self._turns, message.key
        if turns is None or key is None:
            return await self._handle(message, handle)
        before, done = turns.get(key), asyncio.get_running_loop().create_future()
        turns[key] = done
        try:
            if before is not None:
                await asyncio.shield(before)
            await self._handle(message, handle)
        finally:
            done.set_result(None)
            if turns[key] is done:
                del turns[key]
        return None

    async def _handle(self, message: Message[Any], handle: Handle) -> None:
        assert self._consumer is not None, "it is open"
        consumer = self._consumer
        settled: Awaitable[None]
        try:
            if self._codec is not None:
                self._codec.read(message)
        except BadValue as error:
            log.error("%s: %s", self.shown, error.message)
            if self._tracing is not None:
                self._tracing.unreadable(message, self._subscription, error)
            settled = consumer.dead_letter(message, reason=_fit(error.message))
        else:
            settled = await self._decide(consumer, message, handle)
        try:
            await settled
        except HeadpondError as error:  # the consumer ended: the message comes again
            log.warning("%s: entry %d was not settled: %s", self.shown, message.entry, error.message)

    async def _decide(self, consumer: Consumer, message: Message[Any], handle: Handle) -> Awaitable[None]:
        """Calls the handler; returns the settlement that it asks for."""
        try:
            await handle(message)
        except Skip:
            return consumer.skip(message)
        except Retry as retry:
            return consumer.nack(message, retry.delay, reason=_fit(retry.reason))
        except DeadLetter as verdict:
            return consumer.dead_letter(message, reason=_fit(verdict.reason))
        except Exception as error:
            where = f"entry {message.entry} of shard {message.shard}, attempt {message.attempt}"
            log.exception("%s failed at %s", self.shown, where)
            return consumer.nack(message, reason=_fit(f"{type(error).__name__}: {error}"))
        return consumer.ack(message)


def _fit(reason: str) -> str:
    """A node takes only UTF-8; the text of an exception may be anything."""
    return str(reason)[: REASON_LENGTH_MAX + 1].encode(errors="replace").decode()
