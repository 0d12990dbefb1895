"""The ledger balances after any events, and agrees with the answers to senders and consumers."""

from __future__ import annotations

import pytest

from headpond.model.errors import ProducerNotFound, SubscriptionNotFound
from headpond.model.ledger import ProducerAccount, SubscriptionAccount, balance
from headpond.storage.log.marks import DAY_US
from headpond.wire.control.codec import read_result
from headpond.wire.control.consuming import SeekSubscription, Settle, Subscribe
from headpond.wire.control.ledger import LedgerInfo, ShowLedger
from headpond.wire.title import Predecessor
from tests.broker.ledger.ledger_world import SECOND_US, LedgerWorld, Sender

STEPS = 120


def check(world: LedgerWorld, info: LedgerInfo, trail: list[str]) -> None:
    what = "; ".join(trail[-12:])
    assert balance(info.log) == "balances", (info.log, what)
    for account in [*info.producers, *(block.account for block in info.blocks)]:
        assert balance(account) == "balances", (account, what)
        assert min(account.stored, account.pending, account.holes, *account.refused.values(), 0) == 0
    for one in info.subscriptions:
        assert balance(one.account) == "balances", (one.account, what)
        assert 0 <= one.account.reached_since <= one.account.delivered - one.account.unseen, (one.account, what)
        acked = world.acked[one.account.subscription]
        assert one.account.acknowledged >= len(acked), (one.account, what)
    blocks = {block.block: block.account for block in info.blocks}
    for sender in world.senders:
        compare(sender, blocks.get(sender.block), what)


def compare(sender: Sender, account: ProducerAccount | None, what: str) -> None:
    """The ledger has every answered segment, and may have unanswered ones."""
    if account is None:
        assert not sender.admitted, what
        return
    assert account.stored >= len(sender.admitted - sender.refused), (account, what)
    assert sum(account.refused.values()) >= len(sender.refused), (account, what)
    assert account.announced <= sender.next, (account, what)
    if account.exact:
        assert account.duplicates == sender.answers["duplicate"], (account, what)
        assert account.conflicts == sender.answers["conflict"], (account, what)
        assert account.gaps == sender.answers["gap"], (account, what)


@pytest.mark.parametrize("seed", [*range(12), 221])
def test_the_ledger_balances_after_every_step_and_every_crash(seed: int) -> None:
    world = LedgerWorld(seed, **({"hard_ttl": 6.0} if seed % 3 == 0 else {}))
    trail: list[str] = []
    for _ in range(STEPS):
        trail.append(world.step())
        if trail[-1].startswith("send_unheard"):
            continue  # a request for the ledger would run the work that this step interrupts
        check(world, world.ledger(), trail)
    world.crash()
    check(world, world.ledger(), [*trail, "crash"])


# --- producers --------------------------------------------------------------------------------------


def producer(world: LedgerWorld, name: str = "till") -> ProducerAccount:
    (account,) = [account for account in world.ledger().producers if account.producer == name]
    return account


def sending(world: LedgerWorld, segments: int = 0, name: str = "till") -> Sender:
    sender = Sender(world.draw.randbytes(16), name)
    world.senders.append(sender)
    for segment in range(segments):
        world.transmit(sender, segment, world.body(segment))
    return sender


def test_a_producers_blocks_are_one_account() -> None:
    world = LedgerWorld(1)
    for segments in (2, 3):
        sender = sending(world, segments)
        world.senders = [sender]
        world.end_block()
    account = producer(world)
    assert (account.blocks, account.announced, account.stored, account.messages) == (2, 5, 5, 3 + 6)
    assert (account.open, account.unclosed, str(account.reliability)) == (0, 0, "1.000000")


def test_duplicates_and_conflicts_survive_a_clean_restart_exactly() -> None:
    world = LedgerWorld(1)
    sender = sending(world, 3)
    for segment in (0, 1, 1):
        world.transmit(sender, segment, world.body(segment))
    world.transmit(sender, 2, world.body(7) + b"?")
    world.stop()
    account = producer(world)
    assert (account.duplicates, account.conflicts, account.exact) == (3, 1, True)
    assert str(account.use_ratio) == "0.500000"


