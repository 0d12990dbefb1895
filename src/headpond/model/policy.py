"""The redelivery policy of a subscription.

The node delivers a message again if a consumer refused it (nack), did not settle it within ``deadline``
seconds, or disappeared. A refused message waits for the delay given with the nack, or for ``backoff``, which
doubles with each attempt up to ``backoff_max``. With ``redelivery`` after_backlog, a message that was refused
or not settled in time also waits for the backlog. After ``max_attempts`` the message is dead: the node copies
it to the ``dead_letter`` topic and settles it.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from headpond.model.bounds import SECONDS_MAX, Seconds, TopicText, Word, check_fields
from headpond.model.errors import BadRequest
from headpond.model.names import DEAD_SUFFIX, TopicName

MAX_ATTEMPTS = 16
"""The default in a non-resilient subscription."""
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
    """A field of None takes the default that its docstring names."""

    deadline: DeadlineSeconds | None = None
    """Seconds in which a consumer must settle a message; None: no limit."""
    backoff: Seconds | None = None
    """Seconds that a message waits after its first refusal; doubles with each attempt. None: 0.1."""
    backoff_max: Seconds | None = None
    """The longest backoff. None: 60."""
    redelivery: Word | None = None
    """When the node delivers a refused message again: ``after_backlog`` (when everything that was in the
    shard's log at the refusal is settled, or there is nothing new to deliver) or ``after_backoff`` (as soon as
    its backoff is over). None: after_backlog; in resilient mode, whose order waits, always after_backoff."""
    max_attempts: Attempts | None = None
    """Deliveries of a message; 0: no limit. None: no limit in resilient mode, 16 otherwise."""
    dead_letter: TopicText | None = None
    """The topic for dead messages; "" for none. None: TOPIC.dead."""
    failover_after: Annotated[int, msgspec.Meta(ge=1, le=ATTEMPTS_MAX)] | None = None
    """Failures of one message after which the active consumer of a failover subscription steps back; 3."""
    lease: LeaseSeconds | None = None
    """Seconds that a resilient consumer may continue without contact to the node. None: 5."""

    def checked(self) -> Policy:
        """This policy; invalid values are a ``BadRequest``."""
        check_fields(self)
        if self.redelivery not in (None, *REDELIVERIES):
            raise BadRequest(f"redelivery {self.redelivery!r} is none of {', '.join(REDELIVERIES)}")
        if self.dead_letter:
            TopicName.parse(self.dead_letter)
        return self

    def effective(self, topic: str, mode: str) -> Policy:
        """This policy with every default filled in, for a subscription of ``topic``."""
        limit = self.max_attempts
        if limit is None:
            limit = 0 if mode == "resilient" or topic.endswith(DEAD_SUFFIX) else MAX_ATTEMPTS
        dead = self.dead_letter
        if dead is None:  # dead letters do not get dead letters
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
        """How long a message waits after its ``deliveries``-th refusal, if the nack gave no delay."""
        assert self.backoff is not None, "of an effective policy"
        assert self.backoff_max is not None, "of an effective policy"
        return min(self.backoff_max, self.backoff * 2.0 ** min(deliveries - 1, 32))
