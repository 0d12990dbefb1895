"""The power fails at any moment, and every guarantee holds: the node's core on the disk in memory."""

from __future__ import annotations

import errno

import pytest

from headpond.storage.memory_disk import Keep, MemoryDisk, MemoryFile
from headpond.wire.control.catalog import CreateTopic, ListTopics, ShowTopic, TopicInfo
from headpond.wire.control.codec import read_result
from headpond.wire.control.consuming import Deliver, Settle, Settled, Subscribe
from headpond.wire.control.producing import Ack, AckItem
from tests.fire.core_shell import SMALL_FILES, CoreClient, CoreShell
from tests.fire.power_world import PAUSE_US, PowerWorld
from tests.fire.raw_client import segment_frame, title_frame
from tests.fire.seeds import seeds

KEEPS: list[Keep] = ["none", "some", "all"]
BLOCK = bytes(range(16))


def live_through_cuts(seed: int, cuts: int = 4) -> PowerWorld:
    """Cuts the power several times, at any disk operation, and sends unanswered segments again."""
    world = PowerWorld(seed)
    for cut in range(cuts):
        world.disk.cut_power_after(world.random.randrange(1, 120))
        world.live(steps=400)
        world.cut(KEEPS[(seed + cut) % 3])
        world.send_again()
        world.check()
    return world


@pytest.mark.parametrize("seed", seeds(10))
def test_a_power_cut_breaks_no_guarantee(seed: int) -> None:
    world = live_through_cuts(seed)
    assert world.faults == []
    outcomes = [outcome for writer in world.writers for outcome in writer.outcomes.values()]
    assert outcomes.count("stored") > 20
    assert world.settled


def test_over_many_cuts_some_segments_are_recognised_as_stored_before() -> None:
    """Proves that some cuts above fall on unsynced data."""
    worlds = [live_through_cuts(seed, cuts=2) for seed in range(100, 110)]
    outcomes = [outcome for world in worlds for writer in world.writers for outcome in writer.outcomes.values()]
    assert outcomes.count("duplicate") > 5


def test_a_disk_that_does_not_sync_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryFile, "sync", lambda self: None)
    world = PowerWorld(1)
    world.live(steps=300)
    try:
        world.cut("none")
    except Exception as error:  # a node may also refuse to open what is left
        world.faults.append(f"the node did not open: {error!r}")
    assert any("acknowledged and is lost" in fault or "did not open" in fault for fault in world.faults)


# --- a disk that fails --------------------------------------------------------------------------------


def opened(disk: MemoryDisk) -> tuple[CoreShell, CoreClient, bytes]:
    shell = CoreShell(disk, seed=1)
    client = shell.connect()
    info = read_result(client.request(CreateTopic("t", exist_ok=True)), TopicInfo)
    return shell, client, info.uuid


def send(shell: CoreShell, client: CoreClient, uuid: bytes, *segments: int) -> list[AckItem]:
    """Sends segments of one message each; returns the answers in order."""
    frames = [segment_frame([b"message %d" % segment], segment=segment) for segment in segments]
    client.send(title_frame(BLOCK, uuid), *frames)
    shell.work_all()
    return [item for ack in client.take(Ack) for item in ack.items]


def stored_values(disk: MemoryDisk) -> int:
    """How many entries a node finds after a power cut that keeps only synced data."""
    disk.crash(keep="none")
    _, client, _ = opened(disk)
    return read_result(client.request(ShowTopic("t")), TopicInfo).shard_list[0].entry_next


@pytest.mark.parametrize(
    ("operation", "number", "code"),
    [
        ("sync", errno.EIO, "storage-failed"),
        ("write", errno.EIO, "storage-failed"),
        ("write", errno.ENOSPC, "disk-full"),
    ],
)
def test_a_segment_that_the_disk_refuses_can_be_sent_again(operation: str, number: int, code: str) -> None:
    disk = MemoryDisk()
    shell, client, uuid = opened(disk)
    assert [item.outcome for item in send(shell, client, uuid, 0, 1)] == ["stored", "stored"]
    disk.fail_next(operation, number, path_prefix="topics/")  # type: ignore[arg-type]
    refused = send(shell, client, uuid, 2, 3)
    assert [(item.outcome, item.code) for item in refused] == [("rejected", code)] * 2
    shell.wait(PAUSE_US)
    assert [item.outcome for item in send(shell, client, uuid, 2, 3, 4)] == ["stored"] * 3
    assert [item.outcome for item in send(shell, client, uuid, 0, 2, 4)] == ["duplicate"] * 3
    assert stored_values(disk) == 5


def test_nothing_is_acknowledged_on_a_full_disk_and_all_is_taken_once_there_is_room() -> None:
    disk = MemoryDisk()
    shell, client, uuid = opened(disk)
    send(shell, client, uuid, 0)
    disk.capacity_bytes = 1
    for _ in range(3):
        refused = send(shell, client, uuid, *range(1, 40))
        assert {(item.outcome, item.code) for item in refused} == {("rejected", "disk-full")}
        shell.wait(PAUSE_US)
    disk.capacity_bytes = None
    shell.wait(PAUSE_US)
    assert [item.outcome for item in send(shell, client, uuid, *range(1, 40))] == ["stored"] * 39
    assert stored_values(disk) == 40


def test_a_settlement_is_not_confirmed_while_the_journal_cannot_be_synced_and_is_kept_afterwards() -> None:
    disk = MemoryDisk()
    shell, client, uuid = opened(disk)
    send(shell, client, uuid, 0, 1, 2)
    client.send(Subscribe(1, "t", "s", "unique", "non_resilient", "earliest", 1 << 20))
    shell.work_all()
    disk.fail_next("sync", errno.EIO, path_prefix="settlements/")
    client.send(Settle(1, 1, 0, [(0, 2)]))
    shell.work_all()
    assert client.take(Settled) == []
    shell.wait(PAUSE_US)
    shell.work_all()
    assert [settled.number for settled in client.take(Settled)] == [1]
    disk.crash(keep="none")
    shell, client, _ = opened(disk)
    client.send(Subscribe(1, "t", "s", "unique", "non_resilient", "earliest", 1 << 20))
    shell.work_all()
    assert [deliver.spans for deliver in client.take(Deliver)] == [[(2, 3)]]


def test_topics_survive_the_compaction_of_the_catalog() -> None:
    disk = MemoryDisk()
    shell, client, _ = opened(disk)
    assert SMALL_FILES.journal_compact_bytes < 100 * 60, "a hundred topics are more than a journal holds here"
    names = [f"topic-{number:03d}" for number in range(100)]
    for name in names:
        client.request(CreateTopic(name))
        shell.work_all()
    disk.crash(keep="none")
    _, client, _ = opened(disk)
    found = read_result(client.request(ListTopics()), list[TopicInfo])
    assert [info.topic.rpartition("/")[2] for info in found] == ["t", *names]
