"""A writer and consumers that talk to a node's core, frame by frame."""

from __future__ import annotations

from headpond.broker.settings import LogSettings, Settings
from headpond.model.errors import HeadpondError
from headpond.model.policy import Policy
from headpond.storage.memory_disk import MemoryDisk
from headpond.wire.control.catalog import CreateTopic, TopicInfo
from headpond.wire.control.codec import read_result
from headpond.wire.control.consuming import Credit, Deliver, KnownRecord, Settle, Subscribe, Subscribed
from headpond.wire.control.greeting import Error
from headpond.wire.frame import Frame, FrameType, encode
from headpond.wire.plain.columns import rows_to_batch
from headpond.wire.plain.segment import encode_plain
from headpond.wire.record import decode_record_header
from headpond.wire.title import Title, encode_title
from tests.fire.core_shell import CoreClient, CoreShell

LEASE_S = 2.0
POLICY = Policy(lease=LEASE_S)
PLAIN = Settings(data="memory", log=LogSettings(preallocate_bytes=1024))


class Writer:
    def __init__(self, shell: CoreShell, *, shards: int = 1) -> None:
        self.shell = shell
        self.client = shell.connect()
        self.segments = [0] * shards
        made = self.client.request(CreateTopic("orders", shards, exist_ok=True))
        info = read_result(made, TopicInfo)
        title = encode_title(b"b" * 16, shards.bit_length() - 1, Title(info.topic, info.uuid))
        self.client.send(encode(FrameType.TITLE, title))

    def write(self, rows: int, size: int = 10, shard: int = 0, keys: list[bytes | None] | None = None) -> None:
        body = encode_plain(rows_to_batch([bytes(size)] * rows, keys, None, None, [1] * rows))
        self.client.send(encode(FrameType.SEGMENT, body, shard=shard, segment=self.segments[shard]))
        self.segments[shard] += 1
        self.shell.work_all()


class Reader:
    def __init__(
        self,
        shell: CoreShell,
        *,
        credit: int = 1 << 20,
        start: str | int = "earliest",
        policy: Policy | None = None,
        **ask: str,
    ) -> None:
        self.shell = shell
        self.client: CoreClient = shell.connect()
        self.settles = 0
        kind, mode = ask.get("kind", "unique"), ask.get("mode", "non_resilient")
        name = ask.get("name", "reader")
        self.client.send(Subscribe(1, "orders", "s", kind, mode, start, credit, name, policy=policy))
        shell.work_all()

    def got(self) -> list[tuple[int, int]]:
        """(entry, attempt) of the deliveries since the last call."""
        frames = self.client.take(Frame)
        found: list[tuple[int, int]] = []
        for deliver in self.client.take(Deliver):
            records, frames = frames[: deliver.records], frames[deliver.records :]
            held = set[int]()
            for frame in records:
                header = decode_record_header(frame.body)
                held |= set(range(header.first_entry, header.end_entry))
            for start, end in deliver.spans:
                assert set(range(start, end)) <= held, "every row that is meant was sent"
                found += [(entry, deliver.attempt) for entry in range(start, end)]
        assert frames == []
        return found

    def entries(self) -> list[int]:
        return [entry for entry, _ in self.got()]

    def settle(self, *, durable: bool = True, **what: object) -> None:
        self.settles += 1
        self.client.send(Settle(1, self.settles, 0, **what))  # type: ignore[arg-type]
        if durable:
            self.shell.work_all()

    def error(self) -> HeadpondError:
        (error,) = self.client.take(Error)
        assert error.consumer == 1
        return error.as_exception()


class KindReader(Reader):
    """A consumer of the subscription ``s`` of any kind and mode."""

    def __init__(
        self,
        shell: CoreShell,
        kind: str,
        mode: str,
        *,
        instance: bytes = b"",
        policy: Policy = POLICY,
        keeps: bool = False,
        seen: list[tuple[int, int, int]] | None = None,
        credit: int = 1 << 20,
        known: list[KnownRecord] | None = None,
    ) -> None:
        self.shell = shell
        self.client = shell.connect()
        self.number = len(shell.clients)
        self.settles = 0
        ask = (1, "orders", "s", kind, mode, "earliest", credit)
        more = {"policy": policy, "instance": instance, "keeps": keeps, "seen": seen, "known": known or []}
        self.client.send(Subscribe(*ask, **more))  # type: ignore[arg-type]
        shell.work_all()

    def standing(self) -> Subscribed:
        return self.client.take(Subscribed)[-1]

    def pay(self) -> None:
        self.client.send(Credit(1, 1 << 20))
        self.shell.work_all()

    def vanish(self) -> None:
        self.shell.core.disconnected(self.number)
        self.shell.drain()
        self.shell.work_all()

    def seconds(self, seconds: float) -> None:
        self.shell.wait(round(seconds * 1e6))
        self.shell.work_all()


def shell(rows: int = 6) -> CoreShell:
    it = CoreShell(MemoryDisk(), seed=1, settings=PLAIN)
    Writer(it).write(rows)
    return it
