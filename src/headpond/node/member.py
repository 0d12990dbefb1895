"""A node that is a member of a cluster: one life, from standby to active to its end.

It listens from its start on. While it is a standby it refuses every client with the address of the active
member. When it is the active member, it opens the node on the replicated disk and serves. Once it is fenced or
has released its place, its process replaces itself and begins again as a standby: nothing of the old life is
left that could answer.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import ssl
import sys
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

import uvloop

from headpond import __version__
from headpond.broker.core import NodeCore
from headpond.broker.settings import Settings
from headpond.cluster.active import Active
from headpond.cluster.apply import Diverged
from headpond.cluster.group_watch import GroupBucket, GroupWatch
from headpond.cluster.groups import GroupMember, http_url
from headpond.cluster.journal import Journal
from headpond.cluster.member import Member, MemberTopics
from headpond.cluster.records import ActiveMember
from headpond.cluster.replicated_disk import ReplicatedDisk
from headpond.cluster.standby import InThread, Refuses
from headpond.model.address import Address, parse_addresses
from headpond.model.errors import BadConfig, BadData, NotActive
from headpond.node.data_folder import lock_folder, open_error
from headpond.node.process import OnReady, Service, check_secure, open_process_core, prepare, watch_signals
from headpond.node.server import Server, listen
from headpond.storage.disk import MeasuredDisk
from headpond.wire.connection import ConnectionState, NodeSide
from headpond.wire.control.greeting import Hello

if TYPE_CHECKING:
    from headpond.node.http.cluster import ClusterView
    from headpond.node.http.standby import StandbyHttp

logger = logging.getLogger("headpond.node")

PROBE_S = 1.0
REST_S = 10.0
"""A member that was active leaves it to others for so long to become active."""
REST = "HEADPOND_MEMBER_REST_S"

JournalAndBucket = tuple[Journal, GroupBucket | None]
"""Without a bucket the group is the only one."""
NewServer = Callable[[ReplicatedDisk, NodeCore, Callable[[], bool]], Server]


class StandbyDoor(asyncio.Protocol):
    """Answers a client where the active member is."""

    def __init__(self, refusal: Callable[[], NotActive], settings: Settings) -> None:
        self._refusal = refusal
        self._side = NodeSide(
            node=settings.member,
            software=f"headpond {__version__}",
            window_bytes_max=settings.limits.window_bytes,
            greet=self._refuse,
        )

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._side.receive(data)
        self._transport.writelines(self._side.data_to_send())
        if self._side.state is ConnectionState.CLOSED:
            self._transport.close()

    def _refuse(self, hello: Hello) -> None:
        raise self._refusal()


class MemberLife:
    """``connect`` opens the stream; ``refuses`` says whether nothing listens at a member's address.

    ``instance`` is another one in each life, in the order of their starts.
    """

    def __init__(
        self,
        settings: Settings,
        disk: MeasuredDisk,
        *,
        connect: Callable[[ActiveMember], Awaitable[JournalAndBucket]],
        in_thread: InThread,
        refuses: Refuses,
        new_server: NewServer,
        instance: str,
        tls: ssl.SSLContext | None = None,
        on_ready: OnReady = lambda url, http_url: None,
        rest_s: float = 0.0,
        waits: bool = True,
    ) -> None:
        self.member: Member | None = None
        self.server: Server | None = None
        """While it serves clients."""
        self.groups: GroupWatch | None = None
        self._http: StandbyHttp | None = None
        """While it does not."""
        self._view: ClusterView | None = None
        self._settings = settings
        self._disk = disk
        self._connect = connect
        self._in_thread = in_thread
        self._refuses = refuses
        self._new_server = new_server
        self._instance = instance
        self._tls = tls
        self._on_ready = on_ready
        self._rest_s = rest_s
        self._waits = waits

    async def live(self, stopped: asyncio.Event) -> bool:
        """Returns when it is stopped, or no longer active; whether another life should follow."""
        settings = self._settings
        listening = await listen(self._accept, settings.address, settings, self._tls)
        address = listening[1]
        me = ActiveMember(
            settings.member or _name_of(address), settings.advertise or address.url, settings.http
        )
        connecting = asyncio.ensure_future(self._connect(me))
        await _first(connecting, stopped.wait())
        if not connecting.done():  # no server answers
            connecting.cancel()
            listening[0].close()
            return False
        journal, bucket = connecting.result()
        member = self.member = Member(
            journal,
            self._disk,
            me,
            self._in_thread,
            self._refuses,
            instance=self._instance,
            version=__version__,
            topics=self._topics,
            rest_s=self._rest_s,
            waits=self._waits,
        )
        watching = asyncio.ensure_future(self._watch_groups(member, bucket))
        if settings.http:
            from headpond.node.http.cluster import ClusterView  # as Service does
            from headpond.node.http.standby import StandbyHttp

            self._view = ClusterView(member, settings.group)
            self._http = StandbyHttp(self._view, settings, self._tls)
            await self._http.start()
        logger.info("member %s of group %s", me.member, settings.group)
        becoming = asyncio.ensure_future(
            member.become_active(self._drain, standby=settings.confirm == "journal+standby")
        )
        try:
            await _first(becoming, stopped.wait())
            return becoming.done() and await self._serve(becoming.result(), listening, stopped)
        finally:
            becoming.cancel()
            watching.cancel()
            listening[0].close()
            await self._stop_http()
            await member.close()

    async def _watch_groups(self, member: Member, bucket: GroupBucket | None) -> None:
        if bucket is not None:
            settings, url = self._settings, member.me.url
            entry = GroupMember(url, http_url(settings.http_address, url))
            self.groups = GroupWatch(bucket, settings.group, member, entry, lambda: self._topics().topics)
            await self.groups.run()

    def _topics(self) -> MemberTopics:
        assert self.member is not None
        revision = self.groups.revision if self.groups is not None else 0
        if self.server is None:
            return MemberTopics(self.member.me.member, False, revision)
        names = (topic.name for topic in self.server.core.stores.catalog)
        topics = Counter(name.partition("/")[0] for name in names)
        return MemberTopics(self.member.me.member, True, revision, dict(topics))

    def _accept(self) -> asyncio.Protocol:
        if self.server is not None:
            return self.server.accept()
        return StandbyDoor(self._refusal, self._settings)

    def _refusal(self) -> NotActive:
        if self.member is None:
            return NotActive(f"this member of group {self._settings.group} has not reached its stream yet")
        return self.member.not_active()

    async def _stop_http(self) -> None:
        http, self._http = self._http, None
        if http is not None:
            await http.stop()

    def _drain(self) -> None:
        if self.server is not None:
            self.server.drain()

    async def _serve(
        self, active: Active, listening: tuple[asyncio.Server, Address], stopped: asyncio.Event
    ) -> bool:
        member, loop = self.member, asyncio.get_running_loop()
        assert member is not None
        logger.info("active in epoch %d", active.applier.position.epoch)
        groups = self.groups
        elsewhere = groups.elsewhere if groups is not None else None
        opening = loop.run_in_executor(None, open_process_core, active.disk, self._settings, elsewhere)
        await _first(opening, active.ended)
        if groups is not None:
            groups.look()
            await _first(groups.known.wait(), active.ended, stopped.wait())
        if not active.ended.done():
            check_secure(self._settings, guarded=opening.result().stores.tokens.guarded)
            await _first(_durable(active.disk), active.ended, stopped.wait())
        if not active.ended.done() and not stopped.is_set():
            server = self._new_server(active.disk, opening.result(), lambda: active.certain)
            service = Service(server, self._settings, self._tls, self._view)
            await self._stop_http()
            await service.start(self._on_ready, listening)
            self.server = server
            await _first(active.ended, stopped.wait(), member.switch_wanted.wait())
            if not active.ended.done():
                self.server = None
                await service.stop()
        if not active.ended.done():
            await active.release()
            return not stopped.is_set()
        logger.error("no longer active: %s", active.ended.result())
        return True


def _name_of(address: Address) -> str:
    """A member's name without a setting: its host and port, with characters that names have."""
    return re.sub(r"[^\w.]+", "-", str(address), flags=re.ASCII).strip("-")


