"""Where managers come from: a new block, a continued one, one that all runs share, a file left behind.

``keeper`` decides, by the files in the refill folder, how a run of a producer begins:

1. The last file ends with CLOSED and is continuable: the run continues its block.
2. Numbers are reserved (``resume=True``): the run continues the fixed block after them.
3. Otherwise a new block begins, with that of the last file as its predecessor.

The refill sender gets all other files, oldest first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

import pyarrow as pa

from headpond.model.errors import HeadpondError
from headpond.model.identity import SegmentKey
from headpond.model.ranges import RangeSet
from headpond.producer.assign import assign_shards, remove_obsolete
from headpond.producer.encoder import Encoder, PlainEncoder, TypedEncoder
from headpond.producer.keeper import Keeper, Rotation
from headpond.producer.manager import Manager, SendPolicy
from headpond.producer.numbers import Numbers
from headpond.producer.outlet import DestinationState
from headpond.producer.refill.folder import FileName, files, read_title, size_bytes
from headpond.producer.refill.refill import Refill
from headpond.producer.refill_sender import OpenedFile, RefillSender
from headpond.producer.sender import Jitter
from headpond.producer.spills import Budget, Store
from headpond.storage.disk import Disk
from headpond.wire.title import Predecessor, Title
from headpond.wire.typed.schema import decode_schema

REMEMBERED_US = 30 * 24 * 60 * 60 * 1_000_000
"""How long a node remembers a silent block."""
UNKNOWN_UUID = bytes(16)
"""In a refill's title: the uuid of the topic differs between destinations."""
TURN_US = 1000
"""The names of two blocks' files are at least so far apart."""


class _Turn:
    """Names the files of a block: by the time while it is the youngest, later before the next block's."""

    def __init__(self) -> None:
        self.over_us: int | None = None
        """When the next block began."""

    def next_us(self) -> int:
        assert self.over_us is not None
        self.over_us += 1
        return self.over_us


@dataclass(frozen=True, slots=True)
class Form:
    """The topic that segments are cut for, and their producer."""

    topic: str
    shards: int | None
    """None while nobody knows: rows have no shard."""
    schema: bytes | None
    producer: str

    @property
    def power(self) -> int | None:
        return None if self.shards is None else self.shards.bit_length() - 1


@dataclass(frozen=True, slots=True)
class RefillFolder:
    """A producer's refill folder."""

    disk: Disk
    folder: str
    durability: str = "sync"
    adopted: tuple[str, ...] = ()
    """Folders that others left, whose files are sent first."""


