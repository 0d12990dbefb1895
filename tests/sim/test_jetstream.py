"""The simulated stream behaves as JetStream does, and every fault shows."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import pytest

from headpond.cluster.journal import Journal, Refused, Unreachable
from headpond.sim.jetstream import RECONNECT_S, SimJournal, Stream, StreamServer, StreamWeather
from headpond.sim.loop import SimLoop
from headpond.sim.network import Network
from headpond.sim.process import Killed, Machine, Process
from headpond.sim.surroundings import simulated

Result = TypeVar("Result")
ALL = 1 << 20


class Stage:
    """A stream and two members."""

    def __init__(self, seed: int = 1, bytes_max: int = 1 << 30) -> None:
        self.loop = SimLoop()  # type: ignore[abstract]
        self.network = Network(self.loop, "1")
        self.stream = Stream(self.loop, random.Random(seed), bytes_max)
        self.here, self.there = self.start("here"), self.start("there")
        self.journal: Journal = SimJournal(self.stream, self.here)
        self.other: Journal = SimJournal(self.stream, self.there)

    def start(self, name: str) -> Process:
        return Machine(self.loop, self.network, name, "1").start(name)

    def run(self, scenario: Callable[[Stage], Coroutine[Any, Any, None]]) -> None:
        try:
            with simulated(self.loop, "1"):
                self.loop.run_until_complete(scenario(self))
        finally:
            self.loop.close()
        assert self.loop.faults == []

    async def wait(self, work: Awaitable[Result], process: Process | None = None) -> Result:
        """The result of a member's call; the test itself belongs to no process."""

        async def call() -> Result:
            return await work

        task = (process or self.here).spawn(call())
        while not task.done():  # noqa: ASYNC110  # the test would continue in the process
            await asyncio.sleep(0.01)
        return task.result()

    async def append(self, record: bytes, journal: Journal | None = None) -> int:
        return await self.wait((journal or self.journal).append(record, self.stream.extent.last_seq))

    async def fill(self, count: int) -> None:
        for number in range(count):
            await self.append(b"%d" % number)

    @property
    def leader(self) -> StreamServer:
        assert self.stream.leader is not None
        return self.stream.leader

    @property
    def followers(self) -> list[StreamServer]:
        return [server for server in self.stream.servers if server is not self.stream.leader]

    def cut_off(self, server: StreamServer) -> None:
        """From the other servers; of the members, ``here`` reaches it alone, and ``there`` all others."""
        self.stream.cut("there", server.name)
        for each in self.stream.servers:
            if each is not server:
                self.stream.cut(each.name, server.name)
                self.stream.cut("here", each.name)


def code_of(answer: asyncio.Future[int]) -> int | None:
    error = answer.exception()
    return error.code if isinstance(error, Refused) else None


async def no_answer(question: bytes) -> bytes:
    raise ValueError


# --- appends ----------------------------------------------------------------------------------------


def test_appends_arrive_in_the_order_sent() -> None:
    async def scenario(stage: Stage) -> None:
        stage.stream.weather = StreamWeather(delay_s=(0.0, 0.5))
        answers = [stage.journal.append(b"%d" % number, number) for number in range(100)]
        await asyncio.sleep(5.0)
        assert [answer.result() for answer in answers] == list(range(1, 101))
        assert await stage.wait(stage.journal.read(99, ALL)) == [(99, b"98"), (100, b"99")]

    Stage().run(scenario)


def test_an_append_is_refused_unless_the_stream_ends_where_it_expects() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.append(b"of another member", stage.other)
        answers = [stage.journal.append(b"mine", expected_seq) for expected_seq in (0, 1, 2, 9, 10)]
        stage.journal.append(b"nobody looks at its refusal", 9)
        await asyncio.sleep(1.0)
        wrong = Refused.WRONG_LAST
        assert [code_of(answer) or answer.result() for answer in answers] == [wrong, 2, 3, wrong, wrong]

    Stage().run(scenario)


