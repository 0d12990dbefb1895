"""How a consumer stands: its policy, whether it is the one that reads, what it lost, which nodes it reads."""

from __future__ import annotations

from headpond.client.gate import Gate
from headpond.client.intake import Intake
from headpond.client.link import Link
from headpond.client.options import LostSpan, NodeState
from headpond.model.errors import HeadpondError
from headpond.model.policy import Policy


class Standing:
    """The part of a consumer that one looks at."""

    stopped: HeadpondError | None
    _gate: Gate
    _intake: Intake
    _link: Link

    @property
    def strict(self) -> bool:
        """Whether this side holds the order: a message comes only after the one before it was settled."""
        return self._gate.strict

    @property
    def repeats(self) -> bool:
        """Whether messages may wait to be handed out that were handed out before."""
        return self._gate.repeats

    @property
    def policy(self) -> Policy:
        """The subscription's redelivery policy, with every default filled in."""
        info = self._intake.info
        return (info.policy if info is not None else None) or Policy()

    @property
    def active(self) -> bool:
        """Of a failover subscription: whether this consumer is the one that reads now."""
        return self._gate.active

    @property
    def paused(self) -> bool:
        """Whether somebody paused the subscription."""
        return self._gate.paused

    @property
    def lost(self) -> list[LostSpan]:
        """Entries that were reported as not to come: damaged at the node, or not readable here.

        Damaged ones are settled by the node. What could not be read here (so says the reason) is not settled:
        it is in flight until this consumer is closed, then comes to the next, which may be able to read it.
        """
        return self._intake.losses.spans if hasattr(self, "_intake") else []

    @property
    def nodes(self) -> list[NodeState]:
        """The services that are read, as they stand now."""
        link, welcome = self._link, self._link.welcome
        state = "reading" if link.up and self.stopped is None else "away"
        return [NodeState(link.service, welcome.node if welcome is not None else None, state)]

    @property
    def copies(self) -> int:
        """Messages that came and were not handed out, since another node had brought them."""
        return 0
