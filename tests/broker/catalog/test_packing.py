"""The node packs small segments of closed files in the background; nobody gets anything else than before."""

from __future__ import annotations

import errno

import msgspec
import pytest

from headpond.broker.settings import LogSettings
from headpond.storage.log.read import segment_of
from headpond.storage.memory_disk import Operation
from headpond.wire.control.catalog import CreateTopic, DeleteTopic, TopicInfo
from headpond.wire.control.codec import Request, read_result
from headpond.wire.control.consuming import Deliver, Settle
from headpond.wire.control.reading import Fetched, FetchEntries
from headpond.wire.frame import Frame
from headpond.wire.plain.packed import is_packed
from headpond.wire.record import RECORD_HEADER_BYTES, decode_record_header
from headpond.wire.typed.record import stored_rows
from tests.broker.catalog.state_world import SETTINGS, Reader, Row, StateWorld, current

LARGER_FILES = msgspec.structs.replace(
    SETTINGS, log=LogSettings(rotate_bytes=4000, preallocate_bytes=512, index_every_bytes=512)
)


def world_of(count: int = 100, *, packed: bool = True) -> StateWorld:
    """A plain topic with messages that were sent one at a time."""
    world = StateWorld(settings=LARGER_FILES, state=False)
    for number in range(count):
        world.store(row(number))
    if packed:
        wait(world)
        assert world.shell.core.context.counters["files_packed"] > 0
    return world


def row(number: int) -> Row:
    return b"k%d" % (number % 7), b"value %d" % number


def wait(world: StateWorld) -> None:
    for _ in range(3):
        world.shell.wait(1_100_000)
        world.shell.work_all()


def expected(
    world: StateWorld, start: int = 0, end: int | None = None
) -> list[tuple[int, bytes, bytes | None]]:
    return [(entry, *each) for entry, each in enumerate(world.rows)][start:end]


def frames(reader: Reader) -> tuple[list[Frame], list[Deliver]]:
    """What a consumer was sent since the last call, undecoded."""
    reader._world.shell.work_all()
    return reader.client.take(Frame), reader.client.take(Deliver)


@pytest.mark.parametrize("kind", ["unique", "failover", "shared", "key_shared"])
def test_every_kind_of_subscription_gets_the_messages_of_packed_files(kind: str) -> None:
    world = world_of()
    assert sorted(world.subscribe("s", kind=kind).get()) == expected(world)


def test_a_consumer_gets_packed_records_and_fewer_of_them() -> None:
    world = world_of()
    got, _ = frames(world.subscribe("s"))
    packed = [each for each in got if is_packed(each.body[RECORD_HEADER_BYTES:])]
    assert packed and len(got) < 50


def test_who_is_owed_a_few_rows_of_a_packed_record_gets_their_segments_only() -> None:
    world = world_of()
    reader = world.subscribe("s")
    reader.get()
    reader.settle(*[entry for entry in range(100) if entry not in (3, 40)])
    reader.leave()
    again = world.subscribe("s")
    got, deliveries = frames(again)
    assert [span for each in deliveries for span in each.spans] == [(3, 4), (40, 41)]
    assert not any(is_packed(each.body[RECORD_HEADER_BYTES:]) for each in got)


def test_a_repeat_of_a_packed_segment_is_a_duplicate_and_other_content_a_conflict() -> None:
    world = world_of()
    world.restart()
    for segment in range(100):
        again = world.send_again(segment)
        assert (again.outcome, again.first_entry) == ("duplicate", segment)
    world.segments[5] = [(b"k", b"something else")]
    assert world.send_again(5).outcome == "rejected"


def test_all_files_are_looked_at_after_a_start_and_packed_ones_not_again() -> None:
    world = world_of(packed=False)
    world.restart()
    wait(world)
    first = world.shell.core.context.counters["files_packed"]
    assert first > 1
    world.restart()
    wait(world)
    assert world.shell.core.context.counters["files_packed"] == 0
    assert world.read("s") == expected(world)


