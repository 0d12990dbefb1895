"""TLS and certificates of clients, over a real node."""

from __future__ import annotations

import asyncio
import signal
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

import headpond
from headpond.client.checkup import check_up
from headpond.client.link.dialling import Backoff
from headpond.model.errors import HeadpondError, TlsFailed, Unavailable
from tests.client.link.certificates import Certificates
from tests.fire.real_node import RealNode, wait_until


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.made(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def tls_node(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealNode]:
    config = f'tls_cert = "{certificates.node}"\n[limits]\nhandshake_s = 1.0\n'
    with RealNode(tmp_path_factory.mktemp("tls"), config=config) as node:
        yield node


def trial(url: str, **files: str) -> type[HeadpondError] | None:
    """Connects; returns the class of the error, or None."""

    async def scenario() -> None:
        async with headpond.connect(url, **files) as client:  # type: ignore[arg-type]
            await client.admin.list_topics()

    try:
        asyncio.run(scenario())
    except HeadpondError as error:
        return type(error)
    return None


async def test_messages_go_and_come_over_tls(tls_node: RealNode, certificates: Certificates) -> None:
    assert tls_node.url.startswith("headponds://")
    payload = b"x" * 3_000_000  # several records of TLS, and more than a buffer
    async with headpond.connect(tls_node.url, ca=certificates.ca) as client:
        async with client.producer("large") as producer:
            for _ in range(4):
                await producer.send(payload)
        async with client.consumer("large", "s") as consumer:
            for _ in range(4):
                message = await consumer.receive(30)
                assert message is not None and message.value == payload
                await consumer.ack(message)


async def test_a_client_continues_over_tls_after_the_node_was_killed(
    tmp_path: Path, certificates: Certificates
) -> None:
    with RealNode(tmp_path, config=f'tls_cert = "{certificates.node}"') as node:
        async with headpond.connect(node.url, ca=certificates.ca, backoff=Backoff(0.01, 0.05)) as client:
            async with client.producer("orders") as producer:
                await producer.send(b"0")
                await asyncio.to_thread(node.restart)
                await producer.send(b"1")
                await producer.flush()
                await producer.reached()
            assert (await client.admin.show_topic("orders")).shard_list[0].entry_next == 2


def test_a_certificate_that_nobody_vouches_for_is_not_trusted(tls_node: RealNode, tmp_path: Path) -> None:
    assert trial(tls_node.url) is TlsFailed
    assert trial(tls_node.url, ca=Certificates.made(tmp_path).ca) is TlsFailed


def test_a_certificate_of_another_host_is_not_trusted(tls_node: RealNode, certificates: Certificates) -> None:
    assert trial(tls_node.url.replace("127.0.0.1", "localhost"), ca=certificates.ca) is TlsFailed


def test_the_environment_names_the_files_too(
    tls_node: RealNode, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADPOND_CA", certificates.ca)
    assert trial(tls_node.url) is None


def test_a_file_that_is_none_of_certificates_is_named(tls_node: RealNode, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nonsense")
    for name in ("ca.pem", "absent.pem"):
        with pytest.raises(TlsFailed, match=name):
            asyncio.run(headpond.connect(tls_node.url, ca=str(tmp_path / name)).open())


def test_the_two_sides_must_agree_on_tls(
    tls_node: RealNode, shared_url: str, certificates: Certificates
) -> None:
    plain = tls_node.url.replace("headponds", "headpond")
    with pytest.raises(Unavailable) as caught:
        asyncio.run(headpond.connect(plain).open())
    assert "headponds://" in caught.value.hint
    with pytest.raises(TlsFailed, match="does not speak TLS"):
        asyncio.run(headpond.connect(shared_url.replace("headpond", "headponds"), ca=certificates.ca).open())


def test_a_client_without_the_required_certificate_gets_a_clear_error(
    tmp_path: Path, certificates: Certificates
) -> None:
    config = f'tls_cert = "{certificates.node}"\ntls_client_ca = "{certificates.ca}"\n'
    with RealNode(tmp_path, config=config) as node:
        assert trial(node.url, ca=certificates.ca, cert=certificates.client) is None
        foreign = Certificates.made(tmp_path / "foreign")
        for shown in (None, foreign.client):
            with pytest.raises((Unavailable, TlsFailed)) as caught:
                asyncio.run(headpond.connect(node.url, ca=certificates.ca, cert=shown).open())
            assert "certificate" in caught.value.hint
        assert trial(node.url, ca=certificates.ca, cert=certificates.client) is None, "the others are served on"


def shown_certificate(node: RealNode, certificates: Certificates) -> bytes:
    context = ssl.create_default_context(cafile=certificates.ca)
    with (
        socket.create_connection(node.address) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as wrapped,
    ):
        certificate = wrapped.getpeercert(binary_form=True)
        assert certificate is not None
        return certificate


def test_a_renewed_certificate_is_read_on_sighup(tls_node: RealNode, certificates: Certificates) -> None:
    before = shown_certificate(tls_node, certificates)
    certificates.replace_node()
    assert tls_node.process is not None
    tls_node.process.send_signal(signal.SIGHUP)
    wait_until(lambda: shown_certificate(tls_node, certificates) != before)
    assert trial(tls_node.url, ca=certificates.ca) is None
    Path(certificates.node).write_text("nonsense")
    tls_node.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "stays in use" in tls_node.errors)
    assert trial(tls_node.url, ca=certificates.ca) is None


def test_a_certificate_whose_key_is_not_there_yet_leaves_the_old_pair_in_place(
    tmp_path: Path, certificates: Certificates
) -> None:
    pairs = [certificates.authority.issue_cert("127.0.0.1") for _ in range(2)]
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    pairs[0].cert_chain_pems[0].write_to_path(str(cert))
    pairs[0].private_key_pem.write_to_path(str(key))
    with RealNode(tmp_path / "node", config=f'tls_cert = "{cert}"\ntls_key = "{key}"\n') as node:
        before = shown_certificate(node, certificates)
        assert node.process is not None
        pairs[1].cert_chain_pems[0].write_to_path(str(cert))
        node.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "stays in use" in node.errors)
        assert shown_certificate(node, certificates) == before
        pairs[1].private_key_pem.write_to_path(str(key))
        node.process.send_signal(signal.SIGHUP)
        wait_until(lambda: shown_certificate(node, certificates) != before)
        assert trial(node.url, ca=certificates.ca) is None


def test_a_replaced_authority_of_clients_is_no_longer_trusted(tmp_path: Path) -> None:
    old, new = Certificates.made(tmp_path / "old"), Certificates.made(tmp_path / "new")
    clients = tmp_path / "clients.pem"
    clients.write_bytes(Path(old.ca).read_bytes())
    config = f'tls_cert = "{old.node}"\ntls_client_ca = "{clients}"\n'
    with RealNode(tmp_path / "node", config=config) as node:
        assert trial(node.url, ca=old.ca, cert=old.client) is None
        clients.write_bytes(Path(new.ca).read_bytes())
        assert node.process is not None
        node.process.send_signal(signal.SIGHUP)
        wait_until(lambda: trial(node.url, ca=old.ca, cert=new.client) is None)
        assert trial(node.url, ca=old.ca, cert=old.client) in (Unavailable, TlsFailed)


def test_a_handshake_that_never_ends_is_given_up(tls_node: RealNode) -> None:
    with socket.create_connection(tls_node.address, timeout=20) as silent:
        silent.sendall(b"\x16\x03\x01")  # the beginning of a TLS record, and nothing more
        assert silent.recv(100) == b""


def test_a_checkup_returns_the_certificate_of_a_node(
    tls_node: RealNode, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADPOND_CA", certificates.ca)
    (found,) = asyncio.run(check_up(tls_node.url, None))
    assert found.certificate is not None, found.error
    assert "127.0.0.1" in found.certificate.names and found.certificate.ends_in_s > 0
    assert found.as_object()["certificate"]["names"] == found.certificate.names
