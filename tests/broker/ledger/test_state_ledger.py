"""State topics and the ledger together: removed entries stay counted as compacted."""

from __future__ import annotations

import pytest

from headpond.model.ledger import Account, SubscriptionAccount, balance
from headpond.storage.frame_file import Found, scan
from headpond.wire.control.catalog import CompactTopic
from headpond.wire.control.codec import Request, read_result
from headpond.wire.control.consuming import CreateSubscription, Deliver, SeekSubscription, Settle, Subscribe
from headpond.wire.control.ledger import LedgerInfo, ShowLedger
from headpond.wire.control.producing import BlockEnd
from headpond.wire.control.reading import AdvanceSubscription
from headpond.wire.control.staging import CommitBatch, FinishStage, OpenStage
from headpond.wire.frame import FrameType
from headpond.wire.plain.columns import rows_to_batch
from headpond.wire.plain.segment import encode_plain
from tests.broker.catalog.state_world import DAY_US, StateWorld
from tests.broker.ledger.ledger_world import LedgerWorld
from tests.fire.raw_client import encode_chunk

STEPS = 90


def compacted_world(max_bytes: float | None = None) -> StateWorld:
    """Sixty entries of three keys: compaction removes 57."""
    world = StateWorld(1, max_bytes=max_bytes)
    for number in range(60):
        world.store((b"k%d" % (number % 3), b"v" * 60))
    assert world.compact() == 57
    world.client.request(CreateSubscription("t", "s", "unique"))
    return world


def account(world: StateWorld) -> SubscriptionAccount:
    info = read_result(world.client.request(ShowLedger("t")), LedgerInfo)
    assert balance(info.log) == "balances"
    (found,) = [one.account for one in info.subscriptions]
    assert balance(found) == "balances", found
    return found


def kinds(world: StateWorld) -> tuple[int, int, int]:
    found = account(world)
    assert found.compacted == world.subscription("s").compacted
    return found.acknowledged, found.retention, found.compacted


def test_settling_up_to_a_position_does_not_acknowledge_compacted_entries() -> None:
    world = compacted_world()
    world.client.request(AdvanceSubscription("t", "s", [60]))
    assert kinds(world) == (3, 0, 57)
    world.restart()
    assert kinds(world) == (3, 0, 57)
    assert account(world).reached == 3


def test_compacted_entries_are_counted_once_however_often_the_node_is_killed() -> None:
    world = compacted_world()
    for _ in range(4):
        world.restart()
        assert kinds(world) == (0, 0, 57)


def test_compacted_entries_are_not_lost_when_their_file_is_dropped() -> None:
    world = compacted_world(max_bytes=3000)
    for number in range(60):
        world.store((b"j%d" % number, b"v" * 60))
    for _ in range(5):
        world.shell.wait(2_000_000)
        world.shell.work_all()
    before, lost = kinds(world), world.subscription("s").lost_ranges
    assert before[1] > 0 and before[2] == 57
    world.restart()
    assert (kinds(world), world.subscription("s").lost_ranges) == (before, lost)


def test_a_subscription_set_back_counts_compacted_entries_also_after_a_kill() -> None:
    world = compacted_world()
    world.client.request(AdvanceSubscription("t", "s", [60]))
    world.client.request(SeekSubscription("t", "s", "earliest"))
    world.client.request(AdvanceSubscription("t", "s", [60]))
    before = account(world)
    assert (before.acknowledged, before.compacted) == (3, 57)
    world.restart()
    after = account(world)
    assert (after.acknowledged, after.compacted) == (3, 57)


def test_settling_up_to_a_position_lets_a_resilient_subscription_continue() -> None:
    world = StateWorld()
    client = world.shell.connect()
    client.send(Subscribe(1, "t", "s", "unique", "resilient", "earliest", 1 << 20))
    world.store((b"k", b"1"))
    client.send(Settle(1, 1, 0, nacked=[(0, 1000.0)]))
    world.store((b"k", b"2"))
    assert [span for deliver in client.take(Deliver) for span in deliver.spans] == [(0, 1)]
    world.client.request(AdvanceSubscription("t", "s", [1]))
    assert [span for deliver in client.take(Deliver) for span in deliver.spans] == [(1, 2)]


