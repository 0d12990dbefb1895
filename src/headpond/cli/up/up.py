"""``headpond up``: a node with a console and programs that keep it busy, until Ctrl-C.

The node runs in this process, beside the lossy link that its console controls. A second node, to which it is
linked, the programs and the query of Spark are child processes; all data are in a temporary folder.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from headpond.cli.command import command
from headpond.cli.options import flag, option
from headpond.cli.output import Output, json_text, note, print_objects
from headpond.cluster.local import Child
from headpond.model.errors import Unavailable

if TYPE_CHECKING:
    from headpond.broker.core import NodeCore
    from headpond.broker.settings import Settings
    from headpond.node.data_folder import NodeDisk
    from headpond.node.process import OnReady

LISTEN_HELP = "The address of the node; port 0 picks a free port."
HTTP_HELP = "The address of the console; port 0 picks a free port."
SPARK_HELP = "Also run a streaming query, so that the page about Spark has something to show."
COPIED = ("orders", "menu")
"""The topics that the second node gets."""
LOSSY_TOPIC, LOSSY_SUBSCRIPTION = "payments", "accounting"
FAULTS = {"loss": 0.1, "duplicates": 0.05, "delay_s": 0.02}
"""What the lossy link does until somebody changes it."""


@command()
def up(
    output: Output,
    listen: Annotated[str, option("--listen", "HOST:PORT", LISTEN_HELP)] = "127.0.0.1:7411",
    http: Annotated[str, option("--http", "HOST:PORT", HTTP_HELP)] = "127.0.0.1:7412",
    spark: Annotated[bool, flag("--spark", SPARK_HELP)] = False,
) -> None:
    """Run a node with a console, and programs that keep it busy, until Ctrl-C, to look at it.

    Prints the address of the console first. One producer and its consumer reach the node over a lossy link:
    the page Delivery of the console sets how much the link loses, repeats and delays. Everything is in a
    temporary folder, and is removed at the end.
    """
    import logging

    from headpond.broker.settings import Settings, variables
    from headpond.node.process import run

    if spark:
        from headpond.spark.start.packages import need_spark

        need_spark()  # fail now, not in a process of its own
    for name in os.environ.keys() & variables().keys():
        del os.environ[name]  # settings of some other node
    with tempfile.TemporaryDirectory(prefix="headpond-up-", ignore_cleanup_errors=True) as place:
        folder = Path(place)
        logging.basicConfig(filename=folder / "node.log", level=logging.INFO)
        settings = Settings.load(None, {"data": str(folder / "node"), "listen": listen, "http": http}, {})
        addresses: list[str] = []
        run(
            settings,
            lambda url, console: addresses.extend((str(console), url)),
            serve=partial(_serve, output, folder, addresses, spark),
        )


async def _serve(
    output: Output,
    folder: Path,
    addresses: list[str],
    spark: bool,
    disk: NodeDisk,
    core: NodeCore,
    settings: Settings,
    on_ready: OnReady,
) -> None:
    from headpond.model.names import TopicName
    from headpond.node.lossy_link import Faults, LossyLink
    from headpond.node.process import Service
    from headpond.node.server import Server, listen

    stopped = asyncio.Event()
    for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(ending, stopped.set)
    server = Server(disk, core, settings, None)
    listening = await listen(server.accept, settings.address, settings, None)
    place, faults = listening[1], Faults(**FAULTS, cut_s=None)
    topic = str(TopicName.parse(LOSSY_TOPIC))
    async with LossyLink(place.host, place.port, faults, topic, LOSSY_SUBSCRIPTION) as link:
        service = Service(server, settings, None, lossy_link=link)
        await service.start(on_ready, listening)
        console, url = addresses
        children = Children(folder)
        starting = asyncio.ensure_future(children.start(url, link.url, spark=spark))
        stopping = asyncio.ensure_future(stopped.wait())
        try:
            _print_console(output, console, url)
            await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
                _print_started(output, children.started, link.url)
                await stopping
        finally:
            starting.cancel()
            stopping.cancel()
            await asyncio.gather(starting, stopping, return_exceptions=True)
            await children.stop()
            await service.stop()


RESTART_S = 1.0


class Children:
    """The processes beside the node. One that ends early is reported with its last words, and started again."""

    def __init__(self, folder: Path) -> None:
        self.started: list[Child] = []
        self._folder = folder
        self._watching: list[asyncio.Task[None]] = []

    async def start(self, url: str, lossy_url: str, *, spark: bool) -> None:
        from headpond.client.connect import connect

        command = ["-m", "headpond", "node", "--data", str(self._folder / "copy"), "--listen", "127.0.0.1:0"]
        copy = await self._start("copy", "a second node, which gets copies of some topics", command)
        assert copy.process is not None and copy.process.stdout is not None
        word, _, copy_url = (await copy.process.stdout.readline()).decode().strip().partition(" ")
        if word != "ready":
            raise Unavailable(f"the second node did not start: {copy.last_words}")
        copy.command[-1] = copy_url.partition("://")[2]  # the next start takes the same port
        command = ["-m", "headpond.cli.up.traffic", url, lossy_url]
        await self._start("programs", "producers and consumers of a tea house", command)
        async with connect(url, name="up") as client:
            await client.admin.add_peer(copy_url, COPIED, direction="push", name="copy")
        if spark:
            command = ["-m", "headpond.cli.up.query", url, str(self._folder / "checkpoint")]
            await self._start("query", "a streaming query of Spark", command)

    async def _start(self, name: str, what: str, command: list[str]) -> Child:
        child = Child(name, what, [sys.executable, *command], self._folder / f"{name}.log")
        self.started.append(child)
        await child.start()
        self._watching.append(asyncio.create_task(self._watch(child)))
        return child

    async def _watch(self, child: Child) -> None:
        while True:
            assert child.process is not None
            code = await child.process.wait()
            note(f"{child.name} ended with exit code {code}, and is started again: {child.last_words}")
            await asyncio.sleep(RESTART_S)
            await child.start()

    async def stop(self) -> None:
        for task in self._watching:
            task.cancel()
        await asyncio.gather(*self._watching, return_exceptions=True)
        await asyncio.gather(*(child.stop() for child in self.started))


def _print_console(output: Output, console: str, url: str) -> None:
    print(json_text({"console": console, "ready": url}) if output.as_json else console, flush=True)


def _print_started(output: Output, children: list[Child], lossy_url: str) -> None:
    if output.as_json:
        return
    rows = [{"name": each.name, "pid": str(each.pid), "what": each.address} for each in children]
    print()
    print_objects(rows, "name pid what")
    print(f"\nOne producer and its consumer use the lossy link {lossy_url}: the page Delivery controls it.")
    print("Ctrl-C ends everything and removes its data.", flush=True)
