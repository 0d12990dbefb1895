"""One file for each promise, with one sentence that says it.

In reading order::

    reported   What programs saw themselves
    lost       Nothing acknowledged is lost
    damage     No damage without a cause
    altered    No message is altered or invented
    receipts   A receipt is right
    numbers    No producer uses a number twice
    fenced     A single producer has one process
    batches    A staged batch is in its topic whole and once, or not at all
    repeated   No unflagged repeat
    order      Producer order
    keys       A key has one shard
    ledger     The ledger balances
    returned   Nothing settled comes back
    unsettled  After healing everything is settled
    turns      A resilient subscription gives out messages in turn
    lease      A lease has one holder
    hands      A program gets no message that it has in hand
    backoff    A refused message waits
    deadline   A message that no program refused comes again after its deadline, not before
    apart      A key has one consumer at a time
    sequence   The messages of a key come in order
    poison     A message that is refused holds up its key alone
    dead       A message dies once
    copied     A link copies everything
    revoked    A revoked token stores nothing
"""

from collections.abc import Callable, Iterator

from headpond.sim.checks import (
    altered,
    apart,
    backoff,
    batches,
    copied,
    damage,
    dead,
    deadline,
    fenced,
    hands,
    keys,
    lease,
    ledger,
    lost,
    numbers,
    order,
    poison,
    receipts,
    repeated,
    reported,
    returned,
    revoked,
    sequence,
    turns,
    unsettled,
)
from headpond.sim.history import History
from headpond.sim.plan import Plan

Check = Callable[[History, Plan], Iterator[str]]

CHECKS: dict[str, Check] = {
    "reported": reported.check,
    "lost": lost.check,
    "damage": damage.check,
    "altered": altered.check,
    "receipts": receipts.check,
    "numbers": numbers.check,
    "fenced": fenced.check,
    "batches": batches.check,
    "repeated": repeated.check,
    "order": order.check,
    "keys": keys.check,
    "ledger": ledger.check,
    "returned": returned.check,
    "unsettled": unsettled.check,
    "turns": turns.check,
    "lease": lease.check,
    "hands": hands.check,
    "backoff": backoff.check,
    "deadline": deadline.check,
    "apart": apart.check,
    "sequence": sequence.check,
    "poison": poison.check,
    "dead": dead.check,
    "copied": copied.check,
    "revoked": revoked.check,
}
