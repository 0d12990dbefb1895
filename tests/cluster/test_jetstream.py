"""The journal over real nats-servers that are killed, stopped and started again."""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
import subprocess
import sys
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme
import uvloop

from headpond.cluster.jetstream import JetStream
from headpond.cluster.journal import RECORD_BYTES_MAX, Journal, Refused, Unreachable
from headpond.model.errors import BadConfig, GroupNotFound
from tests.cluster.nats import NatsCluster
from tests.root import ROOT

READ_BYTES = 16 << 20
_numbers = itertools.count()

Run = Callable[[Coroutine[Any, Any, None]], None]
LOOPS = [pytest.param(asyncio.run, id="asyncio"), pytest.param(uvloop.run, id="uvloop")]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsCluster]:
    with NatsCluster(tmp_path_factory.mktemp("nats")) as running:
        yield running


@pytest.fixture
def group() -> str:
    """A group that no other test uses."""
    return f"g{next(_numbers)}"


@asynccontextmanager
async def connected(url: str, group: str, member: str = "m1", **options: Any) -> AsyncIterator[JetStream]:
    journal = await JetStream.connect(url, group, member, **options)
    try:
        yield journal
    finally:
        await journal.close()


def records(count: int, size: int = 100) -> list[bytes]:
    return [f"record {number} ".encode().ljust(size, b".") for number in range(1, count + 1)]


async def append_all(journal: Journal, wanted: list[bytes], after: int = 0) -> None:
    futures = [journal.append(record, after + at) for at, record in enumerate(wanted)]
    assert await asyncio.gather(*futures) == list(range(after + 1, after + 1 + len(wanted)))


async def append_at_end(journal: Journal, record: bytes) -> int:
    """Appends behind all that is there, as often as it takes: then all before it has its final place."""
    while True:
        try:
            last = (await journal.state()).last_seq
            return await asyncio.wait_for(journal.append(record, last), 2)
        except (Unreachable, Refused, TimeoutError):
            await asyncio.sleep(0.05)


async def read_on(journal: Journal, seq: int, last: int) -> list[tuple[int, bytes]]:
    """All records from ``seq`` to ``last``; a replica may need a moment to have them."""
    found: list[tuple[int, bytes]] = []
    while not found or found[-1][0] < last:
        more = await journal.read(found[-1][0] + 1 if found else seq, READ_BYTES)
        if not more:
            await asyncio.sleep(0.02)
        found += more
    return found


async def read_leader(journal: Journal, seq: int) -> bytes | None:
    while True:
        try:
            return await journal.read_leader(seq)
        except Unreachable:
            await asyncio.sleep(0.05)


async def until(true: Callable[[], Awaitable[bool]]) -> None:
    while True:
        if await true():
            return
        await asyncio.sleep(0.02)


def server_of(cluster: NatsCluster, group: str) -> str:
    """The server that the member of a group is connected to."""
    return next(
        server.name
        for server in cluster.running
        for each in server.monitor("connz")["connections"]
        if each.get("name", "").startswith(f"headpond {group} ")
    )


# --- records -----------------------------------------------------------------------------------------


async def test_appended_records_are_read_back_in_order(cluster: NatsCluster, group: str) -> None:
    async with connected(cluster.url, group) as journal:
        assert await journal.read(1, READ_BYTES) == []
        wanted = [*records(2000), *records(8, RECORD_BYTES_MAX), b""]
        await append_all(journal, wanted)
        assert await read_on(journal, 1, len(wanted)) == list(enumerate(wanted, 1))
        few = await journal.read(2001, 2 * RECORD_BYTES_MAX)
        assert [seq for seq, _ in few] == [2001, 2002]
        assert await journal.read(len(wanted) + 1, READ_BYTES) == []
        assert await read_leader(journal, 7) == wanted[6]
        assert await read_leader(journal, 2001) == wanted[2000]
        assert await read_leader(journal, len(wanted) + 1) is None


