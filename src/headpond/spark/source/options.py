"""The options of a source, read and checked before it asks a node.

The names are those of the command line and of the client, in Spark's spelling. An option that is unknown or
empty, or that contradicts another, is an error that names it; nothing is ignored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from headpond.model.bounds import ENTRY_MAX, NUMBER_MAX, SECONDS_MAX, SHARDS_MAX
from headpond.model.errors import BadRequest, BadSetting, HeadpondError
from headpond.model.names import TopicName
from headpond.model.topic_settings import Setting, SettingKind
from headpond.spark.connection import CONNECTION_OPTIONS, NodeConnection, read_connection
from headpond.spark.options import Option, given_options, whole_number, word_of
from headpond.wire.filter import Filter

EARLIEST, LATEST = "earliest", "latest"
ON_GAP = ("fail", "report", "skip")
COLUMNS = (
    "key",
    "value",
    "id",
    "headers",
    "topic",
    "shard",
    "entry",
    "sent_at",
    "stored_at",
    "identity",
    "producer",
    "node",
)
"""The columns of a DataFrame, in order."""
PARTITIONS_MAX = 10_000
"""The limit of ``minPartitions``; each is a task, and a connection while it runs."""
DELAY_MAX = "15m"
_ASSIGN_HINT = 'For example {"orders": [0, 2]}.'
_MILLISECONDS = re.compile(r"(\d{1,14})ms")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIME = "`2026-01-31T12:00:00+00:00`"
TOPIC_OPTIONS = (
    Option("topic", "", "a topic; give one of `topic`, `topics`, `topicPattern` and `assign`"),
    Option("topics", "", "topics, separated by commas"),
    Option(
        "topicPattern",
        "",
        "a regular expression that matches the whole name of a topic, as short as it is written. "
        "At most 1,024 topics match",
    ),
    Option("assign", "", 'some shards of topics: `{"orders": [0, 2]}`; the others are not read'),
    Option(
        "start",
        "`earliest`",
        f"`earliest`, `latest`, an entry, a time ({_TIME}, or milliseconds since 1970: `1790000000000ms`), "
        'or JSON by shard: `{"0": 100, "1": "latest"}`, `{"orders": {"0": 100}}`',
    ),
    Option(
        "startBeyondEnd",
        "`latest`",
        "if nothing was stored at or after the time of `start`: `latest` begins with what comes next, "
        "`error` refuses to start",
    ),
)
BATCH_OPTIONS = (Option("end", "`latest`", "in the same forms; the named entry is the first that is not read"),)
STREAM_OPTIONS = (
    Option("subscription", "none", "[keeps the query's place](#streams) at the node"),
    Option(
        "maxEntriesPerTrigger",
        "none",
        "entries in one batch, shared by the shards in proportion to their backlogs",
    ),
    Option("minEntriesPerTrigger", "1", "a batch waits for so many entries; not with `Trigger.AvailableNow`"),
    Option(
        "maxTriggerDelay", "`15m`", "with `minEntriesPerTrigger`: an entry waits no longer than this for others"
    ),
    Option("maxBytesPerTrigger", "none", "bytes in one batch; an entry counts with the average of its shard"),
)
READING_OPTIONS = (
    Option("minPartitions", "1", f"at least so many tasks, up to {PARTITIONS_MAX:,}"),
    Option("taskPerShard", "`false`", "`true`: each shard has its own task, however little there is to read"),
    Option("onGap", "`fail`", "`fail`, `report` or `skip` [missing entries](#what-is-missing)"),
    Option("columns", "all", "the columns to read, separated by commas; the node does not send the others"),
    Option("filter", "none", "the [rows that are wanted](#filters); the node does not send the others"),
)
SOURCE_OPTIONS = (*CONNECTION_OPTIONS, *TOPIC_OPTIONS, *READING_OPTIONS, *BATCH_OPTIONS, *STREAM_OPTIONS)

Place = str | int | datetime
"""earliest, latest, an entry, or a time."""
Places = Place | dict[str, dict[int, Place]]
"""The same for every shard; or by topic (an empty name: the only one) and shard."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    connection: NodeConnection
    topics: tuple[str, ...]
    """Full names; empty with a pattern."""
    pattern: str | None
    assigned: Mapping[str, frozenset[int]]
    """By topic the shards to read; empty: all of them."""
    start: Places
    start_beyond_end: str
    end: Places
    subscription: str | None
    entries_max: int | None
    entries_min: int
    delay_s_max: float
    """How long a batch may wait for ``entries_min``."""
    bytes_max: int | None
    partitions_min: int
    task_per_shard: bool
    on_gap: str
    columns: tuple[str, ...]
    filter: str

    def reads(self, topic: str, shard: int) -> bool:
        return not self.assigned or shard in self.assigned[topic]

    @property
    def reads_as(self) -> str:
        """The subscription in whose name entries are read, which a token may be bound to."""
        return self.subscription or ""


