"""Where managers come from: a new block, one that goes on, one that is kept over runs, a file left behind.

``keeper`` decides, from what stands in the refill folder, what a run of a producer goes on with:

1. The last file ends with CLOSED and is continuable: its block goes on, behind what it still holds.
2. Numbers are reserved (``resume=True``): the fixed block goes on behind them.
3. Otherwise a new block begins, with that of the last file as its predecessor.

All other files are left to the refill sender, oldest first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from headpond.model.errors import HeadpondError, TopicMismatch
from headpond.pipes.machines.machine import Jitter
from headpond.producer.encoder import Encoder, PlainEncoder, TypedEncoder
from headpond.producer.jobs import Budget, Store
from headpond.producer.keeper import Keeper, Rotation
from headpond.producer.manager import Manager
from headpond.producer.numbers import Numbers
from headpond.producer.policy import SendPolicy
from headpond.producer.recut import recut, shard_power_of
from headpond.producer.refill.folder import FileName, file_name, files, read_title, size_bytes
from headpond.producer.refill.refill import Refill
from headpond.producer.refill.sender import RefillSender, manager_of
from headpond.storage.disk import Disk
from headpond.wire.title import Predecessor, Title
from headpond.wire.typed.schema import decode_schema

REMEMBERED_US = 30 * 24 * 60 * 60 * 1_000_000
"""How long a node remembers a silent block."""
FILE_BYTES_MAX = 1 << 40
"""No bound of its own: a block ends by rotation, and all files together are bounded by ``refill_max``."""
UNKNOWN_UUID = bytes(16)
"""In a refill's title: the topic's uuid is another at each destination."""


TURN_US = 1000
"""The names of two blocks' files are at least so far apart."""


class _Turn:
    """While a block is the youngest its files are named by when they are made; later, before the next one's."""

    def __init__(self) -> None:
        self.over_us: int | None = None
        """When the next block began."""

    def next_us(self) -> int:
        assert self.over_us is not None
        self.over_us += 1
        return self.over_us


@dataclass(frozen=True, slots=True)
class Form:
    """What the segments of a producer are cut for."""

    topic: str
    shards: int
    schema: bytes | None
    producer: str

    @property
    def power(self) -> int:
        return self.shards.bit_length() - 1


