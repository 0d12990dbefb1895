"""A JetStream stream of three servers, as the members of a group see it (cluster/journal.py).

A member is connected to one server, its home, which passes requests on to the leader. A leader with a quorum
commits a record at once, and the stream never loses it. Everything around that can go wrong: servers are
killed, paused, cut off or behind, messages are lost, late or doubled, and a former leader answers that does not
know of its successor.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

from headpond.cluster.journal import RECORD_BYTES_MAX, Handler, Refused, StreamState, Unreachable
from headpond.sim.loop import SimLoop
from headpond.sim.process import Killed, Process

Result = TypeVar("Result")

SERVERS = ("nats1", "nats2", "nats3")
QUORUM = 2
ELECTION_S = (4.0, 9.0)
HEARTBEAT_S = 1.0
"""Within this time a server that was away learns who leads, and catches up."""
LEAD_ALONE_S = 10.0
"""A former leader that hears of no other one gives up after this time."""
NOTICE_S = 3.0
"""After this time a client leaves a silent server."""
RECONNECT_S = (0.05, 0.5)
REQUEST_S = 1.0
TRIM_S = 5.0
HELD_S = (1.0, 20.0)
READ_RECORDS_MAX = 1024


@dataclass(slots=True)
class StreamWeather:
    """What happens to messages between members and servers: rates are per message."""

    delay_s: tuple[float, float] = (0.0005, 0.003)
    lost: float = 0.0
    """A request, or a member's answer to another one, does not arrive."""
    doubled: float = 0.0
    """An append or a trim arrives twice."""
    answer_lost: float = 0.0
    answer_late: float = 0.0
    """Answers behind it come earlier."""
    late_s: tuple[float, float] = (1.0, 6.0)
    held: float = 0.0
    """An append, and everything behind it, waits until another member's record is stored."""
    stale_read: float = 0.0
    """A read goes to a replica that has not applied the last few records."""


class Extent(NamedTuple):
    first_seq: int
    last_seq: int
    bytes: int


class StreamServer:
    def __init__(self, stream: Stream, name: str) -> None:
        self.name = name
        self.up = True
        self.paused_since_s = math.inf
        self.lagging = False
        self.leads = False
        """It believes so: a former leader may not know of its successor."""
        self.stale_extent: Extent | None = None
        """The stream when it was last up to date; None: it is."""
        self.damaged: dict[int, bytes] = {}
        self.waiting: list[Callable[[], None]] = []
        """Its work when it runs again, or has a quorum again."""
        self._stream = stream

    @property
    def running(self) -> bool:
        return self.up and self.paused_since_s == math.inf

    @property
    def extent(self) -> Extent:
        return self.stale_extent or self._stream.extent

    def kill(self) -> None:
        self.up, self.paused_since_s = False, math.inf
        self.follow()
        if self._stream.leader is self:
            self._stream.leader = None
        self._stream.look()

    def start(self) -> None:
        self.up = True
        self._stream.look()

    def pause(self) -> None:
        """SIGSTOP: its connections stay, and what arrives waits."""
        if self.running:
            self.paused_since_s = self._stream.loop.time()
            self._stream.look()

    def resume(self) -> None:
        self.paused_since_s = math.inf
        self._stream.look()

    def lag(self) -> None:
        """It counts for a quorum, but its reads show no new records."""
        self.lagging = True

    def catch_up(self) -> None:
        self.lagging = False
        self._stream.look()

    def do(self, work: Callable[[], None]) -> None:
        if self.running:
            work()
        elif self.up:
            self.waiting.append(work)

    def follow(self) -> None:
        """It does not lead: what waited for its quorum is lost."""
        self.leads = False
        self.waiting.clear()


