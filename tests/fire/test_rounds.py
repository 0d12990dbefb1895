"""Many busy logs share a sync, the power or the disk fails at any moment, and every guarantee holds."""

from __future__ import annotations

import errno

import msgspec
import pytest

from headpond.broker.settings import LogSettings, Settings
from headpond.storage.commit_journal import FOLDER, SPARE_SUFFIX, SUFFIX
from headpond.storage.memory_disk import Keep, MemoryDisk, MemoryFile
from headpond.wire.control.catalog import CreateTopic, ShowTopic, TopicInfo
from headpond.wire.control.codec import read_result
from headpond.wire.control.producing import Ack
from headpond.wire.frame import FrameType, encode
from tests.fire.core_shell import SMALL_FILES, CoreShell
from tests.fire.power_world import PAUSE_US, PowerWorld
from tests.fire.raw_client import segment_body, title_frame
from tests.fire.seeds import seeds

KEEPS: list[Keep] = ["none", "some", "all"]
SHARDS = 8
BLOCK = b"b" * 16
ROUNDS = msgspec.structs.replace(
    SMALL_FILES,
    threads=1,
    log=LogSettings(
        rotate_bytes=4096, preallocate_bytes=1024, index_every_bytes=512, commit_journal_bytes=6 * 1024
    ),
)
"""Two busy logs make a round, and a handful of rounds a checkpoint."""


def world_of(seed: int, settings: Settings = ROUNDS) -> PowerWorld:
    return PowerWorld(seed, settings=settings, shards=SHARDS)


def live_through_cuts(seed: int, cuts: int = 3) -> PowerWorld:
    world = world_of(seed)
    for cut in range(cuts):
        world.disk.cut_power_after(world.random.randrange(1, 250))
        world.live(steps=500)
        world.cut(KEEPS[(seed + cut) % 3])
        world.send_again()
        world.check()
    return world


@pytest.mark.parametrize("seed", seeds(10))
def test_a_power_cut_between_the_journal_and_the_logs_breaks_no_promise(seed: int) -> None:
    assert live_through_cuts(seed).faults == []


def test_the_cuts_fall_into_rounds_and_checkpoints() -> None:
    """Proves that some cuts above fall on unsynced data."""
    worlds = [world_of(seed) for seed in range(4)]
    for world in worlds:
        world.live(steps=500)
        world.shell.work_all()
    assert all(world.shell.core.stores.rounds.rounds > 10 for world in worlds)
    renamed = [
        operation
        for world in worlds
        for operation in world.disk.operations
        if operation[0] == "rename" and str(operation[2]).endswith(SPARE_SUFFIX)
    ]
    assert len(renamed) > 4, "checkpoints were made"


def test_many_busy_logs_are_made_durable_with_one_sync() -> None:
    world = world_of(1)
    world.live(steps=100)
    world.shell.work_all()
    for shard in range(SHARDS):
        world.send_to(shard)
    world.disk.operations.clear()
    world.shell.work_all()
    synced = [str(path) for operation, path, *_ in world.disk.operations if operation == "sync"]
    logs = {path for path in synced if path.endswith(".log")}
    assert len(logs) <= 2, "the one that was under way first, and one that began a new file, if any"
    assert any(path.endswith(SUFFIX) for path in synced)
    assert world.faults == []


def test_a_journal_that_does_not_sync_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    synced = MemoryFile.sync

    def sync(self: MemoryFile) -> None:
        if not self.path.endswith(SUFFIX):
            synced(self)

    monkeypatch.setattr(MemoryFile, "sync", sync)
    lost = 0
    for seed in range(6):
        world = world_of(seed)
        world.live(steps=300)
        world.cut("none")
        lost += sum("acknowledged and is lost" in fault for fault in world.faults)
    assert lost