async def _durable(disk: ReplicatedDisk) -> None:
    """Returns when everything written so far is durable."""
    loop, done = asyncio.get_running_loop(), asyncio.Event()

    def tell(error: OSError | None) -> None:
        loop.call_soon_threadsafe(done.set)

    disk.when_durable(tell)
    await done.wait()


async def _first(*waiting: object) -> None:
    """Returns when one of several is done; ends the coroutines among them that are not."""
    began = [asyncio.ensure_future(each) for each in waiting if asyncio.iscoroutine(each)]
    others = [each for each in waiting if isinstance(each, asyncio.Future)]
    await asyncio.wait([*began, *others], return_when=asyncio.FIRST_COMPLETED)
    for task in began:
        task.cancel()


# --- the process --------------------------------------------------------------------------------------


def run_member(settings: Settings, on_ready: OnReady) -> None:
    """Serves ``settings.data`` as a member of a cluster until SIGTERM or SIGINT."""
    prepare(settings)
    check_reachable(settings)
    check_secure(settings, guarded=True)  # whether it has tokens is known when it is active
    folder = Path(settings.data).expanduser()
    disk = lock_folder(folder)
    try:
        again = uvloop.run(_live(settings, disk, on_ready))
    except OSError as error:
        raise open_error(folder, error) from error
    except Diverged as error:
        raise BadData(
            f"{folder} does not fit the stream of group {settings.group}: {error}",
            hint="If another member is active, empty this folder: the member then copies it. If none becomes "
            "active, `headpond cluster reseed` chooses the folder that counts (docs/cluster.md).",
        ) from error
    finally:
        disk.unlock()
    if again:
        os.environ[REST] = str(REST_S)
        sys.stdout.flush()
        os.execv(sys.executable, sys.orig_argv)


