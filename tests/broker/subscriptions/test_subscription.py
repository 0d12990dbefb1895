"""Every kind and mode of subscription against a model of single entries, in any order of events.

The rules are in ``machine_world.check_offer``. In the end every stored message must be settled: the machine
forgets none, also after the loss of its consumer.
"""

from __future__ import annotations

import contextlib

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headpond.broker.subscriptions.attachment import Attachment
from headpond.model.errors import SubscriptionBusy
from headpond.model.policy import Policy
from tests.broker.subscriptions.machine_world import MANY, World

KEYS: list[bytes | None] = [None, b"a", b"b", b"c", b"d"]
POLICY = Policy(deadline=3.0, max_attempts=4, lease=1.0, failover_after=2, backoff=0.05, backoff_max=0.2)


class SubscriptionAgainstModel(RuleBasedStateMachine):
    kind = "unique"
    mode = "non_resilient"

    def __init__(self) -> None:
        super().__init__()
        self.world = World(self.kind, self.mode, POLICY)
        self.seen: list[Attachment] = []
        """Former consumers, which may still send frames."""

    def some(self, at: int) -> Attachment:
        attachments = self.world.it.attachments
        return attachments[at % len(attachments)]

    @property
    def attached(self) -> bool:
        return bool(self.world.it.attachments)

    @rule(shard=st.integers(0, 1), keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=6))
    def store(self, shard: int, keys: list[bytes | None]) -> None:
        self.world.store(shard, keys)

    @rule(credit=st.sampled_from([1, 300, 2000, MANY]))
    def join(self, credit: int) -> None:
        with contextlib.suppress(SubscriptionBusy):
            self.seen.append(self.world.join(credit))
        self.world.pump()

    @rule(credit=st.sampled_from([1, 300, MANY]), instance=st.sampled_from([b"x", b"y"]), says=st.booleans())
    def come_back(self, credit: int, instance: bytes, says: bool) -> None:
        with contextlib.suppress(SubscriptionBusy):
            self.seen.append(self.world.join(credit, instance, says=says))
        self.world.pump()

    @precondition(lambda self: self.attached)
    @rule(at=st.integers(0, 5), count=st.integers(1, 4))
    def hand_out(self, at: int, count: int) -> None:
        one = self.some(at)
        if one.connected:
            self.world.hand_out(one, count)

    @precondition(lambda self: self.attached)
    @rule(at=st.integers(0, 5), count=st.integers(0, 4), how=st.sampled_from(["lost", "unnoticed", "killed"]))
    def reconnect(self, at: int, count: int, how: str) -> None:
        """A program has messages; then the connection, or the node, is lost and comes back."""
        one = self.some(at)
        if not (one.instance and one.connected):
            return
        self.world.hand_out(one, count)
        if how == "lost":
            self.world.it.disconnect(one)
            self.world.changed()
        elif how == "killed":
            self.world.restart()
            self.seen.clear()
        self.come_back(MANY, one.instance, says=True)

    @precondition(lambda self: self.attached)
    @rule(at=st.integers(0, 5), clean=st.booleans())
    def leave(self, at: int, clean: bool) -> None:
        gone = self.some(at)
        it = self.world.it
        (it.leave if clean else it.disconnect)(gone)
        self.world.changed()
        self.world.pump()

    @precondition(lambda self: self.attached)
    @rule(at=st.integers(0, 5), credit=st.sampled_from([100, 5000]))
    def credit(self, at: int, credit: int) -> None:
        lucky = self.some(at)
        lucky.credit_bytes += credit
        if lucky.open:
            self.world.it.gained_room(lucky)
        self.world.pump()

    @precondition(lambda self: self.attached)
    @rule(at=st.integers(0, 5), writable=st.booleans())
    def stall(self, at: int, writable: bool) -> None:
        one = self.some(at)
        one.writable = writable
        if one.open:
            self.world.it.gained_room(one)

    @precondition(lambda self: self.attached)
    @rule(at=st.integers(0, 5))
    def renew(self, at: int) -> None:
        one = self.some(at)
        if one.connected:
            self.world.it.renew(one, 1, self.world.now_us)

    @precondition(lambda self: self.world.holder)
    @rule(at=st.integers(0, 100), skip=st.booleans())
    def settle_one_in_hand(self, at: int, skip: bool) -> None:
        (shard, entry), holder = sorted(self.world.holder.items(), key=lambda item: item[0])[
            at % len(self.world.holder)
        ]
        self.world.settle(shard, entry, entry + 1, holder, skip=skip)
        self.world.pump()

    @precondition(lambda self: self.attached)
    @rule(shard=st.integers(0, 1), start=st.integers(0, 30), length=st.integers(1, 9), at=st.integers(0, 5))
    def settle_a_range(self, shard: int, start: int, length: int, at: int) -> None:
        self.world.settle(shard, start, start + length, self.some(at))

    @precondition(lambda self: self.world.holder)
    @rule(at=st.integers(0, 100), delay=st.sampled_from([0.0, 0.1, 0.5]))
    def nack_one_in_hand(self, at: int, delay: float) -> None:
        place, holder = sorted(self.world.holder.items(), key=lambda item: item[0])[at % len(self.world.holder)]
        self.world.nack(place, holder, delay)
        self.world.pump()

    @precondition(lambda self: self.seen)
    @rule(shard=st.integers(0, 1), entry=st.integers(0, 30), at=st.integers(0, 9))
    def a_zombie_speaks(self, shard: int, entry: int, at: int) -> None:
        """A consumer acknowledges a message that it once had and that another may have now."""
        if entry < self.world.ends[shard]:
            self.world.settle(shard, entry, entry + 1, self.seen[at % len(self.seen)])

    @precondition(lambda self: self.attached)
    @rule(at=st.integers(0, 5), shard=st.integers(0, 1), seconds=st.sampled_from([None, 0.5, 9.0]))
    def extend(self, at: int, shard: int, seconds: float | None) -> None:
        self.world.it.extend(self.some(at), shard, [(0, 50)], seconds, self.world.now_us)

    @precondition(lambda self: self.attached)
    @rule(at=st.integers(0, 5), shard=st.integers(0, 1), start=st.integers(0, 20), length=st.integers(1, 20))
    def give_back(self, at: int, shard: int, start: int, length: int) -> None:
        one = self.some(at)
        in_hand = self.world.in_hand.get(one.instance, set())
        if any(each == shard and start <= entry < start + length for each, entry in in_hand):
            return  # it returns only what no program has
        self.world.it.take_back(one, shard, [(start, start + length)])
        self.world.changed()
        self.world.pump()

    @precondition(lambda self: any(one.recalled for one in self.world.it.attachments))
    @rule()
    def answer_a_recall(self) -> None:
        """Returns everything that its program does not have."""
        one = next(one for one in self.world.it.attachments if one.recalled)
        in_hand = self.world.in_hand.get(one.instance, set())
        back = [place for place, holder in self.world.holder.items() if holder is one and place not in in_hand]
        for shard in (0, 1):
            spans = [(entry, entry + 1) for each, entry in sorted(back) if each == shard]
            self.world.it.take_back(one, shard, spans, done=shard == 1)
        self.world.changed()
        self.world.pump()

    @rule(us=st.sampled_from([10_000, 100_000, 700_000, 2_000_000]))
    def wait(self, us: int) -> None:
        self.world.wait(us)
        self.world.pump()

    @rule()
    def bury(self) -> None:
        self.world.bury()

    @rule(rarely=st.integers(0, 3))
    def redrive(self, rarely: int) -> None:
        if not rarely:
            self.world.redrive()

    @rule(paused=st.booleans())
    def pause(self, paused: bool) -> None:
        self.world.it.paused = paused

    @invariant()
    def books_agree(self) -> None:
        self.world.check()

    def teardown(self) -> None:
        """A consumer that settles everything reaches the end, after any steps."""
        world = self.world
        world.it.paused = False
        for one in list(world.it.attachments):
            world.it.leave(one)
            world.changed()
        good = world.join(MANY)
        for _ in range(400):
            world.bury()
            world.pump()
            for shard, entry in sorted(world.holder):
                world.settle(shard, entry, entry + 1, good)
            world.wait(100_000)
        stored = {(shard, entry) for shard in range(2) for entry in range(world.ends[shard])}
        assert world.settled == stored
        world.check()
        assert [cursor.cursor for cursor in world.it.cursors] == world.ends


def _case(of_kind: str, of_mode: str) -> type:
    class Case(SubscriptionAgainstModel):
        kind = of_kind
        mode = of_mode

    Case.__name__ = Case.__qualname__ = f"{of_kind}_{of_mode}"
    Case.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
    test: type = Case.TestCase
    return test


TestUniqueNonResilient = _case("unique", "non_resilient")
TestUniqueResilient = _case("unique", "resilient")
TestFailoverNonResilient = _case("failover", "non_resilient")
TestFailoverResilient = _case("failover", "resilient")
TestSharedNonResilient = _case("shared", "non_resilient")
TestSharedResilient = _case("shared", "resilient")
TestKeySharedNonResilient = _case("key_shared", "non_resilient")
TestKeySharedResilient = _case("key_shared", "resilient")
