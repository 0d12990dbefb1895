"""The ledger balances: accounts add up, know how each message was settled, and count what the log has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from headpond.sim.history import Accounts, History, Read
from headpond.sim.plan import Plan


def check(history: History, plan: Plan) -> Iterator[str]:
    found = Counter((read.topic, read.node) for read in history.of(Read))
    for accounts in history.of(Accounts):
        ledger = accounts.ledger
        if not ledger.balanced:
            yield f"{accounts.topic} at {accounts.node}: {ledger}"
        for each in ledger.subscriptions:
            if each.account.unknown:
                yield f"{accounts.topic} at {accounts.node}: {each.account}"
        topic = plan.topic(accounts.topic)
        if topic.kind == "state" or topic.soft_ttl is not None:
            continue
        if ledger.log.messages != found[accounts.topic, accounts.node]:
            stored, there = ledger.log.messages, found[accounts.topic, accounts.node]
            yield f"{accounts.topic} at {accounts.node}: {stored} messages by the account, {there} in the log"
