"""State topics on a node: a subscription starts with the latest value of every key, then the stream."""

from __future__ import annotations

import errno
from itertools import product

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headpond.broker.settings import Limits
from headpond.model.entry_set import EntrySet
from headpond.model.errors import BadRequest, BadSetting, SchemaMismatch, StorageFailed, TopicExists
from headpond.storage.frame_file import Found, scan
from headpond.storage.log import rewrite as log_rewrite
from headpond.storage.memory_disk import Keep
from headpond.wire.control.catalog import ChangeSettings, CompactTopic, CreateTopic, DeleteTopic, TopicInfo
from headpond.wire.control.codec import Request, Response, read_result
from headpond.wire.control.consuming import CreateSubscription, SeekSubscription
from headpond.wire.control.greeting import Error
from headpond.wire.control.producing import AckItem, BlockEnd
from headpond.wire.frame import FrameType
from headpond.wire.typed.schema import encode_schema
from tests.broker.catalog.state_world import DAY_US, SETTINGS, Row, StateWorld, current

KEYS = st.sampled_from([b"a", b"b", b"c", b"d", b""])
ROWS = st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=3)), min_size=1, max_size=6)


@settings(max_examples=25, deadline=None)
@given(st.lists(ROWS, max_size=8), st.lists(ROWS, max_size=3))
def test_the_state_is_what_a_dict_holds_and_the_stream_follows_it(
    before: list[list[Row]], after: list[list[Row]]
) -> None:
    world = StateWorld()
    for rows in before:
        world.store(*rows)
    reader = world.subscribe("s", "state")
    assert reader.get() == current(world.rows)
    end = len(world.rows)
    for rows in after:
        world.store(*rows)
    assert reader.get() == [(entry, *row) for entry, row in enumerate(world.rows) if entry >= end]


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_compaction_changes_neither_the_state_nor_what_anybody_is_owed(data: st.DataObject) -> None:
    world = StateWorld()
    slow, acked = world.subscribe("slow"), EntrySet()
    for _ in range(data.draw(st.integers(1, 10))):
        world.store(*data.draw(ROWS))
    for entry in data.draw(st.sets(st.integers(0, len(world.rows) - 1))):
        slow.settle(entry)
        acked.add(entry, entry + 1)
    slow.leave()
    for _ in range(data.draw(st.integers(1, 3))):
        world.compact()
        world.store(*data.draw(ROWS))
    if data.draw(st.booleans()):
        world.restart()
    assert world.read("fresh", "state") == current(world.rows)
    owed = [(entry, *row) for entry, row in enumerate(world.rows) if entry not in acked]
    assert sorted(world.read("slow")) == owed
    for segment in range(len(world.segments)):
        assert world.send_again(segment).outcome == "duplicate"


def test_superseded_rows_are_removed_from_closed_files_and_counted() -> None:
    world = StateWorld()
    for number in range(60):
        world.store((b"k%d" % (number % 3), b"v" * 100), (b"once %d" % number, b"x"))
    before = world.info().shard_list[0]
    assert world.compact() == 57
    after = world.info().shard_list[0]
    assert after.compacted == 57 and after.bytes < before.bytes - 57 * 100
    assert (after.entry_first, after.entry_next) == (0, 120)
    assert world.read("s", "state") == current(world.rows)
    assert world.read("all") == current(world.rows), "who begins at the first entry gets what is left"
    assert world.subscription("all").compacted == 57
    assert world.subscription("all").lost == 0


def test_small_files_become_one_and_are_compacted_again() -> None:
    world = StateWorld()
    for round_ in range(4):
        for number in range(40):
            world.store((b"k%d" % (number % 3), b"%d" % round_ * 60))
        world.compact()
    assert len(world.log_files()) == 2, "one for all that is old, and the one being written"
    assert world.compact() == 0
    world.restart()
    assert len(world.log_files()) == 2
    assert world.read("s", "state") == current(world.rows)
    assert world.info().shard_list[0].compacted == 157


def test_a_subscription_that_owes_old_entries_gets_them_after_compaction() -> None:
    world = StateWorld()
    slow = world.subscribe("slow")
    for number in range(30):
        world.store((b"k", b"%d" % number * 50))
    slow.get()
    slow.settle(*range(10, 30))
    slow.leave()
    assert world.compact() == 19, "the ten it owes stay, and the last"
    world.restart()
    assert [got[0] for got in world.read("slow")] == list(range(10))
    assert world.read("s", "state") == current(world.rows)


