"""Consumers of one subscription around the node's core, and a model that checks every delivery.

The seed decides everything: the messages, the order in which disk work ends, which consumers settle, refuse,
stall, vanish, leave and come back, whose connection is full, which writes fail, when the power fails and what
remains on disk. The world sends the node only frames that clients could send.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

from headpond.model.policy import Policy
from headpond.storage.memory_disk import Keep, MemoryDisk, Operation
from headpond.wire.connection import Event
from headpond.wire.control.catalog import CreateTopic, TopicInfo
from headpond.wire.control.codec import read_result
from headpond.wire.control.consuming import (
    Credit,
    Deliver,
    Extend,
    GiveBack,
    ListSubscriptions,
    Renew,
    Settle,
    Settled,
    Subscribe,
    Subscribed,
    SubscriptionInfo,
    Unsubscribe,
    Unsubscribed,
)
from headpond.wire.control.greeting import Error
from headpond.wire.control.producing import Ack
from headpond.wire.frame import OVERHEAD_BYTES, Frame, FrameType, encode
from headpond.wire.plain.columns import rows_to_batch
from headpond.wire.plain.segment import decode_plain, encode_plain
from headpond.wire.record import RECORD_HEADER_BYTES, decode_record_header
from tests.fire.core_shell import CoreShell
from tests.fire.raw_client import title_frame
from tests.fire.subscription_model import LEASE_S, Consumer, Line, Model, Place, spans_of, value_of

TOPIC = "orders"
SHARDS = 2
TICK_US = 20_000
"""The node rounds deadlines and delays up to this step; all times of the world are multiples of it."""
DEADLINE_S = 1.0
KEYS = [b"a", b"b", b"c", b"d", None]
ROWS = [1, 2, 5, 20]
CREDITS_BYTES = [1, 300, 2000, 1 << 20]
"""A record or less at a time, or all at once."""
DELAYS_S = [0.0, 2.0]
PAUSES_US = [2 * TICK_US, 20 * TICK_US, 80 * TICK_US]
CONSUMERS_MAX = 4
TEMPERS = [0.3, 1.0, 3.0]
"""Each world has its own frequencies, so that it reaches states that an even mixture does not."""
KEEPS: list[Keep] = ["none", "some", "all"]
LAST_PAUSE_US = 3_000_000
"""Longer than any lease, deadline and delay, and than a lane waits after a failed write."""
LAST_ROUNDS_MAX = 2000


class SubscriptionWorld:
    def __init__(self, seed: int, kind: str, mode: str) -> None:
        self.random = random.Random(f"{seed} {kind} {mode}")
        self.disk = MemoryDisk(seed)
        deadline_s = self.random.choice([None, None, DEADLINE_S])
        failures = self.random.choice([1, 3])
        self.policy = Policy(deadline=deadline_s, max_attempts=0, lease=LEASE_S, failover_after=failures)
        self.model = Model(kind, mode, None if deadline_s is None else round(deadline_s * 1e6))
        self.kind, self.mode = kind, mode
        self.short_frames = 0
        self.cuts = 0
        self._now_us = TICK_US
        self._ends = [0] * SHARDS
        self._numbers = 0
        self._settles: dict[bytes, int] = {}
        """By instance: the number of its last SETTLE."""
        self._actions: list[tuple[int, Callable[[], None]]] = [
            (12, self._write),
            (8, self._join),
            (33, lambda: self._with_one(self._settle)),
            (25, lambda: self._with_one(self._arrive)),
            (3, lambda: self._with_one(self._vanish)),
            (5, lambda: self._with_one(self._leave)),
            (6, lambda: self._with_one(self._come_back)),
            (15, lambda: self._with_one(self._pay)),
            (4, lambda: self._with_one(self._fill_or_drain)),
            (2, lambda: self._with_one(self._extend)),
            (2, lambda: self._with_one(self._give_back)),
            (8, self._let_time_pass),
            (1, self._fail_a_write),
            (1, self._cut_power),
            (11, self._work_some),
        ]
        self._open()

    def live(self, steps: int) -> None:
        weights = [weight * self.random.choice(TEMPERS) for weight, _ in self._actions]
        weights[:2] = [weight for weight, _ in self._actions[:2]]  # without these nothing happens
        actions = [action for _, action in self._actions]
        for action in self.random.choices(actions, weights, k=steps):
            action()

    # --- the node -----------------------------------------------------------------------------------

    def _open(self) -> None:
        self.shell = CoreShell(self.disk, seed=self.random.randrange(1 << 30), now_us=self._now_us)
        self.consumers: dict[int, Consumer] = {}
        self._inbox: list[Event] = []
        """The frames to all consumers, in the order of the node."""
        self._writer = self.shell.connect()
        info = read_result(self._writer.request(CreateTopic(TOPIC, SHARDS, exist_ok=True)), TopicInfo)
        power = SHARDS.bit_length() - 1
        self._writer.send(title_frame(self.random.randbytes(16), info.uuid, power=power, topic=info.topic))
        self._segments = [0] * SHARDS

    def _cut_power(self) -> None:
        """Some settlements are under way, others are confirmed."""
        self._have_all_stored()
        for _ in range(self.random.randrange(4)):
            self._with_one(self._settle)
            self._work_some()
        self.cuts += 1
        self.disk.crash(keep=self.random.choice(KEEPS))
        self.model.cut_power()
        self._open()

    def _fail_a_write(self) -> None:
        operation: Operation = "sync" if self.random.random() < 0.5 else "write"
        self.disk.fail_next(operation, errno.EIO, path_prefix="settlements")

    def _work(self) -> None:
        """Runs one disk job, any of them."""
        self.shell.work(self.random.randrange(len(self.shell.pending)))
        self._listen()

    def _work_some(self) -> None:
        for _ in range(self.random.randrange(4)):
            if self.shell.pending:
                self._work()

    def _work_all(self) -> None:
        while self.shell.pending:
            self._work()

    def _let_time_pass(self) -> None:
        for consumer in list(self.consumers.values()):
            if self.model.leased and consumer.subscribed and self.random.random() < 0.7:
                self._renew(consumer)
        self._wait(self.random.choice(PAUSES_US))

    def _wait(self, us: int) -> None:
        self._now_us += us
        self.model.pass_time(list(self.consumers.values()), self._now_us)
        self.shell.wait(us)
        self._listen()

    # --- what is written ----------------------------------------------------------------------------

    def _write(self) -> None:
        """Sends one more segment; it becomes durable later."""
        shard, rows = self.random.randrange(SHARDS), self.random.choice(ROWS)
        places = [(shard, self._ends[shard] + row) for row in range(rows)]
        keys = [self.random.choice(KEYS) for _ in places]
        self.model.keys.update(zip(places, keys, strict=True))
        batch = rows_to_batch([value_of(place) for place in places], keys, None, None, [1] * rows)
        frame = encode(FrameType.SEGMENT, encode_plain(batch), shard=shard, segment=self._segments[shard])
        self._ends[shard] += rows
        self._segments[shard] += 1
        self._writer.send(frame)

    def _have_all_stored(self) -> None:
        """Makes the entries of later messages known."""
        stored = 0
        while True:
            stored += sum(len(ack.items) for ack in self._writer.take(Ack))
            if stored == sum(self._segments):
                return
            self._work()

    # --- consumers come and go ----------------------------------------------------------------------

    def _with_one(self, act: Callable[[Consumer], object]) -> None:
        if here := [each for each in self.consumers.values() if each.subscribed and not each.detached]:
            act(self.random.choice(here))

    def _join(self) -> None:
        if len(self.consumers) < CONSUMERS_MAX:
            self._subscribe(self._connect(), self.random.randbytes(4))

    def _connect(self) -> Line:
        client = self.shell.connect()
        client.events = self._inbox
        return Line(client, len(self.shell.clients))

    def _subscribe(
        self,
        line: Line,
        instance: bytes,
        number: int = 0,
        in_hand: set[Place] | None = None,
        *,
        active: bool = False,
    ) -> Consumer:
        if not number:
            self._numbers += 1
            number = self._numbers
        credit_bytes = self.random.choice(CREDITS_BYTES)
        keeps = self.random.random() < 0.8
        consumer = Consumer(line, number, instance, credit_bytes, keeps, self._now_us)
        consumer.settles = self._settles.get(instance, 0)  # a client continues its numbers over connections
        active = active or not [each for each in self.consumers.values() if not each.detached]
        self.model.resume(consumer, in_hand or set(), self._now_us, active=active)
        seen = None if in_hand is None else [(shard, entry, entry + 1) for shard, entry in sorted(in_hand)]
        self.consumers[number] = consumer
        asked = (self.kind, self.mode, "earliest", credit_bytes)
        line.client.send(
            Subscribe(
                *(number, TOPIC, "reader", *asked),
                policy=self.policy,
                instance=instance,
                keeps=keeps,
                seen=seen,
            )
        )
        self._listen()
        return consumer

    def _vanish(self, consumer: Consumer) -> set[Place]:
        """Its connection is lost; returns the places that count as an attempt."""
        if self.model.leased and consumer.subscribed and not consumer.detached:
            self._renew(consumer)  # a lease holds until the node checks it, at an unknown time
        if consumer.number not in self.consumers:
            return set()
        counted = self.model.lose(consumer)
        del self.consumers[consumer.number]
        self.shell.core.disconnected(consumer.line.number)
        self.shell.drain()
        self._listen()
        return counted

    def _leave(self, consumer: Consumer) -> None:
        """Leaves in good order; it names what its program has seen, or nothing, or everything (None)."""
        held = sorted(consumer.held)
        seen = self.random.choice([None, [], held[:3]])
        self.model.release(consumer, None if seen is None else set(seen))
        consumer.detached = True
        spans = None if seen is None else [(shard, entry, entry + 1) for shard, entry in seen]
        consumer.line.client.send(Unsubscribe(consumer.number, spans))
        self._listen()

    def _come_back(self, consumer: Consumer) -> None:
        """Reconnects; the node may not know yet that the connection before is lost.

        The consumer names what its program has in hand, or nothing.
        """
        in_hand = self.random.choice([None, set(consumer.hands)])
        counted = set[Place]()
        if self.random.random() < 0.5:
            counted = self._vanish(consumer)
        if self.random.random() < 0.3:
            self._wait(PAUSES_US[0])
        there = consumer.number in self.consumers or self.model.ghost is consumer
        consumer.detached = True
        self.model.replace(consumer, counted, says=in_hand is not None)
        active = consumer.active and there
        self._subscribe(self._connect(), consumer.instance, in_hand=in_hand, active=active)

    # --- what arrives -------------------------------------------------------------------------------

    def _arrive(self, consumer: Consumer) -> None:
        """Delivers some frames in transit to a consumer, in order; it answers a recall on arrival."""
        for _ in range(self.random.choice([1, 5, len(consumer.under_way)])):
            if not consumer.under_way:
                return
            place = consumer.under_way.popleft()
            if place is not None:
                consumer.ahead.append(place)
            else:
                self._answer_recall(consumer)

    def _answer_recall(self, consumer: Consumer) -> None:
        """Returns everything that it has not handed out, shard by shard."""
        back = [place for place in dict.fromkeys(consumer.ahead) if place in consumer.held]
        consumer.ahead.clear()
        for place in back:
            self.model.give_back(consumer, place)
        for shard in range(SHARDS):
            some = [place for place in back if place[0] == shard]
            consumer.line.client.send(GiveBack(consumer.number, shard, spans_of(some)))
            self._listen()
        consumer.recalled = False
        consumer.line.client.send(GiveBack(consumer.number, 0, [], done=True))
        self._listen()

    def _hand_out(self, consumer: Consumer) -> None:
        for _ in range(min(len(consumer.ahead), self.random.randrange(1, 9))):
            self.model.hand_out(consumer, consumer.ahead.popleft())

    # --- what consumers say -------------------------------------------------------------------------

    def _settle(self, consumer: Consumer) -> None:
        """Acknowledges and refuses some messages that its application has of a shard, mostly the first."""
        self._hand_out(consumer)
        shard = self.random.randrange(SHARDS)
        hands = sorted(place for place in consumer.hands if place[0] == shard)
        count = min(len(hands), self.random.randrange(1, 6))
        some = hands[:count] if self.random.random() < 0.7 else self.random.sample(hands, count)
        refused = [place for place in some if self.random.random() < 0.25]
        self._say_settled(consumer, shard, [place for place in some if place not in refused], refused)

    def _say_settled(self, consumer: Consumer, shard: int, acked: list[Place], refused: list[Place]) -> None:
        for place in acked:
            self.model.ack(consumer, place)
        nacked: list[tuple[int, float | None]] = []
        for place in refused:
            delay_s = self.random.choice(DELAYS_S)
            self.model.nack(consumer, place, self._now_us + round(delay_s * 1e6))
            nacked.append((place[1], delay_s))
        consumer.settles += 1
        self._settles[consumer.instance] = consumer.settles
        consumer.unconfirmed[consumer.settles] = self.model.journal_length
        consumer.line.client.send(
            Settle(consumer.number, consumer.settles, shard, spans_of(acked), nacked=nacked)
        )
        self._listen()

    def _give_back(self, consumer: Consumer) -> None:
        """Settles the last arrival early, as a consumer of several nodes does with a copy."""
        if self.kind == "shared" and consumer.ahead and (place := consumer.ahead.pop()) in consumer.held:
            self.model.give_back(consumer, place)
            consumer.line.client.send(GiveBack(consumer.number, place[0], spans_of([place])))
            self._listen()

    def _extend(self, consumer: Consumer) -> None:
        if consumer.due_us:
            shard, _ = place = min(consumer.due_us)
            consumer.due_us[place] = self._now_us + round(DEADLINE_S * 1e6)
            consumer.line.client.send(Extend(consumer.number, shard, spans_of([place])))
            self._listen()

    def _pay(self, consumer: Consumer) -> None:
        if owed_bytes := consumer.owed_bytes:
            consumer.owed_bytes = 0
            consumer.credit_bytes += owed_bytes
            consumer.line.client.send(Credit(consumer.number, owed_bytes))
            self._listen()

    def _renew(self, consumer: Consumer) -> None:
        consumer.renewals += 1
        consumer.renewed_us = self._now_us
        consumer.line.client.send(Renew(consumer.number, consumer.renewals))
        self._listen()

    def _fill_or_drain(self, consumer: Consumer) -> None:
        consumer.line.writable = self.random.random() < 0.6
        self.shell.core.set_writable(consumer.line.number, consumer.line.writable)
        self.shell.drain()
        self._listen()

    # --- frames to consumers ------------------------------------------------------------------------

    def _listen(self) -> None:
        """Called after each step of the node."""
        for each in self.consumers.values():
            each.room_bytes = each.credit_bytes
        while self._inbox:
            event = self._inbox.pop(0)
            assert isinstance(event, Subscribed | Unsubscribed | Settled | Error | Deliver), event
            consumer = self.consumers.get(event.consumer or 0)
            if isinstance(event, Deliver):
                frames = [self._inbox.pop(0) for _ in range(event.records)]
                assert consumer is not None, f"{event} came to one that is not there"
                self._take(consumer, event, [frame for frame in frames if isinstance(frame, Frame)])
            elif consumer is not None:  # else its connection is gone
                self._hear(consumer, event)

    def _hear(self, consumer: Consumer, event: Subscribed | Unsubscribed | Settled | Error) -> None:
        if isinstance(event, Subscribed):
            consumer.subscribed, consumer.active = True, event.active
            if event.recall:
                consumer.recalled = True
                consumer.under_way.append(None)
            if not event.active:  # it stepped back: messages that it has not handed out are void
                self.model.step_back(consumer)
                consumer.under_way.clear()
                consumer.ahead.clear()
        elif isinstance(event, Settled):
            for number in [number for number in consumer.unconfirmed if number <= event.number]:
                self.model.confirm(consumer.unconfirmed.pop(number))
        elif isinstance(event, Unsubscribed):
            assert not consumer.unconfirmed, "it left, and not all that it settled was confirmed"
            del self.consumers[consumer.number]
            if self.random.random() < 0.6:  # there it is again, on the same connection and number
                self._subscribe(consumer.line, self.random.randbytes(4), consumer.number)
        else:
            self._sent_away(consumer, event)

    def _sent_away(self, consumer: Consumer, error: Error) -> None:
        del self.consumers[consumer.number]
        if error.code == "subscription-busy":
            assert self.kind == "unique" and (self.consumers or self.model.ghost), (
                "refused, and nobody is there"
            )
        else:
            assert error.code == "lease-lost", error
            self.model.release(consumer)

    def _take(self, consumer: Consumer, deliver: Deliver, frames: list[Frame]) -> None:
        """Finds the rows of a delivery and lets the model check them."""
        if deliver.records == 0:
            self.short_frames += 1
            kept = self.kind == "shared" or (self.kind == "key_shared" and consumer.keeps)
            assert self.mode == "resilient" and kept, "a short frame came where none is allowed"
            frames = [consumer.kept[deliver.shard]]
        else:
            assert len(frames) == deliver.records
            sent_bytes = sum(OVERHEAD_BYTES + len(frame.body) for frame in frames)
            consumer.owed_bytes += sent_bytes
            consumer.credit_bytes -= sent_bytes
        if len(frames) == 1:
            consumer.kept[deliver.shard] = frames[0]
        values: dict[Place, bytes] = {}
        for frame in frames:
            first = decode_record_header(frame.body).first_entry
            rows = decode_plain(frame.body[RECORD_HEADER_BYTES:]).column("value").to_pylist()
            values.update({(deliver.shard, first + row): value for row, value in enumerate(rows)})
        for entry in (entry for span in deliver.spans for entry in range(*span)):
            place = (deliver.shard, entry)
            assert values.get(place) == value_of(place), f"{place} came with {values.get(place)!r}"
            self.model.delivered(consumer, place, deliver.attempt, self._now_us)

    # --- the end ------------------------------------------------------------------------------------

    def end(self) -> None:
        """All consumers leave, and one comes that settles everything it gets: then all must be settled."""
        self.disk.fail_never()
        for consumer in list(self.consumers.values()):
            self._vanish(consumer)
        self._work_all()
        self._wait(LAST_PAUSE_US)
        last = self._subscribe(self._connect(), b"last")
        for _ in range(LAST_ROUNDS_MAX):
            self._work_all()
            while last.under_way:
                self._arrive(last)
            if not last.held:
                if self._positions() == self._ends:
                    break
                self._renew(last)
                self._wait(PAUSES_US[1])
            for shard in range(SHARDS):
                held = sorted(place for place in last.held if place[0] == shard)
                self._say_settled(last, shard, held, [])
            self._pay(last)
        assert self._positions() == self._ends, f"settled up to {self._positions()} of {self._ends}"
        missing = set(self.model.keys) - self.model.settled - self.model.unknown
        assert not missing, f"{sorted(missing)[:3]} count as settled, and nobody settled them"

    def _positions(self) -> list[int]:
        asked = self._writer.request(ListSubscriptions(TOPIC))
        (info,) = read_result(asked, list[SubscriptionInfo])
        self._listen()
        return info.positions
