"""Files that rot, tear or vanish under a real node: it starts, reports the loss, and serves the rest."""

from __future__ import annotations

import asyncio
import os
import random
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import headpond
from headpond.wire.frame import FrameType, encode
from tests.client.reading import receive
from tests.fire.real_node import NodeDidNotStart, RealNode
from tests.fire.stored_topic import (
    CONFIG,
    ROWS,
    fill,
    first_entry,
    flip,
    frames_end,
    log_files,
    records,
    serve,
)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[int, bytes]]:
    """A data folder with a topic of several files, left by a node that was killed; and its values by entry."""
    folder = tmp_path_factory.mktemp("filled")
    with RealNode(folder, config=CONFIG) as node:
        stored = fill(node.url)
        assert len(log_files(node)) >= 4
    return folder, stored


@pytest.fixture
def node(filled: tuple[Path, dict[int, bytes]], tmp_path: Path) -> Iterator[RealNode]:
    """A node on a copy of that folder, not started."""
    shutil.copytree(filled[0] / "data", tmp_path / "data")
    copy = RealNode(tmp_path, config=CONFIG)
    try:
        yield copy
    finally:
        copy.kill()


@pytest.fixture
def stored(filled: tuple[Path, dict[int, bytes]]) -> dict[int, bytes]:
    return filled[1]


def check(node: RealNode, stored: dict[int, bytes], gone: set[int]) -> None:
    """The node starts, serves all but ``gone``, reports exactly those, and takes new messages."""
    node.start()
    served = serve(node.url)
    assert served.values == {entry: data for entry, data in stored.items() if entry not in gone}
    assert served.lost_entries & stored.keys() == gone
    assert served.damaged_entries & stored.keys() == gone
    more = fill(node.url, segments=2)
    assert not more.keys() & stored.keys(), "an entry was used twice"
    assert serve(node.url, "after").values == served.values | more


def test_an_intact_folder_is_served_completely(node: RealNode, stored: dict[int, bytes]) -> None:
    check(node, stored, gone=set())
    assert "damage" not in node.errors


def test_a_torn_tail_is_cut_off_and_nothing_is_lost(node: RealNode, stored: dict[int, bytes]) -> None:
    last = log_files(node)[-1]
    data = last.read_bytes()
    torn = encode(FrameType.SEGMENT, os.urandom(3000), segment=7)[:1500]
    last.write_bytes(data[: frames_end(last)] + torn)
    check(node, stored, gone=set())
    assert "a torn write" in node.errors and "damage" not in node.errors


def test_rot_at_the_end_after_a_clean_stop_is_lost_by_its_exact_entries(
    node: RealNode, stored: dict[int, bytes]
) -> None:
    node.start()
    assert node.stop() == 0
    last = log_files(node)[-1]
    found = list(records(last))
    data = last.read_bytes()
    last.write_bytes(data[:-512] + random.Random(1).randbytes(512))
    gone = {
        entry
        for item, header in found
        if item.end > len(data) - 512
        for entry in range(header.first_entry, header.end_entry)
    }
    check(node, stored, gone)
    assert f"entries {min(gone)} to {max(gone)} are lost" in node.errors and "torn" not in node.errors
    assert "a new incarnation begins" in node.errors


def test_rot_that_comes_while_the_node_runs_is_noticed_when_it_is_read(
    node: RealNode, stored: dict[int, bytes]
) -> None:
    node.start()
    path = log_files(node)[1]
    spoiled, header = list(records(path))[3]
    flip(path, spoiled.offset + spoiled.size - 10)
    served = serve(node.url)
    gone = set(range(header.first_entry, header.end_entry))
    assert served.lost_entries == served.damaged_entries == gone
    assert served.values == {entry: data for entry, data in stored.items() if entry not in gone}


def test_a_missing_file_is_reported_by_its_exact_entries(node: RealNode, stored: dict[int, bytes]) -> None:
    paths = log_files(node)
    paths[1].unlink()
    check(node, stored, gone=set(range(first_entry(paths[1]), first_entry(paths[2]))))


def test_files_that_do_not_belong_are_left_alone(node: RealNode, stored: dict[int, bytes]) -> None:
    folder = log_files(node)[0].parent
    strangers = [
        folder / "notes.txt",
        folder / "backup.log",
        folder / "00000000000000000000.log.bak",
        node.data / "topics" / "stray",
        node.data / "catalog" / "readme",
        node.data / "settlements" / "99.journal",
    ]
    for path in strangers:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"\x04" * 1000)
    check(node, stored, gone=set())
    assert [path for path in strangers if path.read_bytes() != b"\x04" * 1000] == []


# --- a subscription that is ahead ---------------------------------------------------------------------


def test_when_the_end_of_a_log_is_gone_a_subscription_that_was_ahead_still_gets_what_is_new(
    node: RealNode, stored: dict[int, bytes]
) -> None:
    node.start()
    assert serve(node.url, "reader", settle=True).values == stored
    node.kill()
    last = log_files(node)[-1]
    gone = {entry for entry in stored if entry >= first_entry(last)}
    last.unlink()
    for index in last.parent.glob("*.index"):
        index.unlink()
    node.start()
    more = fill(node.url, segments=3)
    assert not more.keys() & stored.keys(), "entries that had been served were used again"
    assert serve(node.url, "reader").values == more
    assert set(serve(node.url, "all").values) == (stored.keys() - gone) | more.keys()


# --- journals and identity ----------------------------------------------------------------------------