def test_parked_entries_are_owed_until_they_are_offered_again() -> None:
    world = StateWorld()
    reader = world.subscribe("s")
    for number in range(4):
        world.store((b"k", b"%d" % number))
    reader.get()
    reader.settle(*range(4))
    subscription = world.shell.core.stores.subscriptions.get(world.uuid, "s")
    assert subscription is not None
    subscription.cursors[0].dead.add(1, 2)
    assert world.compact() == 2


def test_a_delete_is_kept_for_its_time_and_until_nothing_is_left_to_delete() -> None:
    world = StateWorld(tombstone_ttl=DAY_US / 1e6)
    world.store((b"k", b"value"))
    world.store((b"other", b"value"), (b"k", None))
    assert world.compact() == 1
    assert world.compact() == 0, "it is young"
    world.shell.wait(2 * DAY_US)
    assert world.compact() == 1
    assert world.read("s", "state") == [(1, b"other", b"value")]


def test_an_old_delete_does_not_bring_back_what_a_subscription_still_owes() -> None:
    world = StateWorld(tombstone_ttl=0.0)
    slow = world.subscribe("slow")
    world.store((b"k", b"value"))
    world.store((b"k", None))
    slow.get()
    slow.settle(1)
    world.shell.wait(DAY_US)
    assert world.compact() == 0, "without the delete the value would be the latest again"
    assert world.read("s", "state") == []
    slow.settle(0)
    assert world.compact() == 1
    assert world.read("s2", "state") == []
    assert world.compact() == 1, "now it is alone"
    assert world.read("s3", "state") == []


def test_a_subscription_made_while_files_are_rewritten_gets_all_that_it_was_promised() -> None:
    found = set()
    for steps in range(9):
        world = StateWorld()
        for number in range(20):
            world.store((b"k", b"%d" % number * 50))
        world.shell.connect().send(Request(1, CompactTopic("t")))
        for _ in range(steps):
            if world.shell.pending:
                world.shell.work()
        got = world.read("late")
        assert len(got) + world.subscription("late").compacted == 20
        world.restart()
        assert world.read("late") == got, "nobody takes from it what it was to get"
        found.add(len(got))
    assert found == {1, 20}, "some came before the files were replaced, some after"


def test_a_shard_is_compacted_by_itself_when_enough_is_new() -> None:
    world = StateWorld(compact_share=0.5)
    for number in range(40):
        world.store((b"k%d" % (number % 3), b"v" * 100))
    world.shell.wait(6_000_000)
    world.shell.work_all()
    shard = world.info().shard_list[0]
    assert shard.compacted >= 30
    assert world.shell.core.context.counters["compactions"] == 1
    world.shell.wait(6_000_000)
    world.shell.work_all()
    assert world.shell.core.context.counters["compactions"] == 1, "nothing is new"


def test_a_row_without_a_key_is_refused_with_its_place_and_the_next_segment_is_taken() -> None:
    world = StateWorld()
    world.segments.append([(b"a", b"1"), (None, b"2")])  # type: ignore[list-item]
    refused = world.send_again(0)
    assert (refused.outcome, refused.code) == ("rejected", "key-missing")
    assert "row 1 of 2" in refused.message
    world.store((b"b", b"1"))


def test_a_row_without_a_value_is_refused_by_a_topic_that_is_no_state_topic() -> None:
    world = StateWorld()
    plain = world.client.request(CreateTopic("plain"))
    world.uuid = plain["uuid"]
    world.segments.append([(b"a", b"1"), (b"a", None)])
    refused: AckItem = world.send_again(0)
    assert (refused.outcome, refused.code) == ("rejected", "value-missing")


def test_a_topic_is_a_state_topic_for_its_life() -> None:
    world = StateWorld()
    assert world.info().state
    with pytest.raises(BadSetting, match="fixed"):
        world.client.request(ChangeSettings("topic", "t", {"state": False}))
    with pytest.raises(BadSetting, match="fixed"):
        world.client.request(ChangeSettings("topic", "t", {}, ["state"]))
    with pytest.raises(BadSetting, match="cannot be set at a tenant"):
        world.client.request(ChangeSettings("tenant", "default", {"state": True}))
    with pytest.raises(TopicExists, match="state topic"):
        world.client.request(CreateTopic("t", exist_ok=True, settings={"state": False}))
    world.restart()
    assert world.info().state


