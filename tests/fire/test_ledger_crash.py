"""The ledger of a node that is killed under load."""

from __future__ import annotations

import asyncio

from tests.fire.ledger_crash import PRODUCERS, scenario
from tests.fire.real_node import RealNode

MESSAGES = 1500


def test_the_ledger_of_a_killed_node_agrees_with_the_receipts(node: RealNode) -> None:
    outcome = asyncio.run(scenario(node, MESSAGES))
    assert outcome.faults == []
    assert outcome.stored == dict.fromkeys(PRODUCERS, MESSAGES)
    assert (outcome.after.run, outcome.after.crashed) == (2, 1)
    audit = next(one.account for one in outcome.end.subscriptions if one.account.subscription == "audit")
    assert audit.dead > 0 and audit.acknowledged + audit.dead == audit.stored == 2 * MESSAGES
