"""The failures of a cluster, with real nodes and servers, one row each: ``python -m tests.cluster.failures``.

Parts of the names of rows as arguments run those alone. A producer and a consumer work meanwhile; when the
failure is healed the row says how long no message was acknowledged, what became of those that were, and whether
the folders of all members are the same. A row with the settings of the one before uses the same group.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

import headpond
from headpond.cluster.apply import POSITION_FILE
from headpond.cluster.copy import COPYING_FILE, LOCAL
from headpond.cluster.member import FULL
from headpond.model.errors import HeadpondError
from headpond.storage.append import NEW_SUFFIX
from headpond.wire.control.catalog import CreateTopic, ListTopics
from headpond.wire.control.codec import Request, Response
from tests.cluster.bad_acks import BadAcks
from tests.cluster.group import STREAM, WAIT_S_MAX, RealGroup
from tests.cluster.nats import NatsCluster
from tests.cluster.traffic import Outcome, Traffic
from tests.fire.raw_client import RawClient
from tests.torture.proxy import Proxy

ROUND_S = 2.0
"""How long programs work before a failure, and after it."""
KILLS = 5
ASLEEP = "default/default/default/asleep"
QUORUM_LOST_S = 15.0
"""Longer than the active member waits for a confirmation."""
BAD_ACKS_S = 10.0
FREE_BYTES_MIN = 1024 * 1024
SMALL_STREAM = f"stream_bytes = 16777216\n[limits]\nfree_bytes_min = {FREE_BYTES_MIN}\n"
FILLER_BYTES = 64 * 1024
FILLERS = 16
FILLER_S = 2.0
"""How long a member without room is asked to take one."""
SECTOR_BYTES = 4096
FORGOTTEN_S = 1.5
FILE_BYTES_MAX = 4096

chance = Random()


@dataclass(frozen=True)
class Failure:
    play: Callable[[RealGroup], Awaitable[None]]
    config: str = ""
    proxy: type[Proxy] = Proxy


# --- processes ----------------------------------------------------------------------------------------


async def kill_active(group: RealGroup) -> None:
    """At any record: whatever it is doing then."""
    for _ in range(KILLS):
        await asyncio.sleep(chance.uniform(0.1, 1.0))
        killed = await group.active()
        group.kill(killed)
        await group.active(other_than=[killed])
        group.start(killed)


async def kill_during_takeover(group: RealGroup) -> None:
    """The next one is killed as soon as it calls itself active: it has not opened the folder yet."""
    first = await group.active()
    group.kill(first)
    second = await group.active(other_than=[first])
    group.kill(second)
    await group.active(other_than=[first, second])


async def kill_during_checkpoint(group: RealGroup) -> None:
    for _ in range(2):
        killed = await group.active()
        await until(
            partial(writes_position, group.data(killed) / POSITION_FILE, time.time_ns()), every_s=0.0005
        )
        group.kill(killed)
        await group.active(other_than=[killed])
        group.start(killed)


def writes_position(path: Path, since_ns: int) -> bool:
    return path.with_name(path.name + NEW_SUFFIX).exists() or path.stat().st_mtime_ns > since_ns


async def kill_standby(group: RealGroup) -> None:
    (standby, _) = await group.standbys()
    group.kill(standby)
    await asyncio.sleep(ROUND_S)


async def switch(group: RealGroup) -> None:
    before = await group.active()
    await group.switch()
    await group.active(other_than=[before])


async def end_and_lose_folder(group: RealGroup) -> None:
    left = await group.active()
    assert await asyncio.to_thread(group.end, left) == 0
    await group.active(other_than=[left])
    group.lose_folder(left)
    group.start(left)


async def stop_active(group: RealGroup) -> None:
    """It wakes up with questions of a client at its door, which it must not answer by what it knew before."""
    zombie = await group.active()
    with RawClient(("127.0.0.1", group.members[zombie])) as client:
        group.stop(zombie)
        client.send(Request(1, ListTopics()), Request(2, CreateTopic(ASLEEP, 1)))
        await group.active(other_than=[zombie])
        group.resume(zombie)
        answers = await asyncio.to_thread(rest_of, client)
    assert not any(isinstance(each, Response) for each in answers), answers
    async with headpond.connect(group.url) as other:
        assert not any(topic.topic == ASLEEP for topic in await other.admin.list_topics())


def rest_of(client: RawClient) -> list[object]:
    """All answers until the member closes the connection."""
    return list(iter(client.next_event, None))


# --- the network --------------------------------------------------------------------------------------


async def cut_off(group: RealGroup, *, there: bool, back: bool) -> None:
    cut = await group.active()
    group.cut_off(cut, there=there, back=back)
    await group.active(other_than=[cut])
    await asyncio.sleep(ROUND_S)
    group.reconnect(cut)


async def spoil_acks(group: RealGroup) -> None:
    await asyncio.sleep(BAD_ACKS_S)
    spoilt = sum(way.spoilt for ways in group.ways.values() for way in ways if isinstance(way, BadAcks))
    assert spoilt > 10, spoilt


# --- the servers --------------------------------------------------------------------------------------


async def kill_leader(group: RealGroup) -> None:
    group.nats.kill(await asyncio.to_thread(group.nats.leader_of, STREAM))
    await asyncio.to_thread(group.nats.leader_of, STREAM)
    await asyncio.sleep(ROUND_S)


async def kill_both(group: RealGroup) -> None:
    leader = await asyncio.to_thread(group.nats.leader_of, STREAM)
    group.kill(killed := await group.active())
    group.nats.kill(leader)
    await group.active(other_than=[killed])


async def lose_quorum(group: RealGroup) -> None:
    for name in chance.sample(sorted(group.nats.servers), 2):
        group.nats.kill(name)
    await asyncio.sleep(QUORUM_LOST_S)
    group.heal()
    await group.active()


async def flip_bit_of_server(group: RealGroup) -> None:
    """In the records of a server that does not lead the stream."""
    leader = await asyncio.to_thread(group.nats.leader_of, STREAM)
    server = next(each for each in group.nats.servers.values() if each.name != leader)
    server.kill()
    (block, *_) = sorted(server.folder.rglob(f"{STREAM}/msgs/*.blk"))
    flip_bit(block)
    server.start()
    await asyncio.to_thread(group.nats.wait_ready)
    await asyncio.sleep(ROUND_S)
    await kill_active(group)


# --- room ---------------------------------------------------------------------------------------------


async def fill(group: RealGroup, enough: Callable[[], Awaitable[bool]]) -> None:
    """Sends large messages until it is enough; refused ones do not matter."""
    async with (
        headpond.connect(group.url) as client,
        client.producer("filler", refill=None, timeout=FILLER_S, close_timeout=FILLER_S) as producer,
        asyncio.timeout(WAIT_S_MAX),
    ):
        while not await enough():
            promises = [producer.post(chance.randbytes(FILLER_BYTES)) for _ in range(FILLERS)]
            for promise in promises:
                with suppress(HeadpondError):
                    await promise


async def fill_past(group: RealGroup, seq: int) -> None:
    """Until the stream begins behind record ``seq``."""

    async def trimmed() -> bool:
        return (await group.stream.state()).first_seq > seq + 1

    await fill(group, trimmed)


async def stop_standby(group: RealGroup) -> None:
    (slow, _) = await group.standbys()
    status = await group.status(slow)
    group.stop(slow)
    await fill_past(group, status.seq if status else 0)
    group.resume(slow)


async def fill_stream(group: RealGroup) -> None:
    """Without a second member nothing can be trimmed, until the active one refuses to write."""
    group.kill(*await group.standbys())

    async def full() -> bool:
        state = await group.stream.state()
        return state.bytes > state.bytes_max * FULL - FREE_BYTES_MIN

    await fill(group, full)
    await asyncio.sleep(ROUND_S)


async def kill_during_copy(group: RealGroup) -> None:
    """First the member that copies, then the one whose folder it copies."""
    await fill_past(group, 0)
    copying, source = await group.standbys()
    for killed in (copying, source):
        group.kill(copying) if group.up(copying) else None
        group.lose_folder(copying)
        group.start(copying)
        await until((group.data(copying) / COPYING_FILE).exists, every_s=0.002)
        await asyncio.sleep(0.1)
        group.kill(killed)
        group.start(killed)


async def fill_disk(group: RealGroup, *, active: bool) -> None:
    """A limit on the size of files stands for a disk without room."""
    member = await group.active() if active else (await group.standbys())[0]
    _, hard = resource.prlimit(group.processes[member].pid, resource.RLIMIT_FSIZE)
    resource.prlimit(group.processes[member].pid, resource.RLIMIT_FSIZE, (FILE_BYTES_MAX, hard))
    if active:
        await group.active(other_than=[member])
    await until(lambda: not group.up(member), every_s=0.1)


# --- bytes --------------------------------------------------------------------------------------------


async def flip_bit_of_member(group: RealGroup) -> None:
    """Its folder has a message less until an operator replaces it; the member says so, and alters nothing."""
    damaged, other = await group.standbys()
    before = await group.active()
    group.kill(damaged)
    files = [path for path in (group.data(damaged) / "topics").rglob("*") if path.is_file()]
    flip_bit(max(files, key=lambda path: path.stat().st_size))
    group.start(damaged)
    await group.standbys()
    group.kill(before, other)
    assert await group.active() == damaged
    await asyncio.sleep(ROUND_S)
    group.start(before)
    group.start(other)
    await group.standbys()
    group.kill(damaged)
    group.lose_folder(damaged)
    await group.active(other_than=[damaged])


async def cut_power(group: RealGroup) -> None:
    """Of all machines at once. Each forgets some of what its member wrote since its last checkpoint."""
    images = {member: Image(group.data(member)) for member in group.members}
    await until(lambda: all([image.is_old() for image in images.values()]), every_s=0.2)  # noqa: C419  # each looks
    group.kill(*group.members)
    for name in group.nats.servers:
        group.nats.kill(name)
    forgotten = [image.forget() for image in images.values()]
    assert any(forgotten), "every member made a checkpoint just now"
    group.heal()
    await group.active()


class Image:
    """The files of a folder some time after a checkpoint, while the next one is not made.

    What the folder had at the checkpoint is durable. Of everything since, a machine that loses power keeps some
    names and some sectors.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, tuple[int, bytes]] = {}
        """The inode and the bytes of each file."""
        self._taken_s = 0.0

    def is_old(self) -> bool:
        """Whether the folder can have changed since; takes another image after a checkpoint."""
        now_s = time.monotonic()
        if self._position() != self._position_then():
            self._files = {}
            before = self._position()
            files = dict(self._read())
            if before == self._position():
                self._files, self._taken_s = files, now_s
            return False
        return now_s - self._taken_s > FORGOTTEN_S

    def _position(self) -> bytes:
        return (self._folder / POSITION_FILE).read_bytes()

    def _position_then(self) -> bytes:
        return self._files.get(POSITION_FILE, (0, b""))[1]

    def _read(self) -> Iterator[tuple[str, tuple[int, bytes]]]:
        for path in self._folder.rglob("*"):
            with suppress(FileNotFoundError, IsADirectoryError):
                yield str(path.relative_to(self._folder)), (path.stat().st_ino, path.read_bytes())

    def forget(self) -> bool:
        """Whether it could: there was no checkpoint since."""
        if self._position() != self._position_then():
            return False
        now = dict(self._read())
        for name in now.keys() | self._files.keys():
            if name.partition("/")[0] in LOCAL:
                continue
            path = self._folder / name
            (old_inode, old), (inode, new) = self._files.get(name, (0, b"")), now.get(name, (0, b""))
            if old_inode == inode:
                path.write_bytes(mixed(old, new))
            elif chance.random() < 0.5 and inode:
                path.write_bytes(mixed(b"", new))
            elif old_inode:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(old)
            else:
                path.unlink()
        return True