def test_a_typed_state_topic_has_columns_that_take_nulls() -> None:
    strict = encode_schema(pa.schema([pa.field("x", pa.int64(), nullable=False)]))
    world = StateWorld()
    with pytest.raises(SchemaMismatch, match="'x' takes no nulls"):
        world.client.request(CreateTopic("typed", schema=strict, settings={"state": True}))
    loose = encode_schema(pa.schema([pa.field("x", pa.int64())]))
    made = read_result(
        world.client.request(CreateTopic("typed", schema=loose, settings={"state": True})), TopicInfo
    )
    assert (made.state, made.schema_version) == (True, 1)


def test_beginning_with_the_state_needs_a_state_topic_and_a_new_subscription() -> None:
    world = StateWorld()
    world.client.request(CreateTopic("plain"))
    with pytest.raises(BadRequest, match="no state topic"):
        world.client.request(CreateSubscription("plain", "s", start="state"))
    world.client.request(CreateSubscription("t", "s", start="state"))
    with pytest.raises(BadRequest, match="when it is created"):
        world.client.request(SeekSubscription("t", "s", "state"))


def test_a_subscription_set_back_to_the_beginning_gets_the_remaining_rows() -> None:
    world = StateWorld()
    for number in range(20):
        world.store((b"k%d" % (number % 2), b"%d" % number * 50))
    reader = world.subscribe("s")
    reader.get()
    reader.settle(*range(20))
    reader.leave()
    world.compact()
    world.client.request(SeekSubscription("t", "s", "earliest"))
    assert world.read("s") == current(world.rows)
    world.restart()
    assert world.read("s") == current(world.rows)


def test_max_bytes_drops_compacted_files_too() -> None:
    world = StateWorld(max_bytes=4000)
    for number in range(30):
        world.store((b"once %d" % number, b"v" * 50), (b"k", b"v" * 50))
    world.compact()
    for number in range(60):
        world.store((b"later %d" % number, b"v" * 50))
    world.shell.wait(2_000_000)
    world.shell.wait(2_000_000)
    world.shell.work_all()
    shard = world.info().shard_list[0]
    assert shard.entry_first > 0 and shard.bytes < 6000
    kept = [got for got in current(world.rows) if got[0] >= shard.entry_first]
    assert world.read("s", "state") == kept
    world.restart()
    assert world.read("s2", "state") == kept


def test_many_keys_are_done_in_parts_that_fit_the_memory() -> None:
    small = msgspec.structs.replace(SETTINGS, limits=Limits(state_bytes=4000))
    world = StateWorld(settings=small)
    for number in range(40):
        world.store(*((b"key %d" % (number % 7 * 10 + row), b"%d" % number) for row in range(10)))
    assert world.read("s", "state") == current(world.rows)


@pytest.mark.parametrize("keep", ["none", "some", "all"])
def test_a_power_cut_leaves_the_old_files_or_the_new_one_and_never_both(keep: Keep) -> None:
    seen = set()
    for seed, steps in product(range(3), range(9)):
        world = StateWorld(seed)
        for number in range(40):
            world.store((b"k", b"%d" % number * 50))
        world.shell.connect().send(Request(1, CompactTopic("t")))
        for _ in range(steps):
            if world.shell.pending:
                world.shell.work()
        beside = len(world.log_files())
        world.restart(keep)
        compacted = sum(len(name) > len("0" * 20 + ".log") for name in world.log_files())
        seen.add((compacted, len(world.log_files()), beside > len(world.log_files())))
        assert world.read("s", "state") == current(world.rows)
    assert keep == "some" or (1, 2, True) in seen, "it came between the swap and the removal of the old files"
    assert {each[:2] for each in seen if each[0]} == {(1, 2)}