def test_duplicates_are_a_lower_bound_once_the_node_was_killed() -> None:
    world = LedgerWorld(1)
    sender = sending(world, 1)
    world.transmit(sender, 0, world.body(0))
    world.crash()
    account = producer(world)
    assert (account.duplicates, account.exact, str(account.use_ratio)) == (1, False, "≤0.500000")
    assert producer(world) == account
    sending(world, 1, "younger")
    assert producer(world, "younger").exact, "what began after the crash is exact"


def test_a_block_that_was_never_closed_leaves_something_unknown() -> None:
    world = LedgerWorld(1)
    sending(world, 2)
    assert (producer(world).open, producer(world).unclosed) == (1, 0)
    world.stop()
    account = producer(world)
    assert (account.open, account.unclosed, str(account.reliability)) == (0, 1, "≤1.000000")


def test_segments_before_a_gap_are_pending_until_they_are_declared_missing() -> None:
    world = LedgerWorld(1)
    sender = sending(world, 1)
    world.transmit(sender, 3, world.body(3))
    account = producer(world)
    assert (account.announced, account.stored, account.pending, account.gaps) == (4, 1, 3, 1)
    world.senders = [sender]
    sender.next = 3
    world.declare_a_hole()
    account = producer(world)
    assert (account.announced, account.stored, account.pending, account.holes) == (4, 1, 1, 2)
    world.transmit(sender, 1, world.body(1))
    assert (producer(world).stored, producer(world).holes) == (2, 1)
    world.transmit(sender, 3, world.body(3))
    world.transmit(sender, 2, world.body(2))
    account = producer(world)
    assert (account.stored, account.holes, account.pending, account.late) == (4, 0, 0, 1)


def test_a_declared_hole_is_still_one_after_a_crash() -> None:
    world = LedgerWorld(1)
    sender = sending(world, 1)
    sender.next, world.senders = 5, [sender]
    world.declare_a_hole()
    world.transmit(sender, 5, world.body(5))
    world.crash()
    assert (producer(world).holes, producer(world).pending) == (4, 0)


def test_a_block_announces_the_segments_of_its_predecessor() -> None:
    world = LedgerWorld(1)
    sender = sending(world, 2)
    after = Sender(b"z" * 16, "till", Predecessor(sender.block, {0: 5}))
    world.senders.append(after)
    world.transmit(after, 0, world.body(0))
    account = producer(world)
    assert (account.announced, account.stored, account.pending) == (6, 2, 4)
    assert account.rejected == {"predecessor": 1}


def test_a_refused_segment_is_counted_by_its_reason_also_after_a_crash() -> None:
    world = LedgerWorld(1)
    sender = sending(world, 1)
    world.transmit(sender, 1, world.body(1, bad=True))
    world.crash()
    account = producer(world)
    assert (account.announced, account.stored, account.refused) == (2, 1, {"bad-segment": 1})


def test_a_forgotten_block_stays_in_its_producers_account() -> None:
    world = LedgerWorld(1)
    sender = sending(world, 2)
    world.senders = [sender]
    world.end_block()
    world.now_us += 2 * DAY_US
    world.stop()
    info = world.ledger()
    assert info.blocks == []
    (account,) = info.producers
    assert (account.producer, account.stored, account.messages, account.exact) == ("till", 2, 3, True)
    assert balance(info.log) == "balances"
    world.senders = []
    sending(world, 1)
    world.stop()
    assert (producer(world).blocks, producer(world).stored) == (2, 3)


def test_the_dead_letters_of_a_topic_are_no_holes() -> None:
    world = LedgerWorld(1)
    sending(world, 6)
    world.read("billing")
    for number in range(2):
        client = world.read("billing")
        client.send(Settle(1, number, 0, nacked=[(5, 0.0), (9, 0.0)]))
        world.wait()
    info = read_result(world.client.request(ShowLedger("t.dead")), LedgerInfo)
    (account,) = info.producers
    assert (account.producer, account.announced, account.stored, account.holes) == ("(dead letters)", 2, 2, 0)
    assert info.balanced
    assert subscription(world).dead == 2