async def test_nothing_lands_behind_a_record_that_expected_another_end(
    cluster: NatsCluster, group: str
) -> None:
    async with connected(cluster.url, group) as journal:
        await append_all(journal, records(3))
        for wrong in (0, 2, 4):
            futures = [journal.append(b"wrong", wrong + at) for at in range(16) if wrong + at != 3]
            for refusal in await asyncio.gather(*futures, return_exceptions=True):
                assert isinstance(refusal, Refused) and refusal.code == Refused.WRONG_LAST
        assert (await journal.state()).last_seq == 3
        await append_all(journal, [b"right"], after=3)
        assert await read_leader(journal, 4) == b"right"


async def test_a_full_stream_refuses_until_it_is_trimmed(cluster: NatsCluster, group: str) -> None:
    async with connected(cluster.url, group, bytes_max=1 << 20) as journal:
        futures = [journal.append(record, at) for at, record in enumerate(records(16, 100_000))]
        answers = await asyncio.gather(*futures, return_exceptions=True)
        stored = [answer for answer in answers if isinstance(answer, int)]
        codes = [answer.code for answer in answers if isinstance(answer, Refused)]
        assert stored == list(range(1, len(stored) + 1))
        assert codes == [Refused.FULL, *[Refused.WRONG_LAST] * (15 - len(stored))]
        state = await journal.state()
        assert (state.first_seq, state.last_seq, state.bytes_max) == (1, len(stored), 1 << 20)
        await journal.trim(4)
        assert (await journal.state()).first_seq == 5
        await append_all(journal, records(2, 100_000), after=len(stored))


async def test_a_read_starts_behind_the_records_that_were_trimmed(cluster: NatsCluster, group: str) -> None:
    async with connected(cluster.url, group) as journal:
        await append_all(journal, records(10))
        await journal.trim(6)
        found: list[tuple[int, bytes]] = []
        while len(found) != 4:  # a replica may need a moment to trim
            found = await read_on(journal, 1, 10)
        assert found == list(enumerate(records(10), 1))[6:]
        assert await read_leader(journal, 6) is None

        await journal.trim(1000)
        state = await journal.state()
        assert (state.first_seq, state.last_seq) == (11, 10), "the end does not move"
        await append_all(journal, [b"next"], after=10)
        assert await read_on(journal, 1, 11) == [(11, b"next")]


async def test_a_record_that_is_too_large_is_refused(cluster: NatsCluster, group: str) -> None:
    async with connected(cluster.url, group) as journal:
        with pytest.raises(Refused, match="too many"):
            await journal.append(bytes(2 << 20), 0)
        await append_all(journal, [b"small"])


async def test_a_record_that_nobody_waits_for_is_forgotten(cluster: NatsCluster, group: str) -> None:
    async with connected(cluster.url, group) as journal:
        cancelled = journal.append(b"one", 0)
        seen = [weakref.ref(cancelled)]
        cancelled.cancel()
        del cancelled
        finished = journal.append(b"two", 1)
        seen.append(weakref.ref(finished))
        assert await finished == 2
        del finished
        await asyncio.sleep(0)
        assert [ref() for ref in seen] == [None, None]


# --- failures ----------------------------------------------------------------------------------------


async def test_records_survive_the_kill_of_one_server_and_of_all(cluster: NatsCluster, group: str) -> None:
    async with connected(cluster.url, group) as journal:
        wanted = records(300, 3000)
        await append_all(journal, wanted)
        leader = await asyncio.to_thread(cluster.leader_of, journal.stream)
        cluster.restart(next(name for name in cluster.servers if name != leader))
        assert await append_at_end(journal, b"behind one") == 301

        for name in cluster.servers:
            cluster.kill(name)
        for name in cluster.servers:
            cluster.start(name)
        await asyncio.to_thread(cluster.wait_ready)
        assert await append_at_end(journal, b"behind all") == 302
        found = await read_on(journal, 1, 302)
        assert [record for _, record in found] == [*wanted, b"behind one", b"behind all"]