def check_reachable(settings: Settings) -> None:
    """Clients get the address of the active member from the others: it must be one that they can use."""
    host = settings.address[0]
    if settings.advertise:
        parse_addresses(settings.advertise)
    elif host in ("0.0.0.0", "::"):
        raise BadConfig(
            f"a member that listens on {host} must say at which address clients reach it",
            hint="Give --advertise headpond://HOST:PORT, and --member NAME: each member needs another one.",
        )


async def _live(settings: Settings, disk: MeasuredDisk, on_ready: OnReady) -> bool:
    from headpond.cluster.jetstream import JetStream

    async def connect(me: ActiveMember) -> JournalAndBucket:
        stream = await JetStream.connect(
            settings.cluster, settings.group, me.member, bytes_max=settings.stream_bytes
        )
        return stream, stream

    stopped, tls = watch_signals(settings)
    with ThreadPoolExecutor(1, thread_name_prefix="headpond-apply") as thread:
        life = MemberLife(
            settings,
            disk,
            connect=connect,
            in_thread=partial(asyncio.get_running_loop().run_in_executor, thread),
            refuses=refuses,
            new_server=lambda disk, core, certain: Server(disk, core, settings, tls, certain=certain),
            instance=f"{time.time_ns():016x}-{uuid.uuid4().hex[:8]}",
            tls=tls,
            on_ready=on_ready,
            rest_s=float(os.environ.pop(REST, "0")),
        )
        return await life.live(stopped)


async def refuses(member: ActiveMember) -> bool:
    """Whether the machine of a member answers that nothing listens at its address."""
    for address in parse_addresses(member.url):
        try:
            async with asyncio.timeout(PROBE_S):
                _, writer = await asyncio.open_connection(address.host, address.port)
        except ConnectionRefusedError:
            continue
        except (OSError, TimeoutError):
            return False
        writer.close()
        return False
    return True
