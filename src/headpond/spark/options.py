"""The options of ``format("headpond")``: declared once, read and checked before a source or a sink asks a node.

The names are those of the command line and of the client, in Spark's spelling. An option that is unknown or
empty, or that contradicts another, is an error that names it; nothing is ignored. The tables of options in the
documentation are generated from the declarations.

Defaults of the connection come from the driver's environment, then from the context in use, as on the command
line (docs/access.md). A context's token and certificates go to the context's own URL alone.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, NamedTuple

import msgspec

from headpond.client.contexts import TLS_NAMES, NodeContext, service_in_use
from headpond.model.address import DEFAULT_URL, parse_addresses
from headpond.model.bounds import ENTRY_MAX, NUMBER_MAX, SECONDS_MAX, SHARDS_MAX
from headpond.model.errors import BadRequest, BadSetting, HeadpondError
from headpond.model.message import from_micros
from headpond.model.names import TopicName
from headpond.model.topic_settings import Setting, SettingKind
from headpond.spark.connection import NO_TOKEN, TIMEOUT_S, NodeConnection
from headpond.wire.control.staging import BATCH_MAX, ON_REPEAT
from headpond.wire.filter import Filter


class Option(NamedTuple):
    name: str
    default: str
    """As the documentation shows it."""
    meaning: str


def given_options(
    options: Mapping[str, str], declared: Iterable[Option], *, ignored: Collection[str] = ()
) -> dict[str, str]:
    """The values by declared name; given names may be in any case, and ``ignored`` ones are in lower case."""
    known = {option.name.lower(): option.name for option in declared}
    values: dict[str, str] = {}
    for key, value in options.items():
        name, text = known.get(key.lower()), str(value).strip()
        if name is not None:
            if not text:
                raise BadRequest(f"option {name} is empty", hint="Leave it out, or give it a value.")
            values[name] = text
        elif key.lower() == "path":  # load, save and start take one
            raise BadRequest(
                f"a topic has no path, and {value!r} is given",
                hint='Name the topic with .option("topic", …), and call load, save and start without a path.',
            )
        elif key.lower() not in ignored:
            raise BadRequest(f"option {key!r} is unknown", hint=f"There are {', '.join(known.values())}.")
    return values


def word_of(name: str, values: Mapping[str, str], words: tuple[str, ...]) -> str:
    """The value of an option that is one of some words; the first is the default."""
    word = values.get(name, words[0]).lower()
    if word not in words:
        raise BadRequest(f"{name} = {values[name]!r} is none of {', '.join(words)}")
    return word


def whole_number(text: str, low: int, high: int) -> int | None:
    """The number in a text; None if it is no number, or not between these."""
    number = int(text) if text.isdecimal() and len(text) <= 20 else -1
    return number if low <= number <= high else None


def options_table(declared: Iterable[Option]) -> str:
    """The options as a table in Markdown."""
    rows = [f"| `{option.name}` | {option.default} | {option.meaning} |" for option in declared]
    return "\n".join(["| option | default | |", "|---|---|---|", *rows])


# --- the connection ---------------------------------------------------------------------------------


CONNECTION_OPTIONS = (
    Option(
        "url",
        f"`HEADPOND_URL`, the [context](access.md#contexts) in use, `{DEFAULT_URL}`",
        "the node, which tasks must reach too; several, separated by commas, are one service tried in order",
    ),
    Option(
        "token",
        "`HEADPOND_TOKEN`, the context's",
        f"as for every client; `{NO_TOKEN}` sends none, even if the environment has one",
    ),
    Option(
        "ca",
        "`HEADPOND_CA`, the context's, the system's",
        "a file of authorities to trust, for `headponds://`; every machine that runs tasks needs it",
    ),
    Option("cert", "`HEADPOND_CERT`, the context's", "a certificate to show to a node that asks for one"),
    Option("key", "`HEADPOND_KEY`, the context's", "its key, unless the same file has it"),
    Option("timeout", f"{TIMEOUT_S:g}", "how many seconds to wait for an unreachable node"),
)


def read_connection(values: Mapping[str, str]) -> NodeConnection:
    """The connection that the options in ``values`` ask for."""
    url = values.get("url")
    context = NodeContext(url, os.environ.get("HEADPOND_TOKEN")) if url else service_in_use()
    parse_addresses(context.url)
    token = values.get("token") or context.token
    return NodeConnection(
        context.url,
        token if token != NO_TOKEN else None,
        # Each process reads the files that its environment names: machines may have them in different places.
        **{
            name: values.get(name) or (getattr(context, name) if not os.environ.get(variable) else None)
            for name, variable in TLS_NAMES.items()
        },
        timeout_s=_read_timeout(values),
    )


def node_at(url: str | None, token: str | None) -> NodeConnection:
    """The node at ``url``; without one, that of the environment or of the context in use."""
    given = {"url": url, "token": token}
    return read_connection({name: value for name, value in given.items() if value is not None})


def _read_timeout(values: Mapping[str, str]) -> float:
    text = values.get("timeout", str(TIMEOUT_S))
    try:
        timeout_s = float(text)
    except ValueError:
        timeout_s = 0.0
    if not 0 < timeout_s < 1e6:
        raise BadRequest(f"option timeout is a number of seconds above 0, not {text!r}")
    return timeout_s


# --- a source ---------------------------------------------------------------------------------------


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
_Shards = Annotated[list[Annotated[int, msgspec.Meta(ge=0, lt=SHARDS_MAX)]], msgspec.Meta(min_length=1)]
_Assigned = Annotated[dict[str, _Shards], msgspec.Meta(min_length=1)]
_ASSIGN_HINT = 'For example {"orders": [0, 2]}.'
_MILLISECONDS = re.compile(r"(\d{1,14})ms")
_TIME = "`2026-01-31T12:00:00+00:00`"
TOPIC_OPTIONS = (
    Option("topic", "", "a topic; give one of `topic`, `topics`, `topicPattern` and `assign`"),
    Option("topics", "", "topics, separated by commas"),
    Option(
        "topicPattern",
        "",
        "a regular expression for the whole name of a topic, in its short form (`orders`, not "
        "`default/default/default/orders`). At most 1,024 topics match",
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
        "if nothing was stored at or after the time of `start`: `latest` begins with the next entry, "
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
    Option(
        "minEntriesPerTrigger", "1", "a batch waits for this number of entries; not with `Trigger.AvailableNow`"
    ),
    Option(
        "maxTriggerDelay", "`15m`", "with `minEntriesPerTrigger`: an entry waits no longer than this for others"
    ),
    Option(
        "maxBytesPerTrigger", "none", "bytes in one batch; an entry counts as the average entry of its shard"
    ),
)
READING_OPTIONS = (
    Option("minPartitions", "1", f"the least number of tasks, up to {PARTITIONS_MAX:,}"),
    Option("taskPerShard", "`false`", "`true`: each shard has its own task, also with little to read"),
    Option("onGap", "`fail`", "`fail`, `report` or `skip` [missing entries](#what-is-missing)"),
    Option("columns", "all", "the columns to read, separated by commas; the node does not send the others"),
    Option("filter", "none", "the [rows to read](#filters); the node does not send the others"),
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


def read_source_options(given: Mapping[str, str], *, streaming: bool | None = None) -> SourceOptions:
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
    entries = isinstance(first, int) and isinstance(last, int) and first > last
    times = isinstance(first, datetime) and isinstance(last, datetime) and first > last
    if entries or times:
        raise BadRequest(f"start = {first} is behind end = {last}")
    starts = [at for by in first.values() for at in by.values()] if isinstance(first, dict) else [first]
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
            raise BadRequest(f"topicPattern {text!r} is not a regular expression: {error}") from None
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
        tree = msgspec.json.decode(text, type=_Assigned)
    except msgspec.DecodeError as error:
        message = f"assign = {text[:80]!r} does not name shards by topic: {error}"
        raise BadRequest(message, hint=_ASSIGN_HINT) from None
    assigned = {str(TopicName.parse(topic)): frozenset(shards) for topic, shards in tree.items()}
    if len(assigned) != len(tree):
        raise BadRequest("assign names a topic twice", hint=_ASSIGN_HINT)
    return assigned


def _read_delay(values: Mapping[str, str]) -> float:
    text = values.get("maxTriggerDelay")
    if text is not None and "minEntriesPerTrigger" not in values:
        raise BadRequest(
            "maxTriggerDelay is how long a batch waits for minEntriesPerTrigger, and that is not given",
            hint="Give both, or neither.",
        )
    try:
        delay_s = Setting(name="maxTriggerDelay", kind=SettingKind.SECONDS, high=SECONDS_MAX).read(
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
        raise BadRequest(f"{name} begins like JSON and is not JSON: {error}") from None
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
        return from_micros(int(since_1970[1]) * 1000)
    try:
        when = datetime.fromisoformat(given)
    except ValueError:
        raise BadRequest(
            f"{name} = {given[:80]!r} is none of earliest, latest, an entry number, a time or JSON",
            hint="Write a time as 2026-01-31T12:00:00+00:00, or as 1790000000000ms.",
        ) from None
    return when if when.tzinfo is not None else when.replace(tzinfo=UTC)


# --- a sink -----------------------------------------------------------------------------------------


SINK_OPTIONS = (
    *CONNECTION_OPTIONS,
    Option(
        "topic",
        "the column `topic`",
        "where all rows go. The topic is created on first use, if the node allows that",
    ),
    Option("sinkId", "the query's id", "the name under which batches are counted"),
    Option("batch", "none", "with `sinkId`, for `write`: the number of this batch"),
    Option(
        "onRepeat",
        "`compare`",
        "a repeated batch: `compare` its rows with the committed ones, and fail if they differ; "
        "or `drop` it without a comparison",
    ),
)
SPARKS_OWN = ("checkpointlocation", "queryname")
"""Names that Spark adds to the options."""
SINK_LENGTH_MAX = 64


@dataclass(frozen=True, slots=True)
class SinkOptions:
    connection: NodeConnection
    topic: str | None
    """The full name; None if a column names it."""
    sink: str | None
    batch: int | None
    on_repeat: str


def read_sink_options(options: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    """Reads the options; ``BadRequest`` names one with a fault."""
    values = given_options(options, SINK_OPTIONS, ignored=SPARKS_OWN)
    topic, sink, text = values.get("topic"), values.get("sinkId"), values.get("batch")
    if sink is not None and not (len(sink) <= SINK_LENGTH_MAX and sink.isprintable()):
        raise BadRequest(f"sinkId has at most {SINK_LENGTH_MAX} printable characters")
    if streaming and text is not None:
        raise BadRequest("option batch is for batches; a stream counts its own", hint="Leave it out.")
    if not streaming and (text is None) != (sink is None):
        raise BadRequest(
            "options sinkId and batch go together: the batch is committed once under both",
            hint="Give both for a job that may be run again, or neither.",
        )
    batch = None if text is None else whole_number(text, 0, BATCH_MAX)
    if text is not None and batch is None:
        raise BadRequest(f"option batch is a number from 0, not {text[:80]!r}")
    return SinkOptions(
        connection=read_connection(values),
        topic=str(TopicName.parse(topic)) if topic is not None else None,
        sink=sink,
        batch=batch,
        on_repeat=word_of("onRepeat", values, ON_REPEAT),
    )
