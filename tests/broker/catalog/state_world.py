"""A node on a disk in memory with one state topic, and a plain list of the stored rows to compare with."""

from __future__ import annotations

import random

from headpond.broker.settings import LogSettings, Settings
from headpond.storage.memory_disk import Keep, MemoryDisk
from headpond.wire.control.catalog import CompactTopic, CreateTopic, ShowTopic, TopicCompaction, TopicInfo
from headpond.wire.control.codec import read_result
from headpond.wire.control.consuming import (
    Deliver,
    Settle,
    ShowSubscription,
    Subscribe,
    SubscriptionInfo,
    Unsubscribe,
)
from headpond.wire.control.producing import Ack, AckItem
from headpond.wire.frame import Frame, FrameType, encode
from headpond.wire.plain.columns import rows_to_batch
from headpond.wire.plain.segment import encode_plain
from headpond.wire.record import RECORD_HEADER_BYTES, decode_record_header
from headpond.wire.typed.record import stored_rows
from tests.fire.core_shell import CoreClient, CoreShell
from tests.fire.raw_client import title_frame

START_US = 1_000_000_000_000
DAY_US = 86_400_000_000
SETTINGS = Settings(
    data="memory",
    journal_compact_bytes=2048,
    log=LogSettings(rotate_bytes=1500, preallocate_bytes=512, index_every_bytes=512),
)
CREDIT_BYTES = 1 << 28
Row = tuple[bytes, bytes | None]
"""Key and value; a value of None deletes the key."""
Got = tuple[int, bytes, bytes | None]
"""Entry, key and value."""


def current(rows: list[Row]) -> list[Got]:
    """The state after these rows according to a dict, in order of their entries."""
    latest = {key: (entry, key, value) for entry, (key, value) in enumerate(rows)}
    return sorted(got for got in latest.values() if got[2] is not None)


class StateWorld:
    def __init__(
        self,
        seed: int = 0,
        *,
        settings: Settings = SETTINGS,
        name: str = "node",
        creates: bool = True,
        **of_topic: float | None,
    ) -> None:
        """``creates``: whether the node creates the topic; otherwise a link brings it."""
        self.name = name
        self.creates = creates
        self.disk = MemoryDisk(seed)
        self.settings = settings
        self.random = random.Random(seed)
        self.of_topic = {"state": True, "compact_share": None, **of_topic}
        self.now_us = START_US
        self.block = self.random.randbytes(16)
        self.segments: list[list[Row]] = []
        """Sent rows, by segment."""
        self.rows: list[Row] = []
        """Acknowledged rows, by entry."""
        self._consumers = 0
        self._open()

    def _open(self) -> None:
        self.shell = CoreShell(self.disk, seed=3, settings=self.settings, now_us=self.now_us, node=self.name)
        self.shell.work_all()
        self.client: CoreClient = self.shell.connect()
        if self.creates:
            ask = CreateTopic("t", exist_ok=True, settings=dict(self.of_topic))
            self.uuid = read_result(self.client.request(ask), TopicInfo).uuid

    def drain(self) -> None:
        self.shell.drain()
        self.shell.work_all()

    def restart(self, keep: Keep = "all") -> None:
        self.now_us = self.shell.now_us
        self.disk.crash(keep=keep)
        self._open()

    # --- producing ----------------------------------------------------------------------------------

    def frame(self, segment: int) -> bytes:
        rows = self.segments[segment]
        batch = rows_to_batch(
            [value for _, value in rows], [key for key, _ in rows], None, None, [segment] * len(rows)
        )
        return encode(FrameType.SEGMENT, encode_plain(batch), segment=segment)

    def put(self, *rows: Row) -> None:
        """One more segment, without waiting."""
        self.segments.append(list(rows))
        self.client.send(title_frame(self.block, self.uuid), self.frame(len(self.segments) - 1))

    def store(self, *rows: Row) -> None:
        """One more segment, stored."""
        self.put(*rows)
        (item,) = self.answers()
        assert item.outcome == "stored", item
        self.rows += rows

    def answers(self) -> list[AckItem]:
        self.shell.work_all()
        return [item for ack in self.client.take(Ack) for item in ack.items]

    def send_again(self, segment: int) -> AckItem:
        self.client.send(title_frame(self.block, self.uuid), self.frame(segment))
        (item,) = self.answers()
        return item

    # --- consuming ----------------------------------------------------------------------------------

    def subscribe(self, name: str, start: str = "earliest", kind: str = "unique") -> Reader:
        return Reader(self, name, start, kind)

    def read(self, name: str, start: str = "earliest") -> list[Got]:
        """Everything that a subscription delivers, without settling it."""
        reader = self.subscribe(name, start)
        got = reader.get()
        reader.leave()
        return got

    # --- asking -------------------------------------------------------------------------------------

    def compact(self) -> int:
        """Compacts the topic; returns how many entries it removed."""
        result = read_result(self.client.request(CompactTopic("t")), TopicCompaction)
        return sum(each.compacted for each in result.shards)

    def info(self) -> TopicInfo:
        return read_result(self.client.request(ShowTopic("t")), TopicInfo)

    def subscription(self, name: str) -> SubscriptionInfo:
        return read_result(self.client.request(ShowSubscription("t", name)), SubscriptionInfo)

    def log_files(self) -> list[str]:
        folder = f"topics/{self.uuid.hex()}/00000"
        return [name for name in self.disk.list(folder) if name.endswith(".log")]


class Reader:
    """A consumer of the topic."""

    def __init__(self, world: StateWorld, name: str, start: str, kind: str) -> None:
        self._world = world
        self.client = world.shell.connect()
        self._settled = 0
        self.client.send(Subscribe(1, "t", name, kind, "non_resilient", start, CREDIT_BYTES))

    def get(self) -> list[Got]:
        """The deliveries since the last call."""
        self._world.shell.work_all()
        rows: dict[int, Row] = {}
        for frame in self.client.take(Frame):
            first = decode_record_header(frame.body).first_entry
            for row, fields in enumerate(stored_rows(frame.body[RECORD_HEADER_BYTES:], None).to_pylist()):
                rows[first + row] = (fields.get("key"), fields.get("value"))
        spans = [span for deliver in self.client.take(Deliver) for span in deliver.spans]
        return [(entry, *rows[entry]) for span in spans for entry in range(*span)]

    def settle(self, *entries: int) -> None:
        self._settled += 1
        spans = [(entry, entry + 1) for entry in entries]
        self.client.send(Settle(1, self._settled, 0, spans))
        self._world.shell.work_all()

    def leave(self) -> None:
        self.client.send(Unsubscribe(1, []))
        self._world.shell.work_all()
