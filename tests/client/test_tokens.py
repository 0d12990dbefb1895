"""Clients of a node with tokens: their rights, and their end when the token ends."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

import headpond
import headpond.sync
from headpond.client.link.dialling import Backoff
from headpond.client.produce.refill_send import send_slot
from headpond.model.errors import (
    AccessRefused,
    NotAllowed,
    TokenNeeded,
    TokenNotFound,
    TokenRevoked,
    TokenUnknown,
    TopicNotFound,
)
from headpond.node.bootstrap import bootstrap
from tests.client.peer import until
from tests.client.reading import receive, values_at
from tests.fire.real_node import RealNode

QUICK = Backoff(0.01, 0.05)


class Guarded(RealNode):
    """A real node with an admin's token from its first moment."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        _, self.token = bootstrap(self.data, "admin")

    def connect(self, token: str | None = None) -> headpond.Client:
        return headpond.connect(self.url, token or self.token, backoff=QUICK, wait=False)

    async def token_for(self, *rights: str, scope: str, **more: str) -> tuple[str, str]:
        """A new token's id and text."""
        async with self.connect() as client:
            made = await client.admin.create_token("t", rights=rights, scopes=[scope], **more)  # type: ignore[arg-type]
            return made.info.token, made.secret


def slot_in(refill: Path) -> str:
    """The only slot of a refill folder."""
    (slot,) = [path.name for path in refill.iterdir() if path.name != "topics"]
    return slot


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with Guarded(tmp_path_factory.mktemp("guarded")) as running:
        yield running


async def test_a_client_without_a_valid_token_is_refused_at_once(guarded: Guarded) -> None:
    for token, error in ((None, TokenNeeded), ("nonsense", TokenUnknown)):
        for wait in (True, False):
            with pytest.raises(error):
                async with headpond.connect(guarded.url, token, wait=wait):
                    pass


async def test_of_several_addresses_the_one_that_refuses_the_token_is_the_one_to_tell(guarded: Guarded) -> None:
    with pytest.raises(TokenUnknown):
        async with headpond.connect(f"headpond://127.0.0.1:1,{guarded.url}", "nonsense"):
            pass


async def test_a_producer_and_a_consumer_do_what_their_tokens_allow(guarded: Guarded) -> None:
    topic = "acme/shop/till/orders"
    async with guarded.connect() as client:
        await client.admin.create_topic(topic)
        await client.admin.create_topic("beta/a/b/c")
    _, sends = await guarded.token_for("produce", scope="acme/shop", producer="till-1")
    _, reads = await guarded.token_for("consume", scope=topic, subscription="billing")
    async with guarded.connect(sends) as client:
        async with client.producer(topic, name="till-1") as producer:
            await producer.send(b"1")
        with pytest.raises(NotAllowed, match="till-1"):
            async with client.producer(topic, name="till-2"):
                pass
        with pytest.raises(NotAllowed, match="produce or consume on topic beta/a/b/c"):
            async with client.producer("beta/a/b/c"):
                pass
        with pytest.raises(NotAllowed, match="consume"):
            async with client.consumer(topic, "billing"):
                pass
        assert [info.topic for info in await client.admin.list_topics()] == [topic]
    async with guarded.connect(reads) as client:
        async with client.consumer(topic, "billing") as consumer:
            message = await consumer.receive(timeout=20)
            assert message is not None and message.value == b"1"
        with pytest.raises(NotAllowed, match="billing"):
            async with client.consumer(topic, "other"):
                pass
        access = await client.admin.show_access()
        assert (access.rights, access.scopes, access.subscription) == (["consume"], [topic], "billing")


async def test_a_forbidden_topic_and_a_missing_one_get_the_same_answer(guarded: Guarded) -> None:
    _, token = await guarded.token_for("admin", scope="gamma")
    async with guarded.connect() as client:
        await client.admin.create_topic("delta/a/b/there")
    async with guarded.connect(token) as client:
        said = []
        for name in ("there", "absent"):
            with pytest.raises(NotAllowed) as caught:
                await client.admin.show_topic(f"delta/a/b/{name}")
            said.append(caught.value.message.replace(name, "NAME"))
        assert said[0] == said[1]
        with pytest.raises(TopicNotFound):
            await client.admin.show_topic("gamma/a/b/absent")


async def test_revoking_ends_readers_with_the_reason_and_keeps_what_producers_have(
    tmp_path: Path, state_folder: Path
) -> None:
    with Guarded(tmp_path / "node") as node:
        topic = "acme/shop/till/orders"
        token, text = await node.token_for("produce", "consume", scope="acme")
        async with node.connect() as admin, node.connect(text) as client:
            async with client.producer(topic, name="till", spill_after=0.05) as producer:
                await producer.send(b"0")
                consumer = await client.consumer(topic, "s").open()
                message = await consumer.receive(timeout=20)
                assert message is not None and message.value == b"0"
                await consumer.ack(message)
                await consumer.flush()
                await admin.admin.revoke_token(token)
                with pytest.raises(TokenRevoked):
                    await consumer.receive(timeout=20)
                with pytest.raises(AccessRefused):
                    await client.admin.list_topics()
                receipt = await producer.send(b"1")
                assert receipt.outcome == "spilled"
            _, fresh = await node.token_for("produce", "consume", scope="acme")
            slot = slot_in(state_folder / "refill")
            sent = await send_slot(state_folder / "refill", slot, token=fresh, timeout_s=20.0)
            assert sent.delivered, sent.error
            records = await admin.admin.list_admin_log()
            assert [each.operation for each in records][-1] == "create_token"
        async with node.connect() as client, client.consumer(topic, "all", start="earliest") as consumer:
            values = [(await consumer.receive(timeout=20)).value for _ in range(2)]  # type: ignore[union-attr]
            assert values == [b"0", b"1"]