def test_a_topic_that_is_deleted_while_it_is_packed_leaves_nothing_behind() -> None:
    for steps in range(6):
        world = world_of(packed=False)
        world.shell.wait(1_100_000)
        for _ in range(steps):
            if world.shell.pending:
                world.shell.work()
        world.shell.connect().request(DeleteTopic("t"))
        world.shell.work_all()
        assert world.disk.list("topics") == []


def test_a_filter_by_the_time_of_storage_finds_the_rows_of_a_packed_record() -> None:
    world = StateWorld(settings=LARGER_FILES, state=False)
    for number in range(100):
        world.store(row(number))
        world.shell.wait(1_000_000)
    wait(world)
    assert files_packed(world) > 0
    ask = FetchEntries(
        world.uuid, 0, 0, 90, None, 1 << 20, "stored_at >= '1970-01-12T13:46:50Z'", None, packed=True
    )
    world.client.send(Request(9, ask))
    world.shell.work_all()
    (answer,) = world.client.take(Fetched)
    assert answer.masks is not None
    firsts = [decode_record_header(frame.body).first_entry for frame in world.client.take(Frame)]
    found = [
        first + number
        for first, mask in zip(firsts, answer.masks, strict=True)
        for number in range(8 * len(mask))
        if int.from_bytes(mask, "little") >> number & 1
    ]
    assert [entry for entry in found if entry < 90] == list(range(10, 90))


def test_a_state_topic_is_not_packed_before_it_is_compacted() -> None:
    world = StateWorld(settings=LARGER_FILES)
    for number in range(100):
        world.store((b"key %d" % number, b"value"))
    wait(world)
    assert len(world.log_files()) > 1 and files_packed(world) == 0


def files_packed(world: StateWorld) -> int:
    return world.shell.core.context.counters["files_packed"]


@pytest.mark.parametrize(("operation", "after"), [("open", 0), ("create", 0), ("write", 0), ("rename", 1)])
def test_a_file_that_the_disk_failed_to_pack_is_packed_a_minute_later(operation: Operation, after: int) -> None:
    world = world_of(packed=False)
    world.restart()
    world.disk.fail_next(operation, errno.EIO, 1, "topics", after=after)
    wait(world)
    assert not world.disk.failing and files_packed(world) == 0
    assert world.shell.core.context.counters["packs_failed"] == 1
    assert world.read("s") == expected(world)
    world.shell.wait(60_000_000)
    wait(world)
    topic = world.shell.core.stores.catalog.by_uuid(world.uuid)
    assert topic is not None
    assert files_packed(world) == len(topic.shards[0].log.closed_files()) > 1
    assert world.read("again") == expected(world)


def test_a_file_that_fails_again_and_again_does_not_keep_other_topics_from_being_packed() -> None:
    world = world_of(packed=False)
    failing = folder_of(world)
    world.uuid = read_result(world.client.request(CreateTopic("u")), TopicInfo).uuid
    world.segments, world.block = [], b"another producer"
    for number in range(100):
        world.store(row(number))
    world.restart()
    world.disk.fail_next("create", errno.EIO, 1000, failing)
    for _ in range(3):
        world.shell.wait(60_000_000)
        wait(world)
    packed = [name for name in world.disk.paths() if name.endswith(".00000001.log")]
    assert packed and not any(name.startswith(failing) for name in packed)


def test_nothing_is_packed_while_the_disk_is_full() -> None:
    world = world_of(packed=False)
    world.restart()
    world.disk.capacity_bytes = world.disk.used_bytes() + 20_000  # less than limits.free_bytes_min
    before = set(world.disk.list(folder_of(world)))
    wait(world)
    assert set(world.disk.list(folder_of(world))) == before and files_packed(world) == 0
    world.disk.capacity_bytes = None
    wait(world)
    assert files_packed(world) > 1 and world.shell.core.context.counters["packs_failed"] == 0


