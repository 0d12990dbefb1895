"""Whatever happens to consumers, node and disk, a subscription keeps the rules of its kind and mode."""

from __future__ import annotations

import pytest

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
@pytest.mark.parametrize("seed", seeds(3))
def test_order_attempts_and_settlements_are_as_promised(seed: int, kind: str, mode: str) -> None:
    assert lived(seed, kind, mode).model.delivered_rows > 0