def test_one_producer_or_subscription_can_be_asked_for_alone() -> None:
    world = LedgerWorld(1)
    sending(world, 1)
    sending(world, 1, "other")
    info = read_result(world.client.request(ShowLedger("t", "till", "audit", blocks=True)), LedgerInfo)
    assert [account.producer for account in info.producers] == ["till"]
    assert [block.account.producer for block in info.blocks] == ["till"]
    assert [one.account.subscription for one in info.subscriptions] == ["audit"]
    with pytest.raises(ProducerNotFound):
        world.client.request(ShowLedger("t", "nobody"))
    with pytest.raises(SubscriptionNotFound):
        world.client.request(ShowLedger("t", subscription="nothing"))


# --- subscriptions ----------------------------------------------------------------------------------


def subscription(world: LedgerWorld, name: str = "billing") -> SubscriptionAccount:
    (account,) = [one.account for one in world.ledger().subscriptions if one.account.subscription == name]
    return account


def test_copies_survive_a_clean_restart_and_restart_after_a_crash() -> None:
    world = LedgerWorld(1)
    sending(world, 3)  # 1 + 2 + 3 entries
    world.read("billing").send(Settle(1, 1, 0, [(0, 2)]))
    world.stop()
    account = subscription(world)
    assert (account.since_run, account.delivered, account.reached, account.exact) == (1, 6, 6, True)
    world.read("billing")
    account = subscription(world)
    assert (account.reached, account.delivered, account.acknowledged, account.in_flight) == (6, 10, 2, 4)
    assert str(account.use_ratio) == "0.600000"
    world.crash()
    account = subscription(world)
    assert (account.since_run, account.delivered, account.exact) == (3, 0, False)
    assert account.delivered_before == 6, "what was handed out after the last record is not known"
    world.read("billing")
    account = subscription(world)
    assert (account.delivered, account.reached, account.unsettled) == (4, 6, 4)


def test_an_entry_given_back_unopened_is_no_copy() -> None:
    world = LedgerWorld(1)
    sending(world, 4)
    world.read("billing")
    world.leave("billing")  # it had looked at two of them
    account = subscription(world)
    assert (account.delivered, account.unseen, account.reached) == (7, 5, 2)
    assert str(account.use_ratio) == "1.000000"


def test_an_acknowledgement_from_before_a_crash_counts_as_no_copy() -> None:
    world = LedgerWorld(1)
    sending(world, 3)
    world.read("billing")
    world.crash()
    world.client.request(SeekSubscription("t", "audit", "latest"))
    world.shell.core.stores.subscriptions.get(world.uuid, "billing").paused = True  # type: ignore[union-attr]
    world.read("billing").send(Settle(1, 1, 0, [(0, 6)]))
    account = subscription(world)
    assert (account.acknowledged, account.elsewhere, account.reached_since, account.delivered) == (6, 6, 0, 0)


def test_what_a_program_holds_since_before_a_crash_counts_as_no_copy() -> None:
    """Else more entries than copies would have reached it: a UR above 1."""
    world = LedgerWorld(1)
    sending(world, 3)
    world.read("audit")
    world.crash()
    client = world.shell.connect()
    client.send(Subscribe(1, "t", "audit", "unique", "non_resilient", "earliest", 0, seen=[(0, 0, 6)]))
    world.shell.work_all()
    for acknowledged in (0, 6):
        account = subscription(world, "audit")
        assert (account.in_flight, account.acknowledged) == (6 - acknowledged, acknowledged)
        assert (account.reached_since, account.delivered, account.elsewhere) == (0, 0, 6)
        client.send(Settle(1, 1, 0, [(0, 6)]))
        world.shell.work_all()
    world.crash()
    account = subscription(world, "audit")
    assert (account.reached_since, account.delivered) == (0, 0)