def mixed(old: bytes, new: bytes) -> bytes:
    """Some sectors of each, and the size of one of them."""
    size = max(len(old), len(new))
    old_full, new_full = old.ljust(size, b"\0"), new.ljust(size, b"\0")
    ats = range(0, size, SECTOR_BYTES)
    sectors = [chance.choice((old_full, new_full))[at : at + SECTOR_BYTES] for at in ats]
    return b"".join(sectors)[: chance.choice((len(old), len(new)))]


def flip_bit(path: Path) -> None:
    with path.open("r+b") as file:
        at = path.stat().st_size // 2
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 4]))


async def until(condition: Callable[[], bool], *, every_s: float) -> None:
    async with asyncio.timeout(WAIT_S_MAX):
        while not condition():  # noqa: ASYNC110  # of another process
            await asyncio.sleep(every_s)


# --- the table ----------------------------------------------------------------------------------------

FAILURES = {
    f"the active node is killed, {KILLS} times": Failure(kill_active),
    "a standby is killed": Failure(kill_standby),
    "the active node is killed, and the next one while it takes over": Failure(kill_during_takeover),
    "the active node is killed while it makes a checkpoint": Failure(kill_during_checkpoint),
    "an operator switches": Failure(switch),
    "the active node stops cleanly, and its folder is lost": Failure(end_and_lose_folder),
    "the active node stands still, and wakes up replaced": Failure(stop_active),
    "the active node is cut off from the servers": Failure(partial(cut_off, there=True, back=True)),
    "nothing of the active node reaches the servers": Failure(partial(cut_off, there=True, back=False)),
    "nothing of the servers reaches the active node": Failure(partial(cut_off, there=False, back=True)),
    "the leader of the stream is killed": Failure(kill_leader),
    "the active node and the leader of the stream are killed": Failure(kill_both),
    "two of three servers are killed": Failure(lose_quorum),
    "the power of all machines fails": Failure(cut_power),
    "the disk of the active node is full": Failure(partial(fill_disk, active=True)),
    "the disk of a standby is full": Failure(partial(fill_disk, active=False)),
    "a bit flips on the disk of a server": Failure(flip_bit_of_server),
    "a bit flips on the disk of a standby": Failure(flip_bit_of_member),
    "acknowledgements are lost, doubled and reordered": Failure(spoil_acks, proxy=BadAcks),
    "a standby stands still until the stream begins behind it": Failure(stop_standby, SMALL_STREAM),
    "a member is killed while it copies a folder, then its source": Failure(kill_during_copy, SMALL_STREAM),
    "the stream is full": Failure(fill_stream, SMALL_STREAM),
}
COLUMNS = ("failure", "pause s", "acked", "refused", "lost", "altered", "twice", "unflagged", "folders")
WIDTHS = (max(map(len, FAILURES)), *(max(7, len(name)) for name in COLUMNS[1:]))


