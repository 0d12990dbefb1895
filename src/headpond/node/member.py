"""The process of a node that is a member of a cluster.

It listens from its start on. While it is a standby it refuses every client with the address of the active
member. When it is the active member, it opens the node on the replicated disk and serves. Once it is fenced or
has released its place, the process replaces itself and begins again as a standby: nothing of the old life is
left that could answer.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import cast

import uvloop

from headpond import __version__
from headpond.broker.settings import Settings
from headpond.cluster.active import Active
from headpond.cluster.jetstream import JetStream
from headpond.cluster.member import Member
from headpond.cluster.records import ActiveMember
from headpond.model.address import Address, parse_addresses
from headpond.node.data_folder import NodeDisk, lock_folder, open_error
from headpond.node.process import OnReady, Service, check_secure, open_core, watch_signals
from headpond.node.server import Server, listen
from headpond.wire.connection import ConnectionState, NodeSide
from headpond.wire.control.greeting import Hello

logger = logging.getLogger("headpond.node")

PROBE_S = 1.0
HANDICAP_S = 10.0
"""How much longer a member waits for its turn after it has released its place."""
HANDICAP = "HEADPOND_HANDICAP_S"


class StandbyDoor(asyncio.Protocol):
    """Tells a client where the active member is."""

    def __init__(self, member: Member, settings: Settings) -> None:
        self._member = member
        self._side = NodeSide(
            node=member.me.member,
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
        raise self._member.not_active()


class MemberProcess:
    def __init__(self, settings: Settings, disk: NodeDisk, on_ready: OnReady) -> None:
        self._settings = settings
        self._disk = disk
        self._on_ready = on_ready
        self._server: Server | None = None
        self._member: Member | None = None

    def _accept(self) -> asyncio.Protocol:
        if self._server is not None:
            return self._server.accept()
        assert self._member is not None
        return StandbyDoor(self._member, self._settings)

    async def live(self) -> bool:
        """One life; returns whether another one should follow."""
        settings = self._settings
        stopped, tls = watch_signals(settings)
        listener, address = await listen(self._accept, settings.address, settings, tls)
        url = settings.advertise or address.url
        me = ActiveMember(settings.member or str(address), url, settings.http)
        journal = await JetStream.connect(
            settings.cluster, settings.group, me.member, bytes_max=settings.stream_bytes
        )
        with ThreadPoolExecutor(1, thread_name_prefix="headpond-apply") as thread:
            in_thread = partial(asyncio.get_running_loop().run_in_executor, thread)
            member = self._member = Member(journal, self._disk, me, in_thread, refuses)
            member.handicap_s = float(os.environ.get(HANDICAP, "0"))
            logger.info("member %s of group %s", me.member, settings.group)
            becoming = asyncio.ensure_future(
                member.become_active(self._drain, standby=settings.confirm == "journal+standby")
            )
            await _first(becoming, stopped.wait())
            again = False
            try:
                if becoming.done():
                    again = await self._serve(becoming.result(), (listener, address), stopped, tls)
            finally:
                becoming.cancel()
                listener.close()
                await member.close()
        return again

    def _drain(self) -> None:
        if self._server is not None:
            self._server.drain()

    async def _serve(
        self,
        active: Active,
        listening: tuple[asyncio.Server, Address],
        stopped: asyncio.Event,
        tls: ssl.SSLContext | None,
    ) -> bool:
        """Serves as the active member; returns whether another life should follow."""
        settings, member, loop = self._settings, self._member, asyncio.get_running_loop()
        assert member is not None
        logger.info("active in epoch %d", active.applier.position.epoch)
        core = await loop.run_in_executor(None, open_core, active.disk, settings)
        check_secure(settings, guarded=core.stores.tokens.guarded)
        durable = asyncio.Event()
        active.disk.when_durable(lambda error: (loop.call_soon_threadsafe(durable.set), None)[1])
        await _first(durable.wait(), active.ended)
        if active.ended.done():
            logger.error("no longer active: %s", active.ended.result())
            return True
        server = Server(active.disk, core, settings, tls, certain=lambda: active.certain)
        service = Service(server, settings, tls)
        await service.start(self._on_ready, listening)
        self._server = server
        await _first(active.ended, stopped.wait(), member.switch_wanted.wait())
        if active.ended.done():
            logger.error("no longer active: %s", active.ended.result())
            return True
        self._server = None
        await service.stop()
        await active.release()
        os.environ[HANDICAP] = str(HANDICAP_S)
        return not stopped.is_set()


async def _first(*waiting: object) -> None:
    """Returns when one of several awaitables is done; ends those that it began."""
    began = [asyncio.ensure_future(each) for each in waiting if asyncio.iscoroutine(each)]
    others = [each for each in waiting if isinstance(each, asyncio.Future)]
    await asyncio.wait([*began, *others], return_when=asyncio.FIRST_COMPLETED)
    for task in began:
        task.cancel()


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


def run_member(settings: Settings, on_ready: OnReady) -> None:
    """Serves ``settings.data`` as a member of a cluster until SIGTERM or SIGINT."""
    folder = Path(settings.data).expanduser()
    disk = lock_folder(folder)
    try:
        again = uvloop.run(MemberProcess(settings, disk, on_ready).live())
    except OSError as error:
        raise open_error(folder, error) from error
    finally:
        disk.unlock()
    if again:
        sys.stdout.flush()
        os.execv(sys.executable, sys.orig_argv)