def read_options(given: Mapping[str, str], *, streaming: bool | None = None) -> SourceOptions:
    """Reads the options; ``streaming`` None checks only what holds for batches and streams."""
    values = given_options(given, SOURCE_OPTIONS)
    for option in BATCH_OPTIONS if streaming else STREAM_OPTIONS if streaming is False else ():
        if option.name in values:
            raise BadRequest(
                f"option {option.name} is for {'batches' if streaming else 'streams'}",
                hint=f"Leave it out, or use spark.{'read' if streaming else 'readStream'}.",
            )
    topics, pattern, assigned = _read_topics(values)
    options = SourceOptions(
        connection=read_connection(values),
        topics=topics,
        pattern=pattern,
        assigned=assigned,
        start=_read_places("start", values.get("start", EARLIEST)),
        start_beyond_end=word_of("startBeyondEnd", values, (LATEST, "error")),
        end=_read_places("end", values.get("end", LATEST)),
        subscription=values.get("subscription"),
        entries_max=_read_count(values, "maxEntriesPerTrigger"),
        entries_min=_read_count(values, "minEntriesPerTrigger") or 1,
        delay_s_max=_read_delay(values),
        bytes_max=_read_count(values, "maxBytesPerTrigger"),
        partitions_min=_read_count(values, "minPartitions") or 1,
        task_per_shard=word_of("taskPerShard", values, ("false", "true")) == "true",
        on_gap=word_of("onGap", values, ON_GAP),
        columns=_read_columns(values.get("columns")),
        filter=values.get("filter", ""),
    )
    _check_together(options, streaming)
    return options


def _check_together(options: SourceOptions, streaming: bool | None) -> None:
    if options.filter:
        Filter(options.filter)
    if options.on_gap == "report" and not {"headers", "entry"} <= set(options.columns):
        raise BadRequest(
            "onGap = report tells of gaps in the columns headers and entry, and `columns` leaves them out",
            hint="Add them to `columns`, or use onGap = fail or skip.",
        )
    if options.partitions_min > PARTITIONS_MAX:
        raise BadRequest(f"minPartitions = {options.partitions_min:,} is more than {PARTITIONS_MAX:,}")
    if options.entries_max is not None and options.entries_min > options.entries_max:
        raise BadRequest(
            f"minEntriesPerTrigger = {options.entries_min} is more than "
            f"maxEntriesPerTrigger = {options.entries_max}"
        )
    first, last = options.start, options.end
    if (isinstance(first, int) and isinstance(last, int) and first > last) or (
        isinstance(first, datetime) and isinstance(last, datetime) and first > last
    ):
        raise BadRequest(f"start = {first} is behind end = {last}")
    starts = _every(options.start)
    if streaming and LATEST in starts and options.subscription is None:
        raise BadRequest(
            "start = latest needs a subscription",
            hint="Name one: the node keeps the place under it. Spark keeps none before its first batch has "
            "ended, and if that fails, what came meanwhile would be passed over.",
        )
    now = datetime.now(UTC)
    if streaming and any(isinstance(place, datetime) and place > now for place in starts):
        raise BadRequest(
            "start is a time that is still to come: the stream would begin with what comes before it, too",
            hint="Start the query then, or leave the rows out with `where`.",
        )
    for name, places in (("start", options.start), ("end", options.end)):
        if isinstance(places, dict) and options.pattern is not None:
            raise BadRequest(
                f"{name} by shard needs topics by name, and topicPattern names none", hint="Use `topics`."
            )
        if isinstance(places, dict) and "" in places and len(options.topics) != 1:
            raise BadRequest(
                f"{name} by shard does not say which topic", hint='Write {"TOPIC": {"0": 5}} for several.'
            )
        for topic in places if isinstance(places, dict) else ():
            if topic and topic not in options.topics:
                raise BadRequest(f"{name} names topic {TopicName.parse(topic).short}, which is not read")


def _every(places: Places) -> list[Place]:
    """The places of all shards that the option names."""
    if not isinstance(places, dict):
        return [places]
    return [place for shards in places.values() for place in shards.values()]


def _read_topics(
    values: Mapping[str, str],
) -> tuple[tuple[str, ...], str | None, dict[str, frozenset[int]]]:
    """Names, a pattern, shards by name: one of the three."""
    given = [name for name in ("topic", "topics", "topicPattern", "assign") if name in values]
    if len(given) != 1:
        raise BadRequest(
            f"options {' and '.join(given)} are both given" if given else "no topic is given",
            hint="Give one of topic, topics (with commas between), topicPattern (a regular expression) "
            "and assign.",
        )
    text = values[given[0]]
    if given == ["topicPattern"]:
        try:
            re.compile(text)
        except re.error as error:
            raise BadRequest(f"topicPattern {text!r} is no regular expression: {error}") from None
        return (), text, {}
    if given == ["assign"]:
        assigned = _read_assigned(text)
        return tuple(sorted(assigned)), None, assigned
    names = [text] if given == ["topic"] else [name.strip() for name in text.split(",")]
    full = [str(TopicName.parse(name)) for name in names]
    for name in full:
        if full.count(name) > 1:
            raise BadRequest(f"topic {TopicName.parse(name).short} is named twice")
    return tuple(sorted(full)), None, {}


