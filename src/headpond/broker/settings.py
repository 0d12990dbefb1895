"""A node's settings: defaults, a TOML file, variables of the environment, and options of the command line."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from headpond.model.address import Address, parse_addresses, parse_place
from headpond.model.bounds import ByteCount, Name, Positive, PositiveSeconds, SettingValues, Text
from headpond.model.errors import BadConfig, BadSetting, BadURL
from headpond.model.topic_settings import NODE, Value, read_values
from headpond.wire.plain.packed import SEGMENTS_MIN

MIB = 1024 * 1024


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What clients can make a node hold: twice the default quotas of one tenant (access.md#quotas)."""

    connections: Positive = 20_000
    """Connections at a time. Beyond it the node closes the oldest one that has not greeted, else the newest."""
    topics: Positive = 20_000
    """Topics."""
    shards: Positive = 40_000
    """Logs, in all topics together."""
    open_logs: Positive = 1024
    """Logs that keep their file open for the next write; the node closes the least recently written ones."""
    subscriptions: Positive = 20_000
    """Subscriptions, in all topics together."""
    producers: Positive = 200_000
    """Producers registered by name. Further names can send, unregistered and without single access."""
    admin_records: Positive = 10_000
    """Records of administration that the node keeps (access.md#the-log-of-administration)."""
    free_bytes_min: ByteCount = 128 * MIB
    """Free bytes on the disk. Below it the node refuses sends (`disk-full`, clients try again)."""
    window_bytes: ByteCount = 32 * MIB
    """Unacknowledged segments of one connection. Beyond it the node stops reading from the connection."""
    staged_bytes: ByteCount = 256 * MIB
    """Bytes that are not synced yet. Beyond it the node stops reading segments until the disk has caught up."""
    partial_bytes: ByteCount = 256 * MIB
    """Frames that have arrived in part. Beyond it the node closes the connections whose frames began first."""
    unsent_bytes: ByteCount = 64 * MIB
    """Bytes that wait for a connection that does not read. Beyond it the node closes the connection."""
    connection_decoder_bytes: ByteCount = 32 * MIB
    """Decoders of one connection's typed blocks. Beyond it the node drops the least recently used one, and its
    sender sends a snapshot."""
    decoder_bytes: ByteCount = 256 * MIB
    """The same, for all connections together."""
    state_bytes: ByteCount = 256 * MIB
    """Keys in memory while the node scans a shard of a state topic; it scans more keys in parts."""
    handshake_s: PositiveSeconds = 10.0
    """A connection must greet within this time."""
    frame_s: PositiveSeconds = 30.0
    """A frame that has begun to arrive must be complete within this time."""
    idle_s: PositiveSeconds = 90.0
    """The node closes a connection that is silent for longer; clients ping."""


class HttpLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What HTTP clients can make a node hold (http.md)."""

    connections: Positive = 1000
    """Connections at a time. Beyond it the node closes the one that is idle for longest, else the newest."""
    requests: Positive = 500
    """Requests at a time, waits and event streams included. The node refuses more (503)."""
    header_bytes: ByteCount = 32 * 1024
    """The first line and the headers of a request."""
    body_bytes: ByteCount = 16 * MIB
    """The body of a request that sends messages. Other bodies may have 1 MiB."""
    bodies_bytes: ByteCount = 128 * MIB
    """The bodies of all requests together."""
    answer_bytes: ByteCount = 16 * MIB
    """The messages in one answer; the next answer has the rest. A single message may be larger."""
    answers_bytes: ByteCount = 256 * MIB
    """Answers that clients have not read yet, of all requests. The process takes up to twice that."""
    answer_wait_s: PositiveSeconds = 5.0
    """How long a request waits for room among these answers, before the node refuses it (503, `limit`)."""
    header_s: PositiveSeconds = 10.0
    """The headers of a request must be complete within this time."""
    body_s: PositiveSeconds = 60.0
    """The body must be complete within this time after its headers."""
    idle_s: PositiveSeconds = 30.0
    """The node closes a connection without a request for longer."""
    unread_s: PositiveSeconds = 60.0
    """The node closes a connection that reads nothing for longer."""
    wait_s: PositiveSeconds = 60.0
    """The longest wait that a request may ask for."""
    callers: Positive = 256
    """Tokens with an open session."""
    caller_idle_s: PositiveSeconds = 120.0
    """The node closes the session of a token without a request for longer."""
    consumers: Positive = 250
    """Consumers that the node holds between fetches, each with a segment or two of its topic in memory."""
    caller_share: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.5
    """The share of `requests`, `consumers` and `held_bytes` that one token may use (503 beyond it)."""
    held_bytes: ByteCount = 256 * MIB
    """Messages that these consumers hold, delivered and not settled, or fetched ahead. Beyond it the node
    delivers nothing more to them, and opens no other (503)."""
    consumer_idle_s: PositiveSeconds = 60.0
    """The node closes a consumer without a fetch for longer; its messages go to the others."""

    def share_of(self, limit: int) -> int:
        """How much of a limit one token may use."""
        return max(1, int(limit * self.caller_share))


class LogSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The files of a topic's shards."""

    rotate_bytes: ByteCount = 64 * MIB
    """A log file beyond this size is followed by another, and one of small (packed) segments beyond 4 MiB."""
    preallocate_bytes: ByteCount = 8 * MIB
    """Room that the node reserves ahead of writing; a young file gets smaller steps."""
    index_every_bytes: ByteCount = 64 * 1024
    """The distance between two positions in the index of a closed file."""
    commit_journal_bytes: ByteCount = 32 * MIB
    """A generation of the commit journal, in which many busy logs share a sync; there are at most three."""
    pack_segments_min: Positive = SEGMENTS_MIN
    """Shorter runs of small segments stay as they are in a closed file; longer ones become one record."""


class StagingSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Staged writes (staged_writes.md)."""

    bytes_max: ByteCount = 16 * 1024 * MIB
    """All stages together. Beyond it the node refuses chunks (`staging-full`, clients try again)."""
    stage_bytes_max: ByteCount = 4 * 1024 * MIB
    """One stage."""
    writer_stages_max: Positive = 50_000
    """Stages of one writer that are in no batch."""
    stages_max: Positive = 200_000
    """The same, for all writers together."""
    writers_max: Positive = 100_000
    """Writers whose batches the node remembers."""
    lease_s: PositiveSeconds = 30.0
    """How long after a commit no other holder may commit under the writer's name."""
    expire_s: PositiveSeconds = 86_400.0
    """The node drops a stage that is in no batch and got nothing for longer; it counts and logs that."""
    file_bytes: ByteCount = 32 * MIB
    """A stage file beyond this size is followed by another."""
    memory_bytes: ByteCount = 128 * MIB
    """The newest chunks, up to this size, stay in memory until their batch is published."""


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    data: Text = ""
    """The data folder; `--data`. One node at a time holds it. Empty: `$XDG_DATA_HOME/headpond`, else
    `~/.local/share/headpond`."""
    listen: Text = "127.0.0.1:7411"
    """HOST:PORT to listen on; `--listen`. Port 0 takes a free one; the line `ready URL` shows it."""
    http: Text = ""
    """HOST:PORT for HTTP, such as `127.0.0.1:7412`; `--http` (http.md). Empty: no HTTP."""
    http_names: Annotated[list[Name], msgspec.Meta(max_length=64)] = msgspec.field(default_factory=list)
    """Further names of an open node for HTTP clients, such as its name behind a proxy (http.md#web-pages)."""
    tls_cert: Text = ""
    """A PEM file with the node's certificate: the node speaks TLS; `--tls-cert` (access.md#tls)."""
    tls_key: Text = ""
    """The key of the certificate; `--tls-key`. Empty: it is in the same file."""
    tls_client_ca: Text = ""
    """A PEM file with authorities: each client must have a certificate of one of them; `--tls-client-ca`."""
    insecure: bool = False
    """Whether the node serves an address that others can reach without tokens or TLS; `--insecure`."""
    successor: Text = ""
    """The URL of a node with the same topics: this node sends its clients there when it stops; `--successor`
    (several_nodes.md#redirects)."""
    cluster: Text = ""
    """The NATS servers of a cluster, such as `nats://a:4222,b:4222,c:4222`; `--cluster` (cluster.md). Empty:
    the node is alone."""
    group: Name = "main"
    """The group of nodes with the same content; `--group`."""
    member: Text = ""
    """The name of this node in its group; `--member`. Empty: its host and port."""
    advertise: Text = ""
    """The URL at which clients reach this node, if it is not the one that it listens on; `--advertise`."""
    confirm: Literal["journal", "journal+standby"] = "journal"
    """When a change in a cluster is durable: most servers have it on disk, or a standby node has it too."""
    stream_bytes: ByteCount = 8 * 1024 * MIB
    """The room of the group's stream: changes that fewer than two nodes have synced stay there."""
    create_on_first_use: bool | None = None
    """Whether a producer or consumer may create the topic it names; a tenant, product or component can differ
    (tenancy.md). Unset: on if the node listens on loopback only."""
    topics: SettingValues = msgspec.field(default_factory=dict)
    """Settings of topics that no tenant, product, component or topic sets (tenancy.md#settings)."""
    log_format: Literal["text", "json"] = "text"
    """The log on stderr: text, or one JSON object per line; `--log-format`. With `--json` it is `json`."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The lowest level of the lines in the log; `--log-level`."""
    threads: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 4
    """Worker threads for writes, syncs and reads."""
    journal_compact_bytes: ByteCount = 8 * MIB
    """The node compacts its journals when they are longer."""
    limits: Limits = Limits()
    http_limits: HttpLimits = HttpLimits()
    log: LogSettings = LogSettings()
    staging: StagingSettings = StagingSettings()

    @classmethod
    def load(
        cls,
        path: str | None,
        overrides: dict[str, Any] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Settings:
        """Reads a TOML file, if given. Variables override it, and ``overrides`` that are not None (from the
        command line) override both."""
        values: dict[str, Any] = {}
        if path is not None:
            written = _read_file(path)
            values = _parse_file(path, written)
            _convert(values, cls, f"settings file {path}", written)
        names: dict[str, str] = {}
        for name, variable in variables().items():
            if text := (environment or {}).get(name):
                value = variable.read(name, text)
                if variable.section:
                    values.setdefault(variable.section, {})[variable.key] = value
                else:
                    values[variable.key] = value
                    names[variable.key] = name
        for key, value in (overrides or {}).items():
            if value is not None:
                values[key] = value
                names.pop(key, None)
        settings = _convert(values, cls, "settings")
        settings.check(names)
        settings.check_places(names)
        return settings

    def topic_defaults(self) -> dict[str, Value]:
        """This node's settings for all topics."""
        return {"create_on_first_use": self.creates_on_first_use, **read_values(self.topics, NODE)}

    @property
    def creates_on_first_use(self) -> bool:
        if self.create_on_first_use is not None:
            return self.create_on_first_use
        return self.on_loopback

    @property
    def on_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return all(Address(*place).on_loopback for place in (self.address, self.http_address) if place)

    def check(self, names: Mapping[str, str] | None = None) -> None:
        """Raises ``BadConfig`` for values that do not work together, or name nothing.

        ``names``: the variables that gave a value, by its key; errors then name the variable.
        """
        named = {key: key for key in self.__struct_fields__} | dict(names or {})
        try:
            read_values(self.topics, NODE)
        except BadSetting as error:
            raise BadConfig(f"{named['topics']}: {error.message}", hint=error.hint) from error
        if self.successor:
            try:
                parse_addresses(self.successor)
            except BadURL as error:
                raise BadConfig(f"{named['successor']}: {error.message}", hint=error.hint) from error
        for name in self.http_names:
            try:
                parse_place(name)
            except BadURL as error:
                hint = "For example node.example.com."
                raise BadConfig(f"{named['http_names']}: {error.message}", hint=hint) from error
        if self.cluster and self.stream_bytes < 2 * self.limits.free_bytes_min:
            raise BadConfig(
                f"{named['stream_bytes']} = {self.stream_bytes:,} is less than twice limits.free_bytes_min "
                f"({self.limits.free_bytes_min:,}): the node would refuse every message",
                hint="A group keeps up to 30 % of its stream, and needs free_bytes_min of the rest.",
            )
        if not self.tls_cert and (self.tls_key or self.tls_client_ca):
            raise BadConfig(f"{named['tls_key']} and {named['tls_client_ca']} need a {named['tls_cert']}")

    def check_places(self, names: Mapping[str, str] | None = None) -> None:
        """Raises ``BadConfig`` for an address that is not HOST:PORT; ``names`` as in ``check``."""
        _host_port("listen", self.listen, (names or {}).get("listen"))
        if self.http:
            _host_port("http", self.http, (names or {}).get("http"))

    @property
    def address(self) -> tuple[str, int]:
        """Host and port to listen on."""
        return _host_port("listen", self.listen)

    @property
    def http_address(self) -> tuple[str, int] | None:
        """The same for HTTP; None if the node does not serve it."""
        return _host_port("http", self.http) if self.http else None


def _host_port(key: str, text: str, name: str | None = None) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    number = int(port) if port.isascii() and port.isdigit() and len(port) <= 5 else -1
    if not colon or not host or not 0 <= number <= 65535:
        example = "127.0.0.1:7412" if key == "http" else "127.0.0.1:7411"
        raise BadConfig(f"{name or key} = {text!r} is not HOST:PORT", hint=f"For example {example}.")
    return host.removeprefix("[").removesuffix("]"), number


def _read_file(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        hint = "Give the path of a file that this user may read, by --config or HEADPOND_CONFIG."
        raise BadConfig(f"cannot read settings file {path}: {error.strerror}", hint=hint) from error
    except UnicodeDecodeError as error:
        raise BadConfig(f"settings file {path} is not TOML: {error}", hint="Write it in UTF-8.") from error


def _parse_file(path: str, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        hint = 'Correct that line: NAME = VALUE, with text in quotes, such as listen = "127.0.0.1:7411".'
        raise BadConfig(f"settings file {path} is not TOML: {error}", hint=hint) from error


def _convert(values: dict[str, Any], kind: type[Settings], origin: str, text: str = "") -> Settings:
    """``text``: of the file that has the values; errors then name the line."""
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise _misfit(error, origin, text) from error


_UNKNOWN = re.compile(r"unknown field `([^`]+)`")
_PLACE = re.compile(r"^(.*) - at `\$\.?([^`]*)`$", re.DOTALL)


def _misfit(error: msgspec.ValidationError, origin: str, text: str) -> BadConfig:
    """What is wrong, with the line of the file and the setting that was probably meant."""
    found = _PLACE.match(str(error))
    reason, place = (found[1], found[2].split(".")) if found else (str(error), [])
    place = [part for part in place if part]
    unknown = _UNKNOWN.search(reason)
    if unknown is not None:
        near = difflib.get_close_matches(unknown[1], _names_at(place), n=1)
        place = [*place, unknown[1]]
        reason = f"there is no setting {'.'.join(place)}"
        hint = f"Did you mean {'.'.join([*place[:-1], *near])}?" if near else "docs/settings.md lists them all."
    else:
        reason = f"{'.'.join(place)}: {reason}" if place else reason
        hint = "docs/settings.md has the type and the limits of every setting."
    line = _line_of(text, place)
    return BadConfig(f"{origin}{f', line {line}' if line else ''}: {reason}", hint=hint)


def _names_at(place: Sequence[str]) -> list[str]:
    """The settings of a section, or those of the file itself and the sections."""
    struct: Any = Settings()
    for part in place:
        struct = getattr(struct, part, None)
    return list(struct.__struct_fields__) if isinstance(struct, msgspec.Struct) else []


def _line_of(text: str, place: Sequence[str]) -> int | None:
    """The line, from 1, that sets a key; a value that spans lines is at its first one."""
    wanted, section = ".".join(place), ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[([^\[\]]+)\]", line):
            section = header[1].strip()
            name = section
        else:
            key = line.partition("=")[0].strip().replace('"', "")
            name = f"{section}.{key}" if section else key
        if name == wanted:
            return number
    return None


# --- variables of the environment -------------------------------------------------------------------

PREFIX = "HEADPOND_"


class Variable(NamedTuple):
    """The setting of a variable: its section (empty for none), its key and its type."""

    section: str
    key: str
    type: Any

    def read(self, name: str, text: str) -> Any:
        """The value: text as it is, any other type as TOML writes it. ``BadConfig`` names the variable, but
        not its text, which may contain a password."""
        try:
            value = text if self._is_text else _read_toml(text)
            msgspec.convert(value, self.type)
        except tomllib.TOMLDecodeError as error:
            raise BadConfig(
                f"{name} is not a value of TOML",
                hint=f"Write it as the settings file does: {self.key} = VALUE (docs/settings.md).",
            ) from error
        except msgspec.ValidationError as error:
            raise BadConfig(f"{name}: {error}") from error
        return value

    @property
    def _is_text(self) -> bool:
        return isinstance(
            msgspec.inspect.type_info(self.type), msgspec.inspect.StrType | msgspec.inspect.LiteralType
        )


def variables() -> dict[str, Variable]:
    """The variable of every setting: `HEADPOND_LISTEN`, or in a section `HEADPOND_LIMITS_CONNECTIONS`."""
    found: list[Variable] = []
    for field in msgspec.structs.fields(Settings):
        if isinstance(field.default, msgspec.Struct):
            inner = msgspec.structs.fields(type(field.default))
            found += [Variable(field.name, each.name, each.type) for each in inner]
        else:
            found.append(Variable("", field.name, field.type))
    return {PREFIX + "_".join(filter(None, each[:2])).upper(): each for each in found}


def _read_toml(text: str) -> Any:
    document = tomllib.loads(f"value = {text}")
    if len(document) != 1:
        raise tomllib.TOMLDecodeError("more than one value")
    return document["value"]
