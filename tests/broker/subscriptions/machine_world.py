"""A subscription, the records it reads, and a model that knows the state of every single entry.

The model follows the machine and checks each of its actions; see ``check_offer`` for the rules.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from headpond.broker.subscriptions.attachment import Attachment
from headpond.broker.subscriptions.cursor import ShardCursor
from headpond.broker.subscriptions.journal import make_subscription
from headpond.broker.subscriptions.key_shared import slots_of
from headpond.broker.subscriptions.records import Opened
from headpond.broker.subscriptions.subscription import Consequences, Offer
from headpond.model.entry_set import EntrySet
from headpond.model.policy import Policy
from headpond.storage.log.read import ReadResult, StoredRecord
from headpond.wire.frame import FrameType, encode
from headpond.wire.plain.columns import rows_to_batch
from headpond.wire.plain.segment import encode_plain
from headpond.wire.record import RecordHeader

Place = tuple[int, int]
"""Shard and entry."""

MANY = 1 << 30


def record(first: int, keys: list[bytes | None]) -> StoredRecord:
    body = encode_plain(rows_to_batch([b"v"] * len(keys), keys, None, None, [1] * len(keys)))
    header = RecordHeader(first, len(keys), b"b" * 16, 1, 0)
    return StoredRecord(header, 0, [encode(FrameType.SEGMENT, header.encode() + body)])


@dataclass
class World:
    kind: str
    mode: str
    policy: Policy
    shards: int = 2
    now_us: int = 1_000_000
    records: list[list[StoredRecord]] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    slot: dict[Place, int | None] = field(default_factory=dict)
    """The slot of each entry's key; None without one."""
    holder: dict[Place, Attachment] = field(default_factory=dict)
    delivered: dict[Place, int] = field(default_factory=dict)
    settled: set[Place] = field(default_factory=set)
    dead: set[Place] = field(default_factory=set)
    kept: dict[tuple[Attachment, int], range] = field(default_factory=dict)
    """By consumer and shard: the entries of the last record that was sent alone."""
    in_hand: dict[bytes, set[Place]] = field(default_factory=dict)
    """By instance: what its program has and did not settle, also on lost connections."""
    forgotten: set[Place] = field(default_factory=set)
    """With a program when the node was killed; unknown to the node until the consumer reconnects."""
    numbers: int = 0

    def __post_init__(self) -> None:
        self.records = [[] for _ in range(self.shards)]
        self.ends = [0] * self.shards
        self.begin([ShardCursor() for _ in range(self.shards)])

    def begin(self, cursors: list[ShardCursor]) -> None:
        policy = self.policy.effective("a/b/c/t", self.mode)
        starts = [cursor.cursor for cursor in cursors]
        opened = Opened(b"t" * 16, "s", self.kind, self.mode, starts, 0, policy)
        self.it = make_subscription(opened, cursors)

    def restart(self) -> None:
        """Kills the node and opens its journal, which does not contain who held what."""
        cursors = []
        for old in self.it.cursors:
            cursor = ShardCursor(old.cursor)
            cursor.settled, cursor.dead = old.settled, old.dead
            for deliveries, entries in old.delivered.sets.items():
                cursor.restore_deliveries(entries, deliveries)
            cursors.append(cursor)
        self.begin(cursors)
        for cursor in cursors:
            cursor.begin()
        self.holder.clear()
        self.kept.clear()
        in_hand = {place for places in self.in_hand.values() for place in places}
        self.forgotten = {place for place in in_hand if not self.delivered.get(place)}
        self.bury()

    # --- what happens -------------------------------------------------------------------------------

    def store(self, shard: int, keys: list[bytes | None]) -> None:
        made = record(self.ends[shard], keys)
        self.records[shard].append(made)
        for row, slot in enumerate(slots_of(made, None)):
            self.slot[shard, self.ends[shard] + row] = slot if keys[row] is not None else None
        caught_up = self.it.cursors[shard].offered == self.ends[shard] and not self.it.cursors[shard].ready
        self.ends[shard] += len(keys)
        if caught_up and self.it.attachments:
            run = ReadResult([made], self.ends[shard], [])
            self.offered(self.it.offer(shard, run, None))

    def join(self, credit: int, instance: bytes = b"", *, says: bool = False) -> Attachment:
        """A consumer attaches, or reconnects and ``says`` what its program has in hand."""
        self.numbers += 1
        made = Attachment(self.numbers, 1, f"c{self.numbers}", credit, welcome=True, resumed=True)
        made.instance = instance
        made.keeps = self.numbers % 3 > 0
        if not says:
            self.it.admit(made, self.now_us)
            self.changed()
            return made
        in_hand = self.in_hand.setdefault(instance, set()) - self.settled
        self.forgotten -= in_hand
        seen = {
            shard: EntrySet.of_entries(entry for each, entry in in_hand if each == shard)
            for shard in range(self.shards)
        }
        self.it.admit(made, self.now_us, seen)
        change = self.taken()
        for place in [each for each, holder in self.holder.items() if holder not in self.it.attachments]:
            del self.holder[place]
        for shard, cursor in enumerate(self.it.cursors):
            for entry in range(self.ends[shard]):
                place, count = (shard, entry), cursor.delivered.of(entry)
                if place not in self.settled and made.held.get(shard, EntrySet()).count(entry, entry + 1):
                    assert place in in_hand and self.it.active(made), (
                        "it holds what its program has, and no more"
                    )
                    self.holder[place] = made
                elif place in in_hand:
                    assert count or entry in cursor.flagged, "it was handed out once"
                self.delivered[place] = count
        self.delivered = {place: count for place, count in self.delivered.items() if count}
        # The one that it replaces may come back first: of two records about an entry the last one counts.
        journal = {
            (shard, entry): count
            for shard, sets in change.returned
            for count, entries in sets
            for entry in entries.numbers()
        }
        for place, count in journal.items():
            assert self.delivered.get(place, 0) == count, "the journal has it as it is"
        return made

    def hand_out(self, attachment: Attachment, count: int) -> None:
        """A consumer's program takes the first message of its client."""
        mine = sorted(place for place, holder in self.holder.items() if holder is attachment)
        self.in_hand.setdefault(attachment.instance, set()).update(mine[:count])

    def pump(self, steps: int = 10_000) -> None:
        """Lets the subscription read as much as it wants."""
        for _ in range(steps):
            self.it.release_refused(self.ends)
            offers = self.it.offer_cached(self.ends)
            self.offered(offers)
            receivers = self.it.receivers()
            wanted = self.it.next_read(receivers, self.ends, 400) if receivers else None
            if wanted is None and not offers:
                return
            if wanted is not None:
                run = self.read(wanted.shard, wanted.entry)
                self.offered(self.it.offer(wanted.shard, run, wanted.entry))
        raise AssertionError("it goes on reading for ever")

    def read(self, shard: int, entry: int) -> ReadResult:
        found = [each for each in self.records[shard] if each.header.end_entry > entry][:2]
        assert found, "only what is there is read"
        return ReadResult(found, found[-1].header.end_entry, [])

    def settle(self, shard: int, start: int, end: int, by: Attachment, *, skip: bool = False) -> None:
        end = min(end, self.ends[shard])
        if start >= end:
            return
        before = {(shard, entry) for entry in range(start, end)} & self.settled
        late = (self.it.skip if skip else self.it.ack)(shard, start, end, by)
        assert late == len(before)
        for entry in range(start, end):
            self.done((shard, entry))

    def done(self, place: Place) -> None:
        self.settled.add(place)
        self.holder.pop(place, None)
        self.delivered.pop(place, None)
        for in_hand in self.in_hand.values():
            in_hand.discard(place)

    def nack(self, place: Place, by: Attachment, delay_s: float) -> None:
        mine = self.holder.get(place) is by
        shard, entry = place
        refusal = self.it.nack(shard, entry, delay_s, self.now_us, self.ends[shard], by)
        if refusal is not None:
            self.it.failed(by, shard, [(entry, entry + 1)])
        if mine:
            self.came_back(place)
            assert refusal is not None
            assert refusal.deliveries == self.delivered[place]
        elif place in self.holder:
            assert refusal is None, "what another one has is not this one's to refuse"
        self.changed()

    def wait(self, us: int) -> None:
        self.now_us += us
        self.it.on_time(self.now_us, self.ends)
        self.changed()

    def bury(self) -> None:
        for shard, cursor in enumerate(self.it.cursors):
            for start, end in list(cursor.dying.spans(0, cursor.dying.end)):
                assert self.it.bury(shard, start, end) == end - start
                for entry in range(start, end):
                    assert self.delivered[shard, entry] >= (self.it.policy.max_attempts or MANY)
                    self.done((shard, entry))
                    self.dead.add((shard, entry))

    def redrive(self) -> None:
        for shard in range(self.shards):
            for start, end in self.it.redrive(shard, 0, MANY):
                for entry in range(start, end):
                    self.dead.remove((shard, entry))
                    self.settled.remove((shard, entry))
        assert not self.dead

    # --- input of the model -------------------------------------------------------------------------

    def offered(self, offers: list[Offer]) -> None:
        for offer in offers:
            self.it.sent(offer, self.now_us)
            sent = [range(each.header.first_entry, each.header.end_entry) for each in offer.records]
            if len(sent) == 1:
                self.kept[offer.attachment, offer.shard] = sent[0]
            elif not sent:
                assert self.kind == "shared" or offer.attachment.keeps, "older ones keep nothing of a key's"
                sent = [self.kept[offer.attachment, offer.shard]]
            held = {entry for each in sent for entry in each}
            for start, end in offer.spans:
                for entry in range(start, end):
                    assert entry in held, "every row that is meant is sent"
                    self.check_offer(offer, (offer.shard, entry))
                    self.holder[offer.shard, entry] = offer.attachment

    def taken(self) -> Consequences:
        found, self.it.consequences = self.it.consequences or Consequences(), None
        return found

    def changed(self) -> None:
        """Applies what lost consumers returned, as the machine reports it."""
        change = self.taken()
        returned = {
            (shard, entry): count
            for shard, sets in change.returned
            for count, entries in sets
            for entry in entries.numbers()
        }
        for place, holder in list(self.holder.items()):
            held = holder.held.get(place[0])
            if not held or place[1] not in held:
                del self.holder[place]
                if place in returned:
                    self.delivered[place] = self.delivered.get(place, 0) + 1
        for place, count in returned.items():
            assert self.delivered[place] == count

    def came_back(self, place: Place) -> None:
        del self.holder[place]
        self.delivered[place] = self.delivered.get(place, 0) + 1

    # --- the rules ----------------------------------------------------------------------------------

    def check_offer(self, offer: Offer, place: Place) -> None:
        shard, entry = place
        receiver = offer.attachment
        assert place not in self.settled, "nothing settled comes again"
        assert place not in self.holder, "nothing is with two consumers"
        again = place[1] in self.it.cursors[place[0]].flagged
        assert offer.attempt == (self.delivered.get(place, 0) or again) + 1
        handed = any(place in in_hand for in_hand in self.in_hand.values())
        assert offer.attempt > 1 or not handed or place in self.forgotten, "what was handed out comes flagged"
        assert receiver.connected
        assert not self.it.paused
        single = self.kind in ("unique", "failover")
        if single:
            assert self.it.attachments[0] is receiver
        before = [(shard, each) for each in range(entry) if (shard, each) not in self.settled]
        if self.mode == "resilient" and single:
            assert all(self.holder.get(each) is receiver for each in before), "the order is the log's"
        if self.mode == "resilient" and self.kind == "shared":
            assert not self.holder, "one message at a time"
            assert not before
        if self.kind == "key_shared" and (slot := self.slot[place]) is not None:
            same = [each for each in before if self.slot[each] == slot]
            assert all(each in self.holder for each in same), "a key's messages come in their order"
            holders = {
                self.holder[each] for each in self.holder if each[0] == shard and self.slot[each] == slot
            }
            assert holders <= {receiver}, "a key is with one consumer"
            assert not holders or self.mode == "non_resilient", "and one at a time where that is asked for"

    def check(self) -> None:
        """Checks that the machine's counts agree with the model's."""
        for shard, cursor in enumerate(self.it.cursors):
            held = {entry for start, end in cursor.held.spans(0, MANY) for entry in range(start, end)}
            assert held == {entry for each, entry in self.holder if each == shard}
            mine = [
                entry
                for each in self.it.attachments
                if shard in each.held
                for start, end in each.held[shard].spans(0, MANY)
                for entry in range(start, end)
            ]
            assert sorted(mine) == sorted(held)
            done = {
                entry for entry in range(self.ends[shard]) if entry < cursor.cursor or entry in cursor.settled
            }
            assert done == {entry for each, entry in self.settled if each == shard}
            for entry in range(self.ends[shard]):
                assert cursor.delivered.of(entry) == self.delivered.get((shard, entry), 0)
