"""The shelf: batches that were taken from an intake and whose messages the program does not have yet.

One thread takes messages from it while another one may take them away: the blocking consumer's thread and its
loop's. So every step that removes something is one step of a deque or of a list's iterator, and each message is
either handed out or taken away.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from operator import length_hint
from typing import Any

from headpond.client.consume.batch import Batch, last_of, without
from headpond.model.bounds import Span
from headpond.model.message import Message

Places = list[tuple[int, Span]]
"""Entries by shard."""


class Shelf:
    """``node`` arguments restrict an action to what came from that node; None stands for all nodes.

    A link knows its intakes, an intake its shelf, and the shelf its ``owner``: so a consumer that the program
    dropped without closing it still exists when its client closes.
    """

    def __init__(self, owner: object) -> None:
        self.owner = owner
        self.batches: deque[Batch] = deque()
        """Whole batches, in order, behind the current one."""
        self.batch: Batch | None = None
        """The one that ``current`` hands out message by message."""
        self.current: Iterator[Message[Any]] = iter(())
        self.drops = 0
        """How often ``take_unread`` removed messages from it."""
        self._messages: list[Message] = []
        self._unread_elsewhere: Callable[[], Places] = list
        self._take_elsewhere: Callable[[], Places] = list
        self._withdraw_elsewhere: Callable[[int, list[Span]], None] = lambda shard, spans: None

    def keep_elsewhere(
        self,
        unread: Callable[[], Places],
        take_unread: Callable[[], Places],
        withdraw: Callable[[int, list[Span]], None],
    ) -> None:
        """Another shelf holds the batches taken from this one; the functions reach it."""
        self._unread_elsewhere = unread
        self._take_elsewhere = take_unread
        self._withdraw_elsewhere = withdraw

    def begin(self, batch: Batch) -> None:
        """Makes a batch the current one, as messages."""
        self.batch = batch
        self._messages = batch.messages()
        self.current = iter(self._messages)

    def rest(self) -> Batch | None:
        """Takes what is left of the current batch, as a batch."""
        left = len([*self.current])
        return last_of(self.batch, left) if left and self.batch is not None else None

    @property
    def bytes(self) -> int:
        current = 0 if self.batch is None else self.batch.nbytes
        return current + sum(batch.nbytes for batch in self.batches.copy())

    def unread(self, node: str | None = None) -> Places:
        """The entries on it."""
        left = length_hint(self.current)
        rest = self._messages[len(self._messages) - left :] if left else []
        batches = [batch for batch in self.batches.copy() if node in (None, batch.node)]
        whole = [(batch.shard, span) for batch in batches for span in batch.spans]
        return _places(rest, node) + whole + self._unread_elsewhere()

    def take_unread(self, node: str | None = None) -> Places:
        """The same, and removes them."""
        self.drops += 1
        taken: Places = []
        if node is None or (self.batch is not None and self.batch.node == node):
            taken = _places(list(self.current), None)
        others: list[Batch] = []
        with suppress(IndexError):
            while True:
                batch = self.batches.popleft()
                if node in (None, batch.node):
                    taken += [(batch.shard, span) for span in batch.spans]
                else:
                    others.append(batch)
        self.batches.extendleft(reversed(others))
        return taken + self._take_elsewhere()

    def withdraw(self, shard: int, spans: list[Span], node: str | None = None) -> None:
        """Removes entries that must not be handed out.

        It takes everything away from the back, so that the other thread never finds a later message in the
        place of an earlier one; that thread then waits for its loop, and so for what is put back here.
        """
        self._withdraw_elsewhere(shard, spans)
        unread = [span for number, span in self.unread(node) if number == shard]
        if not any(start < last and first < end for start, end in unread for first, last in spans):
            return
        waiting: deque[Batch] = deque()
        with suppress(IndexError):
            while True:
                waiting.appendleft(self.batches.pop())
        if (rest := self.rest()) is not None:
            waiting.appendleft(rest)
        for batch in waiting:
            meant = batch.shard == shard and node in (None, batch.node)
            if (left := without(batch, spans) if meant else batch) is not None:
                self.batches.append(left)


def _places(messages: list[Message], node: str | None) -> Places:
    return [
        (each.origin.shard, (each.entry, each.entry + 1))
        for each in messages
        if node in (None, each.origin.node)
    ]
