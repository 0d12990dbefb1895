"""The stream of a group on a NATS cluster, through nats-py. No other module imports nats.

The stream of the group ``west`` is ``HEADPOND-west``, and stores what is sent to ``headpond.west.log``. Members
answer questions on ``headpond.west.all`` and ``headpond.west.member.NAME``; news are on ``headpond.west.news``.

The map of groups (groups.py) is the key ``map`` of the key-value bucket ``HEADPOND-groups``, which all groups
of a NATS cluster share; a message on ``headpond.map`` says that it has changed.

nats-py reconnects by itself, and keeps what is sent meanwhile until it has a connection again; what was on its
way when a connection broke is lost. ``_watch`` does the rest: nats-py cannot leave a server that stopped
reading while it has bytes for it, and it closes for good when a server ends a connection with an error, such as
credentials that expired. Then, and after some seconds without a connection, it is replaced.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote

import msgspec

from headpond.cluster.groups import MAIN
from headpond.cluster.journal import RECORD_BYTES_MAX, Handler, Refused, StreamState, Unreachable
from headpond.model.address import parse_place
from headpond.model.errors import BadConfig, BadURL, GroupNotFound, NatsMissing

try:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.aio.transport import TcpTransport
    from nats.errors import Error as NatsError
except ImportError as error:
    raise NatsMissing(f"nats-py is not installed: {error}") from error

logger = logging.getLogger("headpond.cluster")

ANSWER_S_MAX = 1.0
"""Without a leader nobody answers; a member that asks again soon finds the next one soon."""
CHANGE_S_MAX = 5.0
RETRY_S = 0.05
WATCH_S = 0.2
REPLACE_S = 10.0
WARN_S = 10.0
CLOSE_S_MAX = 1.0
PING_S = 1
PINGS_MAX = 2
"""A server that answers none of so many is left: after three seconds."""
PENDING_BYTES_MAX = 64 << 20
"""Of what is sent while there is no connection."""
SILENT_S = 3
"""A replica that the leader did not hear of for so long missed two heartbeats."""
BATCH_RECORDS_MAX = 1024
PORT_DEFAULT = 4222
VERSION_MIN = (2, 11)
"""Older servers read one record at a time."""

STREAM_NOT_FOUND = 10059
STREAM_EXISTS = 10058
MESSAGE_NOT_FOUND = 10037
MESSAGE_TOO_LARGE = 10054
WILL_NOT_HELP = {
    10039,  # JetStream is not enabled for the account
    10052,  # the configuration is invalid
    10065,  # another stream has the subject
    10074,  # replicas need a cluster
    10076,  # JetStream is not enabled
}
"""Refusals to create a stream that trying again does not change."""

BUCKET = "HEADPOND-groups"
BUCKET_STREAM = f"KV_{BUCKET}"
MAP_SUBJECT = f"$KV.{BUCKET}.map"
MAP_NEWS = "headpond.map"
MAP_HISTORY = 8
"""Revisions of the map that `nats kv history` shows."""

FAILURES = (OSError, TimeoutError, NatsError)
"""Of a connection."""

_GROUP = re.compile(r"[A-Za-z0-9_-]{1,64}")
_STATUS = re.compile(rb"NATS/1\.0 +(\d{3})")
_SEQUENCE = re.compile(rb"\r\nNats-Sequence: *(\d+)\r\n", re.IGNORECASE)
_MEMBER = re.compile(r"(?=.{1,128}$)[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")


# --- answers of the server ---------------------------------------------------------------------------


class _Error(msgspec.Struct):
    err_code: int = 0
    description: str = ""


class _Answer(msgspec.Struct):
    error: _Error | None = None


class _Acknowledgement(_Answer):
    seq: int = 0


class _Stored(msgspec.Struct):
    seq: int = 0
    data: bytes = b""


class _Message(_Answer):
    message: _Stored = msgspec.field(default_factory=_Stored)


class _Replica(msgspec.Struct):
    name: str
    current: bool = False
    offline: bool = False
    lag: int = 0
    active: int = 0
    """Nanoseconds since the leader last heard of it."""

    @property
    def words(self) -> str:
        """The server takes long to call a replica offline, and one that misses no record yet is "current"."""
        silent_s = self.active / 1e9
        words = [
            "offline" if self.offline else "",
            f"{self.lag} behind" if self.lag else "",
            f"silent for {silent_s:.0f} s" if silent_s >= SILENT_S else "",
        ]
        return ", ".join(filter(None, words)) or ("current" if self.current else "not current")


class _Cluster(msgspec.Struct):
    leader: str = ""
    replicas: list[_Replica] = []


class _State(msgspec.Struct):
    messages: int = 0
    bytes: int = 0
    first_seq: int = 0
    last_seq: int = 0


class _Info(_Answer):
    config: dict[str, Any] = {}
    state: _State = msgspec.field(default_factory=_State)
    cluster: _Cluster = msgspec.field(default_factory=_Cluster)


_decode_acknowledgement = msgspec.json.Decoder(_Acknowledgement).decode
AnswerT = TypeVar("AnswerT", bound=_Answer)


# --- the connection ----------------------------------------------------------------------------------


class Servers(NamedTuple):
    """Where the servers are, and how to log in to them: one user for all."""

    places: list[str]
    tls: bool
    user: str | None
    password: str | None

    @classmethod
    def parse(cls, url: str) -> Servers:
        """``nats://a:4222,b:4222``; with ``USER:PASSWORD@`` or ``TOKEN@`` before one host or each."""
        places: list[str] = []
        schemes: set[str] = set()
        logins: set[str] = set()
        for one in url.strip().removesuffix("/").split(","):
            scheme, separator, rest = one.strip().rpartition("://")
            login, at, place = rest.rpartition("@")
            if separator:
                schemes.add(scheme)
            if at:
                logins.add(login)
            place = place if ":" in place.rpartition("]")[2] else f"{place}:{PORT_DEFAULT}"
            try:
                places.append(str(parse_place(place)))
            except BadURL as error:
                raise _bad_url(error.message) from error
        if schemes not in ({"nats"}, {"tls"}):
            raise _bad_url("the servers of one cluster are all nats:// or all tls://")
        if len(logins) > 1:
            raise _bad_url("the servers of one cluster have one user")
        user, colon, password = logins.pop().partition(":") if logins else ("", "", "")
        return cls(places, schemes == {"tls"}, unquote(user) or None, unquote(password) if colon else None)

    def __str__(self) -> str:
        return ", ".join(self.places)

    @property
    def options(self) -> dict[str, Any]:
        """For nats-py."""
        urls = [f"{'tls' if self.tls else 'nats'}://{place}" for place in self.places]
        if self.password is None:
            return {"servers": urls, "token": self.user}
        return {"servers": urls, "user": self.user, "password": self.password}


