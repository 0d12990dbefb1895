"""A clean stop seals every file: the next start reports later damage to any of them."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import dataclass

import pytest

from headpond.storage.log.read import StoredRecord
from headpond.storage.log.shard_log import ShardLog
from headpond.storage.memory_disk import MemoryDisk
from headpond.storage.seal import SEAL_FILE
from headpond.wire.connection import ConnectionFault
from headpond.wire.control.access import CreateToken, RevokeToken, TokenCreated
from headpond.wire.control.codec import read_result
from headpond.wire.control.consuming import Settle, Subscribe
from headpond.wire.control.producing import Ack, AckItem
from headpond.wire.control.staging import FinishStage
from tests.broker.access.guarded import STAGE, TOPIC, GuardedNode
from tests.fire.core_shell import CoreShell
from tests.fire.raw_client import segment_frame, title_frame

SEGMENTS = 12
ROWS = 2


@dataclass
class Left:
    """A data folder after a clean stop, and the acknowledged messages."""

    disk: MemoryDisk
    uuid: bytes
    revoked: str
    good: str
    admin: str
    incarnation: int

    @property
    def log_path(self) -> str:
        return f"topics/{self.uuid.hex()}/00000/{0:020d}.log"


def leave(*, clean: bool) -> Left:
    """Stops a node with records in every file; the last one revoked a token."""
    node = GuardedNode()
    admin = node.admin
    admin.request(FinishStage(STAGE, 1))
    for number in range(1, SEGMENTS):
        admin.send(segment_frame([b"%d" % number * 20] * ROWS, segment=number))
        node.shell.work_all()
    admin.send(Subscribe(1, TOPIC, "billing", "unique", "non_resilient", "earliest", 1 << 20))
    node.shell.work_all()
    for entry in range(SEGMENTS):
        admin.send(Settle(1, entry + 1, 0, [(entry, entry + 1)]))
        node.shell.work_all()
    good = node.token(["consume"], [TOPIC])
    ended = read_result(admin.request(CreateToken("leaver", ["admin"], ["*"])), TokenCreated)
    admin.request(RevokeToken(ended.info.token))
    topic = node.shell.core.stores.catalog.by_uuid(node.uuid)
    assert topic is not None
    incarnation = topic.shards[0].log.incarnation
    if clean:
        node.shell.core.close()
    for path in node.disk.paths():  # less reserved room is faster to look through
        size = len(node.disk.contents(path))
        node.disk.open(path, writable=True).truncate(
            min(size, len(node.disk.contents(path).rstrip(b"\0")) + 4096)
        )
    return Left(node.disk.copy(), node.uuid, ended.secret, good, node.admin_text, incarnation)


@pytest.fixture(scope="module")
def stopped() -> Left:
    return leave(clean=True)


@pytest.fixture(scope="module")
def killed() -> Left:
    return leave(clean=False)


def damage(disk: MemoryDisk, path: str, lost_bytes: int, how: str) -> None:
    """Spoils the last bytes of a file that are not zero."""
    end = len(disk.contents(path).rstrip(b"\0"))
    start = max(0, end - lost_bytes)
    file = disk.open(path, writable=True)
    if how == "cut":
        file.truncate(start)
    elif how == "zeros":
        file.write_at(start, [bytes(end - start)])
    else:
        file.write_at(start, [random.Random(lost_bytes).randbytes(end - start)])
    file.sync()


def log_of(shell: CoreShell, left: Left) -> ShardLog:
    topic = shell.core.stores.catalog.by_uuid(left.uuid)
    assert topic is not None, "the topic is gone"
    return topic.shards[0].log


def check_log(left: Left, log: ShardLog, stored: int) -> None:
    """Every entry is served or named as lost, and none is used again."""
    served: set[int] = set()
    at = 0
    while at < log.entry_durable:
        run = log.read(at, 1 << 20)
        served |= {entry for record in run.records for entry in range(*span(record))}
        at = run.next_entry
    lost = {entry for start, end in log.damaged for entry in range(start, end)}
    assert served | lost >= set(range(stored)) and not served & lost
    assert log.entry_next >= stored, "an entry is used again"
    assert log.holds(left.incarnation, stored) == (stored - 1 not in lost), "lost positions are recognised"


def span(record: StoredRecord) -> tuple[int, int]:
    return record.header.first_entry, record.header.end_entry


def refused(shell: CoreShell, token: str) -> bool:
    return bool(shell.connect(token).take(ConnectionFault))


def kept_files(disk: MemoryDisk) -> list[str]:
    return [path for path in disk.paths() if path != "NODE" and not path.endswith((".index", ".expires"))]


def opened(disk: MemoryDisk) -> CoreShell:
    return CoreShell(disk, seed=2, now_us=2_000_000)


STORED = 1 + (SEGMENTS - 1) * ROWS


def test_a_clean_stop_and_start_finds_nothing_and_the_seal_is_gone_while_the_node_runs(stopped: Left) -> None:
    disk = stopped.disk.copy()
    assert SEAL_FILE in disk.paths()
    shell = opened(disk)
    assert shell.core.stores.recovered == [] and SEAL_FILE not in disk.paths()
    assert shell.core.stores.last_stop == "clean"
    assert not refused(shell, stopped.good) and refused(shell, stopped.revoked)
    check_log(stopped, log_of(shell, stopped), STORED)
    shell.core.close()
    assert SEAL_FILE in disk.paths()


def test_after_a_crash_rot_at_the_end_of_any_file_is_named_by_its_range(killed: Left) -> None:
    assert SEAL_FILE not in killed.disk.paths()
    for path in kept_files(killed.disk):
        for lost_bytes in (1, 31, 40, 512, 100_000):
            disk = killed.disk.copy()
            damage(disk, path, lost_bytes, "garbage")
            shell = opened(disk)
            name = path.rpartition("/")[2]
            recovered = shell.core.stores.recovered
            assert any(name in line and "damaged" in line for line in recovered), (path, lost_bytes)
            check_log(killed, log_of(shell, killed), STORED)
            assert refused(shell, killed.revoked), "a revoked token is good again"


@pytest.mark.parametrize("clean", [True, False])
def test_a_journal_that_is_gone_is_noticed(stopped: Left, killed: Left, clean: bool) -> None:
    left = stopped if clean else killed
    for folder in ("admin_log", "catalog", "peers", "settlements", "tokens", "writers"):
        disk = left.disk.copy()
        disk.remove_tree(folder)
        shell = opened(disk)
        recovered = shell.core.stores.recovered
        assert any(line.startswith(f"{folder}: ") and "missing" in line for line in recovered), folder
        check_log(left, log_of(shell, left), STORED)
        (fault,) = shell.connect().take(ConnectionFault)
        assert fault.error.code == "token-needed", "the node is not open to everybody"


def test_entries_lost_at_the_end_are_not_used_again_though_power_fails_at_any_moment_of_the_repair(
    stopped: Left,
) -> None:
    """The node removes the seal after the repair: an interrupted start finds the same damage again."""
    spoiled = stopped.disk.copy()
    damage(spoiled, stopped.log_path, 300, "zeros")
    damage(spoiled, next(path for path in spoiled.paths() if path.startswith("tokens/")), 40, "zeros")
    whole = spoiled.copy()
    opened(whole)
    changes = sum(one[0] not in ("open", "read") for one in whole.operations)
    for cut in range(changes):
        for keep in ("none", "some"):
            disk = spoiled.copy()
            disk.cut_power_after(cut)
            with suppress(OSError):  # the note that a run began may fail
                opened(disk)
            disk.crash(keep=keep)
            shell = opened(disk)
            log = log_of(shell, stopped)
            check_log(stopped, log, STORED)
            assert not log.holds(stopped.incarnation, STORED) and refused(shell, stopped.revoked)


def test_new_messages_follow_the_lost_ones(stopped: Left) -> None:
    disk = stopped.disk.copy()
    damage(disk, stopped.log_path, 512, "garbage")
    shell = opened(disk)
    client = shell.connect(stopped.admin)
    client.send(title_frame(b"n" * 16, stopped.uuid, topic=TOPIC), segment_frame([b"new"]))
    shell.work_all()
    (ack,) = client.take(Ack)
    assert ack.items == [AckItem(0, "stored", STORED)]
