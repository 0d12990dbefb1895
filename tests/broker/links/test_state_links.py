"""State topics over links: every node has the same latest values after deletes and compaction anywhere."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headpond.node.links.ends import ThisNode
from headpond.wire.control.codec import read_result
from headpond.wire.control.ledger import LedgerInfo, ShowLedger
from tests.broker.catalog.state_world import Got, StateWorld
from tests.broker.links.peer_world import Way, linked, pull, rest, until

TEA, COFFEE, COCOA = b"tea", b"coffee", b"cocoa"


def home(seed: int = 1) -> StateWorld:
    """A node with a history: values replaced, deleted and set again, some of a segment and all of it."""
    node = StateWorld(seed, name="home")
    node.store((TEA, b"1"), (COFFEE, b"1"))
    node.store((TEA, b"2"))
    node.store((COFFEE, None), (COCOA, b"1"))
    node.store((TEA, b"3"))
    return node


def follower(name: str = "west", seed: int = 2) -> StateWorld:
    return StateWorld(seed, name=name, creates=False)


async def caught_up(*ways: Way) -> None:
    await rest()
    await until(lambda: all(_followed(way) for way in ways))
    await rest()


def _followed(way: Way) -> bool:
    states = way.status.topics.values()
    return bool(states) and all(each.state == "following" and not each.lag for each in states)


def follow(source: StateWorld, *sinks: StateWorld) -> list[Way]:
    """Links until they have caught up, and ends them."""
    ways = [pull(source, sink) for sink in sinks]

    async def scenario() -> None:
        async with linked(*ways):
            await caught_up(*ways)

    asyncio.run(scenario())
    return ways


def values(got: list[Got]) -> dict[bytes, bytes | None]:
    return {key: value for _, key, value in got}


def balanced(node: StateWorld) -> bool:
    return read_result(node.client.request(ShowLedger("t")), LedgerInfo).balanced


def test_values_changes_and_deletes_follow_in_their_order() -> None:
    source, sink = home(), follower()
    follow(source, sink)
    assert sink.read("all") == source.read("all")
    assert values(sink.read("now", "state")) == {TEA: b"3", COCOA: b"1"}
    assert sink.info().state is True


@pytest.mark.parametrize("restarts", [False, True])
def test_rows_compacted_at_the_source_are_no_messages_at_the_follower(restarts: bool) -> None:
    source, sink = home(), follower()
    assert source.compact() > 0
    (way,) = follow(source, sink)
    if restarts:
        sink.restart()
    left = [(key, value) for _, key, value in source.read("all")]
    assert [(key, value) for _, key, value in sink.read("all")] == left
    assert None not in dict(left)
    assert values(sink.read("now", "state")) == values(source.read("now", "state"))
    assert balanced(sink)
    assert (way.counts["holes"], way.counts["lost"], way.counts["conflicts"]) == (0, 0, 0)


def test_a_segment_that_was_compacted_away_is_known_at_the_follower() -> None:
    source, sink = home(), follower()
    source.compact()
    follow(source, sink)
    sink.uuid = sink.info().uuid
    sink.block, sink.segments = source.block, source.segments
    assert [sink.send_again(segment).outcome for segment in range(4)] == ["duplicate"] * 4


def test_a_subscription_that_waits_at_the_follower_gets_no_empty_rows() -> None:
    source, sink = home(), follower()
    follow(source, sink)
    reader = sink.subscribe("board")
    before = reader.get()
    reader.settle(*(entry for entry, _, _ in before))
    source.store((TEA, b"4"), (COFFEE, b"5"))
    source.store((TEA, b"5"))
    source.compact()
    follow(source, sink)
    assert [(key, value) for _, key, value in reader.get()] == [(COFFEE, b"5"), (TEA, b"5")]


def test_an_older_value_that_comes_by_another_path_does_not_become_the_latest() -> None:
    source, early, late, last = home(), follower("early", 2), follower("late", 3), follower("last", 4)
    follow(source, early)  # has everything
    source.compact()
    follow(source, late)  # has what is left
    follow(late, last)
    (way,) = follow(early, last)
    assert values(last.read("now", "state")) == {TEA: b"3", COCOA: b"1"}
    assert way.counts["conflicts"] == 0
    assert way.counts["messages_in"] == 0


def test_a_follower_compacts_by_itself_and_continues_to_follow() -> None:
    source, sink = home(), follower()
    follow(source, sink)
    assert sink.compact() > 0
    source.store((TEA, None), (COFFEE, b"7"))
    follow(source, sink)
    assert values(sink.read("now", "state")) == {COFFEE: b"7", COCOA: b"1"}
    assert balanced(sink)


def test_compaction_between_a_head_and_its_record_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    source, sink = home(), follower()
    fetch = ThisNode.fetch
    compacted: list[int] = []

    async def compact_first(self: ThisNode, ask: Any) -> Any:
        if not compacted:
            compacted.append(source.compact())
        return await fetch(self, ask)

    monkeypatch.setattr(ThisNode, "fetch", compact_first)
    (way,) = follow(source, sink)
    assert compacted[0] > 0
    assert values(sink.read("now", "state")) == {TEA: b"3", COCOA: b"1"}
    assert way.counts["lost"] == 0


def test_two_nodes_that_write_different_keys_come_to_the_same_state() -> None:
    source, sink = home(), follower()
    follow(source, sink)
    sink.uuid = sink.info().uuid
    sink.store((b"milk", b"1"))
    sink.store((b"milk", b"2"))
    follow(source, sink)
    follow(sink, source)
    wanted = {TEA: b"3", COCOA: b"1", b"milk": b"2"}
    assert values(source.read("now", "state")) == values(sink.read("now", "state")) == wanted
