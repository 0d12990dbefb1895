"""Programs get messages as kind and mode guarantee, whatever is in transit between node and clients."""

from __future__ import annotations

import pytest

from headpond.broker.subscriptions.attachment import Attachment
from tests.fire.client_world import lived, stormed, survived
from tests.fire.seeds import seeds


@pytest.mark.parametrize("mode", ["resilient", "non_resilient"])
@pytest.mark.parametrize("seed", seeds(6))
def test_a_key_stays_in_order_while_consumers_come_and_go(seed: int, mode: str) -> None:
    assert lived(seed, "key_shared", mode, faults=False).judge.handed_rows > 0


@pytest.mark.parametrize("kind", ["unique", "failover", "shared", "key_shared"])
def test_all_is_settled_after_a_storm_of_reconnects_to_a_node_that_is_put_back_to_old_copies(kind: str) -> None:
    assert sum(stormed(seed, kind, "resilient").restores for seed in seeds(1)) > 0


@pytest.mark.parametrize("kind", ["unique", "failover"])
@pytest.mark.parametrize("seed", seeds(3))
def test_a_program_gets_nothing_again_that_it_settled_though_the_node_is_killed(seed: int, kind: str) -> None:
    assert survived(seed, kind, "resilient").judge.handed_rows > 0


def test_a_delivery_during_a_recall_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    reachable = property(lambda self: self.connected and self.welcome and self.writable)
    monkeypatch.setattr(Attachment, "reachable", reachable)
    monkeypatch.setattr(Attachment, "open", property(lambda self: self.credit_bytes > 0 and self.reachable))
    with pytest.raises(AssertionError, match="comes before"):
        for seed in range(10):
            lived(seed, "key_shared", "non_resilient", faults=False)