def test_a_compacted_file_with_a_damaged_list_is_read_for_the_removed_rows() -> None:
    world = StateWorld()
    for number in range(40):
        world.store((b"k%d" % (number % 3), b"%d" % number * 50), (b"once %d" % number, b"x"))
    gone = world.compact()
    world.shell.core.close()
    path = f"topics/{world.uuid.hex()}/00000/{world.log_files()[0]}"
    file = world.disk.open(path, writable=True)
    place = next(
        item.offset for item in scan(file) if isinstance(item, Found) and item.frame.type == FrameType.RECORD
    )
    file.write_at(place + 30, [b"\xaa"])
    file.sync()
    world.restart()
    assert world.info().shard_list[0].compacted == gone
    assert world.read("s", "state") == current(world.rows) == world.read("all")


def test_segments_without_rows_take_a_few_bytes_each_and_fewer_once_their_block_is_forgotten() -> None:
    world = StateWorld()
    for number in range(400):
        world.store((b"k", b"%d" % number))
    before = world.info().shard_list[0].bytes
    assert world.compact() == 399
    after = world.info().shard_list[0].bytes
    assert after < before / 8
    assert [world.send_again(segment).first_entry for segment in (0, 7, 398)] == [0, 7, 398]
    world.client.send(BlockEnd(world.block, {0: 400}))
    world.shell.work_all()
    for _ in range(5):
        world.shell.wait(2 * DAY_US)
    world.block, world.segments = b"another block   ", []
    for number in range(3):
        world.store((b"k", b"%d" % number))
    world.compact()
    account = 200  # what the ledger keeps of a block that was forgotten
    assert world.info().shard_list[0].bytes < after - 400 * 8 + account
    world.restart()
    assert world.info().shard_list[0].damaged == []
    assert world.read("s", "state") == current(world.rows)


def test_a_topic_deleted_while_it_is_read_or_compacted_leaves_nothing_behind() -> None:
    for steps in range(7):
        world = StateWorld()
        for number in range(20):
            world.store((b"k", b"%d" % number * 50))
        asker, starter, deleter = world.shell.connect(), world.shell.connect(), world.shell.connect()
        starter.send(Request(1, CreateSubscription("t", "s", start="state")))
        asker.send(Request(1, CompactTopic("t")))
        for _ in range(steps):
            if world.shell.pending:
                world.shell.work()
        deleter.request(DeleteTopic("t"))
        world.shell.work_all()
        assert world.disk.list("topics") == []
        for client in (asker, starter):
            assert len(client.take(Response)) + len(client.take(Error)) == 1, "everyone is answered"


def test_files_that_retention_drops_while_they_are_rewritten_are_no_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_rewrite, "STEP_BYTES", 500)
    refused = 0
    for steps in range(2, 16):
        world = StateWorld(hard_ttl=60.0)
        for number in range(40):
            world.store((b"k%d" % (number % 3), b"v" * 50))
        asker = world.shell.connect()
        asker.send(Request(1, CompactTopic("t")))
        for _ in range(steps):
            world.shell.work()
        for _ in range(3):
            world.shell.wait(61_000_000)
            world.shell.work(len(world.shell.pending) - 1)  # the drop comes before the next step
        world.shell.work_all()
        refused += bool(asker.take(Error))
        assert world.info().shard_list[0].entry_first > 0
        world.restart()
        assert world.info().shard_list[0].damaged == []
    assert refused == 0


def test_a_compaction_that_the_disk_fails_says_why_and_can_be_asked_for_again() -> None:
    world = StateWorld()
    for number in range(40):
        world.store((b"k", b"%d" % number * 50))
    world.disk.fail_next("rename", errno.ENOSPC, 9, "topics", after=2)  # those that close the last file go well
    with pytest.raises(StorageFailed, match="compacted: No space left"):
        world.compact()
    world.disk.fail_never()
    assert world.read("s", "state") == current(world.rows)
    assert world.compact() == 39


def test_too_many_compactions_at_a_time_are_refused_and_the_others_done() -> None:
    world = StateWorld()
    world.store((b"k", b"1"))
    world.store((b"k", b"2"))
    asker = world.shell.connect()
    asker.send(*(Request(number, CompactTopic("t")) for number in range(1, 101)))
    world.shell.work_all()
    codes = [refusal.code for refusal in asker.take(Error)]
    assert codes and set(codes) == {"limit"}
    assert len(asker.take(Response)) == 100 - len(codes)
    assert world.compact() == 0