async def test_a_flush_at_several_addresses_ends_when_the_token_is_revoked(tmp_path: Path) -> None:
    with Guarded(tmp_path / "node") as node:
        topic = "acme/shop/till/orders"
        token, text = await node.token_for("produce", "consume", scope="acme")
        urls = f"{node.url},127.0.0.1:1"
        async with node.connect() as admin, headpond.connect(urls, text, backoff=QUICK) as client:
            async with client.producer(topic) as producer:
                await producer.send(b"0")
            consumer = await client.consumer(topic, "s").open()
            message = await receive(consumer)
            await admin.admin.revoke_token(token)
            await until(lambda: not client.connected)
            await consumer.ack(message)
            with pytest.raises(TokenRevoked):
                await asyncio.wait_for(consumer.flush(), 20)


async def test_a_producer_without_a_refill_refuses_messages_once_its_token_is_revoked(tmp_path: Path) -> None:
    with Guarded(tmp_path / "node") as node:
        token, text = await node.token_for("produce", scope="acme")
        async with (
            node.connect() as admin,
            node.connect(text) as client,
            client.producer("acme/shop/till/orders", refill=None) as producer,
        ):
            await producer.send(b"0")
            await admin.admin.revoke_token(token)
            with pytest.raises(TokenRevoked):
                await asyncio.wait_for(producer.send(b"1"), 20)
            with pytest.raises(TokenRevoked):
                await asyncio.wait_for(producer.send(b"2"), 20)


async def test_spilled_messages_stay_owed_after_a_token_that_may_not_send_them(
    tmp_path: Path, state_folder: Path
) -> None:
    with Guarded(tmp_path / "node") as node:
        topic = "acme/shop/till/orders"
        wrong = [
            await node.token_for("consume", scope="acme"),
            await node.token_for("produce", scope="acme", producer="till-1"),
            await node.token_for("produce", scope="beta"),
        ]
        token, text = await node.token_for("produce", scope="acme")
        async with (
            node.connect() as admin,
            node.connect(text) as client,
            client.producer(topic, spill_after=0.05) as producer,
        ):
            await producer.send(b"0")
            await admin.admin.revoke_token(token)
            assert (await producer.send(b"1")).outcome == "spilled"
        slot = slot_in(state_folder / "refill")
        for _, denied in wrong:
            sent = await send_slot(state_folder / "refill", slot, token=denied, timeout_s=20.0)
            assert not sent.delivered and sent.bytes_left
            assert isinstance(sent.error, NotAllowed)
        sent = await send_slot(state_folder / "refill", slot, token=node.token, timeout_s=20.0)
        assert sent.delivered, sent.error
        assert await values_at(node.url, topic, token=node.token) == [b"0", b"1"]


async def test_a_producer_comes_back_with_its_token_after_the_node_did(tmp_path: Path) -> None:
    with Guarded(tmp_path / "node") as node:
        async with node.connect() as client:
            async with client.producer("orders", spill_after=0.05) as producer:
                await producer.send(b"0")
                node.kill()
                assert (await producer.send(b"1")).outcome == "spilled"
                await asyncio.to_thread(node.start)
                await producer.flush()
                await producer.reached()
                assert (await producer.send(b"2")).outcome == "stored"
            assert await values_at(node.url, "orders", token=node.token) == [b"0", b"1", b"2"]


async def test_each_copy_gets_its_own_nodes_token(guarded: Guarded, tmp_path: Path) -> None:
    with Guarded(tmp_path / "copy") as copy:
        tokens = {guarded.url: guarded.token, copy.url: copy.token}
        async with (
            headpond.connect(guarded.url, tokens) as client,
            client.producer("copied", copies=[copy.url]) as producer,
        ):
            receipt = await producer.send(b"1")
            assert {each.outcome for each in receipt.copies} == {"stored"}
        assert await values_at(copy.url, "copied", token=copy.token) == [b"1"]


def test_the_blocking_twin_looks_after_tokens_too(guarded: Guarded) -> None:
    with headpond.sync.connect(guarded.url, guarded.token) as client:
        made = client.admin.create_token("blocking", rights=["consume"], scopes=["acme"], lasts=60.0)
        assert made.info.expires_at_us is not None
        assert client.admin.show_token("blocking").token == made.info.token
        assert made.info.token in [info.token for info in client.admin.list_tokens()]
        client.admin.revoke_token(made.info.token)
        assert client.admin.show_token(made.info.token).revoked_at_us is not None
        with pytest.raises(TokenNotFound):
            client.admin.revoke_token("nobody")
        assert client.admin.show_access().guarded
        assert client.admin.list_admin_log(3)[-1].result == "token-not-found"
        with pytest.raises(TokenRevoked):
            headpond.sync.connect(guarded.url, made.secret)


def test_no_secret_is_in_the_nodes_log_or_data(guarded: Guarded) -> None:
    async def scenario() -> str:
        _, text = await guarded.token_for("produce", scope="acme")
        async with guarded.connect(text) as client:
            with pytest.raises(NotAllowed):
                await client.admin.show_node()
        return text

    text = asyncio.run(scenario())
    files = [path.read_bytes() for path in guarded.data.rglob("*") if path.is_file()]
    for token in (text, guarded.token):
        secret = token.split("_", 2)[2]
        assert secret not in guarded.errors
        assert not any(secret.encode() in data for data in files)
    assert guarded.data.stat().st_mode & 0o077 == 0
    world = [path for path in guarded.data.rglob("*") if path.is_file() and path.stat().st_mode & 0o007]
    assert world == []
