"""Producers and a consumer around the node's core on a disk in memory, and rules that no power cut may break.

The seed decides everything: the messages, the order of the disk's work, when the power fails and which sectors
survive. ``faults`` lists the broken guarantees.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from headpond.broker.settings import Settings
from headpond.storage.memory_disk import Keep, MemoryDisk
from headpond.wire.control.catalog import CreateTopic, ShowTopic, TopicInfo
from headpond.wire.control.codec import read_result
from headpond.wire.control.consuming import (
    Deliver,
    ListSubscriptions,
    Settle,
    Settled,
    Subscribe,
    SubscriptionInfo,
)
from headpond.wire.control.producing import Ack
from headpond.wire.frame import Frame
from headpond.wire.plain.segment import decode_plain
from headpond.wire.record import RECORD_HEADER_BYTES, decode_record_header
from tests.fire.core_shell import SMALL_FILES, CoreClient, CoreShell
from tests.fire.raw_client import segment_frame, title_frame

TOPIC = "cut"
SHARDS = 2
READER = "reader"
CREDIT_BYTES = 1 << 28
PAUSE_US = 1_000_000
"""Longer than a lane waits after a failed write."""

SegmentId = tuple[bytes, int, int]
"""Block, shard, segment."""


@dataclass
class Writer:
    """A producer's run: its segments and their answers."""

    block: bytes
    values: dict[tuple[int, int], list[bytes]] = field(default_factory=dict)
    """By shard and segment."""
    outcomes: dict[tuple[int, int], str] = field(default_factory=dict)

    def write(self, shard: int, rows: int) -> bytes:
        """The frame of the next segment."""
        segment = sum(1 for known, _ in self.values if known == shard)
        self.values[shard, segment] = [
            f"{self.block.hex()}/{shard}/{segment}/{row}".encode() * (1 + segment % 7) for row in range(rows)
        ]
        return self.frame(shard, segment)

    def frame(self, shard: int, segment: int) -> bytes:
        return segment_frame(self.values[shard, segment], shard=shard, segment=segment)

    def unanswered(self) -> list[tuple[int, int]]:
        return sorted(key for key in self.values if key not in self.outcomes)


