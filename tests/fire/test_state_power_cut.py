"""The power fails during compaction of a state topic: state, owed messages and duplicates stay correct."""

from __future__ import annotations

import pytest

from headpond.storage.log import rewrite as log_rewrite
from headpond.storage.memory_disk import Keep
from headpond.wire.control.catalog import CompactTopic
from headpond.wire.control.codec import Request
from headpond.wire.control.consuming import DeleteSubscription, Settle
from headpond.wire.control.producing import Ack
from tests.broker.catalog.state_world import Reader, Row, StateWorld, current
from tests.fire.seeds import seeds

KEEPS: list[Keep] = ["none", "some", "all"]
KEYS = 7


class CutWorld:
    """One producer, one subscription that settles some messages, compaction now and then, and power cuts."""

    def __init__(self, seed: int) -> None:
        self.world = StateWorld(seed)
        self.random = self.world.random
        self.disk = self.world.disk
        self.places: dict[int, int] = {}
        """By segment: its first entry, as it was acknowledged."""
        self.asked: set[int] = set()
        """Entries that the slow subscription settled; open until the node confirms them."""
        self.numbers = 0
        self._attach()

    def _attach(self) -> None:
        self.slow: Reader = self.world.subscribe("slow")
        self.asker = self.world.shell.connect()
        self.world.shell.work_all()

    def live(self) -> None:
        """Sends, settles, compacts and runs disk work in any order, until the power is off."""
        shell = self.world.shell
        while self._power():
            self.listen()
            chance = self.random.random()
            if chance < 0.3:
                self.world.put(*(self._row() for _ in range(self.random.randint(1, 4))))
            elif chance < 0.35:
                self._settle_some()
            elif chance < 0.4:
                self.numbers += 1
                self.asker.send(Request(self.numbers, CompactTopic("t")))
            elif shell.pending:
                shell.work(self.random.randrange(len(shell.pending)))

    def _row(self) -> Row:
        key = b"k%d" % self.random.randrange(KEYS)
        return key, None if self.random.random() < 0.2 else self.random.randbytes(self.random.randrange(90))

    def _settle_some(self) -> None:
        end = max(self.places.values(), default=0)
        entries = sorted({self.random.randrange(end) for _ in range(min(end, 20))}) if end else []
        if entries:
            self.asked.update(entries)
            self.numbers += 1
            self.slow.client.send(Settle(1, self.numbers, 0, [(entry, entry + 1) for entry in entries]))

    def _power(self) -> bool:
        try:
            self.disk.exists("")
        except OSError:
            return False
        return True

    def listen(self) -> None:
        for ack in self.world.client.take(Ack):
            for item in ack.items:
                assert item.outcome != "rejected", item
                assert item.first_entry is not None, "a duplicate's place is known, compacted or not"
                assert self.places.setdefault(item.segment, item.first_entry) == item.first_entry

    def cut(self, keep: Keep) -> None:
        self.world.restart(keep)
        for segment in range(len(self.world.segments)):  # sent again, what is stored is a duplicate
            known = self.places.get(segment)
            item = self.world.send_again(segment)
            assert known is None or (item.outcome, item.first_entry) == ("duplicate", known), item
            assert item.outcome in ("stored", "duplicate") and item.first_entry is not None
            self.places[segment] = item.first_entry
        self._attach()
        self.check()

    def check(self) -> None:
        world = self.world
        stored = {
            self.places[segment] + row: each
            for segment, rows in enumerate(world.segments)
            for row, each in enumerate(rows)
        }
        assert sorted(stored) == list(range(len(stored))), "entries follow one another"
        rows = [stored[entry] for entry in range(len(stored))]
        name = f"audit-{self.random.randrange(1 << 40)}"
        assert world.read(name, "state") == current(rows)
        owed = [(entry, *row) for entry, row in enumerate(rows) if entry not in self.asked]
        got = self.slow.get()
        assert [each for each in got if each[0] not in self.asked] == owed
        assert all(each[1:] == rows[each[0]] for each in got), "nothing that comes was altered"
        assert world.info().shard_list[0].damaged == []
        self.forget(name)

    def forget(self, name: str) -> None:
        """Deletes the subscription of an audit, so that it owes nothing."""
        self.world.client.request(DeleteSubscription("t", name))


@pytest.mark.parametrize("seed", seeds(8))
def test_a_power_cut_while_files_are_compacted_leaves_the_old_or_the_new(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_rewrite, "STEP_BYTES", 700)  # so that a rewrite takes several steps
    world = CutWorld(seed)
    for cut in range(4):
        world.disk.cut_power_after(world.random.randrange(30, 500))
        world.live()
        world.cut(KEEPS[(seed + cut) % 3])


def test_the_cuts_fall_where_files_are_replaced() -> None:
    """Proves that some cuts above fall on unsynced data."""
    replaced = 0
    for seed in range(4):
        world = CutWorld(seed)
        world.disk.cut_power_after(500)
        world.live()
        replaced += sum(
            operation == "remove" and str(path).endswith(".log")
            for operation, path, *_ in world.disk.operations
        )
    assert replaced > 20