def _bad_url(problem: str) -> BadConfig:
    return BadConfig(
        f"the address of the NATS cluster: {problem}",
        hint="Write nats://HOST:PORT, several with commas between: nats://a:4222,b:4222,c:4222. "
        "With TLS it is tls://, with a login nats://USER:PASSWORD@HOST:PORT.",
    )


Taker = Callable[[bytes, bytes, bytes], None]
"""Gets the subject, the data and the headers of a message."""


class _Client(Client):
    """nats-py, with what it lacks."""

    def __init__(self, *, tls: bool) -> None:
        super().__init__()
        self._tls = tls
        self._takers: dict[int, Taker] = {}

    def _connect_command(self) -> bytes:
        """The login: nats-py would send it in the clear if the server says that it has no TLS."""
        if self._tls and not self._server_info.get("tls_required"):
            raise NatsError("the address says tls://, and the server does not use TLS")
        return super()._connect_command()

    async def take_all(self, subject: str, take: Taker) -> None:
        """Calls ``take`` as soon as a message comes: ``subscribe`` with a callback wakes a task for each."""
        subscription = await self.subscribe(subject)
        self._takers[subscription._id] = take

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        if (take := self._takers.get(sid)) is None:
            await super()._process_msg(sid, subject, reply, data, headers)
            return
        try:
            take(subject, data, headers or b"")
        except Exception:  # nats-py would stop reading
            logger.exception("a message of NATS caused an error")

    def send(self, subject: str, reply: str, header: str, payload: bytes) -> None:
        """Does what ``publish`` does, at once, and without its copies: they take 1 ms per megabyte."""
        if self._pending_data_size + len(payload) > PENDING_BYTES_MAX:
            return  # lost, as if the connection had broken
        line = f"HPUB {subject} {reply} {len(header)} {len(header) + len(payload)}\r\n{header}".encode()
        if self.is_connected and not self._pending and self._transport is not None:
            with suppress(RuntimeError):  # uvloop's: the connection is gone, and nats-py does not know it yet
                self._transport.writelines([line, payload, b"\r\n"])
            return
        self._pending += (line, payload, b"\r\n")
        self._pending_data_size += len(line) + len(payload) + 2
        if self.is_connected and self._flush_queue is not None and self._flush_queue.empty():
            self._flush_queue.put_nowait(asyncio.get_running_loop().create_future())

    def abort(self) -> None:
        """Ends a broken connection at once; nats-py waits until the server has read all bytes for it."""
        if isinstance(self._transport, TcpTransport) and self._transport._io_writer is not None:
            self._transport._io_writer.transport.abort()