class Stream:
    def __init__(self, loop: SimLoop, chance: random.Random, bytes_max: int = 1 << 30) -> None:
        self.loop = loop
        self.chance = chance
        self.bytes_max = bytes_max
        self.weather = StreamWeather()
        self.counts: Counter[str] = Counter()
        """What the weather did."""
        self.records: dict[int, bytes] = {}
        """The committed ones, by sequence."""
        self.extent = Extent(1, 0, 0)
        self.servers = [StreamServer(self, name) for name in SERVERS]
        self.leader: StreamServer | None = chance.choice(self.servers)
        """The one that commits while it has a quorum."""
        self.leader.leads = True
        self.journals: list[SimJournal] = []
        self.cuts: dict[tuple[str, str], float] = {}
        """Since when nothing arrives: from one member or server, at another one."""
        self.held: dict[SimJournal, list[Callable[[], None]]] = {}
        """Messages of members that wait on their way."""
        self._election: asyncio.TimerHandle | None = None

    # --- faults -------------------------------------------------------------------------------------

    def cut(self, member: str, server: str, *, to: bool = True, back: bool = True) -> None:
        """Nothing arrives from ``member`` at ``server``, or nothing comes back; both may be servers."""
        for wanted, pair in ((to, (member, server)), (back, (server, member))):
            if wanted:
                self.cuts.setdefault(pair, self.loop.time())
        self.look()

    def heal_between(self, member: str, server: str) -> None:
        self.cuts.pop((member, server), None)
        self.cuts.pop((server, member), None)
        self.look()

    def flip(self, seq: int, chance: random.Random) -> StreamServer | None:
        """Alters a bit of a record on one server; None: there is no such record."""
        if seq not in self.records:
            return None
        record = bytearray(self.records[seq])
        record[chance.randrange(len(record))] ^= 1 << chance.randrange(8)
        server = chance.choice(self.servers)
        server.damaged[seq] = bytes(record)
        return server

    def heal(self) -> None:
        """Ends all faults; altered records are restored."""
        self.weather = StreamWeather()
        self.cuts.clear()
        self.release(*self.held)
        for server in self.servers:
            server.up, server.paused_since_s, server.lagging = True, math.inf, False
            server.damaged.clear()
        self.look()

    def hold(self, journal: SimJournal) -> None:
        """A member's messages wait on their way, until another member's record is stored, or for some time."""
        if journal not in self.held:
            self.held[journal] = []
            self.loop.call_in(None, self.chance.uniform(*HELD_S), self.release, journal)

    def release(self, *journals: SimJournal) -> None:
        for journal in journals:
            for arrive in self.held.pop(journal, []):
                arrive()

    def silent_since_s(self, member: str, server: StreamServer) -> float:
        """Since when a server that is up does not get a member's messages, or the member not its answers."""
        begins = (self.cuts.get(pair, math.inf) for pair in ((member, server.name), (server.name, member)))
        return min(server.paused_since_s, *begins)

    def arrival_s(self) -> float:
        """When a message arrives that is sent now."""
        return self.loop.time() + self.chance.uniform(*self.weather.delay_s)

    def happens(self, fault: str) -> bool:
        rate: float = getattr(self.weather, fault)
        if rate == 0.0 or self.chance.random() >= rate:
            return False
        self.counts[f"stream: {fault.replace('_', ' ')}"] += 1
        return True

    # --- the leader ---------------------------------------------------------------------------------

    def linked(self, one: StreamServer, other: StreamServer) -> bool:
        """A paused one gets what is sent when it runs again."""
        cut = (one.name, other.name) in self.cuts or (other.name, one.name) in self.cuts
        return one.up and other.up and not cut

    def in_touch(self, one: StreamServer, other: StreamServer) -> bool:
        return one.running and other.running and self.linked(one, other)

    def has_quorum(self, server: StreamServer) -> bool:
        return sum(self.in_touch(server, each) for each in self.servers) >= QUORUM

    def can_commit(self, server: StreamServer) -> bool:
        return server is self.leader and self.has_quorum(server)

    def look(self) -> None:
        """What a change of servers or cuts leads to."""
        if self.leader is not None and self.has_quorum(self.leader):
            if self._election is not None:
                self._election.cancel()
                self._election = None
        elif self._election is None:
            self._election = self.loop.call_in(None, self.chance.uniform(*ELECTION_S), self._elect)
        for server in self.servers:
            work, server.waiting = server.waiting, []
            for each in work:
                server.do(each)
            self.loop.call_in(None, self.chance.uniform(0.0, HEARTBEAT_S), self._hear, server)
            if server.leads and server is not self.leader:
                self.loop.call_in(None, LEAD_ALONE_S, self._give_up, server)

    def _elect(self) -> None:
        self._election = None
        able = [server for server in self.servers if self.has_quorum(server)]
        self.leader = self.chance.choice(able) if able else None
        if self.leader is not None:
            self.leader.leads = True
            self.leader.stale_extent = None  # a quorum has every record
        self.look()

    def _hear(self, server: StreamServer) -> None:
        """The leader's heartbeat arrives at a server."""
        if self.leader is not None and server is not self.leader and self.in_touch(server, self.leader):
            server.follow()
            if not server.lagging:
                server.stale_extent = None

    def _give_up(self, server: StreamServer) -> None:
        if server is not self.leader and server.running:
            server.follow()

    # --- what servers do ----------------------------------------------------------------------------

    def commit(self, record: bytes, expected_seq: int) -> int:
        first_seq, last_seq, size = self.extent
        if expected_seq != last_seq:
            raise Refused(Refused.WRONG_LAST, f"wrong last sequence: {last_seq}")
        if size + len(record) > self.bytes_max:
            raise Refused(Refused.FULL, "maximum bytes exceeded")
        self.records[last_seq + 1] = record
        self._change(Extent(first_seq, last_seq + 1, size + len(record)))
        return last_seq + 1

    def trim(self, upto_seq: int) -> None:
        first_seq, last_seq, size = self.extent
        begin_seq = max(first_seq, min(upto_seq, last_seq) + 1)
        size -= sum(len(self.records.pop(seq)) for seq in range(first_seq, begin_seq))
        self._change(Extent(begin_seq, last_seq, size))

    def _change(self, extent: Extent) -> None:
        assert self.leader is not None
        for server in self.servers:
            if server is not self.leader and (server.lagging or not self.in_touch(server, self.leader)):
                server.stale_extent = server.extent
        self.extent = extent

    def read(self, server: StreamServer, seq: int, bytes_max: int) -> list[tuple[int, bytes]]:
        """Less than ``bytes_max`` bytes, and the record that follows them."""
        found: list[tuple[int, bytes]] = []
        for each in range(max(seq, self.extent.first_seq), server.extent.last_seq + 1)[:READ_RECORDS_MAX]:
            found.append((each, server.damaged.get(each, self.records[each])))
            bytes_max -= len(found[-1][1])
            if bytes_max <= 0:
                break
        return found

    def state(self, server: StreamServer) -> StreamState:
        replicas = {}
        for each in self.servers:
            behind = server.extent.last_seq - each.extent.last_seq
            state = f"{behind} behind" if behind > 0 else "current"
            replicas[each.name] = state if self.in_touch(each, server) else "offline"
        replicas[server.name] = "leader"
        return StreamState(*server.extent, self.bytes_max, server.name, replicas)


