"""What becomes of a message at one node, carried to the consumers at the others.

``Seen`` says what that is; here are the consumers, by node, and nothing waits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic

from headpond.client.batch import Batch, only
from headpond.client.options import LostSpan
from headpond.client.seen import Seen, There
from headpond.client.source import Part, Source
from headpond.wire.control import Settle, Span

log = logging.getLogger("headpond.client")


class Spread:
    """``unread`` names what came from a node and was not handed out; ``take_unread`` also takes it away."""

    def __init__(
        self,
        seen: Seen | None,
        unread: Callable[[str], list[tuple[int, Span]]],
        take_unread: Callable[[str], list[tuple[int, Span]]],
    ) -> None:
        self.seen = seen
        self.lost: list[LostSpan] = []
        """What the consumers that ended had reported."""
        self.parts: dict[str, Part] = {}
        """By node."""
        self._unread = unread
        self._take_unread = take_unread
        self._told_forgotten = False

    # --- what the program does ----------------------------------------------------------------------

    def at(self, node: str) -> Part | None:
        """The consumer at a node, if something can be recorded there."""
        part = self.parts.get(node)
        return part if part is not None and part.stopped is None else None

    def settle(self, node: str, shard: int, spans: list[Span], *, skip: bool) -> None:
        if (part := self.at(node)) is not None:
            part.settle_spans(shard, spans, skip=skip)  # the others hear of it in ranges: `on_taken`
        elif self.seen is not None:
            self._carry(self.seen.settle(node, shard, spans), skip=skip)

    def refuse(self, node: str, shard: int, spans: list[Span], delay: float | None) -> None:
        there = [There(node, shard, spans)]
        if self.seen is not None:
            self.send_settlements()  # what was settled before is known before
            there = self.seen.refuse(node, shard, spans) or there
        self._ask_again(there, delay)

    def send_settlements(self) -> None:
        """Sends what was settled so far, also what that settles elsewhere."""
        for _ in self.parts:
            for part in list(self.parts.values()):
                if part.stopped is None:
                    part.send_settlements()

    def admit(self, part: Part, batch: Batch) -> Batch | None:
        """What of a batch is to be handed out."""
        if self.seen is None:
            return batch
        arrival = self.seen.arrive(batch.origin, batch.spans, monotonic())
        if arrival.settled:
            part.settle_spans(batch.shard, arrival.settled)
        if self.seen.forgotten and not self._told_forgotten:
            self._told_forgotten = True
            log.warning("%s: too much is unsettled or too many blocks: repeats are possible", part.topic)
        if arrival.passed == batch.spans:
            return batch
        return only(batch, arrival.passed, batch.attempt) if arrival.passed else None

    def unread_at(self, node: str) -> list[tuple[int, Span]]:
        """What came from a node and was not handed out: what waits, and copies that are held."""
        return self._unread(node) + (self.seen.held(node) if self.seen is not None else [])

    def take_unread_at(self, node: str) -> list[tuple[int, Span]]:
        """Takes away what came from a node and was not handed out; whoever has a copy is to offer it again."""
        taken = self._take_unread(node)
        if self.seen is None:
            return taken
        held = self.seen.drop_held(node)
        for shard, span in taken:
            self._give_back(self.seen.unread(node, shard, [span]))
        return taken + held

    def _give_back(self, found: list[There]) -> None:
        for there in found:
            if (part := self.at(there.place)) is not None:
                part.give_back(there.shard, there.spans)

    def _carry(self, found: list[There], *, skip: bool = False) -> None:
        for there in found:
            if (part := self.at(there.place)) is not None:
                part.settle_spans(there.shard, there.spans, skip=skip)

    def _ask_again(self, found: list[There], delay: float | None) -> None:
        for there in found:
            if (part := self.at(there.place)) is not None:
                part.refuse_spans(there.shard, there.spans, delay)

    # --- what the sources tell ----------------------------------------------------------------------

    def on_taken(self, part: Part, frames: list[Settle]) -> None:
        if self.seen is None:
            return
        for frame in frames:
            upto = [] if frame.upto is None else [(0, frame.upto)]
            self._carry(self.seen.settle(part.node, frame.shard, [*frame.acked, *upto]))
            self._carry(self.seen.settle(part.node, frame.shard, frame.skipped), skip=True)

    def on_moved(self, part: Part) -> None:
        """Somebody set the subscription anew at one node: all that it brings from now on is wanted."""
        if self.seen is not None:
            self._give_back([there for there in self.seen.clear() if there.place != part.node])

    def on_lost_entries(self, part: Part, shard: int, spans: list[Span], reason: str) -> None:
        if self.seen is None or reason in ("expired", "settled"):
            return
        if reason == "dead":
            self._carry(self.seen.dead(part.node, shard, spans), skip=True)
        else:
            self._ask_again(self.seen.lost(part.node, shard, spans), None)

    def on_source_begun(self, source: Source) -> None:
        part = source.part
        assert part is not None
        other = self.parts.get(part.node)
        if other is not None and other.stopped is None and other is not part:
            log.warning("%s is a node that is read already", source.link.service)
        self.parts[part.node] = part
        if self.seen is not None:
            self.seen.up(part.node)

    def on_source_up(self, source: Source) -> None:
        welcome, part = source.link.welcome, source.part
        if self.seen is not None and part is not None and welcome is not None and welcome.node == part.node:
            self.seen.up(part.node)

    def on_source_down(self, source: Source) -> None:
        if self.seen is not None and source.part is not None:
            self._ask_again(self.seen.down(source.part.node), None)

    def on_source_ended(self, source: Source) -> None:
        part = source.part
        assert part is not None
        self.lost += part.lost
        if self.parts.get(part.node) is part:
            del self.parts[part.node]
        if self.seen is not None:
            self._ask_again(self.seen.gone(part.node), None)