@pytest.mark.parametrize("operation", ["write", "sync", "rename", "create", "sync_folder"])
@pytest.mark.parametrize("place", [f"{FOLDER}/", "topics/"])
def test_a_disk_that_fails_now_and_then_loses_nothing_that_was_acknowledged(operation: str, place: str) -> None:
    for seed in seeds(3):
        world = world_of(seed)
        for _ in range(6):
            world.disk.fail_next(operation, errno.EIO, 1, place, after=world.random.randrange(8))  # type: ignore[arg-type]
            world.live(steps=80)
            world.shell.work_all()
            world.shell.wait(PAUSE_US)
        world.disk.fail_never()
        world.forget_refused()
        world.cut("none")
        assert world.faults == []
        world.send_again()
        world.check()
        assert world.faults == []


def test_a_log_that_could_not_be_synced_by_a_checkpoint_is_written_again_from_the_journal() -> None:
    world = world_of(3)
    disk = world.disk
    world.live(steps=60)
    disk.fail_next("sync", errno.EIO, 4, "topics/")
    world.live(steps=200)
    world.shell.work_all()
    for _ in range(4):
        world.shell.wait(PAUSE_US)
        world.shell.work_all()
    world.forget_refused()
    world.cut("none")
    assert world.faults == []


def test_a_node_that_stopped_in_good_order_leaves_no_commit_journal_behind() -> None:
    world = world_of(2)
    world.live(steps=300)
    world.shell.work_all()
    assert world.disk.list(FOLDER), "there is one while the node runs"
    world.shell.core.close()
    assert world.disk.list(FOLDER) == []
    world.cut("none")
    assert world.faults == []


def test_a_file_in_the_journal_is_not_replaced_before_the_journal_is_done_with_it() -> None:
    """A log file without entries is followed by one of the same name; a replay must not write into that."""
    disk = MemoryDisk(1)
    shell = CoreShell(disk, seed=1, settings=ROUNDS)
    client = shell.connect()
    uuid = read_result(client.request(CreateTopic("t", 2)), TopicInfo).uuid

    def send(segment: int, body: bytes) -> None:
        frames = [encode(FrameType.SEGMENT, body, shard=shard, segment=segment) for shard in (0, 1)]
        client.send(title_frame(BLOCK, uuid, power=1), *frames)

    def answers() -> list[str]:
        return [item.outcome for ack in client.take(Ack) for item in ack.items]

    for segment in range(3):  # refused for good: recorded, without an entry
        send(segment, b"no segment at all" * (1 + segment))
        shell.work_all()
    assert answers() == ["rejected"] * 6
    assert shell.core.stores.rounds.rounds, "some of it went through the journal"
    disk.fail_next("sync", errno.EIO, 2)
    send(3, segment_body([b"lost"]))
    shell.work_all()
    assert answers() == ["rejected"] * 2
    shell.wait(PAUSE_US)
    send(3, segment_body([b"a message that takes the place of the refusals" * 9]))
    stored: list[str] = []
    while len(stored) < 2:
        shell.work(len(shell.pending) - 1)  # the newest first: no checkpoint unless it is waited for
        stored += answers()
    disk.crash(keep="none")
    shell = CoreShell(disk, seed=1, settings=ROUNDS)
    info = read_result(shell.connect().request(ShowTopic("t")), TopicInfo)
    assert [(shard.entry_next, shard.damaged) for shard in info.shard_list] == [(1, [])] * 2
    assert shell.core.stores.recovered == []


def test_a_rotten_frame_of_the_journal_is_reported_and_costs_no_other_log_anything() -> None:
    disk = MemoryDisk(5)
    world = PowerWorld(5, disk, settings=ROUNDS, shards=SHARDS)
    while not (generations := [name for name in disk.list(FOLDER) if name.endswith(SUFFIX)]):
        world.live(steps=20)
    world.shell.work_all()
    world._listen()
    path = f"{FOLDER}/{generations[-1]}"
    disk.crash(keep="none")
    disk.flip(path, 40)
    world._open()
    assert any("commit journal" in line for line in world.shell.core.stores.recovered)
