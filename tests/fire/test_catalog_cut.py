"""The power fails at every write of the catalog: answered changes stay, others are complete or absent.

A script of changes runs against the node's core on the disk in memory, cut after 1, 2, 3, … changes of the
disk. The next node must find the state after the last answered change, or after the one under way.
"""

from __future__ import annotations

from typing import Any

import pytest

from headpond.broker.settings import LogSettings, Settings
from headpond.model.errors import HeadpondError
from headpond.storage.memory_disk import Keep, MemoryDisk
from headpond.wire.control.catalog import ChangeSettings, CreatePlace, CreateTopic, DeletePlace, DeleteTopic
from headpond.wire.control.codec import Operation
from headpond.wire.control.producing import CloseProducer, CreateProducer, DeleteProducer, OpenProducer
from tests.fire.core_shell import CoreShell

TINY = Settings(
    data="memory", journal_compact_bytes=512, log=LogSettings(rotate_bytes=4096, preallocate_bytes=1024)
)
"""The script compacts the catalog several times."""
ONE, TWO = b"1" * 16, b"2" * 16

SCRIPT: list[Operation] = [
    CreatePlace("tenant", "acme", {"hard_ttl": "7d"}),
    CreatePlace("component", "acme/shop/web", {"durability": "os"}),
    CreateTopic("acme/shop/web/orders", 2, settings={"max_bytes": "1GiB"}),
    ChangeSettings("product", "acme/shop", {"soft_ttl": 60}),
    CreateProducer("acme/shop/web/orders", "till-1", "single"),
    OpenProducer("acme/shop/web/orders", "till-1", ONE, "single"),
    ChangeSettings("topic", "acme/shop/web/orders", {"hard_ttl": None}, ["max_bytes"]),
    CloseProducer("acme/shop/web/orders", "till-1", ONE),
    OpenProducer("acme/shop/web/orders", "till-1", TWO, "single"),
    CreateTopic("bare"),
    CreateTopic("other/shop/web/orders"),
    CloseProducer("acme/shop/web/orders", "till-1", TWO),
    DeleteProducer("acme/shop/web/orders", "till-1"),
    DeletePlace("product", "acme/shop", recursive=True),
    DeleteTopic("bare"),
    CreateTopic("acme/shop/web/orders"),
    CreateProducer("acme/shop/web/orders", "till-1", "single"),
    OpenProducer("acme/shop/web/orders", "till-1", ONE, "single"),
    DeletePlace("tenant", "other", recursive=True),
]


def state(shell: CoreShell) -> Any:
    """The contents of the catalog, except uuids, times and connected clients."""
    catalog = shell.core.stores.catalog
    places = [(str(each.place), dict(each.own)) for each in catalog.tree]
    topics = [
        (
            topic.name,
            topic.created.shard_power,
            dict(topic.own),
            topic.settings,
            [(known.producer, known.access, known.lease.epoch) for known in topic.producers],
        )
        for topic in catalog
    ]
    return places, topics


def run(shell: CoreShell) -> tuple[list[Any], bool]:
    """The states after each answered change, the first before any; and whether the power went off."""
    states = [state(shell)]
    try:
        client = shell.connect()
        for operation in SCRIPT:
            client.request(operation)
            states.append(state(shell))
    except (OSError, HeadpondError, ValueError, ExceptionGroup):  # refused without power, or never answered
        return states, True
    return states, False


def whole_story() -> list[Any]:
    states, cut = run(CoreShell(MemoryDisk(), seed=3, settings=TINY))
    assert not cut
    return states


@pytest.mark.parametrize(("keep", "step"), [("none", 1), ("some", 3), ("all", 3)])
def test_a_power_cut_at_any_write_leaves_the_catalog_in_one_of_two_states(keep: Keep, step: int) -> None:
    story = whole_story()
    changes, cut = 0, True
    while cut:
        changes += step
        disk = MemoryDisk(changes)
        shell = CoreShell(disk, seed=3, settings=TINY)
        disk.cut_power_after(changes)
        states, cut = run(shell)
        answered = len(states) - 1
        disk.crash(keep=keep)
        found = state(CoreShell(disk, seed=4, settings=TINY))
        possible = story[answered : answered + 2]
        assert found in possible, f"cut after {changes} changes, {answered} were answered"
    assert changes > 2 * len(SCRIPT), "the cuts fell into every change"


@pytest.mark.parametrize("keep", ["none", "some", "all"])
def test_a_deletion_that_the_power_cut_short_is_finished_at_the_next_opening(keep: Keep) -> None:
    for changes in range(1, 12):
        disk = MemoryDisk(changes)
        shell = CoreShell(disk, seed=3, settings=TINY)
        client = shell.connect()
        client.request(CreateTopic("acme/shop/web/orders"))
        (uuid,) = (topic.uuid.hex() for topic in shell.core.stores.catalog)
        file = disk.create(f"topics/{uuid}/00000/00000000000000000000.log")
        file.sync()
        disk.sync_folder(f"topics/{uuid}/00000")
        disk.cut_power_after(changes)
        try:
            client.request(DeletePlace("tenant", "acme", recursive=True))
            answered = True
        except (OSError, HeadpondError, ValueError, ExceptionGroup):
            answered = False
        disk.crash(keep=keep)
        shell = CoreShell(disk, seed=4, settings=TINY)
        there = len(shell.core.stores.catalog) == 1
        assert not (answered and there)
        assert there or not [path for path in disk.paths() if uuid in path], "no folder without its topic"
