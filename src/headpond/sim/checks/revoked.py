"""A revoked token stores nothing: no message that a program posted after the revocation is stored."""

from __future__ import annotations

from collections.abc import Iterator

from headpond.sim.history import History, Revoked
from headpond.sim.plan import Plan


def check(history: History, plan: Plan) -> Iterator[str]:
    ended = {event.token: event.done_s for event in history.of(Revoked) if event.done_s is not None}
    for sent in history.sent.values():
        at_s = ended.get(sent.token)
        if at_s is not None and sent.at_s > at_s and sent.outcome == "stored":
            yield f"{sent.value[:40]!r} was stored, and its token was revoked {sent.at_s - at_s:.3f} s before"
