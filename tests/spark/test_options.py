"""The options of a source, and which are refused."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from headpond.model.errors import BadRequest, BadTopicName, HeadpondError
from headpond.spark.options import (
    BATCH_OPTIONS,
    COLUMNS,
    CONNECTION_OPTIONS,
    READING_OPTIONS,
    SOURCE_OPTIONS,
    STREAM_OPTIONS,
    TOPIC_OPTIONS,
    Option,
    options_table,
    read_source_options,
)
from headpond.spark.source.offset import TopicOffset, offset_json, read_offset
from tests.root import ROOT

FULL = "default/default/default/"


def test_options_have_defaults() -> None:
    options = read_source_options({"topic": "orders"})
    assert options.topics == (f"{FULL}orders",) and options.connection.url == "headpond://127.0.0.1:7411"
    assert (options.start, options.end, options.on_gap) == ("earliest", "latest", "fail")
    assert options.columns == COLUMNS and options.partitions_min == 1


def test_names_are_spelled_as_spark_users_do_and_in_any_case() -> None:
    given = {"TOPICS": "b, a", "MAXENTRIESPERTRIGGER": "5", "ongap": "Report", "minpartitions": "3"}
    options = read_source_options(given, streaming=True)
    assert options.topics == (f"{FULL}a", f"{FULL}b") and options.entries_max == 5
    assert (options.on_gap, options.partitions_min) == ("report", 3)
    assert read_source_options({"topic": "a", "columns": "value,key"}).columns == ("key", "value")


def test_places_are_words_entries_times_or_json() -> None:
    def start(text: str) -> object:
        return read_source_options({"topic": "orders", "start": text}).start

    assert start("LATEST") == "latest" and start("17") == 17
    assert start("2026-01-31T12:00:00") == datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert start("1790000000007ms") == datetime(2026, 9, 21, 14, 13, 20, 7000, tzinfo=UTC)
    assert start('{"0": "1790000000007ms"}') == {"": {0: start("1790000000007ms")}}
    assert start('{"0": 5, "1": "latest"}') == {"": {0: 5, 1: "latest"}}
    assert start('{"orders": {"0": "2026-01-31T12:00:00+00:00"}}') == {
        f"{FULL}orders": {0: datetime(2026, 1, 31, 12, tzinfo=UTC)}
    }


def test_some_shards_of_topics_may_be_assigned() -> None:
    options = read_source_options({"assign": '{"orders": [2, 0], "visits": [1]}'})
    assert options.topics == (f"{FULL}orders", f"{FULL}visits")
    assert [options.reads(f"{FULL}orders", shard) for shard in range(3)] == [True, False, True]
    assert read_source_options({"topic": "orders"}).reads(f"{FULL}orders", 7)


@pytest.mark.parametrize(
    ("given", "streaming", "words"),
    [
        ({"topic": "a", "assign": '{"a": [0]}'}, None, "topic and assign are both given"),
        ({"assign": "a"}, None, "does not name shards by topic"),
        ({"assign": "[0]"}, None, "does not name shards by topic"),
        ({"assign": "{}"}, None, "does not name shards by topic"),
        ({"assign": '{"a": []}'}, None, "does not name shards by topic"),
        ({"assign": '{"a": [-1]}'}, None, "does not name shards by topic"),
        ({"assign": '{"a": [0], "default/default/default/a": [1]}'}, None, "a topic twice"),
        ({"topic": "a", "startBeyondEnd": "earliest"}, None, "none of latest, error"),
        ({"topic": "a", "minEntriesPerTrigger": "5", "maxEntriesPerTrigger": "4"}, None, "is more than"),
        ({"topic": "a", "maxTriggerDelay": "5s"}, None, "minEntriesPerTrigger, and that is not given"),
        (
            {"topic": "a", "minEntriesPerTrigger": "5", "maxTriggerDelay": "soon"},
            None,
            "maxTriggerDelay",
        ),
        ({"topic": "a", "minEntriesPerTrigger": "5"}, False, "minEntriesPerTrigger is for streams"),
        ({}, None, "no topic"),
        ({"topic": "a", "topics": "b"}, None, "topic and topics are both given"),
        ({"topic": "a", "kafka.bootstrap.servers": "x"}, None, "'kafka.bootstrap.servers' is unknown"),
        ({"path": "orders"}, None, "a topic has no path, and 'orders' is given"),
        ({"topic": ""}, None, "topic is empty"),
        ({"topics": "a,a"}, None, "named twice"),
        ({"topicPattern": "("}, None, "is not a regular expression"),
        ({"topic": "a", "url": "http://x"}, None, "headpond://"),
        ({"topic": "a", "onGap": "ignore"}, None, "none of fail, report, skip"),
        ({"topic": "a", "minPartitions": "0"}, None, "above 0"),
        ({"topic": "a", "minPartitions": "10001"}, None, "10,001 is more than 10,000"),
        ({"topic": "a", "start": "50", "end": "10"}, False, "start = 50 is behind end = 10"),
        ({"topic": "a", "start": "2026-02-01", "end": "2026-01-01"}, False, "is behind end"),
        ({"topic": "a", "maxEntriesPerTrigger": "many"}, None, "above 0"),
        ({"topic": "a", "columns": "value,offset"}, None, "'offset' is none of"),
        ({"topic": "a", "columns": "value", "onGap": "report"}, None, "headers and entry"),
        ({"topic": "a", "start": "yesterday"}, None, "none of earliest"),
        ({"topic": "a", "start": '{"0": -1}'}, None, "-1 is none of"),
        ({"topic": "a", "start": '{"0": 1'}, None, "begins like JSON"),
        ({"topic": "a", "start": '{"0": 1, "b": {"0": 1}}'}, None, "neither shards nor topics"),
        ({"topics": "a,b", "start": '{"0": 1}'}, None, "which topic"),
        ({"topicPattern": "a.*", "start": '{"a": {"0": 1}}'}, None, "topics by name"),
        ({"topic": "a", "start": '{"a": {"0": 1}, "b": {"0": 1}}'}, None, "names topic b, which is not read"),
        ({"topic": "a", "filter": "key = 'a' and"}, None, "at character 14 of the filter"),
        ({"topic": "a", "end": "latest"}, True, "end is for batches"),
        ({"topic": "a", "subscription": "s"}, False, "subscription is for streams"),
        ({"topic": "a", "start": "latest"}, True, "needs a subscription"),
        ({"topic": "a", "start": "2999-01-01"}, True, "still to come"),
        ({"topic": "a", "start": '{"0": 5, "1": "latest"}'}, True, "needs a subscription"),
    ],
)
def test_contradicting_options_are_refused(given: dict[str, str], streaming: bool | None, words: str) -> None:
    with pytest.raises(HeadpondError) as refused:
        read_source_options(given, streaming=streaming)
    assert words in refused.value.message and refused.value.hint


def test_a_topic_name_that_cannot_be_is_refused() -> None:
    with pytest.raises(BadTopicName):
        read_source_options({"topics": "a,,b"})


def test_an_offset_reads_as_it_was_written_and_is_the_same_text_in_any_order() -> None:
    one = TopicOffset(bytes(16), (1, 2), (5, 6), (8, 9))
    two = TopicOffset(bytes(range(16)), (1,), (7,), (8,), (3,))
    written = offset_json({"b": two, "a": one})
    assert read_offset(written) == {"a": one, "b": two}
    assert str(written) == str(offset_json({"a": one, "b": two}))
    for bad in (
        {},
        {"version": 2, "topics": {}},
        {"version": 1, "topics": {"a": {"uuid": "x"}}},
        {"offset": 3},
    ):
        with pytest.raises(BadRequest, match="checkpoint"):
            read_offset(bad)


@pytest.mark.parametrize(
    "declared", [TOPIC_OPTIONS, READING_OPTIONS, BATCH_OPTIONS, STREAM_OPTIONS, CONNECTION_OPTIONS]
)
def test_the_page_lists_the_options_as_they_are_declared(declared: tuple[Option, ...]) -> None:
    page = ROOT / "docs" / "spark_source.md"
    assert set(declared) <= set(SOURCE_OPTIONS) and options_table(declared) in page.read_text()
