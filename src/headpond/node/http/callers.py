"""Callers: one per token, with its session at the node and what it has open there.

When a token is revoked or expires, the node ends its session at once, as with any client; the next request
with it opens another, and gets the node's refusal. A caller is found by a digest of its token.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import TypeVar, cast

from headpond.broker.settings import HttpLimits
from headpond.client.options import KindName, ModeName
from headpond.client.produce.producer import Producer
from headpond.model.errors import HeadpondError, LimitReached, SubscriptionNotFound, TopicNotFound
from headpond.node.http.held import HeldConsumer, parse_start
from headpond.node.http.lane import Lane
from headpond.node.http.local_link import LocalClient, LocalLink
from headpond.node.server import Server
from headpond.wire.control.access import ShowAccess
from headpond.wire.control.catalog import OpenTopic, TopicInfo
from headpond.wire.control.consuming import ShowSubscription
from headpond.wire.control.operation import OperationOf

logger = logging.getLogger("headpond.http")

SWEEP_S = 2.0
PRODUCERS_MAX = 64
"""Open for one caller; the one used longest ago is closed for another."""
PRODUCER_IDLE_S = 60.0
LANES_MAX = 256
LANE_IDLE_S = 300.0
"""Longer than any publish takes."""
SEND_S_MAX = 30.0
"""How long a message may wait to be stored."""
CREDIT_BYTES = 1024 * 1024
"""What the node sends ahead to a held consumer; there may be many, and they are slow."""
CLIENT = "http"
"""The name of HTTP's sessions in the log of administration and in lists of consumers."""

Result = TypeVar("Result")
ConsumerKey = tuple[str, str, str]
"""Topic, subscription, consumer."""
Check = Callable[[], Awaitable[None]]
"""Checks messages before a topic is created for them."""


class Caller:
    """One token's connection, its producers and its consumers."""

    def __init__(self, client: LocalClient, digest: bytes) -> None:
        self.client = client
        self.link: LocalLink = client.link
        """For the client's own classes: ``Admin``, ``Reader``, ``Producer``, ``Consumer``."""
        self.digest = digest
        self.used_at = monotonic()
        self.streams = 0
        """Open streams of events."""
        self.consumers: dict[ConsumerKey, HeldConsumer] = {}
        self.lanes: dict[str, Lane] = {}
        """By topic: the way that requests without a producer's name share."""
        self._producers: dict[tuple[str, str], tuple[Producer, float]] = {}
        self._name: str | None = None
        self.opening = asyncio.Lock()
        """Held while a lane, a producer or a consumer is opened, so that it is opened once."""

    @property
    def over(self) -> bool:
        """Whether its session has ended."""
        return not self.link.up or self.link.refusal is not None

    async def name(self) -> str:
        """The token's name, or its id where it has none; nothing on an open node."""
        if self._name is None:
            info = await self.ask(ShowAccess())
            self._name = info.name or info.token
        return self._name

    async def ask(self, operation: OperationOf[Result], timeout_s: float | None = None) -> Result:
        """Has the node carry out an operation; returns its answer."""
        return await self.link.ask(operation, timeout_s=timeout_s)

    async def topic(self, topic: str, check: Check) -> TopicInfo:
        """Opens a topic to send to; creates it if the node allows that and ``check`` does not raise."""
        try:
            return await self.ask(OpenTopic(topic))
        except TopicNotFound:
            await check()
            return await self.ask(OpenTopic(topic, create=True))

    async def open_lane(self, topic: str, check: Check) -> Lane:
        async with self.opening:
            if (found := self.lanes.get(topic)) is None:
                idle = [name for name, lane in self.lanes.items() if lane.idle]
                if len(self.lanes) >= LANES_MAX and idle:
                    self.lanes.pop(min(idle, key=lambda name: self.lanes[name].used_at)).close()
                found = self.lanes[topic] = Lane(self.link, await self.topic(topic, check))
            return found

    async def producer(self, topic: str, name: str, check: Check) -> Producer:
        """An open producer of ``topic`` under a name."""
        key = (topic, name)
        async with self.opening:
            found = self._producers.pop(key, None)
            producer = None if found is None or found[0].stopped is not None else found[0]
            if producer is None:
                while len(self._producers) >= PRODUCERS_MAX:
                    await self._close(self._producers.pop(next(iter(self._producers)))[0])
                await self.topic(topic, check)
                made = self.client.producer(
                    topic, name or None, refill=None, timeout=SEND_S_MAX, close_timeout=5.0
                )
                producer = await made.open()
            self._producers[key] = (producer, monotonic())
            return producer

    async def forget_topic(self, topic: str, name: str) -> None:
        """The topic was deleted, or created again: the next message opens it."""
        self.lanes.pop(topic, None)
        if (found := self._producers.pop((topic, name), None)) is not None:
            await self._close(found[0])

    async def sweep(self, now: float, consumer_idle_s: float) -> None:
        """Closes what no request has used for a while."""
        for key, (producer, used_at) in list(self._producers.items()):
            if now - used_at > PRODUCER_IDLE_S:
                del self._producers[key]
                await self._close(producer)
        for topic, lane in list(self.lanes.items()):
            if now - lane.used_at > LANE_IDLE_S:
                del self.lanes[topic]
                lane.close()
        for place, held in list(self.consumers.items()):
            if held.over or (not held.busy and now - held.used_at > consumer_idle_s):
                del self.consumers[place]
                await held.close()

    async def close(self) -> None:
        for held in list(self.consumers.values()):
            await held.close()
        self.consumers.clear()
        for lane in self.lanes.values():
            lane.close()
        try:
            await self.client.close()
        except HeadpondError as error:
            logger.info("closing a caller's connection: %s", error.message)

    async def _close(self, producer: Producer) -> None:
        try:
            await producer.close()
        except HeadpondError as error:
            logger.info("closing a producer of %s: %s", producer.topic, error.message)


