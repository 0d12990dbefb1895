"""The node's answers to segments and snapshots of a typed topic."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pytest

from headpond.broker.catalog.changes import TopicCreated
from headpond.broker.catalog.topics import Catalog
from headpond.broker.settings import Limits
from headpond.model.errors import LimitReached
from headpond.storage.memory_disk import MemoryDisk
from headpond.wire.connection import ConnectionFault
from headpond.wire.control.catalog import AlterTopic, OpenTopic, TopicInfo
from headpond.wire.control.codec import read_result
from headpond.wire.control.producing import AckItem, BlockEnd
from headpond.wire.frame import FrameType, encode
from headpond.wire.plain.columns import rows_to_batch
from headpond.wire.plain.segment import encode_plain
from headpond.wire.record import RECORD_HEADER_BYTES
from headpond.wire.title import Predecessor, Title, encode_title
from headpond.wire.typed.record import decode_typed_record, version_of
from headpond.wire.typed.schema import encode_schema, fit_messages
from headpond.wire.typed.versions import SchemaVersions
from tests.broker.ingest.typed_sender import (
    BLOCK,
    SCHEMA,
    TypedSender,
    row,
    segment_frame,
    snapshot_frame,
)
from tests.fire.core_shell import SMALL_FILES, CoreShell

OTHER = b"o" * 16


def shell(**limits: int) -> CoreShell:
    settings = msgspec.structs.replace(SMALL_FILES, limits=Limits(**limits))
    return CoreShell(MemoryDisk(), seed=1, settings=settings)


def stored(it: CoreShell, shard: int = 0) -> tuple[list[Any], list[int]]:
    """The values in the log, in the newest schema, and the schema version of each record."""
    (topic,) = [topic for topic in it.core.stores.catalog if topic.schemas is not None]
    assert isinstance(topic.schemas, SchemaVersions)
    segments = [
        b"".join(record.parts)[11 + RECORD_HEADER_BYTES : -4]
        for record in topic.shards[shard].log.read(0, 2**30).records
    ]
    batches = [
        fit_messages(decode_typed_record(each, topic.schemas), topic.schemas.newest) for each in segments
    ]
    return [value for batch in batches for value in batch.column("value").to_pylist()], [
        version_of(each) for each in segments
    ]


def codes(answers: list[AckItem]) -> list[str]:
    return [answer.code or answer.outcome for answer in answers]


# --- in order -----------------------------------------------------------------------------------------


def test_rows_are_stored_as_they_came() -> None:
    sender = TypedSender(shell())
    first, second = [row(1, "a"), row(2, "b")], [row(3, "a"), {"at": 4, "value": None, "host": None}]
    assert sender.send(first) == AckItem(0, "stored", 0)
    assert sender.send(second, key=b"k", id="i", headers=[("h", "t")]) == AckItem(1, "stored", 2)
    assert stored(sender.shell) == ([*first, *second], [1, 1])


def test_a_record_can_be_read_without_those_before_it() -> None:
    sender = TypedSender(shell())
    sender.send([row(1, "long-lived-word")])
    sender.send([row(2, "long-lived-word")])
    (topic,) = sender.shell.core.stores.catalog
    assert topic.schemas is not None
    (record,) = topic.shards[0].log.read(1, 2**20).records
    batch = decode_typed_record(b"".join(record.parts)[11 + RECORD_HEADER_BYTES : -4], topic.schemas)
    assert batch.column("value").to_pylist() == [row(2, "long-lived-word")]


def test_numbers_that_are_unlike_themselves_are_stored_too() -> None:
    schema = pa.schema([("x", pa.float64())])
    sender = TypedSender(shell(), schema)
    assert sender.send([{"x": float("nan")}, {"x": -0.0}]).outcome == "stored"


def test_the_topic_says_what_its_columns_are() -> None:
    sender = TypedSender(shell())
    info = read_result(sender.client.request(OpenTopic("m")), TopicInfo)
    assert (info.schema, info.schema_version, info.schemas) == (encode_schema(SCHEMA), 1, [info.schema])


# --- snapshots ----------------------------------------------------------------------------------------


def test_on_a_new_connection_the_sender_is_asked_for_a_snapshot() -> None:
    sender = TypedSender(shell())
    sender.send([row(1, "a")])
    sender.reconnect()
    (answer,) = sender.ask(sender.encode([row(2, "b")]))
    assert (answer.outcome, answer.code) == ("rejected", "snapshot")
    assert sender.entries() == 1, "nothing of it was kept"
    answers = sender.ask(sender.snapshot(1), sender.again(1))
    assert answers == [AckItem(1, "stored", 1)]
    assert stored(sender.shell)[0] == [row(1, "a"), row(2, "b")]


def test_a_sender_that_begins_again_at_segment_0_needs_no_snapshot() -> None:
    sender = TypedSender(shell())
    sender.send([row(1, "a")])
    sender.send([row(2, "b")])
    sender.reconnect()
    answers = sender.ask(sender.again(0), sender.again(1), sender.encode([row(3, "a")]))
    assert codes(answers) == ["duplicate", "duplicate", "stored"]
    assert stored(sender.shell)[0] == [row(1, "a"), row(2, "b"), row(3, "a")]


def test_segments_admitted_before_are_read_for_what_they_teach() -> None:
    sender = TypedSender(shell())
    for number in range(4):
        sender.send([row(number, f"host-{number}")])
    sender.reconnect()
    answers = sender.ask(
        sender.snapshot(2), sender.again(2), sender.again(3), sender.encode([row(9, "host-3")])
    )
    assert codes(answers) == ["duplicate", "duplicate", "stored"]
    assert stored(sender.shell)[0][-1] == row(9, "host-3")


def test_a_repeat_with_other_content_is_a_conflict() -> None:
    sender = TypedSender(shell())
    sender.send([row(1)])
    other = TypedSender(sender.shell)
    (answer,) = other.ask(other.encode([row(2)]))
    assert (answer.outcome, answer.code) == ("rejected", "conflict")


def test_a_snapshot_declares_the_hole_before_it() -> None:
    sender = TypedSender(shell())
    sender.send([row(0)])
    lost = [sender.encode([row(number, f"h{number}")]) for number in (1, 2)]
    answers = sender.ask(sender.snapshot(3), sender.encode([row(3, "h1")]))
    assert answers == [AckItem(3, "stored", 1)]
    assert sender.counters["segments_in_holes"] == 2
    assert stored(sender.shell)[0] == [row(0), row(3, "h1")]
    late = TypedSender(sender.shell)
    late.encoder, late.redundants, late.bodies = sender.encoder, sender.redundants, sender.bodies
    assert codes(late.ask(late.snapshot(1), *lost)) == ["stored", "stored"]
    assert sender.counters["segments_late"] == 2


def test_a_segment_beyond_the_next_is_a_gap_and_leaves_the_decoder_alone() -> None:
    sender = TypedSender(shell())
    sender.send([row(0, "a")])
    skipped = sender.encode([row(1, "b")])
    (gap,) = sender.ask(sender.encode([row(2, "c")]))
    assert (gap.code, gap.expected) == ("gap", 1)
    assert codes(sender.ask(skipped, sender.again(2))) == ["stored", "stored"]


def test_a_failed_write_makes_the_sender_come_again_with_a_snapshot() -> None:
    disk = MemoryDisk()
    sender = TypedSender(CoreShell(disk, seed=1))
    sender.send([row(0, "a")])
    disk.fail_next("sync", 5, path_prefix="topics")
    assert codes(sender.ask(sender.encode([row(1, "b")]))) == ["storage-failed"]
    assert codes(sender.ask(sender.again(1))) == ["snapshot"], "the decoder has gone on, the log has not"
    sender.client.send(sender.snapshot(1), sender.again(1))
    sender.shell.wait(1_000_000)
    assert codes(sender.ask()) == ["stored"]
    assert stored(sender.shell)[0] == [row(0, "a"), row(1, "b")]


# --- what cannot be read ------------------------------------------------------------------------------


def test_an_unreadable_segment_is_refused_for_good_and_the_next_ones_are_stored() -> None:
    sender = TypedSender(shell())
    sender.send([row(0, "a")])
    sender.encode([row(1, "a")])
    broken = segment_frame(b"\x03not a segment", 1)
    assert codes(sender.ask(broken)) == ["bad-segment"]
    assert codes(sender.ask(sender.encode([row(2, "a")]))) == ["stored"], "the broken one had taught nothing"
    assert codes(sender.ask(broken)) == ["bad-segment"], "its number is used"
    assert sender.counters["segments_refused"] == 1
    assert stored(sender.shell)[0] == [row(0, "a"), row(2, "a")]


def test_behind_a_segment_that_may_have_taught_something_a_snapshot_is_asked_for() -> None:
    sender = TypedSender(shell())
    sender.send([row(0, "a")])
    sender.encode([row(1, "b")])
    assert codes(sender.ask(segment_frame(b"\x03rubbish", 1))) == ["bad-segment"]
    assert codes(sender.ask(sender.encode([row(2, "b")]))) == ["snapshot"]
    assert codes(sender.ask(sender.snapshot(2), sender.again(2))) == ["stored"]
    assert stored(sender.shell)[0] == [row(0, "a"), row(2, "b")]


def test_the_answer_to_the_next_segment_says_that_a_snapshot_was_unreadable() -> None:
    sender = TypedSender(shell())
    sender.send([row(0, "a")])
    (answer,) = sender.ask(snapshot_frame(b"no snapshot", 1), sender.encode([row(1)]))
    assert answer.code == "snapshot"
    assert "cannot be used" in answer.message
    assert codes(sender.ask(sender.snapshot(1), sender.again(1))) == ["stored"]


def test_a_snapshot_of_another_schema_is_not_taken() -> None:
    it = shell()
    sender = TypedSender(it)
    sender.send([row(0)])
    foreign = TypedSender(shell(), pa.schema([("x", pa.string())]))
    foreign.encode([{"x": "y"}])
    (answer,) = sender.ask(foreign.snapshot(1), sender.encode([row(1)]))
    assert answer.code == "snapshot"


def test_a_snapshot_where_it_is_of_no_use_is_passed_over() -> None:
    it = shell()
    sender = TypedSender(it)
    plain = it.connect()
    info = read_result(plain.request(OpenTopic("plain", create=True)), TopicInfo)
    plain.send(encode(FrameType.TITLE, encode_title(OTHER, 0, Title(info.topic, info.uuid))))
    plain.send(snapshot_frame(b"x", 7))
    sender.client.send(snapshot_frame(b"x", 7, shard=9))
    assert sender.counters["snapshots_ignored"] == 2
    assert not plain.take(ConnectionFault)


def test_a_snapshot_before_any_title_ends_the_connection() -> None:
    it = shell()
    client = it.connect()
    client.send(snapshot_frame(b"x", 0))
    assert client.take(ConnectionFault)[0].error.code == "protocol"


# --- schemas ------------------------------------------------------------------------------------------


WIDER = pa.schema(
    [pa.field("at", pa.int64(), False), ("value", pa.int64()), ("host", pa.string()), ("x", pa.float64())]
)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        pytest.param(
            pa.schema([pa.field("at", pa.int16(), False), ("value", pa.int8())]),
            {"at": 1, "value": 2, "host": None},
            id="narrower numbers and a column left out",
        ),
        pytest.param(
            pa.schema([("host", pa.string()), pa.field("at", pa.uint32(), False)]),
            {"at": 1, "value": None, "host": "h"},
            id="another order",
        ),
        pytest.param(
            pa.schema([pa.field("at", pa.int64(), False), pa.field("host", pa.string(), False)]),
            {"at": 1, "value": None, "host": "h"},
            id="no nulls where there might be",
        ),
    ],
)
def test_a_block_of_a_schema_that_fits_is_stored_in_the_topics(
    schema: pa.Schema, value: dict[str, Any]
) -> None:
    sender = TypedSender(shell(), schema, topic_schema=SCHEMA)
    answer = sender.send([{"at": 1, "value": 2, "host": "h"}])
    assert (answer.outcome, stored(sender.shell)) == ("stored", ([value], [1]))


@pytest.mark.parametrize(
    ("schema", "column"),
    [
        (pa.schema([pa.field("at", pa.int64(), False), ("value", pa.int64())]), "value"),
        (pa.schema([pa.field("at", pa.int64(), False), ("value", pa.float64())]), "value"),
        (pa.schema([pa.field("at", pa.int64(), False), ("extra", pa.int32())]), "extra"),
        (pa.schema([("at", pa.int64())]), "at"),
        (pa.schema([("host", pa.string())]), "at"),
        (pa.schema([pa.field("at", pa.int64(), False), ("host", pa.binary())]), "host"),
    ],
)
def test_a_block_of_a_schema_that_does_not_fit_is_refused_and_the_column_named(
    schema: pa.Schema, column: str
) -> None:
    sender = TypedSender(shell(), schema, topic_schema=SCHEMA)
    answer = sender.send([{"at": 1, "value": 2, "host": "h", "extra": 3}])
    assert (answer.outcome, answer.code) == ("rejected", "schema-mismatch")
    assert f"column {column!r}" in answer.message
    assert sender.entries() == 0


def test_segments_of_a_refused_block_use_up_their_numbers_so_that_the_next_block_is_not_stuck() -> None:
    it = shell()
    wrong = TypedSender(it, pa.schema([("x", pa.string())]), topic_schema=SCHEMA)
    for number in range(2):
        assert wrong.send([{"x": "y"}]).code == "schema-mismatch", number
    right = TypedSender(it, block=OTHER, predecessor=Predecessor(BLOCK, {0: 2}))
    assert right.send([row(1)]).outcome == "stored"


def test_plain_rows_are_refused_by_a_typed_topic_and_typed_rows_by_a_plain_one() -> None:
    it = shell()
    sender = TypedSender(it, titled=b"")
    body = encode_plain(rows_to_batch([b"x"], None, None, None, [1]))
    (answer,) = sender.ask(segment_frame(body, 0))
    assert (answer.code, "is typed" in answer.message) == ("schema-mismatch", True)
    client = it.connect()
    info = read_result(client.request(OpenTopic("plain", create=True)), TopicInfo)
    title = Title(info.topic, info.uuid, schema=encode_schema(SCHEMA))
    sender.client.send(encode(FrameType.TITLE, encode_title(OTHER, 0, title)))
    (answer,) = sender.ask(sender.encode([row(1)]))
    assert (answer.code, "is plain" in answer.message) == ("schema-mismatch", True)


def test_a_title_whose_schema_is_rubbish_refuses_its_block_alone() -> None:
    it = shell()
    sender = TypedSender(it, titled=b"rubbish")
    assert sender.send([row(1)]).code == "schema-mismatch"
    assert TypedSender(it, block=OTHER).send([row(1)]).outcome == "stored"


# --- evolution ----------------------------------------------------------------------------------------


def test_running_producers_continue_when_the_schema_evolves() -> None:
    it = shell()
    old = TypedSender(it)
    old.send([row(1, "a")])
    info = read_result(old.client.request(AlterTopic("m", encode_schema(WIDER))), TopicInfo)
    assert (info.schema_version, len(info.schemas)) == (2, 2)
    assert old.send([row(2, "b")]).outcome == "stored"
    new = TypedSender(it, WIDER, block=OTHER)
    assert new.send([{"at": 3, "value": 2**40, "host": "c", "x": 0.5}]).outcome == "stored"
    assert stored(it) == (
        [
            {"at": 1, "value": 1, "host": "a", "x": None},
            {"at": 2, "value": 2, "host": "b", "x": None},
            {"at": 3, "value": 2**40, "host": "c", "x": 0.5},
        ],
        [1, 2, 2],
    )


def test_a_block_that_was_refused_is_taken_once_the_topic_has_its_columns() -> None:
    it = shell()
    sender = TypedSender(it, WIDER, topic_schema=SCHEMA)
    assert sender.send([{"at": 1, "value": 1, "x": 1.0}]).code == "schema-mismatch"
    sender.client.request(AlterTopic("m", encode_schema(WIDER)))
    sender.client.send(sender.title)
    answers = sender.ask(sender.snapshot(1), sender.encode([{"at": 2, "value": 2, "x": 2.0}]))
    assert codes(answers) == ["stored"]


def test_the_schemas_and_their_rows_are_there_after_a_restart() -> None:
    disk = MemoryDisk()
    it = CoreShell(disk, seed=1)
    sender = TypedSender(it)
    sender.send([row(1, "a")])
    sender.client.request(AlterTopic("m", encode_schema(WIDER)))
    disk.crash()
    again = CoreShell(disk, seed=2)
    assert stored(again) == ([{"at": 1, "value": 1, "host": "a", "x": None}], [1])
    sender = TypedSender(again, WIDER, block=OTHER)
    assert sender.info.schema_version == 2
    sender.send([{"at": 2, "value": 2, "host": "b", "x": 1.0}])
    assert stored(again)[1] == [1, 2]


def test_every_version_survives_a_catalog_that_was_compacted() -> None:
    disk = MemoryDisk()
    sender = TypedSender(CoreShell(disk, seed=1))
    schema = SCHEMA
    for number in range(8):
        schema = pa.schema([*schema, (f"added-{number}", pa.int8())])
        sender.client.request(AlterTopic("m", encode_schema(schema)))
    assert disk.list("catalog") != ["00000001.journal"], "it was compacted"
    disk.crash()
    info = TypedSender(CoreShell(disk, seed=2), schema).info
    assert (info.schema_version, len(set(info.schemas))) == (9, 9)


def test_a_topic_has_only_so_many_versions() -> None:
    sender = TypedSender(shell())
    schema = pa.schema([*SCHEMA, *((f"a-column-with-a-name-{number}", pa.int8()) for number in range(300))])
    with pytest.raises(LimitReached, match="versions"):
        for number in range(40):
            schema = pa.schema([*schema, (f"added-{number}", pa.int8())])
            sender.client.request(AlterTopic("m", encode_schema(schema)))
    assert sender.send([row(1)]).outcome == "stored"


def test_a_topic_that_an_earlier_version_wrote_down_is_plain() -> None:
    body = msgspec.msgpack.encode([1, "default/default/default/old", OTHER, 2, 5, "sync"])
    change = Catalog.decoder.decode(body)
    assert change == TopicCreated("default/default/default/old", OTHER, 2, 5, "sync", None)


# --- memory -------------------------------------------------------------------------------------------


def test_the_decoder_used_longest_ago_goes_first_and_its_sender_is_asked_for_a_snapshot() -> None:
    it = shell(connection_decoder_bytes=100_000)
    one = TypedSender(it, block=BLOCK)
    two, three = TypedSender(it, block=OTHER), TypedSender(it, block=b"t" * 16)
    four = TypedSender(it, block=b"f" * 16)
    for sender in (two, three, four):
        sender.client = one.client
    for sender in (one, two, three, four):
        assert codes(sender.ask(sender.title, sender.encode([row(1)]))) == ["stored"]
    assert one.counters["decoders_dropped"] >= 1
    assert codes(four.ask(four.title, four.encode([row(2)]))) == ["stored"]
    assert codes(one.ask(one.title, one.encode([row(2)]))) == ["snapshot"]
    assert codes(one.ask(one.snapshot(1), one.again(1))) == ["stored"]


def test_one_connections_decoders_may_push_out_anothers_only_at_the_bound_of_all() -> None:
    it = shell(decoder_bytes=100_000)
    senders = [TypedSender(it, block=bytes([number]) * 16) for number in range(1, 6)]
    for sender in senders:
        assert sender.send([row(1)]).outcome == "stored"
    assert codes(senders[0].ask(senders[0].encode([row(2)]))) == ["snapshot"]
    assert codes(senders[-1].ask(senders[-1].encode([row(2)]))) == ["stored"]


def test_a_block_that_ended_and_a_connection_that_closed_hold_nothing() -> None:
    it = shell()
    sender = TypedSender(it)
    sender.send([row(1)])
    decoders = it.core._producing._typed.decoders
    assert (len(decoders), decoders.bytes > 0) == (1, True)
    sender.client.send(BlockEnd(BLOCK, {0: 1}))
    assert (len(decoders), decoders.bytes) == (0, 0)
    other = TypedSender(it, block=OTHER)
    other.send([row(1)])
    it.core.disconnected(2)
    assert (len(decoders), decoders.bytes) == (0, 0)


def test_rows_that_would_unfold_beyond_the_bound_are_refused_before_they_do() -> None:
    schema = pa.schema([pa.field("flag", pa.bool_(), False), ("wide", pa.binary(60_000))])
    sender = TypedSender(shell(), pa.schema([pa.field("flag", pa.bool_(), False)]), topic_schema=schema)
    answer = sender.send([{"flag": True}] * 16_000)
    assert (answer.outcome, answer.code) == ("rejected", "segment-too-large")
    assert pa.default_memory_pool().max_memory() < 500 * 2**20, "it was told before it was allocated"
    assert sender.send([{"flag": True}]).outcome == "stored"


# --- a catalog that is lost ---------------------------------------------------------------------------


@pytest.mark.parametrize("restarted", [False, True])
def test_a_typed_topic_is_taken_back_with_all_its_schemas_when_the_catalog_is_gone(restarted: bool) -> None:
    disk = MemoryDisk()
    it = CoreShell(disk, seed=1)
    sender = TypedSender(it)
    sender.send([row(1, "a")])
    sender.client.request(AlterTopic("m", encode_schema(WIDER)))
    if restarted:
        disk.crash()
        it = CoreShell(disk, seed=2)
        sender = TypedSender(it, block=OTHER)
    sender.send([row(2, "b")])
    disk.crash()
    disk.remove_tree("catalog")
    again = CoreShell(disk, seed=3)
    assert any("bring it back" in line for line in again.core.stores.recovered)
    values = [{"at": 1, "value": 1, "host": "a", "x": None}, {"at": 2, "value": 2, "host": "b", "x": None}]
    assert stored(again) == (values, [1, 2])
    assert TypedSender(again, WIDER, block=b"n" * 16).info.schema_version == 2
