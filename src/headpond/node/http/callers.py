"""Callers: for each token a connection to the node, kept for a while, and what is open through it.

A token that is revoked, or whose time is over, loses its connection at once, as with any client of the node;
the next request with it asks the node anew and is told why. What is kept of a token is a digest of it.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic
from typing import TypeVar

from headpond.broker.settings import HttpLimits
from headpond.client.connect import Client
from headpond.client.link.connection import Connection
from headpond.client.link.link import Link, LinkOptions
from headpond.client.produce.producer import Producer
from headpond.model.address import DEFAULT_URL, Address
from headpond.model.errors import HeadpondError, LimitReached, SubscriptionNotFound, TopicNotFound
from headpond.node.http.held import HeldConsumer, parse_start
from headpond.node.http.lane import Lane
from headpond.wire.connection import ClientSide
from headpond.wire.control.access import ShowAccess
from headpond.wire.control.catalog import OpenTopic, TopicInfo
from headpond.wire.control.consuming import ShowSubscription
from headpond.wire.control.greeting import OperationOf

# A client of the node in the same process: the same conversation, through a pair of sockets instead of a
# port.
#
# So the node knows the door's callers as it knows any client, by their token, with nothing to configure: no
# address, no certificate, no port that might be taken.

Accept = Callable[[socket.socket], Awaitable[None]]
"""What a node does with its end of a pair of sockets."""


class InsideConnection(Connection):
    accept: Accept

    async def _dial(self) -> None:
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            end.setblocking(False)
        try:
            await self.accept(theirs)
            await self._loop.create_unix_connection(lambda: self, sock=ours)
        except BaseException:
            ours.close()
            theirs.close()
            raise


class InsideLink(Link):
    accept: Accept

    def _new_connection(self, address: Address) -> Connection:
        connection = InsideConnection(
            address,
            ClientSide(client=self._client, token=self._token),
            on_event=self._on_event,
            on_end=lambda error: self._on_down(connection, error),
            on_writable=self._on_writable,
        )
        connection.accept = self.accept
        return connection


class InsideClient(Client):
    """Opened like any client: ``async with InsideClient(accept, token, "http") as client``."""

    def __init__(self, accept: Accept, token: str | None, name: str) -> None:
        super().__init__(DEFAULT_URL, token, name, LinkOptions())  # an address stands for the one node there is
        self._accept = accept

    def _new_link(self, addresses: Sequence[Address]) -> Link:
        link = InsideLink(addresses, client=self._name, token=self._token_for(addresses), options=self._options)
        link.accept = self._accept
        return link


logger = logging.getLogger("headpond.http")

SWEEP_S = 2.0
PRODUCERS_MAX = 64
"""Open for one caller; the one used longest ago is closed for another."""
PRODUCER_IDLE_S = 60.0
LANES_MAX = 256
LANE_IDLE_S = 300.0
"""Longer than any flight takes."""
SEND_S_MAX = 30.0
"""How long a message may wait to be stored."""
CREDIT_BYTES = 1024 * 1024
"""What the node sends ahead to a held consumer; there may be many, and they are slow."""
CLIENT = "http"
"""What the door calls itself, in the log of administration and in lists of consumers."""

Result = TypeVar("Result")
ConsumerKey = tuple[str, str, str]
"""Topic, subscription, consumer."""
Check = Callable[[], Awaitable[None]]
"""Looks at what is to be sent before a topic is made for it."""


class Caller:
    """One token's connection, its producers and its consumers."""

    def __init__(self, client: InsideClient, digest: bytes) -> None:
        self.client = client
        self.digest = digest
        self.used_at = monotonic()
        self.streams = 0
        """Streams of events that are open."""
        self.consumers: dict[ConsumerKey, HeldConsumer] = {}
        self._producers: dict[tuple[str, str], tuple[Producer, float]] = {}
        self._lanes: dict[str, Lane] = {}
        self._name: str | None = None
        self.opening = asyncio.Lock()
        """Held while a producer or a consumer is opened, so that it is opened once."""

    async def name(self) -> str:
        """The token's name, or its id where it has none; nothing on an open node."""
        if self._name is None:
            info = await self.ask(ShowAccess())
            self._name = info.name or info.token
        return self._name

    @property
    def link(self) -> Link:
        """For the client's own classes: ``Admin``, ``Reader``, ``Producer``, ``Consumer``."""
        return self.client.link

    async def ask(self, operation: OperationOf[Result], timeout_s: float | None = None) -> Result:
        """Has the node carry out an operation; returns its answer."""
        return await self.client.link.ask(operation, timeout_s=timeout_s)

    async def topic(self, topic: str, check: Check) -> TopicInfo:
        """What a topic is like, to send to it; it is made if the node allows that and ``check`` does."""
        try:
            return await self.ask(OpenTopic(topic))
        except TopicNotFound:
            await check()
            return await self.ask(OpenTopic(topic, create=True))

    async def lane(self, topic: str, check: Check) -> Lane:
        """The way into a topic that this caller's requests share."""
        found = self._lanes.get(topic)
        if found is None:
            async with self.opening:
                found = self._lanes.get(topic)
                if found is None:
                    self._make_room()
                    found = self._lanes[topic] = Lane(self.client.link, await self.topic(topic, check))
        return found

    def _make_room(self) -> None:
        idle = [topic for topic, lane in self._lanes.items() if lane.idle]
        if len(self._lanes) >= LANES_MAX and idle:
            self._lanes.pop(min(idle, key=lambda topic: self._lanes[topic].used_at)).close()

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

    async def drop_ways(self, topic: str, name: str) -> None:
        """The topic is not what it was: the next message finds out anew."""
        self._lanes.pop(topic, None)
        if (found := self._producers.pop((topic, name), None)) is not None:
            await self._close(found[0])

    async def sweep(self, now: float, consumer_idle_s: float) -> None:
        """Closes what nobody used for a while."""
        for key, (producer, used_at) in list(self._producers.items()):
            if now - used_at > PRODUCER_IDLE_S:
                del self._producers[key]
                await self._close(producer)
        for topic, lane in list(self._lanes.items()):
            if now - lane.used_at > LANE_IDLE_S:
                del self._lanes[topic]
                lane.close()
        for place, held in list(self.consumers.items()):
            if held.over or (not held.busy and now - held.used_at > consumer_idle_s):
                del self.consumers[place]
                await held.close()

    async def close(self) -> None:
        for held in list(self.consumers.values()):
            await held.close()
        self.consumers.clear()
        for lane in self._lanes.values():
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
    def __init__(self, accept: Accept, limits: HttpLimits, is_guarded: Callable[[], bool]) -> None:
        self.limits = limits
        self.is_guarded = is_guarded
        """Whether the node asks for tokens."""
        self._accept = accept
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
        """Whether another consumer may be held for a caller."""
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
                kind=kind,
                mode=mode,
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
        """Whether more may be handed out, or another consumer be held.

        One that has nothing in hand may fetch what was sent ahead to it: by no other way does that go.
        """
        share = self.limits.share_of(self.limits.held_bytes)
        mine = sum(each.bytes for each in caller.consumers.values())
        if caller.digest and mine >= share:
            raise LimitReached(
                f"{mine:,} bytes of messages are handed out to this token over HTTP and not settled "
                "(http_limits.caller_share)"
            )
        consumers = [each for caller in self._callers.values() for each in caller.consumers.values()]
        handed = sum(each.bytes for each in consumers)
        ahead = sum(each.consumer.ahead_bytes for each in consumers)
        if handed >= self.limits.held_bytes or (
            handed + ahead >= self.limits.held_bytes and (by is None or by.bytes)
        ):
            raise LimitReached(
                f"{handed:,} bytes of messages are handed out over HTTP and not settled, {ahead:,} more are "
                "sent ahead (http_limits.held_bytes)"
            )

    async def get(self, token: str | None) -> Caller:
        """The caller with this token; an error says why the node does not let it in."""
        digest = b"" if token is None else hashlib.sha256(token.encode()).digest()
        caller = self._callers.get(digest)
        if caller is not None and caller.client.connected and caller.client.link.refusal is None:
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
            done.exception()  # whoever asked has gone

    async def _open(self, token: str | None, digest: bytes) -> Caller:
        if len(self._callers) >= self.limits.callers:
            await self._make_room()
        client = await InsideClient(self._accept, token, CLIENT).open()
        caller = self._callers[digest] = Caller(client, digest)
        return caller

    async def _make_room(self) -> None:
        """Closes who asked longest ago, if that is long enough that none of its requests is under way."""
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
                    refused = caller.client.link.refusal is not None
                    if refused or self._is_idle(caller, now, self.limits.caller_idle_s):
                        await self._drop(caller)
                except Exception:
                    logger.exception("looking after a caller's connection failed")