@dataclass(frozen=True, slots=True)
class RefillFolder:
    """A producer's refill folder."""

    disk: Disk
    folder: str
    durability: str = "sync"
    adopted: tuple[str, ...] = ()
    """Folders left by others, whose files are sent first."""


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
        may_duplicate: bool = False,
        epoch: Callable[[], int] = lambda: 0,
        is_late: Callable[[int, bytes], bool] = lambda epoch, block: False,
    ) -> None:
        self.form = form
        self.destinations = destinations
        self.unreadable: list[tuple[str, str]] = []
        """Files that cannot be sent, and why."""
        self.notices: list[str] = []
        """What must not pass in silence: what files encoded anew had lost, blocks that cannot go on."""
        self.outdated: list[str] = []
        """Files that are too old to be sent without risk; see ``may_duplicate``."""
        self.late: list[str] = []
        """Files that are not for this instance to send: another one held the lease since."""
        self._schema: pa.Schema | None = None if form.schema is None else decode_schema(form.schema)
        self._place = place
        self._policy = policy
        self._budget = budget
        self._jitter = jitter
        self._new_block = new_block
        self._now_us = now_us
        self._may_duplicate = may_duplicate
        self._epoch = epoch
        self._is_late = is_late
        self._goes_on_at: dict[int, int] = {}
        """The next segment of every shard in a block that is continued."""
        self._created_us = 0
        """Of the youngest file, so that names sort by age also when the clock was set back."""
        self._turn: _Turn | None = None
        """Of the youngest block."""

    def keeper(
        self, *, rotation: Rotation, ordered: bool, now: float, numbers: Numbers | None = None
    ) -> Keeper:
        """Everything that a run begins with; reads the files."""
        place = self._place
        paths: list[str] = []
        if place is not None:
            for folder in (*place.adopted, place.folder):
                found = self._not_late(place, self._in_time(files(place.disk, folder)))
                paths += dict.fromkeys(self._fitting(place, path) for path in found)
                self._budget.used += size_bytes(place.disk, folder)
        self._created_us = max((_created_us(path) for path in paths), default=0)
        own = place is not None and paths and paths[-1].startswith(f"{place.folder}/")
        last = self._open_last(paths[-1]) if own else None
        current: Manager | None = None
        predecessor: Predecessor | None = None
        predecessor_of: frozenset[str] | None = None
        if numbers is not None:
            current = self._fixed(numbers)
        elif last is not None and self._may_continue(last) and self._resume(last):
            current = self._continued(last)
            paths.pop()
            last = None
        elif last is not None:
            predecessor = Predecessor(last.block, last.segments_next)
            predecessor_of = frozenset(last.destinations)
        if last is not None:
            last.release()
        return Keeper(
            self.destinations,
            self.new,
            current or self.new(predecessor, predecessor_of),
            RefillSender(paths, self.destinations, self.open, self.left),
            rotation=rotation,
            ordered=ordered,
            jitter=self._jitter,
            now=now,
        )

    def warnings(self, *, tell_late: bool) -> Iterator[str]:
        """What must not pass in silence about the files that were found."""
        for path, why in self.unreadable:
            yield f"refill file {path} cannot be sent: {why}"
        yield from self.notices
        for path in self.late if tell_late else ():
            yield (
                f"refill file {path} is of an instance that was taken over; it is kept, and sent only by "
                "`headpond refill send --late`"
            )
        for path in self.outdated:
            yield (
                f"refill file {path} is so old that the node may have forgotten what it has of it; it is kept, "
                "and sent only by `headpond refill send --may-duplicate`"
            )

    def _in_time(self, paths: list[str]) -> list[str]:
        """Those that a node still knows the blocks of; the others would perhaps be stored twice."""
        oldest_us = 0 if self._may_duplicate else self._now_us() - REMEMBERED_US
        self.outdated += [path for path in paths if _created_us(path) < oldest_us]
        return [path for path in paths if path not in self.outdated]

    def _not_late(self, place: RefillFolder, paths: list[str]) -> list[str]:
        for path in paths:
            found = read_title(place.disk, path)
            if found is not None and self._is_late(found[1].epoch, found[0]):
                self.late.append(path)
                if self._epoch():  # else it may turn out not to be
                    self.notices.append(
                        f"refill file {path} is of an instance that was taken over; it is kept, and sent only "
                        "by `headpond refill send --late`"
                    )
        return [path for path in paths if path not in self.late]

    def _fitting(self, place: RefillFolder, path: str) -> str:
        """A file, cut for the shards that the topic has."""
        power = shard_power_of(place.disk, path)
        if power is None or power == self.form.power:
            return path
        try:
            new_path, damage = recut(place.disk, path, self.form.power, place.durability)
            self.notices += [f"refill file {path}: {each}" for each in damage]
            return new_path
        except HeadpondError as error:
            self.unreadable.append((path, error.message))
            return path

    def _open_last(self, path: str) -> Refill | None:
        assert self._place is not None
        try:
            return Refill.open(
                self._place.disk,
                path,
                self.destinations,
                durability=self._place.durability,
                bytes_max=FILE_BYTES_MAX,
            )
        except HeadpondError as error:
            self.unreadable.append((path, error.message))
            return None

    def _may_continue(self, refill: Refill) -> bool:
        title = refill.title
        written_for = (title.topic, refill.shard_power, title.schema)
        return refill.continuable and written_for == (self.form.topic, self.form.power, self.form.schema)

    def _resume(self, refill: Refill) -> bool:
        """Consumes CLOSED. A disk that does not take that keeps nobody from sending: a new block begins."""
        self._goes_on_at = dict(refill.closed or {})
        try:
            refill.resume()
        except HeadpondError as error:
            self.notices.append(f"the block of {refill.path} is not continued: {error.message}")
            return False
        return True

    # --- managers -----------------------------------------------------------------------------------

    def new(self, predecessor: Predecessor | None, predecessor_of: frozenset[str] | None = None) -> Manager:
        if self._turn is not None:
            self._turn.over_us = self._next_us()
        return self._manager(self._new_block(), predecessor, self._encoder, {}, predecessor_of)

    def _fixed(self, numbers: Numbers) -> Manager:
        """Of a block that is kept over runs."""

        def make(shard: int, first: int) -> Encoder:
            return numbers.guard(shard, self._encoder(shard, first))

        return self._manager(numbers.block, None, make, numbers.first())

    def _manager(
        self,
        block: bytes,
        predecessor: Predecessor | None,
        make_encoder: Callable[[int, int], Encoder],
        first: dict[int, int],
        predecessor_of: frozenset[str] | None = None,
    ) -> Manager:
        return Manager(
            block,
            self.destinations,
            make_encoder,
            policy=self._policy,
            store=self._store(block, predecessor),
            jitter=self._jitter,
            predecessor=predecessor,
            predecessor_of=predecessor_of,
            schema=self.form.schema,
            first=first,
        )

    def _continued(self, refill: Refill) -> Manager:
        return manager_of(
            refill,
            self.destinations,
            policy=self._policy,
            store=self._store(refill.block, refill.title.predecessor, refill),
            jitter=self._jitter,
            make_encoder=self._encoder,
            first=self._goes_on_at,
        )

    def left(self, refill: Refill) -> Manager:
        """Of a file that is only to be sent."""
        store = Store(_no_file, self._budget, refill)
        return manager_of(refill, self.destinations, policy=self._policy, store=store, jitter=self._jitter)

    def open(self, path: str) -> Refill:
        assert self._place is not None
        refill = Refill.open(
            self._place.disk, path, durability=self._place.durability, bytes_max=FILE_BYTES_MAX
        )
        if refill.shard_power != self.form.power:
            refill.release()
            cut_for = f"{2**refill.shard_power} shards, and the topic has {self.form.shards}"
            raise TopicMismatch(f"it was cut for {cut_for}")
        return refill

    def _store(
        self, block: bytes, predecessor: Predecessor | None, refill: Refill | None = None
    ) -> Store | None:
        place, form = self._place, self.form
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
                f"{place.folder}/{file_name(created_us, block)}",
                block=block,
                shard_power=form.power,
                title=title,
                destinations=self.destinations,
                durability=place.durability,
                bytes_max=FILE_BYTES_MAX,
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
    raise AssertionError("a file found on the disk is not written anew")
