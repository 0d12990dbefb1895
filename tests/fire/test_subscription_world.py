"""A subscription keeps the rules of its kind and mode under faults of consumers, node and disk."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from headpond.broker.session import Session
from headpond.broker.subscriptions.attachment import Attachment
from headpond.broker.subscriptions.consume import Consuming
from headpond.broker.subscriptions.journal import Subscriptions
from headpond.model.entry_set import EntrySet
from headpond.wire.control.codec import encode_control
from headpond.wire.control.consuming import Settled
from tests.fire.seeds import seeds
from tests.fire.subscription_world import SubscriptionWorld

KINDS = ["unique", "failover", "shared", "key_shared"]
MODES = ["resilient", "non_resilient"]
STEPS = 250


def lived(seed: int, kind: str, mode: str) -> SubscriptionWorld:
    world = SubscriptionWorld(seed, kind, mode)
    world.live(STEPS)
    world.end()
    return world


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", seeds(4))
def test_order_attempts_and_settlements_follow_the_rules(seed: int, kind: str, mode: str) -> None:
    assert lived(seed, kind, mode).model.delivered_rows > 0


@pytest.mark.parametrize("seed", [30, 41])
def test_messages_that_come_back_during_a_read_are_redelivered_before_those_read(seed: int) -> None:
    """In these worlds entries return while later ones are read."""
    assert lived(seed, "failover", "resilient").model.repeated_rows > 0


def test_the_worlds_reach_power_cuts_short_frames_and_redeliveries() -> None:
    worlds = [lived(seed, kind, "resilient") for seed in range(20, 22) for kind in ("shared", "key_shared")]
    assert sum(world.cuts for world in worlds) > 0
    assert sum(world.short_frames for world in worlds) > 0
    assert sum(world.model.repeated_rows for world in worlds) > 0


# --- a node that breaks its promises is found out -----------------------------------------------------


def found(kind: str, mode: str, seeds: Iterable[int] = range(10)) -> str:
    """The first fault that one of these worlds finds."""
    for seed in seeds:
        try:
            lived(seed, kind, mode)
        except AssertionError as fault:
            return str(fault)
    return ""


def test_a_lost_attempt_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Attachment, "presumed_delivered", lambda self, shard, ahead_max: EntrySet())
    assert "were counted" in found("shared", "non_resilient")


def test_a_delivery_during_a_recall_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    reachable = property(lambda self: self.connected and self.welcome and self.writable)
    monkeypatch.setattr(Attachment, "reachable", reachable)
    monkeypatch.setattr(Attachment, "open", property(lambda self: self.credit_bytes > 0 and self.reachable))
    assert "asked to give back" in found("key_shared", "non_resilient")


def test_a_delay_that_a_restart_forgets_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Subscriptions, "_refuse", lambda *_: None)
    assert "before its time" in found("shared", "non_resilient", range(20, 21))


def test_a_settlement_that_is_confirmed_before_it_is_durable_is_detected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def tell_at_once(
        self: Consuming, session: Session, attachment: Attachment, number: int, late: int, cost_bytes: int
    ) -> None:
        self._send(session.connection, [encode_control(Settled(attachment.consumer, number, late))])

    monkeypatch.setattr(Consuming, "_confirm", tell_at_once)
    fault = found("failover", "non_resilient", range(40, 41))
    assert "was settled and comes again" in fault or "were counted" in fault
