"""No producer uses a number twice: its node never answers that it has other content under a number.

One that is put back to an old copy of its disk may, and its node answers so.
"""

from __future__ import annotations

from collections.abc import Iterator

from headpond.sim.history import History
from headpond.sim.plan import Plan


def check(history: History, plan: Plan) -> Iterator[str]:
    restored, set_back = history.restored, history.set_back
    for sent in history.sent.values():
        if sent.error == "conflict" and sent.node not in restored and sent.producer not in set_back:
            yield f"{sent.value[:40]!r} got a conflict"
