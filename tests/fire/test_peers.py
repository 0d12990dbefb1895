"""Links between real nodes: rings, kills, old copies of a folder; every identity arrives once."""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import headpond
import headpond.sync
from headpond.client.link.dialling import Backoff
from headpond.model.errors import HeadpondError
from headpond.node.bootstrap import bootstrap
from headpond.wire.control.links import PeerInfo
from tests.fire import packed_topic, stored_topic
from tests.fire.real_node import RealNode, wait_until

QUICK = Backoff(0.01, 0.1)
SHARED = {"following", "elsewhere"}
"""Of two links to one node: one carries a topic."""


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RealNode]]:
    folder = tmp_path_factory.mktemp("peers")
    with RealNode(folder / "a") as a, RealNode(folder / "b") as b, RealNode(folder / "c") as c:
        yield [a, b, c]


def peer(node: RealNode, name: str) -> PeerInfo:
    with headpond.sync.connect(node.url) as client:
        return client.admin.show_peer(name)


def link(node: RealNode, other: RealNode, topics: str, *, direction: str = "pull", name: str) -> None:
    with headpond.sync.connect(node.url) as client:
        client.admin.add_peer(other.url, [topics], direction=direction, name=name)


def unlink(node: RealNode, name: str) -> None:
    with headpond.sync.connect(node.url) as client:
        client.admin.remove_peer(name)


def identities(node: RealNode, topic: str) -> Counter[tuple[str, bytes]]:
    """Every message that a node has, by identity and value."""
    found: Counter[tuple[str, bytes]] = Counter()

    async def read() -> None:
        async with headpond.connect(node.url) as client, client.reader(topic) as reader:
            for shard, ends in enumerate(await reader.ends()):
                async for part in reader.read(shard, ends.entry_first, ends.entry_next):
                    for batch in part.batches:
                        found.update((str(each.identity), each.value) for each in batch.messages())

    asyncio.run(read())
    return found


def the_same(nodes: list[RealNode], topic: str, count: int) -> bool:
    try:
        found = [identities(node, topic) for node in nodes]
    except HeadpondError:  # not there yet, or not up
        return False
    for each in found:
        assert max(each.values(), default=1) == 1, "an identity is there twice"
    return all(len(each) == count for each in found) and found.count(found[0]) == len(found)


async def produce(node: RealNode, topic: str, name: str, count: int) -> None:
    """Messages in small segments, a few at a time."""
    async with (
        headpond.connect(node.url, backoff=QUICK) as client,
        client.producer(topic, name, batch_rows=10) as producer,
    ):
        for number in range(count):
            producer.post(f"{name} {number}".encode(), key=b"k%d" % (number % 7))
            if number % 50 == 49:
                await asyncio.sleep(0.03)
        await producer.flush()


def create(node: RealNode, topic: str, shards: int = 1) -> None:
    with headpond.sync.connect(node.url) as client:
        client.admin.create_topic(topic, shards=shards)


# --- what arrives -------------------------------------------------------------------------------------


def test_a_ring_of_three_with_two_producers_and_a_kill_has_everything_once(
    nodes: list[RealNode], topic: str
) -> None:
    a, b, c = nodes
    links = [(a, c, "pull"), (b, a, "pull"), (c, b, "both")]  # and one more path back
    for number, (node, other, direction) in enumerate(links):
        link(node, other, topic, direction=direction, name=f"{topic}-{number}")
    create(a, topic, shards=2)
    wait_until(lambda: the_same(nodes, topic, 0))

    async def scenario() -> None:
        both = asyncio.gather(produce(a, topic, "one", 500), produce(c, topic, "two", 500))
        await asyncio.sleep(0.15)
        await asyncio.to_thread(b.restart)  # kill -9, in the middle
        await both

    asyncio.run(scenario())
    wait_until(lambda: the_same(nodes, topic, 1000), 60)
    for number, (node, _, _) in enumerate(links):
        info = peer(node, f"{topic}-{number}")
        assert (info.state, info.lag) == ("connected", 0)
        assert (info.counts["conflicts"], info.counts["lost"]) == (0, 0)
        unlink(node, f"{topic}-{number}")