class Blocks:
    def __init__(
        self,
        form: Form,
        destinations: tuple[str, ...],
        place: RefillFolder | None,
        *,
        policy: SendPolicy,
        budget: Budget,
        jitter: Jitter,
        new_block: Callable[[], bytes],
        now_us: Callable[[], int],
        numbers: Numbers | None = None,
        may_duplicate: bool = False,
        epoch: Callable[[], int] = lambda: 0,
        is_late: Callable[[int, bytes], bool] = lambda epoch, block: False,
    ) -> None:
        """``numbers`` are those of the block that all runs share."""
        self.destinations = destinations
        self.notices: list[str] = []
        """Warnings about the files that were found."""
        self.late: list[str] = []
        """Files that another instance may have to send: it held the lease since, or that is not known yet."""
        self._form = form
        self._schema: pa.Schema | None = None
        self._place = place
        self._policy = policy
        spill_after_s = inf if place is None else policy.spill_after_s
        self._states = [DestinationState(name, policy.window_bytes, spill_after_s) for name in destinations]
        self._budget = budget
        self._jitter = jitter
        self._new_block = new_block
        self._now_us = now_us
        self._numbers = numbers
        self._may_duplicate = may_duplicate
        self._epoch = epoch
        self._is_late = is_late
        self._created_us = 0
        """Of the youngest file, so that names sort by age also when the clock was set back."""
        self._turn: _Turn | None = None
        """Of the youngest block."""
        self.learn(form)

    def learn(self, form: Form) -> None:
        """Blocks that begin later are cut for this."""
        self._form = form
        self._schema = None if form.schema is None else decode_schema(form.schema)

    def keeper(self, *, rotation: Rotation, ordered: bool, now: float, known: bool = True) -> Keeper:
        """Reads the files and makes the keeper of a run; ``known``: a node has said what the topic is like."""
        place = self._place
        paths = self._sendable_paths() if place is not None else []
        self._created_us = max((_created_us(path) for path in paths), default=0)
        own = place is not None and paths and paths[-1].startswith(f"{place.folder}/")
        last = self._open_last(paths[-1]) if own else None
        current: Manager | None = None
        if self._numbers is not None and self._form.shards is not None:
            current = self.new(None)
        elif last is not None and self._may_continue(last):
            current = self._continued(last)
            if current is not None:
                paths.pop()
                last = None
        if current is None and last is not None and last.shard_power is not None:
            predecessor = Predecessor(last.block, last.segments_next)
            current = self.new(predecessor, frozenset(last.destinations))
        if last is not None:
            last.release()
        return Keeper(
            self._states,
            self.new,
            current or self.new(None),
            RefillSender(paths, self.destinations, self._open, self._left),
            known=known,
            rotation=rotation,
            ordered=ordered,
            jitter=self._jitter,
            now=now,
        )

    # --- files --------------------------------------------------------------------------------------

    def _sendable_paths(self) -> list[str]:
        """The files that may be sent, in order; names the others."""
        assert self._place is not None
        found: list[str] = []
        for folder in (*self._place.adopted, self._place.folder):
            found += remove_obsolete(self._place.disk, files(self._place.disk, folder))
            self._budget.used += size_bytes(self._place.disk, folder)
        oldest_us = 0 if self._may_duplicate else self._now_us() - REMEMBERED_US
        paths: list[str] = []
        for path in found:
            if _created_us(path) < oldest_us:
                self.notices.append(
                    f"refill file {path} is so old that the node may have forgotten which of its messages it "
                    "stored; it is kept, and sent only by `headpond refill send --may-duplicate`"
                )
            elif self._belongs_to_another(path):
                self.late.append(path)
            else:
                paths.append(path)
        if self._epoch():
            self._name_late()
        return paths

    def _belongs_to_another(self, path: str) -> bool:
        assert self._place is not None
        found = read_title(self._place.disk, path)
        return found is not None and self._is_late(found[1].epoch, found[0])

    def recheck_late(self) -> list[str]:
        """The lease was granted: the files that were held back until then and may be sent, oldest first."""
        found = [path for path in self.late if not self._belongs_to_another(path)]
        self.late = [path for path in self.late if path not in found]
        self._name_late()
        return found

    def _name_late(self) -> None:
        self.notices += [
            f"refill file {path} is of an instance that was taken over; it is kept, and sent only by "
            "`headpond refill send --late`"
            for path in self.late
        ]

    def _open_last(self, path: str) -> Refill | None:
        assert self._place is not None
        try:
            return Refill.open(self._place.disk, path, self.destinations, durability=self._place.durability)
        except HeadpondError as error:
            self.notices.append(f"refill file {path} cannot be sent: {error.message}")
            return None

    def _open(self, path: str, awaited: frozenset[SegmentKey]) -> OpenedFile:
        """Opens a file to send it; if it was cut for another number of shards, its rows get the right ones."""
        assert self._place is not None and self._form.power is not None
        disk, durability = self._place.disk, self._place.durability
        refill = Refill.open(disk, path, durability=durability)
        owes = any(map(refill.pending_runs, refill.destinations))
        if refill.shard_power == self._form.power or not owes:
            return OpenedFile(refill)
        before = refill.size_bytes
        try:
            path, parts = assign_shards(disk, refill, self._form.power, awaited)
        finally:
            self.notices += [f"refill file {refill.path}: {damage}" for damage in refill.damage]
            refill.release()
        new = Refill.open(disk, path, durability=durability)
        self._budget.used += new.size_bytes - before
        return OpenedFile(new, parts)

    # --- managers -----------------------------------------------------------------------------------

    def new(self, predecessor: Predecessor | None, predecessor_of: frozenset[str] | None = None) -> Manager:
        """The manager of a new block, or of the block that all runs share."""
        if self._turn is not None:
            self._turn.over_us = self._next_us()
        numbers = self._numbers if self._form.shards is not None else None
        predecessor = predecessor if self._form.shards is not None else None
        block = self._new_block() if numbers is None else numbers.block
        return Manager(
            block,
            self._states,
            self._encoder,
            shards=self._form.shards,
            policy=self._policy,
            store=self._store(block, predecessor),
            jitter=self._jitter,
            predecessor=predecessor,
            predecessor_of=predecessor_of,
            schema=self._form.schema,
            numbers=numbers,
            first=None if numbers is None else numbers.first(),
        )

    def _may_continue(self, refill: Refill) -> bool:
        title, form = refill.title, self._form
        written_for = (title.topic, refill.shard_power, title.schema)
        known = form.shards is not None and self._numbers is None
        return known and refill.continuable and written_for == (form.topic, form.power, form.schema)

    def _continued(self, refill: Refill) -> Manager | None:
        """Consumes CLOSED. None if the disk does not take that: then a new block begins."""
        first = dict(refill.closed or {})
        try:
            refill.resume()
        except HeadpondError as error:
            self.notices.append(f"the block of {refill.path} is not continued: {error.message}")
            return None
        store = self._store(refill.block, refill.title.predecessor, refill)
        return self._manager_of(refill, store, self._encoder, first)

    def _left(self, refill: Refill) -> Manager:
        """The manager of a file that is only sent."""
        return self._manager_of(refill, Store(_no_file, self._budget, refill), None, {})

    def _manager_of(
        self,
        refill: Refill,
        store: Store | None,
        make_encoder: Callable[[int, int], Encoder] | None,
        first: dict[int, int],
    ) -> Manager:
        """The manager of a file. Without encoders it only sends; with them it begins at ``first``."""
        spilled: dict[int, RangeSet] = {}
        owed: dict[str, dict[int, int]] = {name: {} for name in self.destinations}
        for name in refill.destinations:
            for shard, start, end in refill.pending_runs(name):
                spilled.setdefault(shard, RangeSet()).add(start, end)
                first[shard] = max(first.get(shard, 0), end)
                if name in owed:
                    owed[name].setdefault(shard, start)
        return Manager(
            refill.block,
            self._states,
            make_encoder,
            shards=self._form.shards,
            policy=self._policy,
            store=store,
            jitter=self._jitter,
            predecessor=refill.title.predecessor,
            schema=refill.title.schema,
            first=first,
            spilled=spilled,
            pending=owed,
            spilled_for=frozenset(refill.destinations),
        )

    def _store(
        self, block: bytes, predecessor: Predecessor | None, refill: Refill | None = None
    ) -> Store | None:
        place, form = self._place, self._form
        if place is None:
            return None

        turn = self._turn = _Turn()

        def create() -> Refill:
            title = Title(
                form.topic, UNKNOWN_UUID, form.producer, self._epoch(), form.schema, predecessor=predecessor
            )
            created_us = self._next_us() if turn.over_us is None else turn.next_us()
            return Refill.create(
                place.disk,
                f"{place.folder}/{FileName(created_us, block)}",
                block=block,
                shard_power=form.power,
                title=title,
                destinations=self.destinations,
                durability=place.durability,
            )

        return Store(create, self._budget, refill)

    def _next_us(self) -> int:
        self._created_us = max(self._now_us(), self._created_us + TURN_US)
        return self._created_us

    def _encoder(self, shard: int, first: int) -> Encoder:
        return PlainEncoder(shard, first) if self._schema is None else TypedEncoder(self._schema, shard, first)


def _created_us(path: str) -> int:
    name = FileName.parse(path.rpartition("/")[2])
    return name.created_us if name is not None else 0


def _no_file() -> Refill:
    raise AssertionError("nothing is written to a file that is only sent")