@dataclass(frozen=True)
class Row:
    name: str
    outcome: Outcome
    equal: bool
    problem: str = ""

    @property
    def sound(self) -> bool:
        return self.equal and self.outcome.sound and not self.problem

    def __str__(self) -> str:
        o = self.outcome
        counts = (o.acknowledged, o.refused, o.lost, o.altered, o.twice + o.unordered, o.unflagged)
        cells = [f"{o.pause_s:.1f}", *map(str, counts), "equal" if self.equal else "NOT YET"]
        return line([self.name, *cells]) + (f"\n  {self.problem}" if self.problem else "")


def line(cells: Iterable[str]) -> str:
    first, *others = cells
    return "  ".join(
        [first.ljust(WIDTHS[0]), *(cell.rjust(w) for cell, w in zip(others, WIDTHS[1:], strict=True))]
    )


async def play(group: RealGroup, name: str) -> Row:
    """One failure, and everything after it."""
    traffic, problem, equal = Traffic(group, f"t{chance.getrandbits(40)}"), "", True

    async def fail() -> None:
        nonlocal problem
        await asyncio.sleep(ROUND_S)
        try:
            await FAILURES[name].play(group)
        except (AssertionError, TimeoutError) as error:
            problem = f"{type(error).__name__}: {error}"
        group.heal()
        await group.standbys()
        await asyncio.sleep(ROUND_S)

    try:
        await traffic.run(fail)
    except TimeoutError:
        problem = problem or "hangs"
    outcome = await traffic.outcome()
    try:
        await group.all_alike()
    except TimeoutError:
        equal = False
    return Row(name, outcome, equal, problem)


