"""What members of one group know of each other: names, lag, counts, and how long an active one is certain."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest

from headpond.cluster.active import Active
from headpond.cluster.apply import Applier, Position
from headpond.cluster.member import Member, MemberStatus
from headpond.cluster.records import ActiveMember
from headpond.cluster.standby import CERTAIN_S, SILENCE_S, turn_after_s
from headpond.model.errors import MemberExists
from tests.client.peer import until
from tests.cluster.bus import Bus, BusJournal, at_once
from tests.cluster.folders import FolderDisk

Becoming = asyncio.Task[Active]


def begin(member: Member) -> Becoming:
    return asyncio.create_task(member.become_active(lambda: None))


async def end(*members: Member) -> None:
    for member in members:
        if member.active is not None:
            member.active.kill()
        await member.close()


def play(scenario: Callable[[Bus], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario(Bus()))


# --- names ------------------------------------------------------------------------------------------


def test_a_second_process_with_a_members_name_does_not_start() -> None:
    async def scenario(bus: Bus) -> None:
        first, standby = bus.member("a", "1"), bus.member("b", "2")
        await begin(first)
        following = begin(standby)
        await until(lambda: standby.role == "standby")
        for name, instance in (("a", "0"), ("b", "0")):  # their clocks are behind
            second = bus.member(name, instance)
            with pytest.raises(MemberExists, match=f"member {name} .* headpond://{name}:7411"):
                await begin(second)
            await second.close()
        await asyncio.sleep(0.1)
        assert (first.role, standby.role, following.done()) == ("active", "standby", False)
        following.cancel()
        await end(first, standby)

    play(scenario)


def test_of_two_that_start_at_once_one_stays() -> None:
    async def scenario(bus: Bus) -> None:
        members = [bus.member("a", "1"), bus.member("a", "2")]
        first, second = await asyncio.gather(*map(begin, members), return_exceptions=True)
        assert isinstance(first, Active) and isinstance(second, MemberExists)
        await end(*members)

    play(scenario)


def test_a_second_process_that_was_not_heard_at_first_ends_when_it_is() -> None:
    async def scenario(bus: Bus) -> None:
        first, second = bus.member("a", "1"), bus.member("a", "2")
        await begin(first)
        bus.journals[1].deaf = True
        following = begin(second)
        await until(lambda: second.role == "standby")
        bus.journals[1].deaf = False
        with pytest.raises(MemberExists):
            await asyncio.wait_for(following, 10)
        assert first.role == "active"
        await end(first, second)

    play(scenario)


def test_a_replaced_process_that_wakes_up_does_not_end_its_successor() -> None:
    async def scenario(bus: Bus) -> None:
        active, successor = bus.member("a", "1"), bus.member("b", "2")
        await begin(active)
        following = begin(successor)
        await until(lambda: successor.role == "standby")
        zombie = BusJournal(bus, "b")
        status = MemberStatus("b", "active", "headpond://b:7411", "", 0, 0, 0, instance="0")

        async def answer(question: bytes) -> bytes:
            return msgspec.msgpack.encode(status)

        await zombie.answer(answer, lambda _: None)
        zombie.tell(msgspec.msgpack.encode(("n", "b", True, 0, "0")))
        await asyncio.sleep(0.6)
        assert not following.done()
        following.cancel()
        await end(active, successor)

    play(scenario)


# --- turns ------------------------------------------------------------------------------------------

A = ActiveMember("a", "headpond://a:7411")


@pytest.mark.parametrize(
    ("at", "after_s"),
    [
        (Position(), 0),
        (Position(epoch=2, active=A, released=True), 0),
        (Position(epoch=2, active=A), SILENCE_S),
        (Position(epoch=2), SILENCE_S),
        (Position(epoch=2, active=ActiveMember("b", "headpond://b:7411")), CERTAIN_S),
    ],
    ids=["no epoch yet", "released", "another is active", "an older folder", "its own epoch"],
)
def test_a_member_waits_while_another_process_may_answer_clients(at: Position, after_s: float) -> None:
    assert turn_after_s(at, "b") == after_s


def test_a_member_that_starts_leaves_an_active_one_alone_that_it_does_not_hear() -> None:
    async def scenario(bus: Bus) -> None:
        active, disk = bus.member("a", "1"), FolderDisk()
        await begin(active)
        first = bus.member("b", "2", disk=disk)
        following = begin(first)
        await until(lambda: first.active_member is not None)
        following.cancel()
        await end(first)
        second = bus.member("b", "3", disk=disk)
        bus.journals[-1].deaf = True
        following = begin(second)
        await asyncio.sleep(1.5)
        assert (second.role, active.status().epoch) == ("standby", 1)
        following.cancel()
        await end(active, second)

    play(scenario)


def test_a_member_that_was_active_leaves_its_turn_to_others_once() -> None:
    async def scenario(bus: Bus) -> None:
        other, rested = bus.member("a", "1"), bus.member("b", "2", rest_s=1000)
        following = begin(rested)
        await asyncio.sleep(0.2)
        assert rested.role == "standby", "nobody is active, and still it waits"
        active = await begin(other)
        await until(lambda: rested.active_member is not None)
        await active.release()
        await asyncio.wait_for(following, 10)
        await end(other, rested)

    play(scenario)


def test_standbys_make_room_in_a_full_stream_so_that_one_can_take_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headpond.cluster.standby.SILENCE_S", 0.3)
    monkeypatch.setattr("headpond.cluster.standby.CHECKPOINT_S", 1000.0)  # only the first one is made

    async def scenario(bus: Bus) -> None:
        members = [bus.member(name, name) for name in "abc"]
        active = await begin(members[0])
        following = [begin(each) for each in members[1:]]
        await until(lambda: all(each.active_member is not None for each in members))
        bus.full = True
        active.kill()
        await members[0].close()
        await asyncio.wait(following, return_when=asyncio.FIRST_COMPLETED, timeout=20)
        assert "active" in [each.role for each in members[1:]]
        for each in following:
            each.cancel()
        await end(*members[1:])

    play(scenario)


def test_a_member_knows_the_room_of_the_stream_as_soon_as_it_is_active() -> None:
    async def scenario(bus: Bus) -> None:
        member = bus.member("a", "1")
        active = await begin(member)
        assert active.disk.free_bytes() < 1 << 30
        await end(member)

    play(scenario)


# --- lag and counts ---------------------------------------------------------------------------------


def test_the_lag_of_a_standby_grows_while_it_lacks_records_and_ends_when_it_has_them() -> None:
    async def scenario(bus: Bus) -> None:
        active, standby = bus.member("a", "1"), bus.member("b", "2")
        await begin(active)
        following = begin(standby)
        await until(lambda: (lag_of(standby) or 1.0) < 0.2)
        read, bus.journals[1].read = bus.journals[1].read, nothing  # type: ignore[method-assign]
        await asyncio.sleep(1.5)
        assert (lag_of(standby) or 0.0) > 0.8, "records came every half second, and it has none of them"
        bus.journals[1].read = read  # type: ignore[method-assign]
        await until(lambda: (lag_of(standby) or 1.0) < 0.2)
        assert lag_of(active) is None
        following.cancel()
        await end(active, standby)

    play(scenario)


def lag_of(member: Member) -> float | None:
    return member.status().lag_s


async def nothing(seq: int, bytes_max: int) -> list[tuple[int, bytes]]:
    return []


def test_a_member_counts_what_it_appended_and_applied() -> None:
    async def scenario(bus: Bus) -> None:
        active, standby = bus.member("a", "1"), bus.member("b", "2")
        found = await begin(active)
        following = begin(standby)
        await until(lambda: standby.role == "standby")
        for number in range(5):
            found.disk.create(f"file{number}").close()
            await until(lambda: not found.disk.outbox.flight and not found.disk.outbox.queue)
        await until(lambda: standby.status().seq == len(bus.records) and standby.role == "standby")
        mine, other = active.status(), standby.status()
        assert mine.appended == len(bus.records) - 1, "its EPOCH record is not counted"
        assert mine.appended_bytes == sum(map(len, bus.records[1:]))
        assert 0 < mine.append_s < 5 and (mine.takeovers, mine.certain) == (1, True)
        assert other.applied == other.seq and (other.appended, other.takeovers) == (0, 0)
        following.cancel()
        await end(active, standby)

    play(scenario)


# --- certainty --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("sent_s_ago", "is_certain"), [(CERTAIN_S - 1, True), (CERTAIN_S + 1, False)])
def test_an_active_member_is_certain_from_when_it_sent_its_first_record(
    sent_s_ago: float, is_certain: bool
) -> None:
    """A process may be stopped between sending it and learning that the stream has it."""

    async def scenario(bus: Bus) -> None:
        disk, calls = FolderDisk(), []
        active = Active(
            BusJournal(bus, "a"),
            disk,
            Applier(disk, Position()),
            at_once,
            lambda: calls.append("certain"),
            lambda seq: b"",
            proven_s=asyncio.get_running_loop().time() - sent_s_ago,
        )
        assert active.certain == is_certain
        await until(lambda: active.appended > 0)
        assert active.certain and bool(calls) != is_certain
        active.kill()

    play(scenario)


def test_a_takeover_proves_the_time_at_which_its_record_was_sent() -> None:
    async def scenario(bus: Bus) -> None:
        member = bus.member("a", "1")
        (journal,) = bus.journals
        append = journal.append

        def append_unanswered(record: bytes, expected_seq: int) -> asyncio.Future[int]:
            append(record, expected_seq)
            journal.append = append  # type: ignore[method-assign]
            return asyncio.get_running_loop().create_future()

        journal.append = append_unanswered  # type: ignore[method-assign]
        began_s = asyncio.get_running_loop().time()
        active = await begin(member)
        assert asyncio.get_running_loop().time() - began_s > 1.5, "it had no answer"
        assert 0 <= active._proven_s - began_s < 0.5
        await end(member)

    play(scenario)