async def test_a_record_in_flight_when_the_leader_dies_is_stored_once_or_not_at_all(
    cluster: NatsCluster, group: str
) -> None:
    async with connected(cluster.url, group) as journal:
        wanted = records(400, 20_000)
        leader = await asyncio.to_thread(cluster.leader_of, journal.stream)
        futures = []
        for at, record in enumerate(wanted):
            futures.append(journal.append(record, at))
            if at == 200:
                await futures[100]
                cluster.kill(leader)
        last = await append_at_end(journal, b"settled")
        cluster.start(leader)

        found = await read_on(journal, 1, last)
        stored = [record for _, record in found if record != b"settled"]
        assert stored == wanted[: len(stored)], "a prefix, each once"
        for at, future in enumerate(futures):
            if not future.done():
                future.cancel()
            elif future.exception() is None:
                assert future.result() == at + 1
                assert await read_leader(journal, at + 1) == wanted[at]
            else:
                assert at >= len(stored), "a record that was refused is not there"
        await asyncio.to_thread(cluster.wait_ready)


@pytest.mark.parametrize("run", LOOPS)
def test_a_journal_leaves_a_server_that_stopped_reading(cluster: NatsCluster, group: str, run: Run) -> None:
    async def scenario() -> None:
        stopped = leader = ""
        while stopped == leader:  # the death of the leader is another test
            async with connected(cluster.url, group) as journal:
                leader = await asyncio.to_thread(cluster.leader_of, journal.stream)
                stopped = await asyncio.to_thread(server_of, cluster, group)
                if stopped == leader:
                    continue
                cluster.stop(stopped)
                try:
                    last = (await journal.read(1, 1) or [(0, b"")])[-1][0]
                    for at in range(64):  # more than the sockets hold
                        journal.append(bytes(RECORD_BYTES_MAX), last + at)
                    assert await append_at_end(journal, b"elsewhere") > last  # a first answer may be lost
                finally:
                    cluster.resume(stopped)

    run(scenario())


@pytest.mark.parametrize("run", LOOPS)
def test_a_journal_comes_back_after_the_server_ended_its_connection_with_an_error(
    cluster: NatsCluster, group: str, run: Run
) -> None:
    async def scenario() -> None:
        news: list[bytes] = []
        async with connected(cluster.url, group) as journal:
            await journal.answer(echo, news.append)
            await append_all(journal, [b"one"])
            journal.tell(bytes(2 << 20))  # more than the server takes: it closes the connection
            with pytest.raises(Unreachable):
                await journal.state()
            assert await append_at_end(journal, b"two") == 2
            assert await ask(journal, "m1", b"still?") == b"echo still?"
            journal.tell(b"back")
            assert await ask(journal, "m1", b"and now?") == b"echo and now?"
            assert news == [b"back"]

    run(scenario())


# --- questions ---------------------------------------------------------------------------------------


async def echo(question: bytes) -> bytes:
    return b"echo " + question


async def ask(journal: Journal, member: str, question: bytes) -> bytes:
    """The answer, once the servers know that the member listens."""
    while True:
        try:
            return await journal.ask(member, question, 5)
        except Unreachable:
            await asyncio.sleep(0.02)


async def test_members_answer_questions(
    cluster: NatsCluster, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        connected(cluster.url, group, "m1") as first,
        connected(cluster.url, group, "m2.example.com") as second,
        connected(cluster.url, f"{group}-other", "m1") as other,
    ):

        async def answer(question: bytes) -> bytes:
            if question == b"ask the first":
                return b"second: " + await second.ask("m1", b"?", 5)
            if question == b"fail":
                raise ValueError("no")
            return bytes(RECORD_BYTES_MAX)

        assert await first.ask_all(b"anyone?", 5) == []
        with pytest.raises(Unreachable):
            await first.ask("m2.example.com", b"there?", 5)
        news: list[tuple[str, bytes]] = []
        await first.answer(echo, lambda each: news.append(("first", each)))
        await other.answer(echo, lambda each: news.append(("other", each)))
        assert await ask(first, "m1", b"me") == b"echo me"
        await second.answer(answer, lambda each: news.append(("second", each)))
        assert await ask(first, "m2.example.com", b"large") == bytes(RECORD_BYTES_MAX)
        assert await ask(first, "m2.example.com", b"ask the first") == b"second: echo ?"
        answers: list[bytes] = []
        while len(answers) < 2:
            answers = await second.ask_all(b"all", 0.5)
        assert sorted(answers) == sorted([b"echo all", bytes(RECORD_BYTES_MAX)])
        with pytest.raises(Unreachable):
            await first.ask("m2.example.com", b"fail", 0.2)
        assert "stays without an answer" in caplog.text
        for number in range(100):
            first.tell(f"news {number}".encode())

        async def both_know() -> bool:
            return len(news) == 200

        await until(both_know)
        for name in ("first", "second"):
            assert [each for at, each in news if at == name] == [b"news %d" % number for number in range(100)]