def test_a_full_stream_refuses_until_it_is_trimmed() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.append(bytes(60))
        answers = [stage.journal.append(bytes(size), 1 + number) for number, size in enumerate((50, 1, 1))]
        await asyncio.sleep(1.0)
        assert [code_of(answer) for answer in answers] == [Refused.FULL, Refused.WRONG_LAST, Refused.WRONG_LAST]
        await stage.wait(stage.journal.trim(1))
        assert await stage.append(bytes(50)) == 2

    Stage(bytes_max=100).run(scenario)


def test_a_lost_append_is_not_stored_and_has_no_answer() -> None:
    async def scenario(stage: Stage) -> None:
        stage.stream.weather = StreamWeather(lost=1.0)
        answer = stage.journal.append(b"lost", 0)
        await asyncio.sleep(60.0)
        assert (answer.done(), stage.stream.records) == (False, {})

    Stage().run(scenario)


def test_an_append_whose_answer_is_lost_is_stored() -> None:
    async def scenario(stage: Stage) -> None:
        stage.stream.weather = StreamWeather(answer_lost=1.0)
        answer = stage.journal.append(b"landed", 0)
        await asyncio.sleep(60.0)
        assert (answer.done(), stage.stream.records) == (False, {1: b"landed"})

    Stage().run(scenario)


def test_a_late_answer_comes_after_seconds_and_behind_later_ones() -> None:
    async def scenario(stage: Stage) -> None:
        stage.stream.weather = StreamWeather(answer_late=1.0, late_s=(2.0, 3.0))
        late = stage.journal.append(b"1", 0)
        await asyncio.sleep(1.0)
        stage.stream.weather = StreamWeather()
        assert (await stage.append(b"2"), late.done()) == (2, False)
        await asyncio.sleep(3.0)
        assert late.result() == 1

    Stage().run(scenario)


def test_an_append_that_arrives_twice_is_stored_once() -> None:
    async def scenario(stage: Stage) -> None:
        stage.stream.weather = StreamWeather(doubled=1.0)
        await stage.fill(3)
        assert stage.stream.records == {1: b"0", 2: b"1", 3: b"2"}

    Stage().run(scenario)


def test_a_record_that_landed_can_be_refused_when_it_arrives_again() -> None:
    async def scenario(stage: Stage) -> None:
        stage.stream.weather = StreamWeather(doubled=1.0, answer_lost=0.5)
        answers = []
        for number in range(20):
            answers.append(stage.journal.append(b"%d" % number, number))
            await asyncio.sleep(1.0)
        assert len(stage.stream.records) == 20
        outcomes = {code_of(answer) if answer.done() else "no answer" for answer in answers}
        assert outcomes == {None, "no answer", Refused.WRONG_LAST}

    Stage().run(scenario)


# --- servers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_an_election_takes_four_to_nine_seconds(seed: int) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.append(b"before")
        former = stage.leader
        former.kill()
        began_s = stage.loop.time()
        with pytest.raises(Unreachable):
            await stage.wait(stage.journal.state())
        with pytest.raises(Refused, match="no server leads"):
            await stage.append(b"without a leader")
        while stage.stream.leader is None:  # noqa: ASYNC110  # nobody says so
            await asyncio.sleep(0.01)
        assert 4.0 <= stage.loop.time() - began_s <= 9.1
        assert stage.stream.leader is not former
        assert await stage.append(b"after") == 2
        assert (await stage.wait(stage.journal.state())).replicas[former.name] == "offline"
        former.start()
        await asyncio.sleep(1.1)
        assert (await stage.wait(stage.journal.state())).replicas[former.name] == "current"

    Stage(seed).run(scenario)


def test_a_killed_server_leaves_a_prefix_of_the_appends_on_their_way() -> None:
    """Some landed without an answer, some did not."""
    seen = []

    async def scenario(stage: Stage) -> None:
        await stage.append(b"connected")
        answers = [stage.journal.append(b"%d" % number, 1 + number) for number in range(50)]
        await asyncio.sleep(0.0025)
        for server in stage.stream.servers:
            server.kill()
        await asyncio.sleep(60.0)
        stage.stream.heal()
        await asyncio.sleep(60.0)
        stored = [number for _, number in await stage.wait(stage.journal.read(2, ALL))]
        assert stored == [b"%d" % number for number in range(len(stored))]
        seen.append((sum(answer.done() for answer in answers), len(stored)))

    for seed in range(5):
        stage = Stage(seed)
        stage.stream.weather = StreamWeather(delay_s=(0.001, 0.003))
        stage.run(scenario)
    assert all(answered <= stored for answered, stored in seen)
    assert any(answered < stored for answered, stored in seen)
    assert any(stored < 50 for _, stored in seen)