def test_a_seek_restarts_the_account() -> None:
    world = LedgerWorld(1)
    sending(world, 4)
    world.read("audit").send(Settle(1, 1, 0, [(0, 5)]))
    world.shell.work_all()
    world.client.request(SeekSubscription("t", "audit", "3"))
    account = subscription(world, "audit")
    assert (account.stored, account.acknowledged, account.available, account.delivered) == (4, 0, 4, 0)
    world.stop()
    assert subscription(world, "audit") == account


def test_a_dead_entry_from_before_the_place_was_set_can_come_back() -> None:
    world = LedgerWorld(1)
    sending(world, 4)
    for number in range(2):
        world.read("audit").send(Settle(1, number, 0, nacked=[(1, 0.0), (2, 0.0)]))
        world.wait()
    assert subscription(world, "audit").dead == 2
    world.client.request(SeekSubscription("t", "audit", "latest"))
    world.redrive("audit")
    account = subscription(world, "audit")
    assert (account.stored, account.passed, account.available, account.difference) == (6, 4, 2, 0)
    assert (account.reached, account.reached_since, account.delivered) == (2, 0, 0)
    for restart in (world.stop, world.crash):
        restart()
        again = subscription(world, "audit")
        assert (again.stored, again.passed, again.available, again.difference) == (6, 4, 2, 0)
    client = world.read("audit")
    assert sorted(world.held["audit"]) == [1, 2], "each of them once"
    assert client is world.consumers["audit"]


def test_a_redriven_entry_is_no_new_one_nor_less_than_none() -> None:
    world = LedgerWorld(1)
    sending(world, 4)
    for number in range(2):
        world.read("audit").send(Settle(1, number, 0, nacked=[(1, 0.0), (2, 0.0)]))
        world.wait()
    world.read("audit").send(Settle(1, 2, 0, [(0, 7)]))
    world.shell.work_all()
    world.hear()
    world.crash()
    world.redrive("audit")
    account = subscription(world, "audit")
    assert (account.available, account.reached, account.reached_since) == (2, 7, 0)
    world.stop()
    world.read("audit").send(Settle(1, 3, 0, [(0, 7)]))
    world.shell.work_all()
    account = subscription(world, "audit")
    assert (account.acknowledged, account.reached, account.reached_since, account.delivered) == (7, 7, 0, 2)


def test_the_ledger_shows_dropped_ranges() -> None:
    world = LedgerWorld(1, hard_ttl=5.0)
    sending(world, 6)
    world.now_us += 10 * SECOND_US
    world.shell.wait(10 * SECOND_US)
    for _ in range(4):
        world.shell.wait(SECOND_US)
        world.shell.work_all()
    info = world.ledger()
    (billing,) = [one for one in info.subscriptions if one.account.subscription == "billing"]
    assert billing.account.retention == 12
    assert [lost[:4] for lost in billing.lost_ranges] == [(0, 0, 12, "retention")]
    assert info.balanced


def test_an_entry_that_reached_a_consumer_counts_as_reached_also_if_it_is_dropped_unsettled() -> None:
    world = LedgerWorld(1, hard_ttl=5.0)
    sending(world, 3)
    world.read("billing")
    world.lose_consumer("billing")
    world.crash()
    assert subscription(world).reached == 6
    for _ in range(14):
        world.now_us += SECOND_US
        world.shell.wait(SECOND_US)
        world.shell.work_all()
    account = subscription(world)
    assert (account.retention, account.reached, account.reached_since) == (6, 6, 0)


def test_entries_held_by_a_lease_count_as_reached_also_after_a_clean_restart() -> None:
    world = LedgerWorld(1)
    sending(world, 3)
    client = world.shell.connect()
    client.send(Subscribe(1, "t", "leased", "unique", "resilient", "earliest", 1 << 20))
    world.shell.work_all()
    world.shell.core.disconnected(max(world.shell.clients))
    world.hear()
    (before,) = [one.account for one in world.ledger().subscriptions if one.account.subscription == "leased"]
    assert before.in_flight == before.reached == 6
    world.stop()
    (after,) = [one.account for one in world.ledger().subscriptions if one.account.subscription == "leased"]
    assert (after.in_flight, after.reached, after.delivered, after.exact) == (0, 6, 6, True)
