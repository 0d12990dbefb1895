"""A node's process: its folder, its signals, and serving until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import signal
import ssl
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop

from headpond import __version__
from headpond.broker.core import NodeCore
from headpond.broker.settings import Settings
from headpond.model.address import Address
from headpond.model.errors import BadConfig, HeadpondError, Insecure
from headpond.node.data_folder import open_error, open_identity, refuse_foreign
from headpond.node.server import Server, clock_us, now_us
from headpond.node.tls import Certificates, tls_context
from headpond.storage.os_disk import OsDisk

if TYPE_CHECKING:
    from headpond.node.http.server import HttpServer

OnReady = Callable[[str, str | None], None]
"""Gets the URL of the node, and that of HTTP where the node serves it."""
Vitals = tuple[int | None, int | None]
"""Microseconds of processor time, and bytes of memory; None where the system does not tell."""


def process_vitals() -> Vitals:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return round((usage.ru_utime + usage.ru_stime) * 1e6), _resident_bytes()


def _resident_bytes() -> int | None:
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


logger = logging.getLogger("headpond.node")

FILES_WANTED = 262_144


def check_secure(settings: Settings, *, guarded: bool) -> None:
    """Refuses to serve an address that others can reach without tokens and TLS, unless told to."""
    if settings.on_loopback or settings.insecure or (guarded and settings.tls_cert):
        return
    lacks = [
        *([] if guarded else ["tokens, so anybody could read and delete everything"]),
        *([] if settings.tls_cert else ["TLS, so tokens and messages would travel in the clear"]),
    ]
    place = settings.http if Address(*settings.address).on_loopback else settings.listen
    raise Insecure(f"{place} can be reached by others, and this node has no {'; and no '.join(lacks)}")


def _reload(certificates: Certificates | None) -> None:
    if certificates is None:
        logger.info("told to read its files again (SIGHUP); without TLS there are none")
        return
    try:
        certificates.read_again()
    except BadConfig as error:
        logger.error("the certificate is kept as it was: %s", error.message)
    else:
        logger.info("the certificate was read again")


async def _serve(
    disk: OsDisk,
    core: NodeCore,
    settings: Settings,
    on_ready: OnReady,
) -> None:
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signal_number, stopped.set)
    tls = tls_context(settings)
    certificates = None if tls is None else Certificates(settings, tls)
    loop.add_signal_handler(signal.SIGHUP, _reload, certificates)
    server = Server(disk, core, settings, tls)
    url = await server.start()
    try:
        http = await _open_http(server, settings, tls) if settings.http else None
    except BaseException:
        await server.stop()
        raise
    on_ready(url, http.url if http is not None else None)
    await stopped.wait()
    logger.info("stopping")
    if http is not None:
        await http.stop()
    await server.stop()


async def _open_http(server: Server, settings: Settings, tls: ssl.SSLContext | None) -> HttpServer:
    from headpond.node.http.server import open_http  # a node without HTTP does not load the framework

    return await open_http(server, settings, tls)


def _raise_file_limit() -> None:
    """A log keeps its last file open, and so does every connection: the usual soft limit is far too low."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_WANTED if hard == resource.RLIM_INFINITY else min(hard, FILES_WANTED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def run(settings: Settings, on_ready: OnReady = lambda url, http_url: None) -> None:
    """Serves ``settings.data`` until SIGTERM or SIGINT; calls ``on_ready`` when clients can connect."""
    settings.check_places()  # faults are told before anything is opened
    tls_context(settings)
    _raise_file_limit()
    folder = Path(settings.data).expanduser()
    try:
        disk = OsDisk(folder)
        refuse_foreign(disk, str(folder))
        disk.lock()
    except OSError as error:
        raise open_error(folder, error) from error
    try:
        try:
            identity = open_identity(disk, node=uuid.uuid4().hex, now_us=now_us())
            core = NodeCore(
                disk,
                settings,
                node=identity.node,
                software=f"headpond {__version__}",
                now_us=now_us,
                clock_us=clock_us,
                new_uuid=lambda: uuid.uuid4().bytes,
                vitals=process_vitals,
            )
        except OSError as error:
            raise open_error(folder, error) from error
        for line in core.stores.recovered:
            logger.warning("%s", line)
        try:
            check_secure(settings, guarded=core.stores.tokens.guarded)
            uvloop.run(_serve(disk, core, settings, on_ready))
        except HeadpondError:  # it could not begin to serve: the folder is left as a clean stop leaves it
            core.close()
            raise
    finally:
        disk.unlock()
