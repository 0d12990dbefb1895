"""The redelivery policy of a subscription: one object, whose effective values are echoed to whoever asks.

A message comes again when it was refused, when it was not settled within ``deadline`` seconds, or when its
consumer was lost. A refused one waits for its own delay, or for ``backoff``, which doubles with each attempt up
to ``backoff_max``. With ``redelivery`` after_backlog, a message that was refused or not settled in time also
waits for the backlog. After ``max_attempts`` a message is put aside: a copy goes to the ``dead_letter`` topic,
and it is settled.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from headpond.model.bounds import SECONDS_MAX, Seconds, TopicText, Word, check_fields
from headpond.model.errors import BadRequest
from headpond.model.names import DEAD_SUFFIX, TopicName

MAX_ATTEMPTS = 16
"""In a non-resilient subscription, unless it is said otherwise."""
FAILOVER_AFTER = 3
LEASE_S = 5.0
LEASE_S_MIN, LEASE_S_MAX = 0.1, 600.0
DEADLINE_S_MIN = 0.05
ATTEMPTS_MAX = 2**31
BACKOFF_S, BACKOFF_S_MAX = 0.1, 60.0
AFTER_BACKLOG, AFTER_BACKOFF = "after_backlog", "after_backoff"
REDELIVERIES = (AFTER_BACKLOG, AFTER_BACKOFF)

DeadlineSeconds = Annotated[float, msgspec.Meta(ge=DEADLINE_S_MIN, le=SECONDS_MAX)]
LeaseSeconds = Annotated[float, msgspec.Meta(ge=LEASE_S_MIN, le=LEASE_S_MAX)]
Attempts = Annotated[int, msgspec.Meta(ge=0, le=ATTEMPTS_MAX)]


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """What is left at None takes the default that the docstring of its field names."""

    deadline: DeadlineSeconds | None = None
    """Seconds within which a message must be settled once it was handed out; None: there is no such limit."""
    backoff: Seconds | None = None
    """Seconds that a message waits after it was refused for the first time; doubled with each attempt; 0.1."""
    backoff_max: Seconds | None = None
    """Where the doubling ends; 60."""
    redelivery: Word | None = None
    """When a refused message comes again: ``after_backlog`` (when everything that was in the shard's log at the
    refusal is settled, or there is nothing new to hand out) or ``after_backoff`` (as soon as its backoff is
    over). None: after_backlog. In resilient mode the order waits for it, so it is always after_backoff."""
    max_attempts: Attempts | None = None
    """How often a message is tried; 0 is without end. None: without end in resilient mode, 16 otherwise."""
    dead_letter: TopicText | None = None
    """The topic that takes what was tried too often; "" for none. None: TOPIC.dead."""
    failover_after: Annotated[int, msgspec.Meta(ge=1, le=ATTEMPTS_MAX)] | None = None
    """The active consumer of a failover subscription steps back when it failed one message this often; 3."""
    lease: LeaseSeconds | None = None
    """Seconds for which a resilient consumer may go on without hearing from the node; 5."""

    def checked(self) -> Policy:
        """Itself; values that cannot be are a ``BadRequest``."""
        check_fields(self)
        if self.redelivery not in (None, *REDELIVERIES):
            raise BadRequest(f"redelivery {self.redelivery!r} is none of {', '.join(REDELIVERIES)}")
        if self.dead_letter:
            TopicName.parse(self.dead_letter)
        return self

    def effective(self, topic: str, mode: str) -> Policy:
        """With every default filled in, for a subscription of ``topic``."""
        limit = self.max_attempts
        if limit is None:
            limit = 0 if mode == "resilient" or topic.endswith(DEAD_SUFFIX) else MAX_ATTEMPTS
        dead = self.dead_letter
        if dead is None:  # what is dead already is not put aside once more
            dead = "" if topic.endswith(DEAD_SUFFIX) else f"{topic}{DEAD_SUFFIX}"
        backoff = BACKOFF_S if self.backoff is None else self.backoff
        backoff_max = BACKOFF_S_MAX if self.backoff_max is None else self.backoff_max
        return Policy(
            deadline=self.deadline,
            backoff=backoff,
            backoff_max=max(backoff, backoff_max),
            redelivery=AFTER_BACKOFF if mode == "resilient" else self.redelivery or AFTER_BACKLOG,
            max_attempts=limit,
            dead_letter=str(TopicName.parse(dead)) if dead else "",
            failover_after=FAILOVER_AFTER if self.failover_after is None else self.failover_after,
            lease=LEASE_S if self.lease is None else self.lease,
        )

    def backoff_s(self, deliveries: int) -> float:
        """How long a message waits after its ``deliveries``-th refusal, without a delay of its own."""
        assert self.backoff is not None, "of an effective policy"
        assert self.backoff_max is not None, "of an effective policy"
        return min(self.backoff_max, self.backoff * 2.0 ** min(deliveries - 1, 32))