class PowerWorld:
    def __init__(
        self,
        seed: int,
        disk: MemoryDisk | None = None,
        *,
        settings: Settings = SMALL_FILES,
        shards: int = SHARDS,
    ) -> None:
        self.disk = disk or MemoryDisk(seed)
        self.settings = settings
        self.shards = shards
        self.seed = seed
        self.random = random.Random(seed)
        self.writers = [Writer(self.random.randbytes(16)) for _ in range(3)]
        self.faults: list[str] = []
        self.settled: set[tuple[int, int]] = set()
        """Shard and entry of confirmed settlements."""
        self._settling: dict[int, list[tuple[int, int]]] = {}
        self._numbers = 0
        self._audits = 0
        self._open()

    # --- life between cuts --------------------------------------------------------------------------

    def _open(self) -> None:
        seed = self.random.randrange(1 << 30)
        self.shell = CoreShell(self.disk, seed=seed, settings=self.settings, now_us=1_000_000)
        self.producer = self.shell.connect()
        info = self.producer.request(CreateTopic(TOPIC, self.shards, exist_ok=True))
        self.uuid = read_result(info, TopicInfo).uuid
        self.reader = self.shell.connect()
        self.reader.send(Subscribe(1, TOPIC, READER, "unique", "non_resilient", "earliest", CREDIT_BYTES))
        self.shell.work_all()

    def live(self, steps: int) -> None:
        """Sends, settles and runs disk work in a random order, until the power is off or nothing is left."""
        for _ in range(steps):
            chance = self.random.random()
            if chance < 0.4:
                self._send_some()
            elif chance < 0.5:
                self._settle_some()
            elif self.shell.pending:
                self.shell.work(self.random.randrange(len(self.shell.pending)))
            if self.power_is_off:
                return
            self._listen()

    @property
    def power_is_off(self) -> bool:
        try:
            self.disk.exists("")
        except OSError:
            return True
        return False

    def _send_some(self) -> None:
        writer = self.random.choice(self.writers)
        frames = [
            writer.write(self.random.randrange(self.shards), self.random.randint(1, 4))
            for _ in range(self.random.randint(1, 3))
        ]
        self.producer.send(title_frame(writer.block, self.uuid, power=self.shards.bit_length() - 1), *frames)

    def send_to(self, shard: int) -> None:
        """One more segment to a shard."""
        writer = self.writers[0]
        title = title_frame(writer.block, self.uuid, power=self.shards.bit_length() - 1)
        self.producer.send(title, writer.write(shard, 1))

    def forget_refused(self) -> None:
        """A refusal because of a failing disk is allowed: the producer sends the segment again."""
        self._listen()
        self.faults = [fault for fault in self.faults if "was rejected" not in fault]

    def _settle_some(self) -> None:
        entries: dict[int, list[tuple[int, int]]] = {}
        for shard, start, end in _delivered(self.reader):
            entries.setdefault(shard, []).append((start, end))
        for shard, spans in entries.items():
            self._numbers += 1
            self._settling[self._numbers] = [(shard, entry) for span in spans for entry in range(*span)]
            self.reader.send(Settle(1, self._numbers, shard, spans))

    def _listen(self) -> None:
        """An answer counts only if the node gave it before the power failed."""
        for ack in self.producer.take(Ack):
            writer = next(writer for writer in self.writers if writer.block == ack.block)
            for item in ack.items:
                if item.outcome == "rejected":
                    self.faults.append(f"segment {item.segment} was rejected: {item.code}")
                else:
                    writer.outcomes[ack.shard, item.segment] = item.outcome
        for settled in self.reader.take(Settled):
            for number in [number for number in self._settling if number <= settled.number]:
                self.settled.update(self._settling.pop(number))

    # --- the cut ------------------------------------------------------------------------------------

    def cut(self, keep: Keep) -> None:
        """Power off and on; a node opens what is left and is checked."""
        self.disk.crash(keep=keep)
        self._settling.clear()
        self._open()
        self.check()

    def send_again(self) -> None:
        """Every producer sends its unanswered segments in order; the node may refuse none."""
        for writer in self.writers:
            again = writer.unanswered()
            frames = [writer.frame(*key) for key in again]
            title = title_frame(writer.block, self.uuid, power=self.shards.bit_length() - 1)
            self.producer.send(title, *frames)
            self.shell.work_all()
            self._listen()
            self.faults += [f"segment {key} was sent again and not answered" for key in writer.unanswered()]

    # --- the rules ----------------------------------------------------------------------------------

    def check(self) -> None:
        """Reads everything with a new subscription and checks it against the guarantees."""
        stored = self._read_all()
        self.faults += _broken(self.writers, stored)
        again = {(shard, entry) for shard, start, end in _delivered(self.reader) for entry in range(start, end)}
        self.faults += [
            f"entry {place} came again after it was settled" for place in sorted(again & self.settled)
        ]
        info = read_result(self.producer.request(ShowTopic(TOPIC)), TopicInfo)
        ends = [shard.entry_next for shard in info.shard_list]
        for subscription in read_result(
            self.producer.request(ListSubscriptions(TOPIC)), list[SubscriptionInfo]
        ):
            for shard, position in enumerate(subscription.positions):
                if position > ends[shard]:
                    self.faults.append(f"{subscription.subscription} is at {position} of {ends[shard]} entries")

    def _read_all(self) -> dict[SegmentId, list[tuple[int, list[bytes]]]]:
        """By segment: the entries of each copy, and its values."""
        self._audits += 1
        client = self.shell.connect()
        name = f"audit-{self._audits}"
        client.send(Subscribe(9, TOPIC, name, "unique", "non_resilient", "earliest", CREDIT_BYTES))
        self.shell.work_all()
        stored: dict[SegmentId, list[tuple[int, list[bytes]]]] = {}
        for frame in client.take(Frame):
            header = decode_record_header(frame.body)
            values = decode_plain(frame.body[RECORD_HEADER_BYTES:]).column("value").to_pylist()
            key = (header.block, frame.shard, frame.segment)
            stored.setdefault(key, []).append((header.first_entry, values))
        return stored


def _broken(writers: list[Writer], stored: dict[SegmentId, list[tuple[int, list[bytes]]]]) -> Iterator[str]:
    for writer in writers:
        last: dict[int, int] = {}
        for (shard, segment), values in sorted(writer.values.items()):
            copies = stored.get((writer.block, shard, segment), [])
            if not copies and (shard, segment) in writer.outcomes:
                yield f"segment {segment} of shard {shard} was acknowledged and is lost"
            if len(copies) > 1:
                yield f"segment {segment} of shard {shard} is there {len(copies)} times"
            for first_entry, found in copies:
                if found != values:
                    yield f"segment {segment} of shard {shard} was altered"
                if first_entry < last.get(shard, -1):
                    yield f"segment {segment} of shard {shard} stands before an earlier one"
                last[shard] = first_entry


def _delivered(client: CoreClient) -> list[tuple[int, int, int]]:
    """Shard, start and end of every span that was delivered since the last call."""
    client.take(Frame)
    return [(deliver.shard, *span) for deliver in client.take(Deliver) for span in deliver.spans]