def test_messages_of_forgotten_producers_stay_counted_when_heads_of_files_are_damaged() -> None:
    """For compacted segments of forgotten blocks the log keeps only the number of messages."""
    world = compacted_world()
    world.client.request(AdvanceSubscription("t", "s", [60]))
    world.client.send(BlockEnd(world.block, {0: 60}))
    world.shell.work_all()
    for _ in range(5):
        world.shell.wait(2 * DAY_US)
    world.block, world.segments = b"another block   ", []
    world.store((b"k0", b"v"))
    world.compact()
    world.shell.core.close()
    for name in world.log_files()[1:]:
        file = world.disk.open(f"topics/{world.uuid.hex()}/00000/{name}", writable=True)
        frames = [item for item in scan(file) if isinstance(item, Found)]
        head = next(item for item in frames if item.frame.type == FrameType.MARKS)
        file.write_at(head.offset + 25, [b"\xaa\xbb"])
        file.sync()
    world.restart()
    assert world.info().shard_list[0].damaged == []
    info = read_result(world.client.request(ShowLedger("t")), LedgerInfo)
    assert (balance(info.log), info.log.messages, info.log.lost) == ("balances", 61, 0)


class StateLedgerWorld(LedgerWorld):
    """The ledger's world on a state topic, with compaction, staged writes and settling by position."""

    batch = 0

    def body(self, segment: int, *, bad: bool = False, ttl: bool = False) -> bytes:
        if bad:
            return super().body(segment, bad=True)
        rows = range(1 + segment % 3)
        values: list[bytes | None] = [None if (segment + row) % 5 == 0 else b"x" * 40 for row in rows]
        keys: list[bytes | None] = [b"k%d" % ((segment * 7 + row) % 4) for row in rows]
        return encode_plain(rows_to_batch(values, keys, None, None, [segment + 1] * len(rows)))

    def compact(self) -> None:
        self.client.request(CompactTopic("t"))

    def compact_in_part(self) -> None:
        """Starts compaction, so that the next step interrupts it."""
        self.shell.connect().send(Request(1, CompactTopic("t")))
        for _ in range(self.draw.randrange(12)):
            if self.shell.pending:
                self.shell.work(self.draw.randrange(len(self.shell.pending)))

    def advance(self) -> None:
        self.hear()
        end = self.ledger().log.entries
        name = self.draw.choice(["billing", "audit"])
        self.client.request(AdvanceSubscription("t", name, [self.draw.randint(0, end)]))
        self.hear()

    def publish(self) -> None:
        """A staged write, in which the power may fail."""
        client, stage, chunks = self.shell.connect(), self.draw.randbytes(16), self.draw.randint(1, 3)
        client.request(OpenStage(stage, "writer", "t"))
        for number in range(chunks):
            client.send(encode_chunk(stage, 0, number, self.body(self.draw.randrange(9))))
        client.request(FinishStage(stage, chunks))
        self.batch += 1
        client.send(Request(99, CommitBatch("writer", self.batch, [stage])))
        if self.draw.random() < 0.5:
            self.crash()
        self.hear()

    def restart(self) -> None:
        """Restarts cleanly or by a kill; with no work under way, settlements stay the same."""
        for name in list(self.consumers):
            self.lose_consumer(name)
        clean = self.draw.random() < 0.5
        before = self.settled(copies=clean)
        if clean:
            self.stop()
        else:
            self.disk.crash(keep="all")
            self._open()
        assert self.settled(copies=clean) == before, "clean" if clean else "killed"

    def settled(self, *, copies: bool) -> list[tuple[int, ...]]:
        found = [one.account for one in self.ledger().subscriptions]
        return [
            (one.acknowledged, one.skipped, one.dead, one.compacted, one.passed)
            + ((one.reached, one.reached_since, one.delivered, one.elsewhere) if copies else ())
            for one in found
        ]

    def step(self) -> str:
        if self.draw.random() < 0.7:
            return super().step()
        steps = [self.compact, self.compact_in_part, self.advance, self.publish, self.restart]
        chosen = self.draw.choice(steps)
        chosen()
        return chosen.__name__


@pytest.mark.parametrize("seed", [1, 2, 5, 7, 10, 21, 22])
def test_the_ledger_of_a_state_topic_balances_and_says_the_same_after_a_restart(seed: int) -> None:
    world = StateLedgerWorld(seed, state=True, tombstone_ttl=1.0)
    trail: list[str] = []
    for _ in range(STEPS):
        trail.append(world.step())
        if trail[-1] in ("send_unheard", "compact_in_part"):
            continue  # a request would run the work that this step interrupts
        info = world.ledger()
        accounts: list[Account] = [info.log, *info.producers, *(one.account for one in info.subscriptions)]
        assert {balance(each) for each in accounts} == {"balances"}, (accounts, trail[-12:])
