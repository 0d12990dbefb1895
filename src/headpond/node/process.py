"""A node's process: its folder, its certificates, its signals, and serving until a signal stops it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import resource
import signal
import ssl
import uuid
from collections.abc import Callable, Coroutine
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvloop

from headpond import __version__
from headpond.broker.access.groups import Elsewhere
from headpond.broker.core import NodeCore
from headpond.broker.settings import Settings
from headpond.client.heap import keep_freed_memory
from headpond.client.link.spin import Spin
from headpond.model.address import Address
from headpond.model.errors import BadConfig, HeadpondError, Insecure
from headpond.node.backup import LinkedCut
from headpond.node.data_folder import NodeDisk, check_no_member, lock_folder, open_error, open_identity
from headpond.node.garbage import without_collections
from headpond.node.server import SPIN_S, Server, clock_us, now_us
from headpond.storage.disk import Disk

if TYPE_CHECKING:
    from headpond.node.http.cluster import ClusterView
    from headpond.node.http.server import HttpServer
    from headpond.node.lossy_link import LossyLink

logger = logging.getLogger("headpond.node")

FILES_WANTED = 262_144
OnReady = Callable[[str, str | None], None]
"""Gets the URL of the node, and that of HTTP where the node serves it."""
Vitals = tuple[int | None, int | None]
"""Microseconds of processor time, and bytes of memory; None if the system does not say."""


def process_vitals() -> Vitals:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return round((usage.ru_utime + usage.ru_stime) * 1e6), _resident_bytes()


def _resident_bytes() -> int | None:
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def check_secure(settings: Settings, *, guarded: bool) -> None:
    """Refuses to serve an address that other machines can reach without tokens and TLS, unless ``insecure``."""
    if settings.on_loopback or settings.insecure or (guarded and settings.tls_cert):
        return
    lacks = [
        *([] if guarded else ["tokens, so anyone could read and delete everything"]),
        *([] if settings.tls_cert else ["TLS, so tokens and messages would travel in the clear"]),
    ]
    place = settings.http if Address(*settings.address).on_loopback else settings.listen
    raise Insecure(f"other machines can reach {place}, and this node has no {'; and no '.join(lacks)}")


def tls_context(settings: Settings) -> ssl.SSLContext | None:
    """The context from the files as they are now; None without TLS."""
    if not settings.tls_cert:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    at = settings.tls_cert
    try:
        context.load_cert_chain(settings.tls_cert, settings.tls_key or None)
        if settings.tls_client_ca:
            at = settings.tls_client_ca
            context.load_verify_locations(settings.tls_client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except OSError as error:  # the base of ssl's errors
        raise BadConfig(
            f"cannot use {at} for TLS: {error.strerror or error}",
            hint="--tls-cert and --tls-client-ca are PEM files, --tls-key the key of the first.",
        ) from error
    return context


class Certificates:
    """The newest context that could be read; open connections continue with the one they began with.

    Every reading makes a new context, and each handshake takes the newest: a context in use would keep
    authorities that were removed from the file, and could get a certificate and a key that do not match.
    """

    def __init__(self, settings: Settings, listening: ssl.SSLContext) -> None:
        self._settings = settings
        self._newest = listening
        listening.sni_callback = self._choose  # called with every handshake, with or without a name

    def read_again(self) -> None:
        """``BadConfig`` if the files cannot be used; then the old context stays."""
        context = tls_context(self._settings)
        assert context is not None
        self._newest = context

    def _choose(self, tls: ssl.SSLSocket | ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        if self._newest is not context:
            tls.context = self._newest


def _reload(certificates: Certificates | None) -> None:
    if certificates is None:
        logger.info("SIGHUP: there are no certificates to read again without TLS")
        return
    try:
        certificates.read_again()
    except BadConfig as error:
        logger.error("SIGHUP: the old certificate stays in use: %s", error.message)
    else:
        logger.info("SIGHUP: read the certificate again")


def watch_signals(settings: Settings) -> tuple[asyncio.Event, ssl.SSLContext | None]:
    """The event of SIGTERM or SIGINT, and the context whose certificates SIGHUP reads again."""
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signal_number, stopped.set)
    tls = tls_context(settings)
    certificates = None if tls is None else Certificates(settings, tls)
    loop.add_signal_handler(signal.SIGHUP, loop.run_in_executor, None, _reload, certificates)
    return stopped, tls


class Service:
    """A node that serves clients, with HTTP if its settings say so; ``cluster``: if it is a member of one.

    HTTP also controls ``lossy_link``, if there is one between the node and some of its clients.
    """

    def __init__(
        self,
        server: Server,
        settings: Settings,
        tls: ssl.SSLContext | None,
        cluster: ClusterView | None = None,
        lossy_link: LossyLink | None = None,
    ) -> None:
        self.server = server
        self._http: HttpServer | None = None
        if settings.http:
            from headpond.node.http.server import HttpServer  # a node without HTTP does not load the framework

            self._http = HttpServer(server, settings, tls, cluster, lossy_link)

    async def start(self, on_ready: OnReady, listening: tuple[asyncio.Server, Address] | None = None) -> None:
        url = await self.server.start(listening)
        if self._http is not None:
            try:
                await self._http.start()
            except BaseException:
                await self.server.stop()
                raise
        on_ready(url, self._http.url if self._http is not None else None)

    async def stop(self) -> None:
        logger.info("stopping")
        if self._http is not None:
            await self._http.stop()
        await self.server.stop()


async def _serve(disk: NodeDisk, core: NodeCore, settings: Settings, on_ready: OnReady) -> None:
    stopped, tls = watch_signals(settings)
    service = Service(Server(disk, core, settings, tls, spin=Spin(SPIN_S)), settings, tls)
    await service.start(on_ready)
    await stopped.wait()
    await service.stop()


def _raise_file_limit() -> None:
    """Every log has its last file open, and every connection is a file: the usual soft limit is far too low."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_WANTED if hard == resource.RLIM_INFINITY else min(hard, FILES_WANTED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def open_core(
    disk: Disk,
    settings: Settings,
    elsewhere: Elsewhere | None = None,
    now_us: Callable[[], int] = now_us,
    clock_us: Callable[[], int] = clock_us,
) -> NodeCore:
    """Recovers the data folder, and logs what it found. Does IO."""
    cut = LinkedCut(disk.root) if isinstance(disk, NodeDisk) else None
    if cut is not None:
        cut.release(disk)  # of a run that was killed
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
        elsewhere=elsewhere,
        cut=cut,
    )
    for line in core.stores.recovered:
        logger.warning("%s", line)
    return core