async def run(folder: Path, names: Iterable[str]) -> AsyncIterator[Row]:
    """The rows, in turn; one that is not sound leaves its group to nobody."""
    rest = list(names)
    while rest:
        first = FAILURES[rest[0]]
        place = Path(tempfile.mkdtemp(dir=folder))
        async with (
            NatsCluster(place / "nats") as nats,
            RealGroup(place / "nodes", nats, config=first.config, proxy=first.proxy) as group,
        ):
            sound = True
            while sound and rest and same_group(FAILURES[rest[0]], first):
                row = await play(group, rest.pop(0))
                sound = row.sound
                yield row
        if sound:
            shutil.rmtree(place)


def same_group(one: Failure, other: Failure) -> bool:
    return (one.config, one.proxy) == (other.config, other.proxy)


async def show(folder: Path, names: list[str]) -> int:
    here = asyncio.current_task()
    assert here is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, here.cancel)  # leaves no process behind
    print(line(COLUMNS))
    broken = 0
    async for row in run(folder, names):
        print(row, flush=True)
        broken += not row.sound
    return 1 if broken else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.failures", description=__doc__)
    parser.add_argument("rows", nargs="*", help="parts of the names of rows; all by default")
    parser.add_argument("--folder", help="where files go meanwhile, and stay if a promise is broken")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)  # what clients log under faults is no news
    folder = Path(tempfile.mkdtemp(prefix="headpond-failures-", dir=given.folder))
    names = [name for name in FAILURES if not given.rows or any(part in name for part in given.rows)]
    code = asyncio.run(show(folder, names))
    if code:
        print(f"kept: {folder}")
    else:
        shutil.rmtree(folder)
    return code


if __name__ == "__main__":
    sys.exit(main())
