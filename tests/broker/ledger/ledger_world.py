"""A node without sockets, producers and consumers made by hand, and all faults that can happen to them.

Steps are drawn from a seed. The world counts the node's answers, to compare them with the ledger.
"""

from __future__ import annotations

import errno
import random
from collections import Counter
from collections.abc import Callable, Mapping

from headpond.broker.settings import LogSettings, Settings
from headpond.model.policy import Policy
from headpond.storage.memory_disk import MemoryDisk
from headpond.wire.control.catalog import CreateTopic, TopicInfo
from headpond.wire.control.codec import read_result
from headpond.wire.control.consuming import (
    CreateSubscription,
    Deliver,
    Redrive,
    SeekSubscription,
    Settle,
    Settled,
    Subscribe,
    Unsubscribe,
    Unsubscribed,
)
from headpond.wire.control.greeting import Error
from headpond.wire.control.ledger import LedgerInfo, ShowLedger
from headpond.wire.control.producing import Ack, BlockEnd, Hole
from headpond.wire.expiry import TTL_HEADER
from headpond.wire.frame import Frame, FrameType, encode
from headpond.wire.plain.columns import rows_to_batch
from headpond.wire.plain.segment import encode_plain
from headpond.wire.title import Predecessor, Title, encode_title
from tests.fire.core_shell import CoreClient, CoreShell

SECOND_US = 1_000_000
SMALL = Settings(
    data="memory",
    journal_compact_bytes=4096,
    log=LogSettings(rotate_bytes=3000, preallocate_bytes=1024, index_every_bytes=512),
)
POLICY = Policy(max_attempts=2, backoff=0.05)


class Sender:
    """One block of a producer."""

    def __init__(self, block: bytes, name: str, predecessor: Predecessor | None = None) -> None:
        self.block = block
        self.name = name
        self.predecessor = predecessor
        self.next = 0
        """One past the highest segment that was sent or declared."""
        self.admitted: set[int] = set()
        self.refused: set[int] = set()
        self.answers: Counter[str] = Counter()
        self.ended = False

    def title(self, topic_uuid: bytes) -> bytes:
        title = Title("t", topic_uuid, self.name, predecessor=self.predecessor)
        return encode(FrameType.TITLE, encode_title(self.block, 0, title))