@dataclass(eq=False)
class _Batch:
    """Messages up to one with a status."""

    ended: asyncio.Future[None]
    messages: list[tuple[int, bytes]] = field(default_factory=list)
    """Their sequences in the stream, 0 for those that are not of it, and their bytes."""


class JetStream:
    """A ``Journal``. Its methods are called in the event loop that ``connect`` was called in."""

    def __init__(self, servers: Servers, group: str, member: str) -> None:
        if not _GROUP.fullmatch(group):
            raise BadConfig(
                f"group {group!r} is not a name",
                hint="A group has up to 64 letters, digits, hyphens and underscores.",
            )
        self.group = group
        self.member = member
        self.stream = f"HEADPOND-{group}"
        self._servers = servers
        self._subject = f"headpond.{group}.log"
        self._member_subject(member)
        self._loop = asyncio.get_running_loop()
        self._client = _Client(tls=servers.tls)
        inbox = self._client.new_inbox()
        self._acknowledgement_inbox = f"{inbox}.a."
        self._batch_inbox = f"{inbox}.b."
        self._number = 0
        self._appends: dict[bytes, asyncio.Future[int]] = {}
        self._batches: dict[bytes, _Batch] = {}
        self._handler: Handler | None = None
        self._on_news: Callable[[bytes], None] | None = None
        self._on_map: Callable[[], None] | None = None
        self._bucket_replicas = 0
        """Of a bucket that it creates; 0: it creates none."""
        self._answering: set[asyncio.Task[None]] = set()
        self._watching: asyncio.Task[None] | None = None
        self._warned_at = time.monotonic() - WARN_S

    @classmethod
    async def connect(
        cls,
        servers: str,
        group: str,
        member: str,
        *,
        replicas: int = 3,
        bytes_max: int = 8 << 30,
        create: bool = True,
    ) -> JetStream:
        """Returns when the stream is there, however long that takes; it is created if need be.

        With ``create=False`` the stream must exist, and may have any number of replicas and bytes.
        """
        found = cls(Servers.parse(servers), group, member)
        await found._open()
        try:
            found._watching = asyncio.create_task(found._watch())
            found._check_server()
            await found._find_stream(replicas, bytes_max, create)
            found._bucket_replicas = replicas if create else 0
        except BaseException:
            await found.close()
            raise
        return found

    @classmethod
    async def connect_bucket(cls, servers: str) -> JetStream:
        """For the map of groups alone, by an operator who may not know a group."""
        found = cls(Servers.parse(servers), MAIN, "operator")
        await found._open()
        found._watching = asyncio.create_task(found._watch())
        return found

    # --- Journal ------------------------------------------------------------------------------------

    def append(self, record: bytes, expected_seq: int) -> asyncio.Future[int]:
        self._number += 1
        token = b"%d" % self._number
        future: asyncio.Future[int] = self._loop.create_future()
        self._appends[token] = future
        future.add_done_callback(partial(self._appends.pop, token))
        if len(record) > self._client.max_payload:
            self._refuse(future, MESSAGE_TOO_LARGE, f"{len(record)} bytes are too many for the server")
        else:
            header = f"NATS/1.0\r\nNats-Expected-Last-Sequence: {expected_seq}\r\n\r\n"
            self._client.send(self._subject, f"{self._acknowledgement_inbox}{self._number}", header, record)
        return future

    async def read(self, seq: int, bytes_max: int) -> list[tuple[int, bytes]]:
        """Less than ``bytes_max`` bytes, and the record that follows them."""
        request = {"seq": seq, "batch": BATCH_RECORDS_MAX, "max_bytes": max(1, bytes_max), "next_by_subj": ">"}
        token, batch = self._begin_batch()
        try:
            await self._publish(f"$JS.API.DIRECT.GET.{self.stream}", msgspec.json.encode(request), token)
            count = -1
            while not batch.ended.done() and len(batch.messages) > count:
                count = len(batch.messages)
                await asyncio.wait([batch.ended], timeout=ANSWER_S_MAX)
        finally:
            del self._batches[token]
        found: list[tuple[int, bytes]] = []
        for number, data in batch.messages:
            if found and number != found[-1][0] + 1:
                break
            found.append((number, data))
        return found

    async def read_leader(self, seq: int) -> bytes | None:
        answer = await self._call("STREAM.MSG.GET", _Message, {"seq": seq})
        if answer.error is None:
            return answer.message.data
        if answer.error.err_code == MESSAGE_NOT_FOUND:
            return None
        raise Unreachable(answer.error.description)

    async def state(self) -> StreamState:
        info = await self._call("STREAM.INFO", _Info)
        if info.error is not None:
            raise Unreachable(info.error.description)
        state, cluster = info.state, info.cluster
        leader = {cluster.leader: "leader"} if cluster.leader else {}
        return StreamState(
            first_seq=state.first_seq if state.messages else state.last_seq + 1,
            last_seq=state.last_seq,
            bytes=state.bytes,
            bytes_max=info.config["max_bytes"],
            leader=cluster.leader,
            replicas=leader | {replica.name: replica.words for replica in cluster.replicas},
        )

    async def trim(self, upto_seq: int) -> None:
        # A purge beyond the end would move the end: the next record would be numbered behind it.
        await self._purge(min(upto_seq, (await self.state()).last_seq))

    async def skip_to(self, seq: int) -> None:
        """Of a ``ReseedJournal``."""
        await self._purge(seq)

    async def _purge(self, upto_seq: int) -> None:
        answer = await self._call("STREAM.PURGE", _Answer, {"seq": upto_seq + 1}, CHANGE_S_MAX)
        if answer.error is not None:
            raise Unreachable(answer.error.description)

    async def ask(self, member: str, question: bytes, timeout_s: float) -> bytes:
        return (await self._request(self._member_subject(member), question, timeout_s)).data

    async def ask_all(self, question: bytes, timeout_s: float) -> list[bytes]:
        token, batch = self._begin_batch()
        try:
            await self._publish(f"headpond.{self.group}.all", question, token)
            await asyncio.wait([batch.ended], timeout=timeout_s)
        finally:
            del self._batches[token]
        return [data for _, data in batch.messages]

    async def answer(self, handler: Handler, on_news: Callable[[bytes], None]) -> None:
        self._handler = handler
        self._on_news = on_news
        await self._listen(self._client)

    def tell(self, news: bytes) -> None:
        self._client.send(f"headpond.{self.group}.news", "", "NATS/1.0\r\n\r\n", news)

    async def close(self) -> None:
        tasks = [*self._answering, *([self._watching] if self._watching else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._close_client(self._client)

    # --- GroupBucket --------------------------------------------------------------------------------

    async def read_map(self) -> tuple[int, bytes]:
        ask = {"last_by_subj": MAP_SUBJECT}
        answer = await self._call("STREAM.MSG.GET", _Message, ask, stream=BUCKET_STREAM)
        if answer.error is None:
            return answer.message.seq, answer.message.data
        if answer.error.err_code == STREAM_NOT_FOUND and self._bucket_replicas:
            await self._create_bucket()
        elif answer.error.err_code not in (STREAM_NOT_FOUND, MESSAGE_NOT_FOUND):
            raise Unreachable(answer.error.description)
        return 0, b""

    async def write_map(self, text: bytes, revision: int) -> int:
        header = {"Nats-Expected-Last-Subject-Sequence": str(revision)}
        message = await self._request(MAP_SUBJECT, text, CHANGE_S_MAX, header)
        answer = _decode_acknowledgement(message.data)
        if answer.error is not None:
            if answer.error.err_code in (Refused.WRONG_LAST, Refused.WRONG_LAST_BESIDE_ANOTHER):
                raise Refused(answer.error.err_code, answer.error.description)
            raise Unreachable(answer.error.description)
        self._client.send(MAP_NEWS, "", "NATS/1.0\r\n\r\n", b"")
        return answer.seq

    async def watch_map(self, on_change: Callable[[], None]) -> None:
        self._on_map = on_change
        await self._listen_map(self._client)

    async def _listen_map(self, client: Client) -> None:
        with suppress(NatsError):  # closed: the next connection listens
            await client.subscribe(MAP_NEWS, cb=self._take_map_news)

    async def _take_map_news(self, message: Msg) -> None:
        assert self._on_map is not None
        self._on_map()

    async def _create_bucket(self) -> None:
        """As `nats kv add` would; another member may be faster."""
        config = {
            "name": BUCKET_STREAM,
            "subjects": [f"$KV.{BUCKET}.>"],
            "storage": "file",
            "discard": "new",
            "max_msgs_per_subject": MAP_HISTORY,
            "allow_rollup_hdrs": True,
            "deny_delete": True,
            "allow_direct": True,
            "num_replicas": self._bucket_replicas,
        }
        answer = await self._call("STREAM.CREATE", _Answer, config, CHANGE_S_MAX, stream=BUCKET_STREAM)
        if answer.error is not None and answer.error.err_code != STREAM_EXISTS:
            raise Unreachable(f"bucket {BUCKET}: {answer.error.description}")

    # --- messages -----------------------------------------------------------------------------------

    def _take_acknowledgement(self, subject: bytes, data: bytes, headers: bytes) -> None:
        future = self._appends.get(subject.rpartition(b".")[2])
        if future is None or future.done():
            return
        if not data:
            status = _STATUS.match(headers)
            self._refuse(future, int(status[1]) if status else 0, "no server leads the stream")
            return
        answer = _decode_acknowledgement(data)
        if answer.error is None:
            future.set_result(answer.seq)
        else:
            self._refuse(future, answer.error.err_code, answer.error.description)

    def _refuse(self, future: asyncio.Future[int], code: int, text: str) -> None:
        future.set_exception(Refused(code, text))
        future.exception()  # the caller may have no use for it: then asyncio shall not complain

    def _begin_batch(self) -> tuple[bytes, _Batch]:
        self._number += 1
        token = b"%d" % self._number
        batch = self._batches[token] = _Batch(self._loop.create_future())
        return token, batch

    def _take_batch(self, subject: bytes, data: bytes, headers: bytes) -> None:
        batch = self._batches.get(subject.rpartition(b".")[2])
        if batch is None or batch.ended.done():
            return
        if _STATUS.match(headers):
            batch.ended.set_result(None)
        else:
            seq = _SEQUENCE.search(headers)
            batch.messages.append((int(seq[1]) if seq else 0, data))

    async def _publish(self, subject: str, data: bytes, token: bytes) -> None:
        """Sends a request that a batch answers."""
        with suppress(NatsError):  # the batch gets nothing
            await self._client.publish(subject, data, self._batch_inbox + token.decode())

    async def _request(
        self, subject: str, data: bytes, timeout_s: float, headers: dict[str, str] | None = None
    ) -> Msg:
        try:
            return await self._client.request(subject, data, timeout_s, headers=headers)
        except NatsError as error:
            if not isinstance(error, TimeoutError):
                await asyncio.sleep(RETRY_S)  # a caller that asks again at once shall not keep the loop busy
            raise Unreachable(f"{subject}: {error}") from error

    async def _call(
        self,
        what: str,
        kind: type[AnswerT],
        body: dict[str, Any] | None = None,
        timeout_s: float = ANSWER_S_MAX,
        *,
        stream: str | None = None,
    ) -> AnswerT:
        data = b"" if body is None else msgspec.json.encode(body)
        message = await self._request(f"$JS.API.{what}.{stream or self.stream}", data, timeout_s)
        return msgspec.json.decode(message.data, type=kind)

    def _member_subject(self, member: str) -> str:
        if not _MEMBER.fullmatch(member):
            raise BadConfig(
                f"member {member!r} is not a name",
                hint="A member has up to 128 letters, digits, hyphens and underscores, with dots between.",
            )
        return f"headpond.{self.group}.member.{member}"

    # --- questions and news -------------------------------------------------------------------------

    async def _listen(self, client: Client) -> None:
        with suppress(NatsError):  # closed: the next connection listens
            for subject in (f"headpond.{self.group}.all", self._member_subject(self.member)):
                await client.subscribe(subject, cb=self._take_question)
            await client.subscribe(f"headpond.{self.group}.news", cb=self._take_news)

    async def _take_question(self, message: Msg) -> None:
        task = asyncio.create_task(self._answer_question(message))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _take_news(self, message: Msg) -> None:
        assert self._on_news is not None
        try:
            self._on_news(message.data)
        except Exception:
            logger.exception("news of another member caused an error")

    async def _answer_question(self, message: Msg) -> None:
        assert self._handler is not None
        try:
            await message.respond(await self._handler(message.data))
        except Exception:
            logger.exception("a question of another member stays without an answer")

    # --- the connection -----------------------------------------------------------------------------

    async def _open(self) -> None:
        """Makes a connection; tries for ever."""
        while True:
            client = _Client(tls=self._servers.tls)
            try:
                await self._connect(client)
            except FAILURES:
                await self._close_client(client)
                await asyncio.sleep(RETRY_S)
            except BaseException:
                await self._close_client(client)
                raise
            else:
                self._client = client
                return

    async def _connect(self, client: _Client) -> None:
        options = {
            **self._servers.options,
            "name": f"headpond {self.group} {self.member}",
            "error_cb": partial(self._note_error, client),
            "ping_interval": PING_S,
            "max_outstanding_pings": PINGS_MAX,
            "max_reconnect_attempts": -1,
            "reconnect_time_wait": RETRY_S,
            "connect_timeout": ANSWER_S_MAX,
            "pending_size": PENDING_BYTES_MAX,
        }
        # If TLS fails at first, nats-py does not get as far as to try again.
        await client.connect(**options, allow_reconnect=False)
        client.options["allow_reconnect"] = True
        for inbox, take in (
            (self._acknowledgement_inbox, self._take_acknowledgement),
            (self._batch_inbox, self._take_batch),
        ):
            await client.take_all(f"{inbox}*", take)
        if self._handler is not None:
            await self._listen(client)
        if self._on_map is not None:
            await self._listen_map(client)
            self._on_map()  # it may have changed meanwhile

    async def _close_client(self, client: _Client) -> None:
        if not client.is_connected:
            client.abort()
        try:
            async with asyncio.timeout(CLOSE_S_MAX):
                await client.close()
        except (TimeoutError, RuntimeError):  # uvloop's error if the connection is gone and bytes are left
            client.abort()

    async def _watch(self) -> None:
        connected_at = time.monotonic()
        while True:
            await asyncio.sleep(WATCH_S)
            client = self._client
            if client.is_connected:
                connected_at = time.monotonic()
            elif client.is_closed or time.monotonic() - connected_at > REPLACE_S:
                try:
                    await self._close_client(client)
                    await self._open()
                except Exception:
                    logger.exception("cannot connect to NATS; trying again")
            elif client.is_reconnecting:
                client.abort()

    async def _note_error(self, client: _Client, error: Exception) -> None:
        """Of an attempt to connect, if there is no connection."""
        logger.debug("NATS: %r", error)
        if client.is_connected:
            if "permissions violation" in str(error):
                self._warn(str(error))
        elif isinstance(error, FAILURES):
            client.abort()
            self._warn(str(error) or type(error).__name__)

    def _warn(self, problem: str) -> None:
        now = time.monotonic()
        if now - self._warned_at >= WARN_S:
            self._warned_at = now
            logger.warning("stream %s at %s: %s; trying again", self.stream, self._servers, problem)

    # --- the stream ---------------------------------------------------------------------------------

    def _check_server(self) -> None:
        version = self._client.connected_server_version
        if (version.major, version.minor) < VERSION_MIN:
            raise BadConfig(
                f"the NATS server at {self._servers} is version {version.major}.{version.minor}",
                hint=f"Headpond needs nats-server {'.'.join(map(str, VERSION_MIN))} or newer.",
            )
        if self._client.max_payload < 2 * RECORD_BYTES_MAX:
            raise BadConfig(
                f"the NATS server at {self._servers} takes {self._client.max_payload} bytes in one message",
                hint=f"Set max_payload to {2 * RECORD_BYTES_MAX} or more in the server's configuration.",
            )

    async def _find_stream(self, replicas: int, bytes_max: int, create: bool) -> None:
        kind = {
            "subjects": [self._subject],
            "storage": "file",
            "retention": "limits",
            "discard": "new",
            "max_msgs": -1,
            "max_msgs_per_subject": -1,
            "max_msg_size": -1,
            "max_age": 0,
            "allow_direct": True,
            "deny_delete": True,
        }
        wanted = {**kind, "num_replicas": replicas, "max_bytes": bytes_max} if create else kind
        while True:
            try:
                info = await self._call("STREAM.INFO", _Info)
                error = info.error
                if error is None:
                    return self._check_stream(info.config, wanted)
                if error.err_code == STREAM_NOT_FOUND and create:
                    config = {"name": self.stream, **wanted}
                    error = (await self._call("STREAM.CREATE", _Answer, config, CHANGE_S_MAX)).error
                    if error is None:
                        continue
                if error.err_code == STREAM_NOT_FOUND and not create:
                    raise GroupNotFound(f"{self._servers} has no group {self.group}")
                if error.err_code in WILL_NOT_HELP:
                    raise BadConfig(
                        f"stream {self.stream} at {self._servers}: {error.description}",
                        hint="Headpond needs nats-servers with JetStream, as many as the stream has replicas.",
                    )
                self._warn(error.description)
            except Unreachable as unreachable:
                self._warn(str(unreachable))
            await asyncio.sleep(RETRY_S)

    def _check_stream(self, config: dict[str, Any], wanted: dict[str, Any]) -> None:
        different = [
            f"{name} is {config.get(name)!r}, not {value!r}"
            for name, value in wanted.items()
            if config.get(name) != value
        ]
        if different:
            raise BadConfig(
                f"stream {self.stream} has other settings: {'; '.join(different)}",
                hint=f"Give all members of the group the same settings, or change the stream: nats stream edit "
                f"{self.stream}.",
            )