def test_a_damaged_file_is_counted_and_stays_as_it_is() -> None:
    world = world_of(packed=False)
    path = (
        f"{folder_of(world)}/{min(each for each in world.disk.list(folder_of(world)) if each.endswith('.log'))}"
    )
    world.restart()
    world.disk.flip(path, world.disk.open(path).size() - 600)
    wait(world)
    assert world.shell.core.context.counters["packs_unsound"] == 1
    assert path.rpartition("/")[2] in world.disk.list(folder_of(world))


def folder_of(world: StateWorld) -> str:
    return f"topics/{world.uuid.hex()}/00000"


def first_keys(world: StateWorld) -> set[bytes]:
    """The keys of which a file still has the first value."""
    topic = world.shell.core.stores.catalog.by_uuid(world.uuid)
    assert topic is not None
    records = topic.shards[0].log.read(0, 1 << 20).records
    rows = [each for record in records for each in stored_rows(segment_of(record), None).to_pylist()]
    return {each["key"] for each in rows if each.get("value") == b"first"}


def test_compaction_packs_what_it_leaves_of_a_state_topic_and_compacts_packed_files() -> None:
    world = StateWorld(settings=LARGER_FILES)
    for number in range(100):
        world.store((b"key %d" % number, b"first"))
    world.store((b"key 3", b"second"))
    assert world.compact() == 1
    topic = world.shell.core.stores.catalog.by_uuid(world.uuid)
    assert topic is not None
    records = topic.shards[0].log.read(0, 1 << 20, packed=True).records
    assert any(record.packed for record in records)
    for number in (10, 20, 21, 22):
        world.store((b"key %d" % number, b"third"))
    assert world.compact() == 4
    assert {b"key 9", b"key 11"} < first_keys(world) and not {b"key 10", b"key 21"} & first_keys(world)
    world.restart()
    assert world.read("state", "state") == current(world.rows)
    for segment in range(len(world.segments)):
        assert world.send_again(segment).outcome == "duplicate"


def test_settling_rows_of_a_packed_record_survives_a_restart() -> None:
    world = world_of()
    reader = world.subscribe("s")
    reader.get()
    reader.client.send(Settle(1, 1, 0, [(0, 10), (12, 50)]))
    world.shell.work_all()
    reader.leave()
    world.restart()
    assert world.read("s") == [*expected(world, 10, 12), *expected(world, 50)]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    "chosen", ["", "entry > 20 and entry < 24 or key = 'k3'", "stored_at < '1970-01-12T13:46:41Z'"]
)
@pytest.mark.parametrize("columns", [None, [], ["value"], ["key", "value"]])
def test_a_fetch_of_some_rows_and_columns_gives_the_same_of_packed_records(
    packed: bool, chosen: str, columns: list[str] | None
) -> None:
    world = world_of()
    ask = FetchEntries(world.uuid, 0, 0, 90, None, 1 << 20, chosen, columns, packed=packed)
    world.client.send(Request(9, ask))
    world.shell.work_all()
    (answer,) = world.client.take(Fetched)
    found: dict[int, dict[str, object]] = {}
    for place, frame in enumerate(world.client.take(Frame)):
        header, segment = decode_record_header(frame.body), frame.body[RECORD_HEADER_BYTES:]
        assert not is_packed(segment) or packed
        mask = int.from_bytes(answer.masks[place], "little") if answer.masks is not None else -1
        for number, fields in enumerate(stored_rows(segment, None).to_pylist()):
            if mask >> number & 1:
                found[header.first_entry + number] = fields
    wanted = [entry for entry in found if entry < 90]
    if chosen.startswith("entry"):
        assert wanted == [entry for entry in range(90) if 20 < entry < 24 or entry % 7 == 3]
    else:
        assert wanted == list(range(90))
    for entry in wanted:
        key, value = row(entry)
        assert found[entry].get("key") == (key if columns is None or "key" in columns else None)
        assert found[entry].get("value") == (value if columns is None or "value" in columns else None)