def test_a_link_brings_the_original_segments_of_packed_files(tmp_path: Path) -> None:
    with RealNode(tmp_path / "a", config=packed_topic.CONFIG) as a, RealNode(tmp_path / "b") as b:
        packed_topic.fill_packed(a, "t")
        link(b, a, "t", name="west")
        wait_until(lambda: the_same([a, b], "t", packed_topic.COUNT))
        info = peer(b, "west")
        assert (info.counts["conflicts"], info.counts["lost"]) == (0, 0)
        (copy,) = stored_topic.log_files(b)
        frames = [(header.count, found.frame.segment) for found, header in stored_topic.records(copy)]
        assert frames == [(1, number) for number in range(packed_topic.COUNT)]


def test_a_node_restored_from_an_old_copy_of_its_folder_gets_back_what_it_lost(
    nodes: list[RealNode], topic: str, tmp_path: Path
) -> None:
    a, b, _ = nodes
    create(a, topic)
    link(b, a, topic, direction="both", name=topic)  # b needs no reachable address
    asyncio.run(produce(a, topic, "before", 100))
    wait_until(lambda: the_same([a, b], topic, 100))
    b.stop()
    shutil.copytree(b.data, tmp_path / "old")
    b.start()

    async def scenario() -> None:
        await asyncio.gather(produce(b, topic, "own", 100), produce(a, topic, "other", 100))

    asyncio.run(scenario())
    wait_until(lambda: the_same([a, b], topic, 300))
    b.stop()
    shutil.rmtree(b.data)
    shutil.copytree(tmp_path / "old", b.data)
    b.start()
    wait_until(lambda: the_same([a, b], topic, 300), 60)
    asyncio.run(produce(b, topic, "after", 50))
    wait_until(lambda: the_same([a, b], topic, 350), 60)
    unlink(b, topic)


# --- what is said of a link ---------------------------------------------------------------------------


def test_a_link_says_what_keeps_it_from_being_connected(
    nodes: list[RealNode], topic: str, tmp_path: Path
) -> None:
    a = nodes[0]
    guarded = RealNode(tmp_path / "guarded")
    _, secret = bootstrap(guarded.data, "admin")

    def said(name: str) -> str:
        info = peer(a, f"{topic}-{name}")
        return f"{info.state}: {info.error_code}"

    def states(name: str) -> list[str]:
        return [each.state for each in peer(a, f"{topic}-{name}").topic_list]

    with guarded, headpond.sync.connect(a.url) as client, headpond.sync.connect(guarded.url, secret) as there:
        there.admin.create_topic(topic)
        token = there.admin.create_token("link", rights=["consume"], scopes=["*"])
        for name, url, its_token in (
            ("away", "headpond://127.0.0.1:1", None),
            ("itself", a.url, None),
            ("closed", guarded.url, None),
            ("good", guarded.url, token.secret),
            ("again", guarded.url, token.secret),
        ):
            client.admin.add_peer(url, [topic], name=f"{topic}-{name}", token=its_token)
        wait_until(lambda: said("away") == "waiting: unavailable")
        wait_until(lambda: said("itself") == "waiting: peer-itself")
        wait_until(lambda: said("closed") == "waiting: token-needed")
        wait_until(lambda: {state for name in ("good", "again") for state in states(name)} == SHARED)
        there.admin.revoke_token(token.info.token)
        wait_until(lambda: said("good") == "waiting: token-revoked")
        wait_until(lambda: said("again") == "waiting: token-revoked")
        writes = there.admin.create_token("writer", rights=["produce", "consume"], scopes=["*"])
        client.admin.add_peer(guarded.url, [topic], direction="push", name=f"{topic}-good", token=writes.secret)
        wait_until(lambda: [each.code for each in peer(a, f"{topic}-good").topic_list] == ["not-allowed"])
        shown = str([peer(a, f"{topic}-{name}") for name in ("good", "again")]) + guarded.errors + a.errors
        assert token.secret.split("_", 2)[2] not in shown
        for name in ("away", "itself", "closed", "good", "again"):
            client.admin.remove_peer(f"{topic}-{name}")
    journal = next((a.data / "peers").iterdir())
    assert journal.stat().st_mode & 0o077 == 0, "it has tokens of other nodes"
    create(a, f"{topic}-other")  # nothing else was disturbed
