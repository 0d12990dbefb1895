"""The supply: a block's segments, wherever they are, and what a sender is given next.

A segment is in memory (the exchange), in the refill, or nowhere any more. In a typed topic a decoder has to
be made ready for it: by a snapshot where a session, an encoder or a run of the file begins.
"""

from __future__ import annotations

from collections.abc import Callable

from headpond.model.identity import SegmentKey
from headpond.producer.encoder import Encoder
from headpond.producer.exchange import AWAITED, Exchange
from headpond.producer.jobs import Job
from headpond.producer.outlet import Outlet
from headpond.producer.sender import Sender
from headpond.producer.spills import Spills
from headpond.wire.control.codec import encode_control
from headpond.wire.control.producing import Hole

MakeEncoder = Callable[[int, int], Encoder]
"""Of a shard, beginning at a segment."""


class Supply:
    def __init__(
        self,
        block: bytes,
        exchange: Exchange,
        spills: Spills,
        make_encoder: MakeEncoder | None,
        first: dict[int, int],
        *,
        typed: bool,
    ) -> None:
        self._block = block
        self._exchange = exchange
        self._spills = spills
        self._make_encoder = make_encoder
        self._first = first
        self._typed = typed
        self._encoders: dict[int, Encoder] = {}

    def encoder(self, shard: int) -> Encoder:
        encoder = self._encoders.get(shard)
        if encoder is None:
            assert self._make_encoder is not None, "a block found on the disk is only sent"
            encoder = self._encoders[shard] = self._make_encoder(shard, self._first.get(shard, 0))
        return encoder

    def make_snapshot(self, key: SegmentKey) -> bytes:
        """The SNAPSHOT frame at a segment in memory. Nothing is encoded meanwhile: one thread does both."""
        redundants = self._exchange.redundants(key)
        assert redundants is not None, "redundants are kept from the first segment in memory on"
        return self._encoders[key.shard].snapshot(redundants)

    def snapshot_for_refill(self, key: SegmentKey) -> bytes | None:
        """What a file needs before a segment that does not follow the one before it there."""
        encoder = self._encoders.get(key.shard)
        return self.make_snapshot(key) if encoder is not None and encoder.typed else None

    def _nearest(self, key: SegmentKey) -> int:
        """The first segment at or behind ``key`` that there is."""
        in_memory = self._exchange.next_in_memory(key)
        spilled = self._spills.first_between(key.shard, key.segment, in_memory)
        return in_memory if spilled is None else spilled

    # --- what a sender is given -----------------------------------------------------------------------

    def pick(self, destination: int, there: Outlet, sender: Sender, now: float, jobs: list[Job]) -> list[bytes]:
        """A shard's next segment with what must go before it; nothing while it is to be waited for."""
        while (segment := sender.wanted) is not None:
            if self._typed and not self._is_ready_for(there, sender, segment):
                return []
            key = SegmentKey(sender.shard, segment)
            frame = there.take_read(key, sender, typed=self._typed)
            in_memory = False
            if frame is None:
                found = self._exchange.get(key)
                if isinstance(found, bytes):
                    frame, in_memory = found, True
                elif found is AWAITED:
                    return []
            if frame is None:
                nearest = self._nearest(key)
                if nearest > segment:
                    sender.skip_to(nearest)
                    sender.fresh = True
                    continue
                job = there.want(destination, key, restore=sender.fresh and not sender.probes)
                jobs += [job] if job is not None else []
                return []
            return [*self._before(there, sender, key, in_memory=in_memory), sender.send(frame, now)]
        return []

    def _is_ready_for(self, there: Outlet, sender: Sender, segment: int) -> bool:
        """In a typed topic: whether a segment can go now, or must wait for the answers to those before it.

        A node takes a snapshot for the word that nothing before it will come; so it is sent only when all
        before it is confirmed.
        """
        encoder = self._encoders.get(sender.shard)
        begins = encoder is not None and segment == encoder.first_segment
        if segment > 0 and (begins or segment == there.breaks.get(sender.shard)):
            sender.fresh = True
        return not sender.fresh or sender.floor == segment

    def _before(self, there: Outlet, sender: Sender, key: SegmentKey, *, in_memory: bool) -> list[bytes]:
        """What goes before a segment: a hole to declare, a snapshot."""
        before: list[bytes] = []
        snapshot = there.snapshots.pop(key.shard, None)
        encoder = self._encoders.get(key.shard)
        typed = encoder is not None and encoder.typed
        if typed and in_memory and snapshot is None and sender.fresh and not sender.probes:
            snapshot = self.make_snapshot(key)
        if sender.declare(key.segment):
            before.append(encode_control(Hole(self._block, key.shard, key.segment)))
        if snapshot is not None:
            before.append(snapshot)
        return before

    def went_back(self, there: Outlet, sender: Sender) -> None:
        """What was read ahead stays useful; what the file still has for a hole is sent after all."""
        there.snapshots.pop(sender.shard, None)
        if sender.lacking is not None:
            found = self._spills.first_between(sender.shard, sender.lacking, sender.cursor)
            if found is not None:
                sender.rewind_to(found)