def open_process_core(disk: Disk, settings: Settings, elsewhere: Elsewhere | None = None) -> NodeCore:
    """``open_core`` for a process that is this node and nothing else: all that it opens stays in memory."""
    with without_collections():
        core = open_core(disk, settings, elsewhere)
    gc.freeze()  # Python never looks at it again
    return core


def prepare(settings: Settings) -> None:
    """Checks what the settings name, before anything is opened, and raises the limit of open files."""
    settings.check_places()
    tls_context(settings)
    if settings.http:
        import_module("headpond.node.http")  # raises HttpMissing
    _raise_file_limit()
    keep_freed_memory()


Serve = Callable[[NodeDisk, NodeCore, Settings, OnReady], Coroutine[Any, Any, None]]


def run(settings: Settings, on_ready: OnReady = lambda url, http_url: None, *, serve: Serve = _serve) -> None:
    """Serves ``settings.data`` until SIGTERM or SIGINT; calls ``on_ready`` when clients can connect."""
    prepare(settings)
    folder = Path(settings.data).expanduser()
    disk = lock_folder(folder)
    try:
        check_no_member(
            disk, hint="Start it with --cluster. Or run a node on a copy of it from which you delete cluster."
        )
        try:
            core = open_process_core(disk, settings)
        except OSError as error:
            raise open_error(folder, error) from error
        try:
            check_secure(settings, guarded=core.stores.tokens.guarded)
            uvloop.run(serve(disk, core, settings, on_ready))
        except HeadpondError:  # it did not begin to serve: the folder is closed as at a clean stop
            core.close()
            raise
    finally:
        disk.unlock()