def test_without_a_quorum_appends_wait_and_the_state_is_answered() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.append(b"before")
        for server in stage.followers:
            server.kill()
        await asyncio.sleep(0.5)
        answer = stage.journal.append(b"waits", 1)
        await asyncio.sleep(2.0)
        assert (answer.done(), len(stage.stream.records)) == (False, 1)
        stage.stream.cut("here", stage.followers[0].name)
        stage.stream.cut("here", stage.followers[1].name)
        assert (await stage.wait(stage.journal.state())).last_seq == 1
        stage.followers[0].start()
        await asyncio.sleep(0.5)
        assert answer.result() == 2

    Stage().run(scenario)


def test_a_leader_that_is_cut_off_answers_with_an_old_state_until_it_gives_up() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.append(b"before")
        former = stage.leader
        stage.cut_off(former)
        await asyncio.sleep(9.5)
        assert stage.leader is not former
        assert await stage.append(b"after", stage.other) == 2
        mine, theirs = await stage.wait(stage.journal.state()), await stage.wait(stage.other.state())
        assert (mine.leader, mine.last_seq) == (former.name, 1)
        assert (theirs.leader, theirs.last_seq) == (stage.leader.name, 2)
        assert await stage.wait(stage.journal.read_leader(2)) is None
        assert await stage.wait(stage.journal.read(1, ALL)) == [(1, b"before")]
        await asyncio.sleep(10.0)
        with pytest.raises(Unreachable):
            await stage.wait(stage.journal.state())

    Stage().run(scenario)


def test_an_append_to_a_leader_that_is_cut_off_is_lost_with_the_election() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.append(b"before")
        former = stage.leader
        stage.cut_off(former)
        await asyncio.sleep(3.1)
        answer = stage.journal.append(b"lost", 1)
        await asyncio.sleep(7.0)
        stage.stream.heal()
        await asyncio.sleep(1.1)
        while (leader := stage.leader) is not former:
            leader.kill()
            await asyncio.sleep(9.5)
            leader.start()
        assert (answer.done(), stage.stream.records) == (False, {1: b"before"})

    Stage().run(scenario)


@pytest.mark.parametrize("seed", range(3))
def test_a_paused_leader_stores_what_arrived_when_it_continues_in_time(seed: int) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.append(b"before")
        leader = stage.leader
        leader.pause()
        answer = stage.journal.append(b"late", 1)
        await asyncio.sleep(2.0)
        assert not answer.done()
        leader.resume()
        await asyncio.sleep(0.5)
        assert answer.result() == 2
        await asyncio.sleep(10.0)
        assert stage.leader is leader

    Stage(seed).run(scenario)


def test_a_paused_server_passes_on_what_arrived_when_it_continues() -> None:
    async def scenario(stage: Stage) -> None:
        home, another = stage.followers
        stage.stream.cut("here", stage.leader.name)
        stage.stream.cut("here", another.name)
        await stage.append(b"before")
        home.pause()
        stage.journal.append(b"late", 1)
        await asyncio.sleep(2.0)
        assert len(stage.stream.records) == 1
        home.resume()
        await asyncio.sleep(0.5)
        assert len(stage.stream.records) == 2

    Stage().run(scenario)


def test_a_server_that_starts_is_not_paused() -> None:
    async def scenario(stage: Stage) -> None:
        first, second, _ = stage.stream.servers
        first.pause()
        first.kill()
        second.kill()
        second.pause()
        first.start()
        second.start()
        assert all(server.running for server in stage.stream.servers)

    Stage().run(scenario)


