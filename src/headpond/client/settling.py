"""What a program says became of messages: acknowledged, not wanted, failed, or in need of more time.

A message, a batch, some rows of one, a range of entries, or everything up to a message. All of it is recorded
here at once; it is on the node's disk when ``flush`` returns.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from headpond.client.arguments import checked
from headpond.client.batch import Batch
from headpond.client.gate import Gate
from headpond.client.settler import DELAY_MAX_S, Settler
from headpond.model.bounds import ENTRY_MAX
from headpond.model.errors import BadRequest, HeadpondError
from headpond.model.message import Message
from headpond.wire.control import Span, Subscribed


class Settling:
    """The part of a consumer that settles."""

    topic: str
    settler: Settler
    stopped: HeadpondError | None
    life: int = 0
    """How often the topic was found to be another incarnation: an old copy of it was restored."""
    dropped: int = 0
    """Settlements that were dropped for that, and messages of before that the program settled since."""
    _gate: Gate

    # --- done ---------------------------------------------------------------------------------------

    async def ack(self, what: Message | Batch, *, rows: Any = None) -> None:
        """Done: the message does not come again. ``rows`` of a batch: a boolean mask, or row numbers.

        Returns when it is recorded here; ``flush()`` when it is on the node's disk.
        """
        if self.stopped is not None:
            raise self.stopped.again()
        plain = type(what) is Message and rows is None and what.origin.topic == self.topic
        if plain and what.origin.life == self.life:
            assert type(what) is Message
            entry, shard = what.entry, what.origin.shard
            pending = self.settler.ack(shard, entry, entry + 1)
            if self._gate.in_hand is what:
                self._gate.let_go()
            elif self._gate.strict or self._gate.repeats:
                self._settled_here(shard, entry, entry + 1)
        else:
            pending = self.record(self.settler.ack, what, rows)
        self._recorded(pending)

    @checked
    async def ack_range(self, shard: int, first: int, last: int) -> None:
        """Done: the entries ``first`` to ``last``, both counted, of a shard."""
        self._recorded(self._record_range(self.settler.ack, shard, first, last))

    @checked
    async def ack_upto(self, message: Message) -> None:
        """Done: this message and all before it on its shard; not in shared and key_shared subscriptions."""
        self._check_open()
        shard, spans = self._entries(message, None)
        if not spans:
            return
        end = spans[0][1]
        info = self._standing()
        if info.kind not in ("unique", "failover"):
            raise BadRequest(
                f"a {info.kind} subscription takes no cumulative acknowledgement: others hold what lies before",
                hint="Acknowledge messages, batches or ranges.",
            )
        self._recorded(self.settler.ack_upto(shard, end))
        self._settled_here(shard, 0, end)

    async def skip(self, what: Message | Batch, *, rows: Any = None) -> None:
        """Not wanted: settled like an acknowledgement, and counted apart."""
        self._check_open()
        self._recorded(self.record(self.settler.skip, what, rows))

    @checked
    async def skip_range(self, shard: int, first: int, last: int) -> None:
        """Not wanted: the entries ``first`` to ``last``, both counted, of a shard."""
        self._recorded(self._record_range(self.settler.skip, shard, first, last))

    # --- not done -----------------------------------------------------------------------------------

    @checked
    async def nack(self, what: Message | Batch, delay: float | None = None, *, rows: Any = None) -> None:
        """Failed: it comes again after ``delay`` seconds, or after the subscription's backoff.

        In a resilient subscription nothing else comes before it.
        """
        self._check_open()
        self.record_nack(what, delay, rows)
        self._recorded(0)

    @checked
    async def extend(self, what: Message | Batch, seconds: float | None = None) -> None:
        """More time: the deadline of what is in hand is ``seconds`` from now (None: as the policy says)."""
        self._check_open()
        if seconds is not None and not 0 <= seconds <= DELAY_MAX_S:
            raise BadRequest(f"an extension by {seconds} s; it must be between 0 and {DELAY_MAX_S:.0f}")
        shard, spans = self._entries(what, None)
        self._send_extension(shard, spans, seconds)

    # --- recording ----------------------------------------------------------------------------------

    def record(self, settle: Callable[[int, int, int], int], what: Message | Batch, rows: Any) -> int:
        """Puts entries down as settled, without sending; returns how many wait."""
        shard, spans = self._entries(what, rows)
        pending = 0
        for start, end in spans:
            pending = settle(shard, start, end)
            self._settled_here(shard, start, end)
        return pending

    def _record_range(self, settle: Callable[[int, int, int], int], shard: int, first: int, last: int) -> int:
        self._check_open()
        if not 0 <= shard < self._standing().shards:
            raise BadRequest(f"the topic has no shard {shard}")
        if not 0 <= first <= last < ENTRY_MAX:
            raise BadRequest(f"entries {first} to {last} are not a range below {ENTRY_MAX:,}")
        pending = settle(shard, first, last + 1)
        self._gate.repeats = True  # some of them may wait here to be handed out
        self._settled_here(shard, first, last + 1)
        return pending

    def record_nack(self, what: Message | Batch, delay: float | None, rows: Any) -> None:
        check_delay(delay)
        shard, spans = self._entries(what, rows)
        self._refused_here(shard, spans)
        for start, end in spans:
            for entry in range(start, end):
                self.settler.nack(shard, entry, delay)

    def _entries(self, what: Message | Batch, rows: Any) -> tuple[int, list[Span]]:
        """The shard and the entries that are meant."""
        if not isinstance(what, Message | Batch):
            raise BadRequest(f"a message or a batch can be settled, not {type(what).__name__}")
        if what.origin.topic != self.topic:
            raise BadRequest(f"this message is of {what.origin.topic}, and this consumer of {self.topic}")
        if what.origin.life != self.life:
            self.dropped += len(what) if isinstance(what, Batch) else 1
            return what.origin.shard, []
        if isinstance(what, Batch):
            return what.shard, what.spans if rows is None else what.select(rows)
        if rows is not None:
            raise BadRequest("rows chooses from a batch; this is one message")
        return what.origin.shard, [(what.entry, what.entry + 1)]

    def _check_open(self) -> None:
        if self.stopped is not None:
            raise self.stopped.again()

    # --- the consumer's part ------------------------------------------------------------------------

    @abstractmethod
    def _standing(self) -> Subscribed: ...

    @abstractmethod
    def _recorded(self, pending: int) -> None:
        """Something is to be sent soon."""

    @abstractmethod
    def _settled_here(self, shard: int, start: int, end: int) -> None: ...

    @abstractmethod
    def _refused_here(self, shard: int, spans: list[Span]) -> None: ...

    @abstractmethod
    def _send_extension(self, shard: int, spans: list[Span], seconds: float | None) -> None: ...


def check_delay(delay: float | None) -> None:
    if delay is not None and not 0 <= delay <= DELAY_MAX_S:
        raise BadRequest(f"a delay of {delay} s; it must be between 0 and {DELAY_MAX_S:.0f}")
