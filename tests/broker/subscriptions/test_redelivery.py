"""When a refused message comes again: after the backlog, also over restarts, and never starved.

The model knows the state of every entry and which one must be delivered next. Records hold one entry, and a
consumer has room for one record at a time, so that the test sees every choice of the machine.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headpond.broker.subscriptions.attachment import Attachment
from headpond.broker.subscriptions.cursor import UNLIMITED
from headpond.broker.subscriptions.journal import Subscriptions, records_of
from headpond.broker.subscriptions.records import Opened
from headpond.broker.subscriptions.subscription import Offer, Subscription
from headpond.broker.subscriptions.unacked_log import DUE_STEP_US
from headpond.model.policy import AFTER_BACKLOG, AFTER_BACKOFF, Policy
from headpond.storage.journal import encode_change
from headpond.storage.log.read import ReadResult, StoredRecord
from headpond.wire.control.consuming import Settle
from tests.broker.subscriptions.machine_world import record

TOPIC = b"t" * 16
DEADLINE_S = 1.0
KEYS: list[bytes | None] = [None, b"a", b"b"]
CLOCK_AHEAD_US = 7 * DUE_STEP_US
"""How far the time of day is ahead of the clock; a restart changes it."""


@dataclass
class Entry:
    """One entry of the model."""

    key: bytes | None
    state: str = "new"
    """new, held, ready (to come again at once), refused, settled"""
    attempts: int = 0
    due_us: int = 0
    """Time of day: when a refused one may be redelivered, or the deadline of a held one."""
    bound: int = 0
    """The bound of a refused one: it waits for everything before it; 0 when that is settled."""
    journaled: tuple[int, int] | None = None
    """(due, bound) of the last refusal, until the journal has a later record of the entry."""


class RedeliveryAgainstModel(RuleBasedStateMachine):
    kind = "unique"
    redelivery = AFTER_BACKLOG

    def __init__(self) -> None:
        super().__init__()
        policy = Policy(deadline=DEADLINE_S, max_attempts=0, failover_after=10**6, redelivery=self.redelivery)
        opened = Opened(
            TOPIC, "s", self.kind, "non_resilient", [0], 0, policy.effective("a/b/c/t", "non_resilient")
        )
        self.entries: list[Entry] = []
        self.records: list[StoredRecord] = []
        self.journal: list[bytes] = [encode_change(opened)]
        self.clock_us = DUE_STEP_US
        self.ahead_us = CLOCK_AHEAD_US
        self.it = self.read_journal()
        self.consumers: list[Attachment] = []
        self.avoided: set[bytes | None] = set()
        """Keys of which the consumer missed a deadline: it gets no more of them before it has settled all."""
        self.join()

    # --- what happens -------------------------------------------------------------------------------

    def read_journal(self) -> Subscription:
        self.subscriptions = Subscriptions(
            lambda: self.now_us, lambda: self.clock_us, lambda topic: None, lambda topic: ""
        )
        for body in self.journal:
            self.subscriptions.apply(Subscriptions.decoder.decode(body))
        found = self.subscriptions.get(TOPIC, "s")
        assert found is not None
        cursor = found.cursors[0]
        cursor.begin()
        cursor.reach = cursor.reach_staged = UNLIMITED  # test_consume.py tests the reach
        return found

    @property
    def now_us(self) -> int:
        return self.clock_us + self.ahead_us

    def join(self) -> None:
        """A shared subscription has two consumers."""
        self.avoided.clear()
        while len(self.consumers) < (2 if self.kind == "shared" else 1):
            one = Attachment(1, len(self.consumers), "c", 0, welcome=True, resumed=True)
            self.it.admit(one, self.clock_us)
            self.wrote()
            self.consumers.append(one)

    def wrote(self) -> None:
        self.journal += map(encode_change, records_of(self.it))
        change, self.it.consequences = self.it.consequences, None
        for one in change.recalled if change is not None else ():
            self.it.take_back(one, 0, [], done=True)  # it has handed out everything

    def settle(self, entry: int, **what: list[tuple[int, float | None]] | list[tuple[int, int]]) -> None:
        ask = Settle(1, 1, 0, **what)  # type: ignore[arg-type]
        by = next(one for one in self.consumers if entry in one.held.get(0, ()))
        told, late = self.it.settle(ask, by, len(self.entries), self.clock_us, self.now_us)
        assert not late
        self.journal.append(encode_change(told))
        self.wrote()

    def some(self, at: int, state: str) -> int:
        found = [number for number, entry in enumerate(self.entries) if entry.state == state]
        return found[at % len(found)]

    def any_in(self, *states: str) -> bool:
        return any(entry.state in states for entry in self.entries)

    @rule(keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=5))
    def store(self, keys: list[bytes | None]) -> None:
        for key in keys:
            self.records.append(record(len(self.entries), [key]))
            self.entries.append(Entry(key))

    @precondition(lambda self: self.any_in("held"))
    @rule(at=st.integers(0, 20))
    def ack(self, at: int) -> None:
        entry = self.some(at, "held")
        self.settle(entry, acked=[(entry, entry + 1)])
        self.entries[entry].state = "settled"

    @precondition(lambda self: self.any_in("held"))
    @rule(at=st.integers(0, 20), delay=st.sampled_from([None, 0.0, 0.2, 2.0]))
    def nack(self, at: int, delay: float | None) -> None:
        entry = self.some(at, "held")
        its = self.entries[entry]
        self.settle(entry, nacked=[(entry, delay)])
        its.attempts += 1
        backoff_s = min(0.1 * 2 ** (its.attempts - 1), 60.0)
        self.refused(its, self.now_us + round((backoff_s if delay is None else delay) * 1e6))

    def refused(self, its: Entry, due_us: int) -> None:
        its.state, its.due_us = "refused", due_us
        its.bound = len(self.entries) if self.redelivery == AFTER_BACKLOG else 0
        its.journaled = (due_us, its.bound)

    @rule(steps=st.sampled_from([1, 5, 25, 120]))
    def wait(self, steps: int) -> None:
        self.clock_us += steps * DUE_STEP_US
        self.it.on_time(self.clock_us, [len(self.entries)])
        self.wrote()
        held = [its for its in self.entries if its.state == "held"]
        for due_us in sorted({its.due_us for its in held if its.due_us <= self.now_us}):
            late = [its for its in held if its.state == "held" and its.due_us == due_us]
            for its in late:
                its.attempts += 1
                self.refused(its, self.now_us)
            self.avoided |= {its.key for its in late if self.kind == "key_shared"} - {None}

    @rule(clean=st.booleans())
    def lose_a_consumer(self, clean: bool) -> None:
        one = self.consumers.pop(0)
        held = [number for number, its in enumerate(self.entries) if number in one.held.get(0, ())]
        if clean:
            self.it.leave(one, {})
        else:
            self.it.disconnect(one)
        self.wrote()
        for entry in held:
            self.entries[entry].state = "ready"
            if not clean:
                self.entries[entry].attempts += 1
                self.entries[entry].journaled = None
        self.join()

    @rule(compact=st.booleans(), ahead_us=st.sampled_from([0, CLOCK_AHEAD_US, 10**15]))
    def restart(self, compact: bool, ahead_us: int) -> None:
        """The clock of the next run starts anywhere; the time of day continues."""
        if compact:
            self.journal = list(map(encode_change, self.subscriptions.snapshot()))
            for its in self.entries:
                its.journaled = (its.due_us, its.bound) if its.state == "refused" else None
        self.clock_us, self.ahead_us = self.now_us - ahead_us, ahead_us
        if self.clock_us < 0:
            self.clock_us, self.ahead_us = self.now_us, 0
        self.it = self.read_journal()
        for its in self.entries:
            if its.state != "settled":
                its.state = "new" if its.journaled is None else "refused"
                its.due_us, its.bound = its.journaled or (0, 0)
        self.consumers.clear()
        self.join()

    @rule(at=st.integers(0, 1), count=st.integers(1, 6))
    def hand_out(self, at: int, count: int) -> None:
        consumer = self.consumers[at % len(self.consumers)]
        self.it.on_time(self.clock_us, [len(self.entries)])  # as when a consumer is welcomed
        for _ in range(count):
            consumer.credit_bytes = 1
            consumer.overdue = False
            self.it.gained_room(consumer)
            offers = self.pump()
            consumer.credit_bytes = 0
            self.check(offers)
            if not offers:
                return

    def pump(self) -> list[Offer]:
        ends = [len(self.entries)]
        for _ in range(1000):
            self.it.release_refused(ends)
            receivers = self.it.receivers()
            wanted = self.it.next_read(receivers, ends, 1) if receivers else None
            if wanted is None:
                return []
            run = ReadResult([self.records[wanted.entry]], wanted.entry + 1, [])
            if offers := self.it.offer(0, run, wanted.entry):
                for offer in offers:
                    self.it.sent(offer, self.clock_us)
                return offers
        raise AssertionError("it goes on reading for ever")

    # --- the rule -----------------------------------------------------------------------------------

    def check(self, offers: list[Offer]) -> None:
        expected = self.expected()
        if not offers:
            assert not expected, "something may come, and somebody has room"
            return
        (offer,) = offers
        ((entry, end),) = offer.spans
        assert end == entry + 1
        its = self.entries[entry]
        assert offer.attempt == its.attempts + 1
        assert entry in expected if self.kind == "key_shared" else entry == expected[0]
        its.state, its.due_us = "held", self.now_us + round(DEADLINE_S * 1e6)
        self.avoided.discard(its.key)

    def expected(self) -> list[int]:
        """The entries that may be delivered now, in order; asking releases those that may be redelivered.

        Of a key_shared subscription it may be released later: records are read first, to learn their keys.
        """
        something_new = bool(self.may_go("ready", "new"))
        refused = [its for its in self.entries if its.state == "refused"]
        for its in [its for its in refused if not self.rest(its)]:
            its.bound = 0
        log = self.it.cursors[0].unacked_log.entries
        for number, its in enumerate(self.entries):
            released = number not in log
            if its.state == "refused" and its.due_us <= self.now_us and not (its.bound and something_new):
                in_order = any(each.state == "new" for each in self.entries[:number])  # after a restart
                if released or self.kind != "key_shared":
                    its.state = "new" if in_order else "ready"
        return self.may_go("ready") + self.may_go("new")

    def rest(self, refused: Entry) -> list[int]:
        """Entries that were in the log at its refusal, and are not yet delivered and settled."""
        before = range(refused.bound)
        held = [each for each in before if self.entries[each].state == "held"]
        return held + [each for each in self.may_go("ready", "new") if each in before]

    def may_go(self, *states: str) -> list[int]:
        """Entries in one of these states, without those behind an earlier entry of their key."""
        return [
            number
            for number, its in enumerate(self.entries)
            if its.state in states and not self.held_up(number)
        ]

    def held_up(self, number: int) -> bool:
        key = self.entries[number].key
        before = self.entries[:number] if self.kind == "key_shared" and key is not None else []
        avoided = key in self.avoided and any(each.key == key and each.state == "held" for each in self.entries)
        return avoided or any(each.key == key and each.state == "refused" for each in before)

    @invariant()
    def the_log_holds_what_was_refused(self) -> None:
        log = self.it.cursors[0].unacked_log
        refused = [number for number, its in enumerate(self.entries) if its.state == "refused"]
        assert refused == list(log.entries.numbers()), "nothing is released before its time"

    def teardown(self) -> None:
        """A consumer that settles everything reaches the end, after any steps."""
        for _ in range(10 * len(self.entries) + 10):
            self.wait(120)
            self.hand_out(0, len(self.entries))
            for number, its in enumerate(self.entries):
                if its.state == "held":
                    self.settle(number, acked=[(number, number + 1)])
                    its.state = "settled"
            if all(its.state == "settled" for its in self.entries):
                return
        raise AssertionError("something never came again")


def _case(of_kind: str, of_redelivery: str = AFTER_BACKLOG) -> type:
    class Case(RedeliveryAgainstModel):
        kind = of_kind
        redelivery = of_redelivery

    Case.__name__ = Case.__qualname__ = f"{of_kind}_{of_redelivery}"
    Case.TestCase.settings = settings(max_examples=20, stateful_step_count=40, deadline=None)
    test: type = Case.TestCase
    return test


TestUnique = _case("unique")
TestFailover = _case("failover")
TestShared = _case("shared")
TestKeyShared = _case("key_shared")
TestSharedAfterBackoff = _case("shared", AFTER_BACKOFF)