# --- the stream --------------------------------------------------------------------------------------


async def test_the_state_names_the_leader_and_the_replicas(cluster: NatsCluster, group: str) -> None:
    async with connected(cluster.url, group, bytes_max=1 << 30) as journal:
        state = await journal.state()
        assert (state.first_seq, state.last_seq, state.bytes, state.bytes_max) == (1, 0, 0, 1 << 30)
        await append_all(journal, records(3))
        leader = await asyncio.to_thread(cluster.leader_of, journal.stream)
        others = [name for name in cluster.servers if name != leader]

        async def all_are(*words: str) -> bool:
            await append_at_end(journal, b"more")
            return set((await journal.state()).replicas.values()) <= set(words)

        await until(lambda: all_are("leader", "current"))
        state = await journal.state()
        assert (state.first_seq, state.leader) == (1, leader)
        assert state.replicas == {leader: "leader", others[0]: "current", others[1]: "current"}
        assert state.bytes > 300

        cluster.kill(others[0])

        async def is_behind() -> bool:
            await append_at_end(journal, b"more")
            words = (await journal.state()).replicas[others[0]]
            return re.fullmatch(r"\d+ behind(, silent for \d+ s)?", words) is not None

        await until(is_behind)
        cluster.start(others[0])
        await asyncio.to_thread(cluster.wait_ready)


async def test_a_stream_with_other_settings_is_an_error(cluster: NatsCluster, group: str) -> None:
    with pytest.raises(GroupNotFound, match=group):
        await JetStream.connect(cluster.url, group, "m1", create=False)
    async with connected(cluster.url, group, bytes_max=1 << 30):
        pass
    with pytest.raises(BadConfig, match=r"num_replicas is 3, not 1; max_bytes is 1073741824, not 8589934592"):
        await JetStream.connect(cluster.url, group, "m1", replicas=1)
    async with connected(cluster.url, group, create=False) as journal:
        assert (await journal.state()).bytes_max == 1 << 30


def test_replicas_need_a_cluster(tmp_path: Path, group: str) -> None:
    async def scenario(url: str) -> None:
        with pytest.raises(BadConfig, match="replicas > 1 not supported"):
            await JetStream.connect(url, group, "m1")
        async with connected(url, group, replicas=1) as journal:
            await append_all(journal, records(3))
            assert (await journal.state()).replicas == {"n1": "leader"}

    with NatsCluster(tmp_path, size=1) as server:
        asyncio.run(scenario(server.url))


def test_a_server_that_takes_small_messages_only_is_an_error(tmp_path: Path, group: str) -> None:
    async def scenario(url: str) -> None:
        with pytest.raises(BadConfig, match="takes 65536 bytes"):
            await JetStream.connect(url, group, "m1", replicas=1)

    with NatsCluster(tmp_path, size=1, config="max_payload: 65536") as server:
        asyncio.run(scenario(server.url))


# --- addresses ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "",
        "a:4222",
        "http://a:4222",
        "nats://",
        "nats://a:4222,",
        "nats://a:port",
        "nats://a:99999",
        "nats://a b:4222",
        "nats://a:4222,tls://b:4222",
        "nats://me:secret@a:4222,you:secret@b:4222",
    ],
)
async def test_a_malformed_address_is_an_error(url: str) -> None:
    with pytest.raises(BadConfig) as error:
        await JetStream.connect(url, "west", "m1")
    assert "nats://a:4222,b:4222" in error.value.hint
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("group", "member"), [("", "m"), ("a.b", "m"), ("*", "m"), ("a", ""), ("a", ">"), ("a", "m..n")]
)
async def test_a_name_that_is_no_part_of_a_subject_is_an_error(group: str, member: str) -> None:
    with pytest.raises(BadConfig, match="is not a name"):
        await JetStream.connect("nats://127.0.0.1", group, member)


