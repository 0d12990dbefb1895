"""Memory, then the refill, then waiting or an error; and the folder of each producer."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

import headpond
from headpond.client.link.dialling import Backoff
from headpond.model.errors import BadRequest, BufferFull, HeadpondError, StorageFailed, TimedOut
from tests.client.peer import serving, until
from tests.client.processes import lines_until, lone_producer
from tests.client.reading import values_at
from tests.client.test_connecting import quick
from tests.fire.real_node import RealNode

QUICK = Backoff(0.01, 0.05)


def connect(url: str) -> headpond.Client:
    return headpond.connect(url, backoff=QUICK, wait=False)


def slots(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "refill").iterdir())


def refill_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("**/*.refill"))


async def test_when_memory_is_full_and_the_node_away_messages_are_spilled_before_their_time(
    node: RealNode, topic: str
) -> None:
    async with (
        connect(node.url) as client,
        client.producer(topic, memory_max=20_000, spill_after=3600.0) as producer,
    ):
        await producer.send(b"0")
        node.kill()
        for number in range(1, 101):
            await producer.wait_room()
            producer.post(b"%04d" % number + bytes(1000))
        assert producer.stats.spilled > 50 and producer.memory_bytes <= 22_000
        await asyncio.to_thread(node.start)
        await producer.flush()
        await producer.reached()
    values = await values_at(node.url, topic)
    assert [int(value[:4]) for value in values] == list(range(101))


async def test_a_node_that_takes_messages_and_never_answers_is_spilled_for_when_memory_is_full() -> None:
    async with serving() as peer, quick(peer) as client:
        producer = await client.producer("t", memory_max=5000, spill_after=3600.0, close_timeout=0.1).open()
        sends = [asyncio.create_task(producer.send(bytes(1000))) for _ in range(10)]
        receipts = await asyncio.gather(*sends)
        assert "spilled" in {str(receipt.outcome) for receipt in receipts}
        await producer.close()


def fill(on_full: str, **options: object) -> dict[str, object]:
    return {"memory_max": 20_000, "refill_max": 30_000, "batch_rows": 1, "on_full": on_full, **options}


def test_when_the_refill_is_full_too_send_waits_until_the_node_is_back(
    node: RealNode, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        node.kill()
        async with connect(node.url) as client:
            producer = client.producer(topic, **fill("wait"))  # type: ignore[call-overload]
            async with producer:
                sends = [asyncio.create_task(producer.send(b"%04d" % n + bytes(1000))) for n in range(100)]
                await until(lambda: producer.stats.refill_bytes > 27_000)
                await asyncio.sleep(0.3)
                done = sum(send.done() for send in sends)
                assert 20 < done < 40, "what is in the refill has its receipt; the others wait"
                stats = producer.stats
                assert stats.refill_bytes <= stats.refill_max == 30_000
                with pytest.raises(BufferFull, match="refill takes no more"):
                    producer.post(b"x")
                await asyncio.to_thread(node.start)
                receipts = await asyncio.gather(*sends)
                assert {str(receipt.outcome) for receipt in receipts} == {"spilled", "stored"}
        values = await values_at(node.url, topic)
        assert [int(value[:4]) for value in values] == list(range(100))

    with caplog.at_level(logging.WARNING, "headpond.client"):
        asyncio.run(scenario())
    assert any("of at most 30,000 bytes" in record.message for record in caplog.records)


async def test_when_the_refill_is_full_too_send_raises_at_once_with_on_full_raise(
    node: RealNode, topic: str
) -> None:
    node.kill()
    async with connect(node.url) as client:
        producer = await client.producer(topic, **fill("raise")).open()  # type: ignore[call-overload]
        sends = [asyncio.create_task(producer.send(b"%04d" % n + bytes(1000))) for n in range(100)]
        await until(lambda: sum(send.done() for send in sends) > 75)
        await asyncio.sleep(0.1)
        refused = [send.exception() for send in sends if send.done() and send.exception() is not None]
        assert len(refused) > 30 and {type(error) for error in refused} == {BufferFull}
        assert "refill takes no more" in str(refused[0])
        waiting = sum(not send.done() for send in sends)
        assert waiting < 25, "only what is in memory still waits for the node"
        await asyncio.to_thread(node.start)
        results = await asyncio.gather(*sends, return_exceptions=True)
        await producer.close()
    safe = [n for n, result in enumerate(results) if not isinstance(result, BaseException)]
    values = [int(value[:4]) for value in await values_at(node.url, topic)]
    assert set(safe) <= set(values) and values == sorted(values)


async def test_waiting_for_room_is_bounded_by_the_timeout(node: RealNode, topic: str) -> None:
    node.kill()
    async with connect(node.url) as client:
        options = fill("wait", timeout=0.3, close_timeout=20.0)
        producer = await client.producer(topic, **options).open()  # type: ignore[call-overload]
        with pytest.raises(TimedOut, match="no room"):
            for _ in range(100):
                await producer.wait_room()
                producer.post(bytes(1000))
        await asyncio.to_thread(node.start)
        await producer.reached()
        await producer.close()


async def test_closing_with_the_node_away_spills_and_says_nothing_against_it(
    node: RealNode, topic: str, state_folder: Path
) -> None:
    async with (
        connect(node.url) as client,
        client.producer(topic, spill_after=3600.0, close_timeout=1.0) as producer,
    ):
        await producer.send(b"0")
        node.kill()
        promise = producer.post(b"1")
    assert (await promise).outcome == "spilled"
    assert len(refill_files(state_folder)) == 1
    node.start()
    async with connect(node.url) as client, client.producer(topic) as producer:
        await producer.send(b"2")
    assert await values_at(node.url, topic) == [b"0", b"1", b"2"]
    assert refill_files(state_folder) == []


async def test_closing_with_the_refill_full_raises_for_the_lost_messages(
    node: RealNode, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headpond.client.produce.run.CLOSE_DISK_S", 0.3)
    node.kill()
    async with connect(node.url) as client:
        options = fill("wait", close_timeout=0.2, timeout=0.3)
        producer = await client.producer(topic, **options).open()  # type: ignore[call-overload]
        with pytest.raises(TimedOut, match="no room"):
            for _ in range(1000):
                await producer.wait_room()
                producer.post(bytes(1000))
        with pytest.raises(TimedOut, match=r"posted messages failed.*refill"):
            await producer.close()
        stats = producer.stats
        assert stats.posted == stats.spilled + stats.rejected and stats.rejected > 0


async def test_two_producers_of_one_name_have_a_folder_each(
    node: RealNode, topic: str, state_folder: Path
) -> None:
    node.kill()
    async with (
        connect(node.url) as client,
        client.producer(topic, name="p") as one,
        client.producer(topic, name="p") as two,
    ):
        await one.send(b"one")
        await two.send(b"two")
        first, second = (name for name in slots(state_folder))
        assert second == f"{first}~2"
    node.start()
    async with connect(node.url) as client, client.producer(topic, name="p"):
        pass  # the next one delivers what both left
    assert sorted(await values_at(node.url, topic)) == [b"one", b"two"]
    assert refill_files(state_folder) == []


async def test_the_next_process_delivers_the_spilled_messages_of_a_killed_one(
    node: RealNode, topic: str, state_folder: Path
) -> None:
    node.kill()
    with lone_producer("send", node.url, topic, "p", 5) as process:
        said = lines_until(process, "done")
        assert [line.split()[0] for line in said[1:]] == ["spilled"] * 5
        with lone_producer("send", node.url, topic, "p", 3) as other:
            lines_until(other, "done")
            process.kill()
            process.wait()
            other.kill()
            other.wait()
    node.start()
    async with connect(node.url) as client, client.producer(topic, name="p") as producer:
        await producer.send(b"last")
    values = await values_at(node.url, topic)
    assert values[-1] == b"last" and sorted(values[:-1]) == sorted(b"%d" % n for n in [*range(5), *range(3)])
    assert refill_files(state_folder) == []


def test_messages_for_a_destination_that_was_taken_off_the_list_are_kept_and_reported(
    tmp_path: Path, topic: str, state_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        with RealNode(tmp_path / "one") as one, RealNode(tmp_path / "two") as two:
            two.kill()
            async with connect(one.url) as client:
                async with client.producer(topic, copies=[two.url]) as producer:
                    await producer.send(b"x")
                async with client.producer(topic) as producer:
                    await producer.send(b"y")
                assert len(refill_files(state_folder)) == 1
                two.start()
                async with client.producer(topic, copies=[two.url]) as producer:
                    await producer.send(b"z")
                    await producer.reached()
            assert await values_at(one.url, topic) == [b"x", b"y", b"z"]
            assert await values_at(two.url, topic) == [b"x", b"z"]
            assert refill_files(state_folder) == []

    with caplog.at_level(logging.WARNING, "headpond.client"):
        asyncio.run(scenario())
    assert any("does not send to" in record.message for record in caplog.records)


def test_a_folder_that_cannot_be_written_is_an_error_where_it_was_named_and_a_warning_elsewhere(
    node: RealNode,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    blocked = tmp_path / "a file"
    blocked.write_text("not a folder")

    async def scenario() -> None:
        async with connect(node.url) as client:
            with pytest.raises(StorageFailed, match="cannot be used"):
                await client.producer(topic, refill=blocked / "refill").open()
            monkeypatch.setenv("HEADPOND_STATE", str(blocked))
            async with client.producer(topic) as producer:
                assert (await producer.send(b"x")).stored

    with caplog.at_level(logging.WARNING, "headpond.client"):
        asyncio.run(scenario())
    assert any("nothing is spilled to disk" in record.message for record in caplog.records)


async def test_without_a_refill_nothing_is_written_and_unconfirmed_messages_fail(
    node: RealNode, topic: str, state_folder: Path
) -> None:
    async with connect(node.url) as client:
        producer = await client.producer(topic, refill=None, close_timeout=0.2).open()
        node.kill()
        promise = producer.post(b"x")
        with pytest.raises(TimedOut):
            await producer.close()
        with pytest.raises(HeadpondError):
            await promise
        assert refill_files(state_folder) == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"resume": True}, "under the producer"),
        ({"block": b"x" * 16}, "without resume"),
        ({"resume": True, "refill": None, "name": "p"}, "needs a refill"),
        ({"on_full": "explode"}, "on_full"),
        ({"refill_max": 0}, "above 0"),
        ({"copies": "headpond://a:1"}, "list of text"),
        ({"refill_durability": "maybe"}, "refill_durability"),
    ],
)
async def test_options_that_cannot_be_are_refused_at_once(
    shared_url: str, topic: str, options: dict[str, object], words: str
) -> None:
    async with headpond.connect(shared_url) as client:
        with pytest.raises(BadRequest, match=words):
            client.producer(topic, **options)  # type: ignore[call-overload]