class LedgerWorld:
    def __init__(self, seed: int, **of_topic: float) -> None:
        self.draw = random.Random(seed)
        self.disk = MemoryDisk(seed=seed)
        self.now_us = 1_000 * 86_400 * SECOND_US
        self.senders: list[Sender] = []
        self.consumers: dict[str, CoreClient] = {}
        self.held: dict[str, list[int]] = {}
        self.acked: dict[str, set[int]] = {"billing": set(), "audit": set()}
        """Entries whose acknowledgement was confirmed since the last seek."""
        self.crashes = 0
        self._open()
        info = read_result(self.client.request(CreateTopic("t", settings=dict(of_topic))), TopicInfo)
        self.uuid = info.uuid
        for name, kind in (("billing", "shared"), ("audit", "unique")):
            self.client.request(CreateSubscription("t", name, kind, policy=POLICY))

    def _open(self) -> None:
        self.shell = CoreShell(self.disk, seed=self.draw.randrange(2**32), settings=SMALL, now_us=self.now_us)
        self.client: CoreClient = self.shell.connect()
        self.producing: CoreClient = self.shell.connect()
        self.consumers.clear()
        self.held.clear()

    # --- the ledger ---------------------------------------------------------------------------------

    def ledger(self) -> LedgerInfo:
        self.hear()
        return read_result(self.client.request(ShowLedger("t", blocks=True)), LedgerInfo)

    # --- producers ----------------------------------------------------------------------------------

    def sender(self) -> Sender:
        going = [sender for sender in self.senders if not sender.ended]
        return self.draw.choice(going) if going else self.begin_block()

    def begin_block(self) -> Sender:
        name = self.draw.choice(["till-1", "till-2", ""])
        before = [sender for sender in self.senders if sender.name == name]
        predecessor = None
        if before and self.draw.random() < 0.5:
            predecessor = Predecessor(before[-1].block, {0: before[-1].next})
        sender = Sender(self.draw.randbytes(16), name, predecessor)
        self.senders.append(sender)
        return sender

    def body(self, segment: int, *, bad: bool = False, ttl: bool = False) -> bytes:
        if bad:
            return b"no segment at all"
        rows = 1 + segment % 3
        headers: list[Mapping[str, str] | None] | None = [{TTL_HEADER: "2"}] * rows if ttl else None
        return encode_plain(rows_to_batch([b"x" * 40] * rows, None, None, headers, [segment + 1] * rows))

    def transmit(self, sender: Sender, segment: int, body: bytes, *, work: bool = True) -> None:
        frame = encode(FrameType.SEGMENT, body, segment=segment)
        self.producing.send(sender.title(self.uuid), frame)
        sender.next = max(sender.next, segment + 1)
        if work:
            self.hear()

    def hear(self) -> None:
        """Runs all pending work and takes the answers."""
        self.shell.work_all()
        for ack in self.producing.take(Ack):
            of = next(one for one in self.senders if one.block == ack.block)
            for item in ack.items:
                of.answers[item.code or item.outcome] += 1
                if item.outcome in ("stored", "duplicate"):
                    of.admitted.add(item.segment)
                elif item.code == "bad-segment":
                    of.refused.add(item.segment)

    def send(self) -> None:
        sender = self.sender()
        bad, ttl = self.draw.random() < 0.1, self.draw.random() < 0.2
        self.transmit(sender, sender.next, self.body(sender.next, bad=bad, ttl=ttl))

    def send_unheard(self) -> None:
        """Leaves some disk work pending while something else happens."""
        sender = self.sender()
        self.transmit(sender, sender.next, self.body(sender.next), work=False)

    def send_again(self) -> None:
        sender = self.sender()
        if known := sorted(sender.admitted - sender.refused):
            segment = self.draw.choice(known)
            self.transmit(sender, segment, self.body(segment))

    def send_other_content(self) -> None:
        sender = self.sender()
        if known := sorted(sender.admitted - sender.refused):
            self.transmit(sender, self.draw.choice(known), self.body(7) + b"?")

    def leave_a_gap(self) -> None:
        sender = self.sender()
        self.transmit(sender, sender.next + 2, self.body(sender.next + 2))

    def declare_a_hole(self) -> None:
        sender = self.sender()
        self.producing.send(sender.title(self.uuid), Hole(sender.block, 0, sender.next))
        self.hear()

    def fill_a_hole(self) -> None:
        sender = self.sender()
        missing = sorted(set(range(sender.next)) - sender.admitted - sender.refused)
        if missing:
            segment = self.draw.choice(missing)
            self.transmit(sender, segment, self.body(segment))

    def end_block(self) -> None:
        sender = self.sender()
        sender.ended = True
        self.producing.send(sender.title(self.uuid), BlockEnd(sender.block, {0: sender.next}))
        self.hear()

    # --- consumers ----------------------------------------------------------------------------------

    def read(self, name: str) -> CoreClient:
        client = self.consumers.get(name)
        if client is None:
            kind = "shared" if name == "billing" else "unique"
            client = self.consumers[name] = self.shell.connect()
            client.send(Subscribe(1, "t", name, kind, "non_resilient", "earliest", 1 << 20))
            self.held[name] = []
        self.shell.work_all()
        client.take(Frame)
        for deliver in client.take(Deliver):
            self.held[name] += [entry for span in deliver.spans for entry in range(*span)]
        if client.take(Error):
            self.lose_consumer(name)
        return client

    def settle(self, name: str) -> None:
        client = self.read(name)
        if name not in self.held or not self.held[name]:
            return
        self.draw.shuffle(self.held[name])
        count = self.draw.randint(1, len(self.held[name]))
        mine, self.held[name] = self.held[name][:count], self.held[name][count:]
        how = self.draw.choice(["acked", "acked", "skipped", "nacked"])
        spans = [(entry, entry + 1) for entry in sorted(set(mine))]
        if how == "nacked":
            client.send(Settle(1, self.draw.randrange(10**6), 0, nacked=[(start, None) for start, _ in spans]))
        elif how == "skipped":
            client.send(Settle(1, self.draw.randrange(10**6), 0, skipped=spans))
        else:
            client.send(Settle(1, self.draw.randrange(10**6), 0, spans))
        self.shell.work_all()
        if client.take(Settled) and how == "acked":
            self.acked[name].update(start for start, _ in spans)

    def ack_again(self, name: str) -> None:
        client = self.read(name)
        if self.acked[name] and name in self.held:
            entry = self.draw.choice(sorted(self.acked[name]))
            client.send(Settle(1, self.draw.randrange(10**6), 0, [(entry, entry + 1)]))
            self.shell.work_all()

    def ack_blind(self, name: str) -> None:
        """Acknowledges entries that this consumer may never have received."""
        client = self.read(name)
        end = self.ledger().log.entries
        if end and name in self.held:
            start = self.draw.randrange(end)
            client.send(Settle(1, self.draw.randrange(10**6), 0, [(start, min(start + 3, end))]))
            self.shell.work_all()

    def lose_consumer(self, name: str) -> None:
        client = self.consumers.pop(name, None)
        if client is not None:
            number = next(number for number, one in self.shell.clients.items() if one is client)
            self.shell.core.disconnected(number)
            self.shell.drain()
            self.held.pop(name, None)

    def leave(self, name: str) -> None:
        if name in self.consumers:
            client = self.read(name)
            if name in self.consumers:
                seen = [(0, entry, entry + 1) for entry in sorted(set(self.held[name]))[:2]]
                client.send(Unsubscribe(1, seen))
                self.shell.work_all()
                assert client.take(Unsubscribed)
                del self.consumers[name]
                self.held.pop(name, None)

    def seek(self, name: str) -> None:
        to = self.draw.choice(["earliest", "latest", "3"])
        self.client.request(SeekSubscription("t", name, to))
        self.shell.work_all()
        self.consumers.pop(name, None)
        self.held.pop(name, None)
        self.acked[name].clear()

    def redrive(self, name: str) -> None:
        self.client.request(Redrive("t", name))

    # --- time and power -----------------------------------------------------------------------------

    def wait(self) -> None:
        for _ in range(self.draw.choice([1, 4, 10])):
            self.now_us += SECOND_US // 2
            self.shell.wait(SECOND_US // 2)
            self.shell.work_all()

    def fail_a_write(self) -> None:
        """One write of a log fails; its sender gets the error."""
        self.disk.fail_next("sync", errno.EIO, path_prefix="topics")
        self.send()
        self.now_us += SECOND_US
        self.shell.wait(SECOND_US)
        self.hear()

    def crash(self) -> None:
        """Cuts the power with work under way, and opens the node again."""
        self.crashes += 1
        for _ in range(self.draw.randrange(3)):
            if self.shell.pending:
                self.shell.work()
        self.disk.crash(keep=self.draw.choice(["none", "some", "all"]))
        self._open()

    def stop(self) -> None:
        """Stops the node cleanly and opens it again."""
        for name in list(self.consumers):
            self.lose_consumer(name)
        self.hear()
        self.shell.core.begin_stop()
        self.shell.core.close()
        self._open()

    def step(self) -> str:
        """Runs a random step; returns its name, for a failure's message."""
        name = self.draw.choice(["billing", "audit"])
        steps: dict[Callable[[], object], int] = {
            self.send: 12,
            self.send_unheard: 3,
            self.send_again: 3,
            self.send_other_content: 1,
            self.leave_a_gap: 2,
            self.declare_a_hole: 2,
            self.fill_a_hole: 2,
            self.begin_block: 1,
            self.end_block: 1,
            self.wait: 3,
            self.crash: 1,
            self.fail_a_write: 1,
            self.stop: 1,
        }
        on_subscription: dict[Callable[[str], None], int] = {
            self.settle: 10,
            self.ack_again: 1,
            self.ack_blind: 1,
            self.lose_consumer: 2,
            self.leave: 1,
            self.seek: 1,
            self.redrive: 1,
        }
        weights = [*steps.values(), *on_subscription.values()]
        number = self.draw.choices(range(len(weights)), weights)[0]
        if number < len(steps):
            chosen = list(steps)[number]
            chosen()
            return chosen.__name__
        of_one = list(on_subscription)[number - len(steps)]
        of_one(name)
        return f"{of_one.__name__} {name}"