class SimJournal:
    """A member's connection, made in its process; the Journal protocol. The machine's name is the member's."""

    def __init__(self, stream: Stream, process: Process) -> None:
        self.member = process.place
        self._stream = stream
        self._loop = stream.loop
        self._process = process
        self._home: StreamServer | None = None
        self._handler: Handler | None = None
        self._on_news: Callable[[bytes], None] = lambda _: None
        self._unsent: list[Callable[[StreamServer], None]] = []
        """Its client keeps messages until it is connected."""
        self._sent_s = self._received_s = 0.0
        """When the last message arrives: messages keep their order in both directions."""
        stream.journals.append(self)

    async def close(self) -> None:
        self._stream.journals.remove(self)

    # --- the stream ---------------------------------------------------------------------------------

    def append(self, record: bytes, expected_seq: int) -> asyncio.Future[int]:
        assert len(record) <= RECORD_BYTES_MAX
        if self._stream.happens("held"):
            self._stream.hold(self)

        def commit(_: StreamServer) -> int:
            seq = self._stream.commit(record, expected_seq)
            self._stream.release(*(each for each in self._stream.held if each is not self))
            return seq

        return self._request(commit, commits=True)

    async def read(self, seq: int, bytes_max: int) -> list[tuple[int, bytes]]:
        records: list[tuple[int, bytes]] = []
        with suppress(Unreachable):
            run = partial(self._stream.read, seq=seq, bytes_max=bytes_max)
            records = await _answer(self._request(run, replica=True))
        stale = self._stream.happens("stale_read")
        return records[: -self._stream.chance.randrange(1, 6)] if stale else records

    async def read_leader(self, seq: int) -> bytes | None:
        records = await _answer(self._request(partial(self._stream.read, seq=seq, bytes_max=0)))
        return dict(records).get(seq)

    async def state(self) -> StreamState:
        return await _answer(self._request(self._stream.state))

    async def trim(self, upto_seq: int) -> None:
        await _answer(self._request(lambda _: self._stream.trim(upto_seq), commits=True), TRIM_S)

    def _request(
        self, run: Callable[[StreamServer], Result], *, commits: bool = False, replica: bool = False
    ) -> asyncio.Future[Result]:
        """Calls ``run`` with the leader or any replica; one that ``commits`` waits for a quorum."""
        stream, future = self._stream, self._loop.create_future()
        serve = partial(self._serve, run, future, commits)

        def pass_on(home: StreamServer) -> None:
            if replica:
                serve(stream.chance.choice([each for each in stream.servers if stream.in_touch(home, each)]))
                return
            leaders = [each for each in stream.servers if each.leads and stream.linked(home, each)]
            for server in leaders:
                server.do(partial(serve, server))
            if commits and not leaders:
                self._deliver(home, partial(_settle, future, Refused(503, "no server leads the stream")))

        self._send(pass_on)
        if commits and stream.happens("doubled"):
            self._send(pass_on)
        return future

    def _serve(
        self,
        run: Callable[[StreamServer], Result],
        future: asyncio.Future[Result],
        commits: bool,
        server: StreamServer,
    ) -> None:
        if commits and not self._stream.can_commit(server):
            server.waiting.append(partial(self._serve, run, future, commits, server))
            return
        outcome: Result | Refused
        try:
            outcome = run(server)
        except Refused as refused:
            outcome = refused.with_traceback(None)  # it would lead to the outcome: a cycle
        self._deliver(server, partial(_settle, future, outcome))

    # --- other members ------------------------------------------------------------------------------

    async def ask(self, member: str, question: bytes, timeout_s: float) -> bytes:
        future: asyncio.Future[bytes] = self._loop.create_future()
        self._ask(member, question, partial(_settle, future))
        return await _answer(future, timeout_s)

    async def ask_all(self, question: bytes, timeout_s: float) -> list[bytes]:
        answers: list[bytes] = []
        self._ask(None, question, answers.append)
        await asyncio.sleep(timeout_s)
        return list(answers)

    async def answer(self, handler: Handler, on_news: Callable[[bytes], None]) -> None:
        self._handler, self._on_news = handler, on_news

    def tell(self, news: bytes) -> None:
        self._send_to_members(None, lambda other: other._on_news(news))

    def _ask(self, member: str | None, question: bytes, take: Callable[[bytes], None]) -> None:
        def reply(answer: bytes, home: StreamServer) -> None:
            self._deliver(home, partial(take, answer))

        self._send_to_members(member, lambda other: other._respond(question, reply))

    def _send_to_members(self, member: str | None, take: Callable[[SimJournal], None]) -> None:
        def pass_on(home: StreamServer) -> None:
            for other in self._stream.journals:
                if member in (None, other.member):
                    other._deliver(home, partial(take, other))

        self._send(pass_on)

    def _respond(self, question: bytes, reply: Callable[[bytes, StreamServer], None]) -> None:
        async def respond(handler: Handler) -> None:
            with suppress(Exception):
                answer = await handler(question)
                assert len(answer) <= RECORD_BYTES_MAX
                self._send(partial(reply, answer))

        if self._handler is not None:
            self._loop.create_task(respond(self._handler))

    # --- the connection -----------------------------------------------------------------------------

    def _connect(self) -> StreamServer | None:
        """Its home; another server if this one is down, or the client has noticed that it is silent."""
        stream, now_s, home = self._stream, self._loop.time(), self._home
        silent_since_s = partial(stream.silent_since_s, self.member)
        if home is None or not home.up or now_s - silent_since_s(home) > NOTICE_S:
            able = [each for each in stream.servers if each.up and silent_since_s(each) == math.inf]
            self._home = stream.chance.choice(able) if able else None
            self._sent_s = max(self._sent_s, now_s + stream.chance.uniform(*RECONNECT_S))
        return self._home

    def _send(self, pass_on: Callable[[StreamServer], None]) -> None:
        """Sends a message to its home, which passes it on."""
        if self._process.killed:
            raise Killed
        if self._stream.happens("lost"):
            return
        self._unsent.append(pass_on)
        if (home := self._connect()) is not None:
            for each in self._unsent:
                self._sent_s = max(self._sent_s, self._stream.arrival_s())
                self._loop.call_in(None, self._sent_s - self._loop.time(), self._arrive, home, each)
            self._unsent.clear()

    def _arrive(self, home: StreamServer, pass_on: Callable[[StreamServer], None]) -> None:
        if (held := self._stream.held.get(self)) is not None:
            held.append(partial(self._arrive, home, pass_on))
            return
        unsent = self._process.killed and self._stream.chance.random() < 0.5
        if not unsent and (self.member, home.name) not in self._stream.cuts:
            home.do(partial(pass_on, home))

    def _deliver(self, source: StreamServer, take: Callable[[], None]) -> None:
        """Sends a message from a server to its home, and from there to its process."""
        stream = self._stream

        def pass_on() -> None:
            if (home := self._connect()) is not None and stream.in_touch(source, home):
                self._received_s = max(self._received_s, stream.arrival_s())
                self._loop.call_in(None, self._received_s - self._loop.time(), arrive, home)

        def arrive(home: StreamServer) -> None:
            if home.up and (home.name, self.member) not in stream.cuts:
                self._loop.call_in(self._process, 0.0, take)

        if stream.happens("answer_late"):
            self._loop.call_in(None, stream.chance.uniform(*stream.weather.late_s), pass_on)
        elif not stream.happens("answer_lost"):
            pass_on()


async def _answer(future: asyncio.Future[Result], timeout_s: float = REQUEST_S) -> Result:
    try:
        return await asyncio.wait_for(future, timeout_s)
    except (TimeoutError, Refused) as error:
        raise Unreachable(str(error) or f"no answer within {timeout_s} s") from error


def _settle(future: asyncio.Future[Any], outcome: object) -> None:
    if future.done():
        return
    if isinstance(outcome, Refused):
        future.set_exception(outcome)
        future.exception()  # the caller may have no use for it
    else:
        future.set_result(outcome)
