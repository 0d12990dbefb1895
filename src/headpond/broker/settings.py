"""A node's settings: defaults, a TOML file, and options of the command line."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any

import msgspec

from headpond.model.address import Address, parse_addresses, parse_place
from headpond.model.bounds import ByteCount, Name, Positive, PositiveSeconds, SettingValues, Text
from headpond.model.errors import BadConfig, BadSetting, BadURL
from headpond.model.topic_settings import NODE, Value, read_values

MIB = 1024 * 1024


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bounds on what clients can make a node hold."""

    connections: Positive = 20_000
    topics: Positive = 20_000
    """These are twice what one tenant may have (docs/tenancy.md), so that no tenant takes all there is."""
    shards: Positive = 40_000
    """Logs in all topics together."""
    open_logs: Positive = 1024
    """Logs that keep their file open for the next write; those written to longest ago are closed."""
    subscriptions: Positive = 20_000
    producers: Positive = 200_000
    """Registered by name, in all topics."""
    admin_records: Positive = 10_000
    """The latest records of administration that are kept; older ones go."""
    free_bytes_min: ByteCount = 128 * MIB
    """Free bytes on the disk below which the node refuses sends for the time being; acknowledging works on."""
    window_bytes: ByteCount = 32 * MIB
    """Unacknowledged segments of one connection; past it the node stops reading from that connection."""
    staged_bytes: ByteCount = 256 * MIB
    """Unsynced bytes in all; past it the node stops reading segments until the disk has caught up."""
    partial_bytes: ByteCount = 256 * MIB
    """Frames that have arrived in part, in all connections; past it those that began longest ago are closed."""
    unsent_bytes: ByteCount = 64 * MIB
    """Bytes waiting for one connection that does not read; past it the connection is closed."""
    connection_decoder_bytes: ByteCount = 32 * MIB
    """The most bytes of decoders of a connection's typed blocks; beyond it the least recently used one goes."""
    decoder_bytes: ByteCount = 256 * MIB
    """The same, of all connections together."""
    state_bytes: ByteCount = 256 * MIB
    """The most bytes of keys in memory while a state topic's shard is scanned; more are done in parts."""
    handshake_s: PositiveSeconds = 10.0
    """A connection that has not said hello by then is closed."""
    frame_s: PositiveSeconds = 30.0
    """A frame that has begun to arrive must be whole by then."""
    idle_s: PositiveSeconds = 90.0
    """A connection that is silent for longer (clients ping) is closed."""


class HttpLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bounds on what can be had over HTTP (docs/http.md)."""

    connections: Positive = 1000
    """Past it the connection that has been idle for longest is closed, or the new one if none is idle."""
    requests: Positive = 500
    """Under way at once, waits and streams of events too; more are refused, to be tried again."""
    header_bytes: ByteCount = 32 * 1024
    """The first line and the headers of a request."""
    body_bytes: ByteCount = 16 * MIB
    """The body of one request that sends messages; of others at most 1 MiB."""
    bodies_bytes: ByteCount = 128 * MIB
    """The bodies of all requests that are under way."""
    answer_bytes: ByteCount = 16 * MIB
    """Messages in one answer, as they are sent; what does not fit is in the next. One alone may be larger."""
    answers_bytes: ByteCount = 256 * MIB
    """Answers that are made and not read, of all requests."""
    answer_wait_s: PositiveSeconds = 5.0
    """How long a request waits for room among them; then it is refused, to be tried again."""
    header_s: PositiveSeconds = 10.0
    """A request's headers must be whole by then, counted from the connection or the first byte."""
    body_s: PositiveSeconds = 60.0
    """So must its body, counted from the headers."""
    idle_s: PositiveSeconds = 30.0
    """A connection without a request for so long is closed."""
    unread_s: PositiveSeconds = 60.0
    """So is one that reads nothing for so long."""
    wait_s: PositiveSeconds = 60.0
    """The longest wait that a request may ask for."""
    callers: Positive = 256
    """Tokens whose connection to the node is kept."""
    caller_idle_s: PositiveSeconds = 120.0
    """Such a connection is closed when nothing was asked with that token for so long."""
    consumers: Positive = 250
    """Held for callers that fetch from subscriptions."""
    caller_share: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.5
    """How much of ``requests``, ``consumers`` and ``held_bytes`` one token may use."""
    held_bytes: ByteCount = 256 * MIB
    """Of messages that these handed out and nobody settled, and of those that the node sent ahead to them; past
    it nothing more is handed out, and no other consumer is held."""
    consumer_idle_s: PositiveSeconds = 60.0
    """A consumer without a fetch for so long is closed: its messages go to the others."""

    def share_of(self, limit: int) -> int:
        """How much of a limit one token may use."""
        return max(1, int(limit * self.caller_share))


class LogSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    rotate_bytes: ByteCount = 64 * MIB
    preallocate_bytes: ByteCount = 8 * MIB
    index_every_bytes: ByteCount = 64 * 1024
    commit_journal_bytes: ByteCount = 32 * MIB
    """A generation of the commit journal, which many busy logs share a sync in; at most three take room."""


class StagingSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bounds on staged writes (docs/staged_writes.md)."""

    bytes_max: ByteCount = 16 * 1024 * MIB
    """What all stages together may hold; past it staging is refused, to be tried again."""
    stage_bytes_max: ByteCount = 4 * 1024 * MIB
    """What one stage may hold."""
    writer_stages_max: Positive = 50_000
    """Stages that one writer may have in no batch."""
    stages_max: Positive = 200_000
    """The same, of all writers together."""
    writers_max: Positive = 100_000
    lease_s: PositiveSeconds = 30.0
    """How long after a commit no other holder may commit under the writer's name."""
    expire_s: PositiveSeconds = 86_400.0
    """A stage that nothing was added to for so long, and that no batch has, is dropped."""
    file_bytes: ByteCount = 32 * MIB
    """A stage file that has grown to this size is followed by another."""
    memory_bytes: ByteCount = 128 * MIB
    """The newest chunks up to this size stay in memory until their batch is published."""


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    data: Text = ""
    listen: Text = "127.0.0.1:7411"
    http: Text = ""
    """Where to serve HTTP, HOST:PORT; empty: nowhere."""
    http_names: Annotated[list[Name], msgspec.Meta(max_length=64)] = msgspec.field(default_factory=list)
    """Other names that HTTP clients may call an open node by, such as its name behind a proxy."""
    tls_cert: Text = ""
    """A PEM file with the node's certificate; with it the node speaks TLS."""
    tls_key: Text = ""
    """Its key; empty: in the same file."""
    tls_client_ca: Text = ""
    """A PEM file with authorities; with it every client must show a certificate of one of them."""
    insecure: bool = False
    """Whether an address that others can reach is served without tokens or TLS."""
    successor: Text = ""
    """The URL of a node that holds the same topics: clients are pointed there when this one stops."""
    create_on_first_use: bool | None = None
    """Whether topics come into being when they are first used; None: if it listens on loopback alone."""
    topics: SettingValues = msgspec.field(default_factory=dict)
    """Settings of topics (docs/tenancy.md) that hold where no place above a topic says otherwise."""
    threads: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 4
    """Worker threads for writes, syncs and reads."""
    journal_compact_bytes: ByteCount = 8 * MIB
    """The catalog and the settlement journal are compacted once they are longer than this."""
    limits: Limits = Limits()
    http_limits: HttpLimits = HttpLimits()
    log: LogSettings = LogSettings()
    staging: StagingSettings = StagingSettings()

    @classmethod
    def load(cls, path: str | None, overrides: dict[str, Any] | None = None) -> Settings:
        """Reads a TOML file, if given; ``overrides`` (from the command line) win where they are not None."""
        values: dict[str, Any] = {}
        if path is not None:
            try:
                values = tomllib.loads(Path(path).read_text(encoding="utf-8"))
            except OSError as error:
                raise BadConfig(f"cannot read settings file {path}: {error.strerror}") from error
            except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
                raise BadConfig(f"settings file {path} is not TOML: {error}") from error
        if "auto_create_topics" in values:  # what it was called once
            values.setdefault("create_on_first_use", values.pop("auto_create_topics"))
        values |= {key: value for key, value in (overrides or {}).items() if value is not None}
        try:
            settings = msgspec.convert(values, cls)
        except msgspec.ValidationError as error:
            raise BadConfig(f"settings{f' file {path}' if path else ''}: {error}") from error
        settings.check()
        return settings

    def topic_defaults(self) -> dict[str, Value]:
        """What this node says of all topics."""
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

    def check(self) -> None:
        """Refuses what cannot work; numbers were judged as they were read."""
        try:
            read_values(self.topics, NODE)
        except BadSetting as error:
            raise BadConfig(f"topics: {error.message}", hint=error.hint) from error
        if self.successor:
            try:
                parse_addresses(self.successor)
            except BadURL as error:
                raise BadConfig(f"successor: {error.message}", hint=error.hint) from error
        for name in self.http_names:
            try:
                parse_place(name)
            except BadURL as error:
                raise BadConfig(f"http_names: {error.message}", hint="For example node.example.com.") from error
        if not self.tls_cert and (self.tls_key or self.tls_client_ca):
            raise BadConfig("tls_key and tls_client_ca need a tls_cert")

    def check_places(self) -> None:
        """Refuses addresses to listen on that are none."""
        _host_port("listen", self.listen)
        if self.http:
            _host_port("http", self.http)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port to listen on."""
        return _host_port("listen", self.listen)

    @property
    def http_address(self) -> tuple[str, int] | None:
        """The same for HTTP; None where that is not served."""
        return _host_port("http", self.http) if self.http else None


def _host_port(name: str, text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    number = int(port) if port.isascii() and port.isdigit() and len(port) <= 5 else -1
    if not colon or not host or not 0 <= number <= 65535:
        example = "127.0.0.1:7412" if name == "http" else "127.0.0.1:7411"
        raise BadConfig(f"{name} = {text!r} is not HOST:PORT", hint=f"For example {example}.")
    return host.removeprefix("[").removesuffix("]"), number