def _read_assigned(text: str) -> dict[str, frozenset[int]]:
    try:
        tree = json.loads(text)
    except ValueError as error:
        raise BadRequest(f"assign is no JSON: {error}", hint=_ASSIGN_HINT) from None
    shards = list(tree.values()) if isinstance(tree, dict) else []
    if not shards or not all(isinstance(each, list) and each and all(map(_is_shard, each)) for each in shards):
        raise BadRequest(f"assign = {text[:80]!r} does not name shards by topic", hint=_ASSIGN_HINT)
    assigned = {str(TopicName.parse(topic)): frozenset(each) for topic, each in tree.items()}
    if len(assigned) != len(tree):
        raise BadRequest("assign names a topic twice", hint=_ASSIGN_HINT)
    return assigned


def _is_shard(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < SHARDS_MAX


def _read_delay(values: Mapping[str, str]) -> float:
    text = values.get("maxTriggerDelay")
    if text is not None and "minEntriesPerTrigger" not in values:
        raise BadRequest(
            "maxTriggerDelay is how long a batch waits for minEntriesPerTrigger, and that is not given",
            hint="Give both, or neither.",
        )
    try:
        delay_s = Setting(name="maxTriggerDelay", kind=SettingKind.SECONDS, meaning="", high=SECONDS_MAX).read(
            text or DELAY_MAX
        )
    except BadSetting as error:
        raise BadRequest(error.message, hint="Write it as 30s, 5m or 1.5h.") from None
    assert isinstance(delay_s, float)
    return delay_s


def _read_count(values: Mapping[str, str], name: str) -> int | None:
    text = values.get(name)
    if text is None:
        return None
    if (count := whole_number(text, 1, NUMBER_MAX)) is None:
        raise BadRequest(f"{name} = {text[:80]!r} is not a whole number above 0")
    return count


def _read_columns(text: str | None) -> tuple[str, ...]:
    if text is None:
        return COLUMNS
    chosen = [name.strip() for name in text.split(",")]
    for name in chosen:
        if name not in COLUMNS:
            raise BadRequest(f"columns: {name!r} is none of {', '.join(COLUMNS)}")
    return tuple(name for name in COLUMNS if name in chosen)


# --- places -----------------------------------------------------------------------------------------


def _read_places(name: str, text: str) -> Places:
    if not text.startswith("{"):
        return _read_place(name, text)
    try:
        tree = json.loads(text)
    except ValueError as error:
        raise BadRequest(f"{name} begins like JSON and is none: {error}") from None
    nested = [isinstance(value, dict) for value in tree.values()]
    if not tree or any(nested) != all(nested):
        raise BadRequest(
            f"{name} = {text[:80]!r} names neither shards nor topics with shards",
            hint='For example {"0": 100, "1": "latest"} or {"orders": {"0": 100}}.',
        )
    if not all(nested):
        return {"": _read_shards(name, tree)}
    try:
        return {str(TopicName.parse(topic)): _read_shards(name, shards) for topic, shards in tree.items()}
    except HeadpondError as error:
        raise BadRequest(f"{name}: {error.message}") from None


def _read_shards(name: str, tree: Mapping[str, Any]) -> dict[int, Place]:
    shards = {whole_number(shard, 0, SHARDS_MAX - 1): value for shard, value in tree.items()}
    if None in shards:
        raise BadRequest(f'{name}: shards are numbers, as in {{"0": 100}}')
    return {shard: _read_place(name, value) for shard, value in shards.items() if shard is not None}


def _read_place(name: str, given: Any) -> Place:
    if isinstance(given, int) and not isinstance(given, bool) and 0 <= given <= ENTRY_MAX:
        return given
    if not isinstance(given, str):
        raise BadRequest(f"{name}: {given!r} is none of earliest, latest, an entry number or a time")
    if given.lower() in (EARLIEST, LATEST):
        return given.lower()
    if (entry := whole_number(given, 0, ENTRY_MAX)) is not None:
        return entry
    if (since_1970 := _MILLISECONDS.fullmatch(given)) is not None:
        return _EPOCH + timedelta(milliseconds=int(since_1970[1]))
    try:
        when = datetime.fromisoformat(given)
    except ValueError:
        raise BadRequest(
            f"{name} = {given[:80]!r} is none of earliest, latest, an entry number, a time or JSON",
            hint="Write a time as 2026-01-31T12:00:00+00:00, or as 1790000000000ms.",
        ) from None
    return when if when.tzinfo is not None else when.replace(tzinfo=UTC)