class Callers:
    def __init__(self, node: Server, limits: HttpLimits) -> None:
        self.limits = limits
        self._node = node
        self._callers: dict[bytes, Caller] = {}
        self._opening: dict[bytes, asyncio.Future[Caller]] = {}
        self._sweeper: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._sweeper = asyncio.get_running_loop().create_task(self._sweep_on())

    async def stop(self) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)
        callers, self._callers = list(self._callers.values()), {}
        await asyncio.gather(*(caller.close() for caller in callers), return_exceptions=True)

    @property
    def consumers(self) -> int:
        return sum(len(caller.consumers) for caller in self._callers.values())

    def check_consumers(self, caller: Caller) -> None:
        """Refuses another consumer for a caller, if there are too many."""
        if self.consumers >= self.limits.consumers:
            raise LimitReached(f"{self.limits.consumers:,} consumers are held (http_limits.consumers)")
        share = self.limits.share_of(self.limits.consumers)
        if caller.digest and len(caller.consumers) >= share:
            raise LimitReached(f"{share:,} consumers are held for this token (http_limits.caller_share)")
        self.check_held(caller)

    async def hold(
        self, caller: Caller, key: ConsumerKey, kind: str | None, mode: str | None, start: str
    ) -> HeldConsumer:
        """The consumer that is held for a name, opened if there is none."""
        topic, subscription, consumer = key
        async with caller.opening:
            held = caller.consumers.get(key)
            if held is not None and not held.over:
                return held
            if held is not None:
                await held.close()
                del caller.consumers[key]
            self.check_consumers(caller)
            if kind is None or mode is None:
                known_kind, known_mode = await self._kind_of(caller, topic, subscription)
                kind, mode = kind or known_kind, mode or known_mode
            made = caller.client.consumer(
                topic,
                subscription,
                kind=cast(KindName, kind),
                mode=cast(ModeName, mode),
                start=parse_start(start),
                name=f"{CLIENT}:{consumer}" if consumer else CLIENT,
                credit_bytes=CREDIT_BYTES,
                close_timeout=5.0,
            )
            held = caller.consumers[key] = HeldConsumer(await made.open())
            return held

    async def _kind_of(self, caller: Caller, topic: str, subscription: str) -> tuple[str, str]:
        try:
            info = await caller.ask(ShowSubscription(topic, subscription))
        except SubscriptionNotFound:
            return "unique", "non_resilient"
        return info.kind, info.mode

    def check_held(self, caller: Caller, by: HeldConsumer | None = None) -> None:
        """Refuses to deliver more, or to hold another consumer, if too many bytes are not settled.

        A consumer that holds nothing may always fetch what the node has sent ahead to it.
        """
        share = self.limits.share_of(self.limits.held_bytes)
        mine = sum(each.bytes for each in caller.consumers.values())
        if caller.digest and mine >= share:
            raise LimitReached(
                f"{mine:,} bytes of messages are handed out to this token over HTTP and not settled "
                "(http_limits.caller_share)"
            )
        consumers = [each for caller in self._callers.values() for each in caller.consumers.values()]
        held_bytes = sum(each.bytes for each in consumers)
        ahead = sum(each.consumer.ahead_bytes for each in consumers)
        if held_bytes >= self.limits.held_bytes or (
            held_bytes + ahead >= self.limits.held_bytes and (by is None or by.bytes)
        ):
            raise LimitReached(
                f"{held_bytes:,} bytes of messages are handed out over HTTP and not settled, {ahead:,} more "
                "are sent ahead (http_limits.held_bytes)"
            )

    async def get(self, token: str | None) -> Caller:
        """The caller with this token; an error says why the node refuses it."""
        digest = b"" if token is None else hashlib.sha256(token.encode()).digest()
        caller = self._callers.get(digest)
        if caller is not None and not caller.over:
            caller.used_at = monotonic()
            return caller
        if caller is not None:
            del self._callers[digest]
            await caller.close()
        if (opening := self._opening.get(digest)) is not None:
            return await asyncio.shield(opening)
        opening = self._opening[digest] = asyncio.ensure_future(self._open(token, digest))
        try:
            return await asyncio.shield(opening)
        finally:
            if opening.done():
                self._opening.pop(digest, None)
            else:
                opening.add_done_callback(lambda done: self._forget(digest, done))

    def _forget(self, digest: bytes, done: asyncio.Future[Caller]) -> None:
        self._opening.pop(digest, None)
        if not done.cancelled():
            done.exception()  # its request has ended

    async def _open(self, token: str | None, digest: bytes) -> Caller:
        if len(self._callers) >= self.limits.callers:
            await self._make_room()
        client = await LocalClient(self._node, token, CLIENT).open()
        caller = self._callers[digest] = Caller(client, digest)
        return caller

    async def _make_room(self) -> None:
        """Closes the caller that was used longest ago, if none of its requests can be under way."""
        now = monotonic()
        idle = [
            caller for caller in self._callers.values() if self._is_idle(caller, now, self.limits.wait_s + 5)
        ]
        if not idle:
            raise LimitReached(f"{self.limits.callers:,} tokens are in use over HTTP (http_limits.callers)")
        await self._drop(min(idle, key=lambda caller: caller.used_at))

    async def _drop(self, caller: Caller) -> None:
        if self._callers.get(caller.digest) is caller:
            del self._callers[caller.digest]
        await caller.close()

    def _is_idle(self, caller: Caller, now: float, idle_s: float) -> bool:
        return not caller.streams and not caller.consumers and now - caller.used_at > idle_s

    async def _sweep_on(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            now = monotonic()
            for caller in list(self._callers.values()):
                try:
                    await caller.sweep(now, self.limits.consumer_idle_s)
                    if caller.link.refusal is not None or self._is_idle(caller, now, self.limits.caller_idle_s):
                        await self._drop(caller)
                except Exception:
                    logger.exception("closing what a caller does not use failed")
