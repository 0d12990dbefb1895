"""A node opens consistently if a part of its data folder is lost or older than the rest."""

from __future__ import annotations

import pytest

from headpond.broker.catalog.topics import TOPICS_FOLDER
from headpond.model.errors import IncarnationChanged
from headpond.storage.memory_disk import MemoryDisk
from headpond.wire.control.catalog import DeletePlace, DeleteTopic, ListTopics, ShowTopic, TopicInfo
from headpond.wire.control.codec import Operation, read_result
from headpond.wire.control.producing import AckItem
from headpond.wire.control.reading import FetchEntries
from tests.broker.ingest.test_ingest import Sender
from tests.broker.subscriptions.core_readers import PLAIN, Reader
from tests.fire.core_shell import CoreShell


def opened(disk: MemoryDisk) -> CoreShell:
    return CoreShell(disk, seed=9, settings=PLAIN)


def test_a_topic_whose_catalog_record_rotted_is_taken_back_from_its_logs() -> None:
    disk = MemoryDisk()
    sender = Sender(CoreShell(disk, seed=1, settings=PLAIN))
    sender.ask(0, rows=4)
    (name,) = disk.list("catalog")
    data = disk.open(f"catalog/{name}").read_at(0, 1 << 16)
    disk.flip(f"catalog/{name}", data.index(sender.info.uuid))
    again = opened(disk)
    assert any("bring it back" in line for line in again.core.stores.recovered)
    assert read_result(again.connect().request(ShowTopic("orders")), TopicInfo).uuid == sender.info.uuid
    assert Reader(again).entries() == [0, 1, 2, 3]
    assert Sender(again).ask(0, rows=4) == AckItem(0, "duplicate", 0)
    again.work_all()
    assert opened(disk).core.stores.recovered == [], "it is in the catalog again"


def test_a_catalog_that_is_gone_is_made_again_from_the_logs() -> None:
    disk = MemoryDisk()
    sender = Sender(CoreShell(disk, seed=1, settings=PLAIN))
    sender.ask(0, rows=2)
    disk.remove_tree("catalog")
    again = opened(disk)
    assert Reader(again).entries() == [0, 1]
    again.work_all()
    assert opened(disk).core.stores.recovered == [], "it is in the catalog again"


def test_a_folder_that_no_topic_claims_is_reported_and_left_alone() -> None:
    disk = MemoryDisk()
    opened(disk).connect().request(ListTopics())
    disk.create(f"{TOPICS_FOLDER}/{'ab' * 16}/00000/{0:020d}.log").close()
    again = opened(disk)
    assert [line for line in again.core.stores.recovered if "belongs to no topic" in line]
    assert disk.list(TOPICS_FOLDER) == ["ab" * 16]


@pytest.mark.parametrize("deletion", [DeleteTopic("orders"), DeletePlace("tenant", "default", recursive=True)])
def test_a_deletion_that_a_crash_cut_short_is_finished(deletion: Operation) -> None:
    disk = MemoryDisk()
    shell = CoreShell(disk, seed=1, settings=PLAIN)
    sender = Sender(shell)
    sender.ask(0)
    disk.remove_tree = lambda folder: None  # type: ignore[method-assign]  # the crash comes before it
    sender.client.request(deletion)
    del disk.remove_tree
    assert disk.list(TOPICS_FOLDER) != []
    again = opened(disk)
    assert again.connect().request(ListTopics()) == []
    assert disk.list(TOPICS_FOLDER) == []


def test_positions_ahead_of_a_restored_log_begin_a_new_incarnation_and_no_entry_is_used_twice() -> None:
    disk = MemoryDisk()
    shell = CoreShell(disk, seed=1, settings=PLAIN)
    sender = Sender(shell)
    sender.ask(0, rows=5)
    reader = Reader(shell)
    reader.settle(acked=[(0, 5)])
    (before,) = read_result(sender.client.request(ShowTopic("orders")), TopicInfo).shard_list
    disk.remove_tree(f"{TOPICS_FOLDER}/{sender.info.uuid.hex()}")
    again = CoreShell(disk, seed=9, settings=PLAIN, now_us=shell.now_us + 1)
    assert any("new incarnation" in line for line in again.core.stores.recovered)
    assert Sender(again, b"n" * 16).ask(0) == AckItem(0, "stored", 5)
    assert Reader(again).entries() == [5]
    ask = FetchEntries(sender.info.uuid, 0, 5, None, before.incarnation)
    with pytest.raises(IncarnationChanged):
        again.connect().request(ask)