def test_a_journal_waits_for_its_servers_and_says_so(
    tmp_path: Path, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = NatsCluster(tmp_path, size=1)

    async def scenario() -> None:
        connecting = asyncio.create_task(JetStream.connect(server.url, group, "m1", replicas=1))
        await warned(caplog, server.url.removeprefix("nats://"))
        server.start("n1")
        journal = await connecting
        await append_all(journal, [b"there"])
        await journal.close()
        assert len([each for each in caplog.records if each.levelno >= logging.WARNING]) == 1

    try:
        asyncio.run(scenario())
    finally:
        server.close()


async def test_a_journal_that_waits_can_be_cancelled(tmp_path: Path, group: str) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(JetStream.connect(NatsCluster(tmp_path).url, group, "m1"), 0.2)
    assert len(asyncio.all_tasks()) == 1


async def warned(caplog: pytest.LogCaptureFixture, text: str) -> None:
    async def is_there() -> bool:
        return text in caplog.text

    await until(is_there)


def test_a_login_is_part_of_the_address(tmp_path: Path, group: str, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(url: str) -> None:
        async with connected(url.replace("//", "//me:r%40ght@"), group, replicas=1) as journal:
            await append_all(journal, [b"one"])
        for login in ("", "me:wrong@", "token@"):
            caplog.clear()
            connecting = asyncio.create_task(JetStream.connect(url.replace("//", f"//{login}"), group, "m1"))
            await warned(caplog, "Authorization Violation")
            connecting.cancel()
            await asyncio.gather(connecting, return_exceptions=True)
        assert "wrong" not in caplog.text

    with NatsCluster(tmp_path, size=1, config='authorization { user: me, password: "r@ght" }') as server:
        asyncio.run(scenario(server.url))


def test_a_missing_permission_is_in_the_warning(
    tmp_path: Path, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(url: str) -> None:
        connecting = asyncio.create_task(JetStream.connect(url.replace("//", "//me:me@"), group, "m1"))
        await warned(caplog, "permissions violation")
        connecting.cancel()
        await asyncio.gather(connecting, return_exceptions=True)

    user = '{ user: me, password: me, permissions: { publish: { deny: "$JS.API.>" } } }'
    with NatsCluster(tmp_path, size=1, config=f"authorization {{ users: [{user}] }}") as server:
        asyncio.run(scenario(server.url))


def test_a_journal_uses_tls_if_its_address_says_so(
    tmp_path: Path, group: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_pem.write_to_path(tmp_path / "key.pem")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    tls = f'tls {{ cert_file: "{tmp_path / "cert.pem"}", key_file: "{tmp_path / "key.pem"}" }}'

    async def secure(url: str) -> None:
        connecting = asyncio.create_task(JetStream.connect(url, group, "m1", replicas=1))
        await warned(caplog, "CERTIFICATE_VERIFY_FAILED")
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        journal = await connecting
        await append_all(journal, records(100, 30_000))
        await journal.close()

    async def plain(url: str) -> None:
        connecting = asyncio.create_task(JetStream.connect(url, group, "m1", replicas=1))
        await warned(caplog, "the server does not use TLS")
        connecting.cancel()
        await asyncio.gather(connecting, return_exceptions=True)

    with NatsCluster(tmp_path / "secure", size=1, config=tls) as server:
        asyncio.run(secure(server.url.replace("nats://", "tls://")))
    with NatsCluster(tmp_path / "plain", size=1) as server:
        asyncio.run(plain(server.url.replace("nats://", "tls://")))


def test_a_plain_node_does_not_load_nats() -> None:
    statement = re.compile(r"^\s*(import|from) nats\b", re.MULTILINE)
    found = [path.name for path in (ROOT / "src").rglob("*.py") if statement.search(path.read_text())]
    assert found == ["jetstream.py"]
    code = "import sys, headpond.cli, headpond.node.process; sys.exit('nats' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
