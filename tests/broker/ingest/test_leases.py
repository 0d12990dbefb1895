"""The lease of a single-access producer, as a machine: one holder, and epochs that only rise."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headpond.broker.ingest.producers import Lease, Verdict

LEASE_US = 10
INSTANCES = [bytes([number]) * 16 for number in range(1, 5)]
A, B = INSTANCES[:2]


def held_by(instance: bytes, epoch: int = 1, connection: int | None = 7) -> Lease:
    lease = Lease(heard_us=100)
    lease.granted(instance, epoch, "host")
    lease.connection = connection
    return lease


def test_a_free_lease_is_granted_and_a_held_one_is_not() -> None:
    assert Lease().ask(A, 0, 0, LEASE_US) is Verdict.GRANT
    assert held_by(A).ask(B, 0, 100, LEASE_US) is Verdict.BUSY


def test_a_holder_that_is_not_heard_of_for_so_long_loses_its_lease_though_its_connection_stands() -> None:
    lease = held_by(A)
    assert lease.ask(B, 0, 100 + LEASE_US - 1, LEASE_US) is Verdict.BUSY
    assert lease.ask(B, 0, 100 + LEASE_US, LEASE_US) is Verdict.GRANT
    lease.heard_us = 105
    assert lease.ask(B, 0, 100 + LEASE_US, LEASE_US) is Verdict.BUSY
    assert lease.ask(A, 1, 10**9, LEASE_US) is Verdict.KEEP, "nobody took it"


def test_a_lost_lease_waits_for_its_holder_and_then_is_free() -> None:
    lease = held_by(A)
    assert lease.lose(7, heard_us=100)
    assert not lease.lose(7, heard_us=105), "it was lost before"
    assert lease.ask(B, 0, 100 + LEASE_US - 1, LEASE_US) is Verdict.BUSY
    assert lease.ask(A, 1, 100 + LEASE_US - 1, LEASE_US) is Verdict.KEEP
    assert lease.ask(B, 0, 100 + LEASE_US, LEASE_US) is Verdict.GRANT
    assert lease.ask(A, 1, 100 + 5 * LEASE_US, LEASE_US) is Verdict.KEEP, "nobody took it"


def test_a_lease_that_was_given_back_is_free_at_once() -> None:
    lease = held_by(A)
    assert not lease.give_back(B)
    assert lease.give_back(A)
    assert lease.ask(B, 0, 0, LEASE_US) is Verdict.GRANT


def test_an_instance_that_was_taken_over_is_fenced_also_when_the_lease_is_free() -> None:
    lease = held_by(B, epoch=2)
    assert lease.ask(A, 1, 0, LEASE_US) is Verdict.FENCED
    lease.give_back(B)
    assert lease.ask(A, 1, 0, LEASE_US) is Verdict.FENCED


def test_while_a_grant_is_written_down_others_wait() -> None:
    lease = Lease(granting=A)
    assert lease.ask(B, 0, 0, LEASE_US) is Verdict.BUSY
    assert lease.follow(B, 9) is Verdict.BUSY


def test_a_node_that_forgot_an_epoch_grants_above_it() -> None:
    assert Lease(epoch=1).ask(A, 5, 0, LEASE_US) is Verdict.GRANT
    assert held_by(B, epoch=1).ask(A, 5, 0, LEASE_US) is Verdict.FENCED, "somebody holds it"


def test_a_further_destination_follows_the_epoch_and_never_back() -> None:
    lease = held_by(A, epoch=3)
    assert lease.follow(A, 3) is Verdict.KEEP
    assert lease.follow(B, 4) is Verdict.GRANT
    assert lease.follow(B, 2) is Verdict.FENCED


class LeaseMachine(RuleBasedStateMachine):
    """Instances open, close, are lost and come back in any order; a model knows which may send."""

    def __init__(self) -> None:
        super().__init__()
        self.lease = Lease()
        self.now_us = 0
        self.connections = 0
        self.epochs: dict[bytes, int] = {}
        """The epoch that each instance believes it holds."""
        self.granted: list[int] = []
        self.may_send: bytes | None = None

    @rule(instance=st.sampled_from(INSTANCES))
    def opens(self, instance: bytes) -> None:
        epoch = self.epochs.get(instance, 0)
        verdict = self.lease.ask(instance, epoch, self.now_us, LEASE_US)
        silent_us = self.now_us - self.lease.heard_us
        if verdict is Verdict.GRANT:
            assert not self.lease.instance or silent_us >= LEASE_US, "who is heard of is not pushed aside"
            self.lease.granted(instance, self.lease.epoch + 1, "host")
            self.granted.append(self.lease.epoch)
            self.may_send = instance
        elif verdict is Verdict.KEEP:
            assert instance == self.may_send
        elif verdict is Verdict.FENCED:
            assert epoch and (instance != self.may_send or not self.lease.instance)
            del self.epochs[instance]  # a new producer is opened
            return
        else:
            assert instance != self.may_send
            return
        self.connections += 1
        self.lease.hold(self.connections)
        self.lease.heard_us = self.now_us
        self.epochs[instance] = self.lease.epoch

    @rule()
    def is_heard_of(self) -> None:
        if self.lease.connection is not None:
            self.lease.heard_us = self.now_us

    @rule()
    def connection_lost(self) -> None:
        if self.lease.connection is not None:
            self.lease.lose(self.lease.connection, self.lease.heard_us)

    @rule(instance=st.sampled_from(INSTANCES))
    def closes(self, instance: bytes) -> None:
        if self.lease.give_back(instance):
            self.epochs.pop(instance, None)

    @rule(passed_us=st.integers(1, 2 * LEASE_US))
    def time_passes(self, passed_us: int) -> None:
        self.now_us += passed_us

    @invariant()
    def epochs_only_rise(self) -> None:
        assert self.granted == sorted(set(self.granted))

    @invariant()
    def at_most_one_instance_has_the_epoch_that_counts(self) -> None:
        current = [instance for instance, epoch in self.epochs.items() if epoch == self.lease.epoch]
        assert len(current) <= 1


TestLeaseMachine = LeaseMachine.TestCase
TestLeaseMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
