"""One file for each promise, with one sentence that says it.

In reading order::

    lost         Nothing acknowledged is lost
    altered      No message is altered or invented
    batches      A staged batch is in its topic whole and once, or not at all
    repeated     No unflagged repeat
    order        Producer order
    ledger       The ledger balances
    returned     Nothing settled comes back
    undelivered  After healing everything is delivered
"""

from collections.abc import Callable, Iterator

from headpond.sim.checks import altered, batches, ledger, lost, order, repeated, returned, undelivered
from headpond.sim.history import History
from headpond.sim.plan import Plan

Check = Callable[[History, Plan], Iterator[str]]

CHECKS: dict[str, Check] = {
    "lost": lost.check,
    "altered": altered.check,
    "batches": batches.check,
    "repeated": repeated.check,
    "order": order.check,
    "ledger": ledger.check,
    "returned": returned.check,
    "undelivered": undelivered.check,
}
