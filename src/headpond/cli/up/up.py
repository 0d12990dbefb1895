"""``headpond up``: a node with a console and programs that keep it busy, until Ctrl-C.

The node runs in this process, beside the lossy link that its console controls. With ``--cluster`` it is a group
of three nodes in processes that can be killed; this process has the lossy link, and a port that leads to the
console of the active node. A second node, to which copies go, the programs and the query of Spark are child
processes; all data are in a temporary folder.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import tempfile
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from headpond.cli.command import command
from headpond.cli.operate.cluster import local_cluster_object
from headpond.cli.options import flag, option, wrong_use
from headpond.cli.output import Output, json_text, note, print_objects
from headpond.cli.output import run as run_async
from headpond.cli.processes import drop_settings, until_stopped
from headpond.cluster.local import Child, LocalCluster
from headpond.model.errors import Unavailable
from headpond.model.names import TopicName

if TYPE_CHECKING:
    from headpond.broker.core import NodeCore
    from headpond.broker.settings import Settings
    from headpond.node.data_folder import NodeDisk
    from headpond.node.process import OnReady

LISTEN_HELP = "The address of the node; port 0 picks a free port."
HTTP_HELP = "The address of the console; port 0 picks a free port."
SPARK_HELP = "Also run a streaming query, so that the page about Spark has something to show."
CLUSTER_HELP = "Run a cluster instead of one node: three nodes and three nats-servers."
LISTEN = "127.0.0.1:7411"
COPIED = ("orders", "menu")
"""The topics that the second node gets."""
LOSSY_TOPIC, LOSSY_SUBSCRIPTION = "payments", "accounting"
FAULTS = {"loss": 0.1, "duplicates": 0.05, "delay_s": 0.02}
"""What the lossy link does until somebody changes it."""


@command()
def up(
    output: Output,
    listen: Annotated[str, option("--listen", "HOST:PORT", LISTEN_HELP)] = LISTEN,
    http: Annotated[str, option("--http", "HOST:PORT", HTTP_HELP)] = "127.0.0.1:7412",
    spark: Annotated[bool, flag("--spark", SPARK_HELP)] = False,
    cluster: Annotated[bool, flag("--cluster", CLUSTER_HELP)] = False,
) -> None:
    """Run a node with a console and programs that keep it busy, to look at it, until Ctrl-C.

    Prints the address of the console first. One producer and its consumer reach the node over a lossy link:
    the page Delivery of the console sets how much the link loses, repeats and delays. All data is in
    a temporary folder, which the command removes at the end.

    With --cluster, kill the active node (kill -9): another one takes over, and the console continues at the
    same address. The lossy link of a cluster is fixed.
    """
    from headpond.broker.settings import Settings
    from headpond.node.process import check_secure, run

    if spark:
        from headpond.spark.start.packages import need_spark

        need_spark()  # fail now, not in a child process
    if cluster and listen != LISTEN:
        raise wrong_use("--listen", "the nodes of --cluster listen on free ports")
    drop_settings()
    with tempfile.TemporaryDirectory(prefix="headpond-up-", ignore_cleanup_errors=True) as place:
        folder = Path(place)
        logging.basicConfig(filename=folder / "node.log", level=logging.INFO)
        settings = Settings.load(None, {"data": str(folder / "node"), "listen": listen, "http": http}, {})
        if cluster:
            check_secure(settings, guarded=False)
            run_async(until_stopped(partial(_start_cluster, output, folder, settings, spark)))
        else:
            run(settings, serve=partial(_serve, output, folder, spark))


async def _serve(
    output: Output,
    folder: Path,
    spark: bool,
    disk: NodeDisk,
    core: NodeCore,
    settings: Settings,
    on_ready: OnReady,
) -> None:
    await until_stopped(partial(_start_node, output, folder, spark, disk, core, settings))


async def _start_node(
    output: Output,
    folder: Path,
    spark: bool,
    disk: NodeDisk,
    core: NodeCore,
    settings: Settings,
    stack: AsyncExitStack,
) -> None:
    from headpond.node.lossy_link import Faults, LossyLink
    from headpond.node.process import Service
    from headpond.node.server import Server, listen

    server = Server(disk, core, settings, None)
    listening = await listen(server.accept, settings.address, settings, None)
    place, faults = listening[1], Faults(**FAULTS, cut_s=None)
    topic = str(TopicName.parse(LOSSY_TOPIC))
    link = await stack.enter_async_context(LossyLink(place.host, place.port, faults, topic, LOSSY_SUBSCRIPTION))
    service = Service(server, settings, None, lossy_link=link)
    addresses: list[str] = []
    await service.start(lambda url, console: addresses.extend((str(console), url)), listening)
    stack.push_async_callback(service.stop)
    console, url = addresses
    _print_console(output, console, {"ready": url, "cluster": None, "processes": []})
    children = await _start_children(stack, folder, url, link.url, spark)
    _print_started(
        output,
        children.started,
        f"One producer and its consumer use the lossy link {link.url}: the page Delivery controls it.",
    )


async def _start_cluster(
    output: Output, folder: Path, settings: Settings, spark: bool, stack: AsyncExitStack
) -> None:
    from headpond.node.lossy_link import Faults, LossyLink
    from headpond.node.relay import Relay

    def lead_to(node: Child) -> None:
        for relay, place in ((link, node.address), (console, node.http)):
            relay.port = int(place.rpartition(":")[2])

    host = "127.0.0.1"
    assert settings.http_address is not None
    console = await stack.enter_async_context(Relay(host, 0, place=settings.http_address))
    link = await stack.enter_async_context(LossyLink(host, 0, Faults(**FAULTS, cut_s=None)))
    cluster = LocalCluster(folder, note, http=True, became_active=lead_to)
    note("starting three nodes and three nats-servers")
    stack.push_async_callback(cluster.stop)
    await cluster.start()
    _print_console(output, f"http://{console.address}", local_cluster_object(cluster))
    children = await _start_children(stack, folder, cluster.url, link.url, spark)
    _print_started(
        output,
        [*cluster.nodes, *cluster.servers, *children.started],
        f"One producer and its consumer use a lossy link, {link.url}.\n"
        "Kill a process (kill -9 PID): it starts again, and if it was the active node, another one takes over.",
    )


async def _start_children(
    stack: AsyncExitStack, folder: Path, url: str, lossy_url: str, spark: bool
) -> Children:
    children = Children(folder)
    stack.push_async_callback(children.stop)
    await children.start(url, lossy_url, spark=spark)
    return children


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


def _print_console(output: Output, console: str, found: dict[str, Any]) -> None:
    print(json_text({"console": console, **found}) if output.as_json else console, flush=True)


def _print_started(output: Output, children: list[Child], explanation: str) -> None:
    if output.as_json:
        return
    rows = [{"name": each.name, "pid": str(each.pid), "what": each.address} for each in children]
    print()
    print_objects(rows, "name pid what")
    print(f"\n{explanation}")
    print("Ctrl-C ends everything and removes its data.", flush=True)