def test_a_paused_leader_wakes_up_beside_its_successor() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.append(b"before")
        former = stage.leader
        for server in stage.followers:
            stage.stream.cut("here", server.name)
        await asyncio.sleep(3.1)
        former.pause()
        answer = stage.journal.append(b"too late", 1)
        await asyncio.sleep(9.5)
        assert await stage.append(b"after", stage.other) == 2
        former.resume()
        assert (await stage.wait(stage.journal.state())).last_seq == 1
        await asyncio.sleep(1.1)
        assert (await stage.wait(stage.journal.state())).last_seq == 2
        assert (code_of(answer), len(stage.stream.records)) == (Refused.WRONG_LAST, 2)

    Stage().run(scenario)


def test_reads_of_a_lagging_server_miss_records_until_it_catches_up() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.fill(3)
        for server in stage.followers:
            server.lag()
        await stage.fill(2)
        lengths = {len(await stage.wait(stage.journal.read(1, ALL))) for _ in range(30)}
        assert lengths == {3, 5}
        assert {await stage.wait(stage.journal.read_leader(5)) for _ in range(10)} == {b"1"}
        state = await stage.wait(stage.journal.state())
        assert sorted(state.replicas.values()) == ["2 behind", "2 behind", "leader"]
        for server in stage.followers:
            server.catch_up()
        await asyncio.sleep(1.1)
        assert {len(await stage.wait(stage.journal.read(1, ALL))) for _ in range(30)} == {5}

    Stage().run(scenario)


def test_a_lagging_server_that_is_elected_has_all_records() -> None:
    async def scenario(stage: Stage) -> None:
        for server in stage.followers:
            server.lag()
        await stage.fill(3)
        stage.leader.kill()
        await asyncio.sleep(9.5)
        assert (await stage.wait(stage.journal.state())).last_seq == 3
        assert await stage.wait(stage.journal.read_leader(3)) == b"2"

    Stage().run(scenario)


def test_a_stale_read_misses_the_last_records() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.fill(10)
        stage.stream.weather = StreamWeather(stale_read=0.5)
        reads = [await stage.wait(stage.journal.read(1, ALL)) for _ in range(40)]
        assert {len(read) for read in reads} == {5, 6, 7, 8, 9, 10}
        assert all([seq for seq, _ in read] == list(range(1, len(read) + 1)) for read in reads)

    Stage().run(scenario)


def test_a_flipped_bit_shows_in_the_reads_of_one_server() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.append(b"whole")
        assert stage.stream.flip(2, random.Random(1)) is None
        damaged = stage.stream.flip(1, random.Random(1))
        reads = [await stage.wait(stage.journal.read(1, ALL)) for _ in range(30)]
        assert len({record for ((_, record),) in reads}) == 2
        assert 0 < sum(record != b"whole" for ((_, record),) in reads) < 20
        intact = await stage.wait(stage.journal.read_leader(1)) == b"whole"
        assert intact == (damaged is not stage.leader)
        stage.stream.heal()
        reads = [await stage.wait(stage.journal.read(1, ALL)) for _ in range(30)]
        assert {record for ((_, record),) in reads} == {b"whole"}

    Stage().run(scenario)


# --- cuts -------------------------------------------------------------------------------------------


def test_a_cut_in_one_direction_loses_requests_or_answers() -> None:
    async def scenario(stage: Stage) -> None:
        news: list[bytes] = []
        await stage.journal.answer(no_answer, news.append)
        await stage.append(b"before")
        for server in stage.stream.servers:
            stage.stream.cut("here", server.name, to=False)
        landed = stage.journal.append(b"landed", 1)
        stage.other.tell(b"lost")
        await asyncio.sleep(1.0)
        assert (landed.done(), len(stage.stream.records)) == (False, 2)
        stage.stream.heal()
        for server in stage.stream.servers:
            stage.stream.cut("here", server.name, back=False)
        lost = stage.journal.append(b"lost", 2)
        stage.other.tell(b"arrives")
        await asyncio.sleep(1.0)
        assert (lost.done(), len(stage.stream.records), news) == (False, 2, [b"arrives"])

    Stage().run(scenario)