def test_a_damaged_catalog_record_costs_its_topic_alone(tmp_path: Path) -> None:
    with RealNode(tmp_path, config=CONFIG) as node:
        contents = {name: fill(node.url, segments=3, topic=name) for name in ("alpha", "beta", "gamma")}
        node.kill()
        (journal,) = node.data.glob("catalog/*.journal")
        flip(journal, journal.read_bytes().index(b"beta") + 1)
        node.start()
        assert "catalog" in node.errors
        for name in ("alpha", "gamma"):
            assert serve(node.url, topic=name).values == contents[name]


def test_a_damaged_settlement_brings_messages_again_and_skips_none(
    node: RealNode, stored: dict[int, bytes]
) -> None:
    half = dict(list(stored.items())[: len(stored) // 2])
    node.start()
    asyncio.run(settle_one_by_one(node.url, len(half)))
    node.kill()
    (journal,) = node.data.glob("settlements/*.journal")
    size = len(journal.read_bytes().rstrip(b"\0"))
    flip(journal, size // 2)
    node.start()
    assert "settlements" in node.errors
    again = serve(node.url, "careful").values
    assert set(again) >= stored.keys() - half.keys(), "a message that was not settled did not come"
    assert len(again) < len(stored), "what the other records say is kept"


async def settle_one_by_one(url: str, count: int) -> None:
    async with headpond.connect(url) as client, client.consumer("kept", subscription="careful") as consumer:
        for number in range(count):
            message = await receive(consumer)
            await consumer.ack(message)
            if number % 20 == 19:
                await consumer.flush()
        await consumer.flush()


@pytest.mark.parametrize(
    "spoil",
    [lambda data: b"", lambda data: data[:20], lambda data: data[:-1] + b"?"],
    ids=["empty", "cut", "altered"],
)
def test_a_damaged_node_file_stops_the_node_with_a_clear_error(
    node: RealNode, spoil: Callable[[bytes], bytes]
) -> None:
    path = node.data / "NODE"
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(NodeDidNotStart) as stopped:
        node.start()
    text = str(stopped.value)
    assert "NODE" in text
    assert "error:" in text
    assert "hint:" in text
    assert "Traceback" not in text


def test_a_second_node_on_the_same_folder_is_refused_with_the_name_of_the_holder(
    node: RealNode, tmp_path: Path
) -> None:
    node.start()
    second = RealNode(tmp_path / "second")
    second.data = node.data
    with pytest.raises(NodeDidNotStart, match=f"process {node.pid}"):
        second.start()
    assert "hint:" in second.errors
    assert fill(node.url, segments=1)


# --- a disk without room ------------------------------------------------------------------------------


@contextmanager
def small_file_system(folder: Path) -> Iterator[tuple[RealNode, Callable[[], None], str]]:
    """A real file system of 4 MiB that is nearly full, until room is made."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)], check=True)
    try:
        ballast = folder / "ballast"
        # Without the watermark: this test needs a disk that is really full.
        with RealNode(folder, config=CONFIG + "\n[limits]\nfree_bytes_min = 1\n") as node:
            fill(node.url, segments=2)
            with ballast.open("wb") as file:
                room = os.statvfs(folder)
                file.write(bytes(room.f_bavail * room.f_frsize - 64 * 1024))
            yield node, ballast.unlink, "disk-full"
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@contextmanager
def small_files(folder: Path) -> Iterator[tuple[RealNode, Callable[[], None], str]]:
    """A limit on the size of a file, until it is lifted."""
    with RealNode(folder, config=CONFIG) as node:
        fill(node.url, segments=2)
        _, hard = resource.prlimit(node.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(node.pid, resource.RLIMIT_FSIZE, (64 * 1024, hard))
        yield node, lambda: _lift(node.pid, hard), "storage-failed"


def _lift(pid: int, hard: int) -> None:
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))


def can_mount(folder: Path) -> bool:
    """Whether this user may mount a file system here."""
    folder.mkdir(exist_ok=True)
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True)
    if done.returncode == 0:
        subprocess.run(["umount", str(folder)], check=True)
    return done.returncode == 0


def test_a_node_without_room_refuses_and_takes_everything_once_there_is_room(tmp_path: Path) -> None:
    places = [small_files]
    if shutil.which("mount") and os.geteuid() == 0 and can_mount(tmp_path / "try"):
        places.append(small_file_system)
    for number, place in enumerate(places):
        with place(tmp_path / str(number)) as (node, make_room, code):
            asyncio.run(send_without_room(node, make_room, code))
            found = serve(node.url)
            assert len(found.values) == 2 * ROWS + 4
            assert [len(data) for data in found.values.values()][-4:] == [100 * 1024] * 4


async def send_without_room(node: RealNode, make_room: Callable[[], None], code: str) -> None:
    """Four messages that do not fit: the node acknowledges none before there is room, and all after."""
    async with headpond.connect(node.url) as client, client.producer("kept") as producer:
        promises = [producer.post(random.Random(number).randbytes(100 * 1024)) for number in range(4)]
        counters = dict(await client.admin.show_node())["counters"]
        while counters.get("writes_failed", 0) < 2:
            await asyncio.sleep(0.05)
            counters = dict(await client.admin.show_node())["counters"]
        assert not any(promise.done() for promise in promises)
        assert code == "storage-failed" or "No space left" in node.errors
        make_room()
        receipts = [await promise for promise in promises]
        assert all(receipt.stored for receipt in receipts)
