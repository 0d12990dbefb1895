"""A member keeps up with the map of groups, over real nats-servers and over a bucket that fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from headpond.cluster import group_watch
from headpond.cluster.group_watch import GroupBucket, GroupWatch, write_map
from headpond.cluster.groups import GroupMap, GroupMember, decode_map, encode_map
from headpond.cluster.jetstream import JetStream
from headpond.cluster.journal import Refused, Unreachable
from headpond.model.errors import LimitReached
from tests.client.peer import until
from tests.cluster.bus import Bus
from tests.cluster.nats import NatsCluster

WAIT_S_MAX = 20.0


class MemoryBucket:
    """A bucket that answers as a test wants."""

    def __init__(self) -> None:
        self.revision = 0
        self.text = b""
        self.reachable = True
        self.writes = 0
        self.between: Callable[[], None] = lambda: None
        """Called between a reading and the writing that follows it."""
        self._watchers: list[Callable[[], None]] = []

    async def read_map(self) -> tuple[int, bytes]:
        if not self.reachable:
            raise Unreachable("no answer")
        return self.revision, self.text

    async def write_map(self, text: bytes, revision: int) -> int:
        self.between()
        if revision != self.revision:
            raise Refused(Refused.WRONG_LAST, "wrong last sequence")
        self.writes += 1
        return self.put(text)

    def put(self, text: bytes) -> int:
        self.revision, self.text = self.revision + 1, text
        for tell in self._watchers:
            tell()
        return self.revision

    async def watch_map(self, on_change: Callable[[], None]) -> None:
        self._watchers.append(on_change)

    @property
    def map(self) -> GroupMap:
        return decode_map(self.text)


@asynccontextmanager
async def watching(
    bucket: GroupBucket, group: str = "main", member: str = "a", *, active: bool = True
) -> AsyncIterator[GroupWatch]:
    found = Bus().member(member, "1")
    if active:
        found.role = "active"
    watch = GroupWatch(bucket, group, found, GroupMember(f"headpond://{member}:7411"), lambda: {"acme": 1})
    running = asyncio.ensure_future(watch.run())
    try:
        await asyncio.wait_for(watch.known.wait(), WAIT_S_MAX)
        yield watch
    finally:
        running.cancel()


async def test_a_member_adds_itself_and_says_when_it_is_active() -> None:
    bucket = MemoryBucket()
    async with watching(bucket, active=False):
        assert bucket.map.groups["main"].members == {"a": GroupMember("headpond://a:7411")}
        assert bucket.map.groups["main"].active == ""
    async with watching(bucket):
        await until(lambda: bucket.map.groups["main"].active == "a")


async def test_a_change_is_seen_at_once_and_a_member_adds_itself_again() -> None:
    bucket = MemoryBucket()
    async with watching(bucket) as watch:
        assert watch.elsewhere("acme") is None
        bucket.put(encode_map(GroupMap().add_member("west", "b", GroupMember("headpond://b:7411"))))
        await until(lambda: watch.elsewhere("acme") is None and "main" in bucket.map.groups)
        bucket.put(encode_map(bucket.map.place("acme", "west")))
        await until(lambda: watch.elsewhere("acme") is not None)
        assert watch.revision == bucket.revision


async def test_a_member_that_cannot_read_the_map_keeps_the_last_one() -> None:
    bucket = MemoryBucket()
    async with watching(bucket) as watch:
        bucket.put(encode_map(bucket.map.place("acme", "west")))
        await until(lambda: watch.elsewhere("acme") is not None)
        bucket.put(b"not a map")
        await asyncio.sleep(0.05)
        assert watch.elsewhere("acme") is not None and bucket.text == b"not a map"
        bucket.reachable = False
        watch.look()
        await asyncio.sleep(0.05)
        assert watch.elsewhere("acme") is not None


async def test_an_older_map_is_not_taken() -> None:
    bucket = MemoryBucket()
    async with watching(bucket) as watch:
        older = bucket.text
        bucket.put(encode_map(bucket.map.place("acme", "west")))
        await until(lambda: watch.elsewhere("acme") is not None)
        bucket.revision, bucket.text = 1, older
        watch.look()
        await asyncio.sleep(0.05)
        assert watch.elsewhere("acme") is not None


async def test_two_members_that_write_at_once_both_get_in() -> None:
    bucket = MemoryBucket()
    other = encode_map(GroupMap().add_member("west", "b", GroupMember("headpond://b:7411")))

    def interfere() -> None:
        bucket.between = lambda: None
        bucket.put(other)

    bucket.between = interfere
    async with watching(bucket):
        assert sorted(bucket.map.groups) == ["main", "west"]


async def test_a_member_serves_nobody_before_it_has_read_the_map(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_watch, "RETRY_S", 0.01)
    bucket = MemoryBucket()
    bucket.reachable = False
    asyncio.get_running_loop().call_later(0.2, setattr, bucket, "reachable", True)
    began_s = asyncio.get_running_loop().time()
    async with watching(bucket):
        assert asyncio.get_running_loop().time() - began_s >= 0.19


async def test_a_map_at_rest_is_not_written() -> None:
    bucket = MemoryBucket()
    async with watching(bucket) as watch:
        await until(lambda: bucket.map.groups["main"].active == "a")
        await asyncio.sleep(0.05)
        before = bucket.writes
        watch.look()
        await asyncio.sleep(0.05)
        assert bucket.writes == before


def test_a_map_that_is_too_large_is_refused() -> None:
    groups = GroupMap(tenants={f"tenant-{number}": "west" * 16 for number in range(10_000)})
    with pytest.raises(LimitReached, match="the map of groups would have"):
        asyncio.run(write_map(MemoryBucket(), groups, 0))


# --- real servers -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsCluster]:
    with NatsCluster(tmp_path_factory.mktemp("nats")) as running:
        yield running


async def test_the_bucket_of_a_real_cluster_is_made_by_the_first_member_and_shared(nats: NatsCluster) -> None:
    reader = await JetStream.connect_bucket(nats.url)
    assert await reader.read_map() == (0, b""), "an operator creates none"
    main = await JetStream.connect(nats.url, "main", "a")
    west = await JetStream.connect(nats.url, "west", "a")
    try:
        async with watching(main, "main") as one, watching(west, "west") as two:
            groups = [one, two]
            await until(lambda: all(each.elsewhere("acme") is None for each in groups[:1]))
            await until(lambda: two.elsewhere("acme") is not None)
            revision, text = await reader.read_map()
            with pytest.raises(Refused):
                await reader.write_map(text, revision - 1)
            while True:  # a member may write too
                revision, text = await reader.read_map()
                try:
                    written = await reader.write_map(
                        encode_map(decode_map(text).place("acme", "west")), revision
                    )
                    break
                except Refused:
                    continue
            await until(lambda: all(each.revision >= written for each in groups))
            assert one.elsewhere("acme") is not None and two.elsewhere("acme") is None
            replicas = nats.servers["n1"].monitor("jsz?streams=true&config=true")
            streams = {
                stream["name"]: stream["config"]["num_replicas"]
                for account in replicas["account_details"]
                for stream in account["stream_detail"]
            }
            assert streams["KV_HEADPOND-groups"] == 3
    finally:
        for journal in (reader, main, west):
            await journal.close()


async def test_of_writers_at_once_one_wins_and_the_others_are_refused(nats: NatsCluster) -> None:
    """The servers answer with another code while a write of the same subject is under way."""
    journal = await JetStream.connect(nats.url, "main", "b")
    try:
        for _ in range(5):
            revision, _ = await journal.read_map()
            writes = [journal.write_map(b"%d" % number, revision) for number in range(8)]
            outcomes = await asyncio.gather(*writes, return_exceptions=True)
            assert sum(isinstance(each, int) for each in outcomes) == 1
            assert sum(isinstance(each, Refused) for each in outcomes) == 7
    finally:
        await journal.close()


async def test_one_server_is_enough_for_the_map_and_a_restart_keeps_it(tmp_path: Path) -> None:
    async with NatsCluster(tmp_path, size=1) as one:
        journal = await JetStream.connect(one.url, "main", "a", replicas=1)
        try:
            async with watching(journal) as watch:
                await until(lambda: watch.revision > 0)
                await asyncio.to_thread(one.restart, "n1")
                await asyncio.to_thread(one.wait_ready)
                async with asyncio.timeout(WAIT_S_MAX):
                    while True:
                        try:
                            _, text = await journal.read_map()
                            break
                        except Unreachable:
                            continue
                assert "a" in decode_map(text).groups["main"].members
        finally:
            await journal.close()