def test_a_member_that_is_cut_off_from_its_server_connects_to_another_one() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.append(b"before")
        for server in stage.stream.servers[1:]:
            stage.stream.cut("here", server.name, to=False)
        await asyncio.sleep(3.1)
        assert await stage.append(b"by the first") == 2
        stage.stream.heal()
        stage.stream.cut("here", stage.stream.servers[0].name)
        lost = stage.journal.append(b"lost", 2)
        await asyncio.sleep(3.1)
        assert not lost.done()
        began_s = stage.loop.time()
        assert await stage.append(b"by another") == 3
        assert stage.loop.time() - began_s > RECONNECT_S[0]
        stage.stream.heal_between("here", stage.stream.servers[0].name)
        assert stage.stream.cuts == {}

    Stage().run(scenario)


def test_a_member_without_any_server_keeps_its_appends_until_it_is_connected() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.append(b"before")
        for server in stage.stream.servers:
            stage.stream.cut("here", server.name)
        answers = [stage.journal.append(b"lost", 1)]
        await asyncio.sleep(5.0)
        answers += [stage.journal.append(b"kept", 1), stage.journal.append(b"too", 2)]
        await asyncio.sleep(60.0)
        stage.stream.heal()
        assert (await stage.wait(stage.journal.state())).last_seq == 3
        assert [answer.done() for answer in answers] == [False, True, True]

    Stage().run(scenario)


# --- reading, trimming, other members ---------------------------------------------------------------


def test_a_read_stops_at_its_bytes_and_a_trimmed_stream_begins_later() -> None:
    async def scenario(stage: Stage) -> None:
        for _ in range(6):
            await stage.append(bytes(10))
        assert [seq for seq, _ in await stage.wait(stage.journal.read(2, 25))] == [2, 3, 4]
        assert [seq for seq, _ in await stage.wait(stage.journal.read(2, 1))] == [2]
        await stage.wait(stage.journal.trim(4))
        assert [seq for seq, _ in await stage.wait(stage.journal.read(2, ALL))] == [5, 6]
        assert await stage.wait(stage.journal.read_leader(4)) is None
        await stage.wait(stage.journal.trim(9))
        state = await stage.wait(stage.journal.state())
        assert (state.first_seq, state.last_seq, state.bytes) == (7, 6, 0)
        assert await stage.append(b"next") == 7

    Stage().run(scenario)


def test_members_answer_each_other_and_the_dead_and_cut_off_do_not() -> None:
    async def echo(question: bytes) -> bytes:
        return b"here: " + question

    async def slow(question: bytes) -> bytes:
        await asyncio.sleep(0.5)
        return b"there: " + question

    async def scenario(stage: Stage) -> None:
        third = SimJournal(stage.stream, stage.start("third"))
        await stage.journal.answer(echo, print)
        await stage.other.answer(slow, print)
        await third.answer(no_answer, print)
        assert await stage.wait(stage.journal.ask("there", b"?", 2.0)) == b"there: ?"
        assert sorted(await stage.wait(stage.journal.ask_all(b"?", 2.0))) == [b"here: ?", b"there: ?"]
        for member, timeout_s in (("nobody", 2.0), ("third", 2.0), ("there", 0.2)):
            with pytest.raises(Unreachable):
                await stage.wait(stage.journal.ask(member, b"?", timeout_s))
        stage.stream.weather = StreamWeather(lost=1.0)
        assert await stage.wait(stage.journal.ask_all(b"?", 2.0)) == []
        stage.stream.heal()
        for server in stage.stream.servers:
            stage.stream.cut("there", server.name)
        assert await stage.wait(stage.journal.ask_all(b"?", 2.0)) == [b"here: ?"]
        stage.stream.heal()
        assert len(await stage.wait(stage.journal.ask_all(b"?", 2.0))) == 2
        stage.cut_off(stage.leader)
        await asyncio.sleep(3.1)
        assert await stage.wait(stage.journal.ask_all(b"?", 2.0)) == [b"here: ?"]
        stage.stream.heal()
        stage.there.kill()
        assert await stage.wait(stage.journal.ask_all(b"?", 2.0)) == [b"here: ?"]

    Stage().run(scenario)


def test_news_reach_all_members_that_are_connected() -> None:
    async def scenario(stage: Stage) -> None:
        news: list[tuple[object, bytes]] = []

        def note(each: bytes) -> None:
            news.append((stage.loop.process, each))

        await stage.journal.answer(no_answer, note)
        await stage.other.answer(no_answer, note)
        stage.journal.tell(b"1")
        stage.journal.tell(b"2")
        await asyncio.sleep(1.0)
        for server in stage.stream.servers:
            stage.stream.cut("there", server.name)
        stage.journal.tell(b"3")
        await asyncio.sleep(1.0)
        stage.stream.heal()
        await stage.journal.close()
        stage.other.tell(b"4")
        await asyncio.sleep(1.0)
        assert [each for process, each in news if process is stage.here] == [b"1", b"2", b"3"]
        assert [each for process, each in news if process is stage.there] == [b"1", b"2", b"4"]

    Stage().run(scenario)


# --- processes --------------------------------------------------------------------------------------


def test_a_killed_process_sends_nothing_and_a_stopped_one_gets_its_answers_later() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.append(b"before")
        seen: list[float] = []

        async def program() -> None:
            await stage.journal.append(b"stopped", 1)
            seen.append(stage.loop.time())

        stage.here.spawn(program())
        await asyncio.sleep(0.0001)
        stage.here.stop()
        await asyncio.sleep(10.0)
        assert (len(stage.stream.records), seen) == (2, [])
        stage.here.resume()
        await asyncio.sleep(0.1)
        assert len(seen) == 1
        stage.here.spawn(program())
        await asyncio.sleep(0.0001)
        stage.here.kill()
        with pytest.raises(Killed):
            stage.journal.append(b"dead", 2)
        await asyncio.sleep(10.0)
        assert (len(stage.stream.records), len(seen)) == (2, 1)

    Stage().run(scenario)


def test_what_a_killed_process_had_sent_may_arrive() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.append(b"before")
        stage.journal.append(b"sent", 1)
        stage.here.kill()
        await asyncio.sleep(1.0)
        landed.add(len(stage.stream.records) == 2)

    landed: set[bool] = set()
    for seed in range(10):
        Stage(seed).run(scenario)
    assert landed == {False, True}


def test_healing_ends_all_faults() -> None:
    async def scenario(stage: Stage) -> None:
        stream = stage.stream
        stream.weather = StreamWeather(lost=1.0)
        first, second, third = stream.servers
        first.kill()
        second.pause()
        third.lag()
        stream.cut("here", third.name)
        stream.cut(second.name, third.name)
        await asyncio.sleep(30.0)
        stream.heal()
        await asyncio.sleep(10.0)
        await stage.fill(3)
        assert {len(await stage.wait(stage.journal.read(1, ALL))) for _ in range(20)} == {3}
        assert sorted((await stage.wait(stage.journal.state())).replicas.values()) == [
            "current",
            "current",
            "leader",
        ]

    Stage().run(scenario)


def test_a_seed_decides_the_run() -> None:
    def trace(seed: int) -> list[object]:
        seen: list[object] = []

        async def member(stage: Stage, journal: Journal, name: bytes) -> None:
            for _ in range(30):
                try:
                    end_seq = (await journal.state()).last_seq
                    seen.append(await asyncio.wait_for(journal.append(name, end_seq), 1.0))
                    seen.append(await journal.read(end_seq, ALL))
                except (Refused, Unreachable, TimeoutError) as error:
                    seen.append(repr(error))
                seen.append(stage.loop.time())

        async def scenario(stage: Stage) -> None:
            stage.stream.weather = StreamWeather(
                lost=0.05, doubled=0.1, answer_lost=0.05, answer_late=0.1, stale_read=0.1
            )
            stage.here.spawn(member(stage, stage.journal, b"here"))
            stage.there.spawn(member(stage, stage.other, b"there"))
            for _ in range(10):
                server = stage.stream.chance.choice(stage.stream.servers)
                server.kill()
                await asyncio.sleep(5.0)
                server.start()
            await asyncio.sleep(60.0)
            seen.append(stage.stream.counts)

        Stage(seed).run(scenario)
        return seen

    assert trace(1) == trace(1)
    assert trace(1) != trace(2)
