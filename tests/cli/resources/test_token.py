"""Tokens from the command line, and a node that others can reach."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import headpond.sync
from headpond.node.bootstrap import bootstrap
from tests.cli.conftest import Cli, Node
from tests.client.link.certificates import Certificates
from tests.fire.real_node import NodeDidNotStart


def test_a_node_that_runs_is_closed_with_its_first_token(cli: Cli, node: Node) -> None:
    made = cli("token", "bootstrap", "--data", node.data, url=node.url)
    assert made.code == 0, made.err
    admin = made.out.decode().strip()
    assert admin.startswith("hpd_") and admin not in made.err
    refused = cli("topic", "list", "--json", url=node.url)
    assert (refused.code, json.loads(refused.err)["code"]) == (1, "token-needed")
    again = cli("token", "bootstrap", "--data", node.data, url=node.url)
    assert again.code == 1 and "Stop the node" in again.err
    assert cli("topic", "list", "--token", admin, url=node.url).code == 0
    assert admin not in node.errors


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Node, str]]:
    """A node with tokens, and its admin's."""
    folder = tmp_path_factory.mktemp("guarded")
    _, token = bootstrap(folder / "data", "admin")
    with Node(folder) as node:
        yield node, token


def test_a_token_is_made_shown_listed_revoked_and_logged(cli: Cli, guarded: tuple[Node, str]) -> None:
    node, admin = guarded

    def ask(*words: str) -> str:
        done = cli(*words, "--json", url=node.url, HEADPOND_TOKEN=admin)
        assert done.code == 0, done.err
        return done.out.decode()

    made = json.loads(ask("token", "create", "till", "--produce", "--topic", "orders", "--expires", "1d"))
    assert (made["rights"], made["scopes"]) == (["produce"], ["default/default/default/orders"])
    listed, shown = ask("token", "list"), ask("token", "show", "till")
    assert made["token"] in listed and json.loads(shown)["expires_at"] == made["expires_at"]
    unasked = cli("token", "revoke", "till", url=node.url, HEADPOND_TOKEN=admin)
    assert unasked.code == 2 and "--yes" in unasked.err
    ask("token", "revoke", "till", "--yes")
    log = ask("log", "admin")
    operations = [json.loads(line)["operation"] for line in log.splitlines()]
    assert operations[0] == "create_token" and operations[-1] == "revoke_token"
    assert not any(made["secret"] in text or admin in text for text in (listed, shown, log, node.errors))


def test_a_token_for_one_producer_sends_under_its_name(cli: Cli, guarded: tuple[Node, str]) -> None:
    node, admin = guarded
    words = ("token", "create", "bound", "--produce", "--topic", "orders*", "--producer", "till-1")
    text = cli(*words, url=node.url, HEADPOND_TOKEN=admin).out.decode().strip()
    sent = cli(
        "produce", "orders-bound", "--producer", "till-1", stdin=b"1\n", url=node.url, HEADPOND_TOKEN=text
    )
    assert sent.code == 0, sent.err
    other = cli("produce", "orders-bound", stdin=b"1\n", url=node.url, HEADPOND_TOKEN=text)
    assert other.code == 1 and "only as producer 'till-1'" in other.err


def test_a_token_that_got_out_is_revoked_by_its_text_which_is_not_shown_again(
    cli: Cli, guarded: tuple[Node, str]
) -> None:
    node, admin = guarded
    access = ("--url", node.url, "--token", admin)
    made = cli("token", "create", "lost", "--produce", "--scope", "acme", "--json", *access)
    text = json.loads(made.out)["secret"]
    done = cli("token", "revoke", text, "--yes", "--json", *access)
    assert json.loads(done.out) == {"token": json.loads(made.out)["token"], "revoked": True}
    said = [done, cli("token", "show", text, *access), cli("log", "admin", "--json", *access)]
    assert all(each.code == 0 for each in said)
    assert not any(text.split("_", 2)[2] in each.out.decode() + each.err for each in said)


def test_a_command_does_what_its_token_allows(cli: Cli, guarded: tuple[Node, str]) -> None:
    node, admin = guarded
    with headpond.sync.connect(node.url, admin) as client:
        client.admin.create_topic("orders")
        made = client.admin.create_token("t", rights=["produce"], scopes=["default"])
        sent = cli("produce", "orders", "--token", made.secret, url=node.url, stdin=b"a\nb\n")
        assert sent.code == 0, sent.err
        read = cli("consume", "orders", "--subscription", "s", "--token", made.secret, url=node.url)
        assert read.code == 1 and "right to consume on topic default/default/default/orders" in read.err
        client.admin.revoke_token(made.info.token)
    late = cli("produce", "orders", "--token", made.secret, "--json", url=node.url, stdin=b"c\n")
    assert late.code == 1 and "token-revoked" in late.err and made.secret not in late.err


def test_a_lost_admin_token_is_replaced_while_the_node_is_stopped(cli: Cli, tmp_path: Path) -> None:
    data = tmp_path / "node" / "data"
    first = cli("token", "bootstrap", "--data", data, "--json")
    second = cli("token", "bootstrap", "--data", data, "--name", "again", "--json")
    assert first.code == second.code == 0
    assert data.stat().st_mode & 0o777 == 0o700
    with Node(tmp_path / "node") as node:
        for made in (first, second):
            secret = json.loads(made.out)["secret"]
            assert cli("topic", "list", url=node.url, HEADPOND_TOKEN=secret).code == 0


def test_a_new_data_folder_is_announced(cli: Cli, tmp_path: Path) -> None:
    first = cli("token", "bootstrap", "--data", tmp_path / "dtaa")
    again = cli("token", "bootstrap", "--data", tmp_path / "dtaa", "--name", "again")
    assert (first.code, "dtaa is a new data folder" in first.err) == (0, True)
    assert (again.code, "new data folder" in again.err) == (0, False)


def test_no_secret_is_shown_on_the_screen(cli: Cli, guarded: tuple[Node, str], tmp_path: Path) -> None:
    node, admin = guarded
    made = cli(
        "token", "create", "seen", "--consume", "--scope", "acme", "--json", "--url", node.url, "--token", admin
    )
    text = json.loads(made.out)["secret"]
    wrong = f"{text[:-4]}AAAA"
    assert cli("context", "add", "prod", "--url", node.url, "--token", "-", stdin=text.encode()).code == 0
    cli("context", "use", "prod")
    asked = [
        ("context", "list"),
        ("topic", "list"),
        ("topic", "create", "acme/a/b/c"),
        ("consume", "beta/a/b/c", "-s", "s", "--idle", 0.1),
        ("produce", "acme/a/b/c"),
        ("token", "show", text, "--token", admin, "--url", node.url),
        ("topic", "show", text, "--token", admin, "--url", node.url),
        ("topic", "create", f"{text}?", "--token", admin, "--url", node.url),
        ("topic", "list", "--url", node.url, "--token", wrong),
        ("topic", "list", "--url", node.url, "--token", text[:30]),
        ("topic", "list", "--url", "headpond://127.0.0.1:1", "--token", text),
        ("doctor", node.url, "--token", text),
        ("log", "admin", "--url", node.url, "--token", admin),
    ]
    done = [cli(*words, *form, stdin=b"x\n") for words in asked for form in ((), ("--json",))]
    assert {each.code for each in done} == {0, 1}
    said = [each.out.decode() + each.err for each in done] + [node.errors]
    for secret in (part.split("_", 2)[2][:20] for part in (text, wrong, admin)):
        assert [each for each in said if secret in each] == []


def test_a_token_says_what_for_and_where(cli: Cli) -> None:
    for words in (("--scope", "acme"), ("--produce",), ("--produce", "--scope", "a//b")):
        done = cli("token", "create", "t", *words, url="headpond://127.0.0.1:1")
        assert done.code in (1, 2) and "127.0.0.1" not in done.err


@pytest.mark.parametrize("what", ["nothing", "tokens", "tls"])
def test_other_machines_are_not_served_without_tokens_and_tls(cli: Cli, tmp_path: Path, what: str) -> None:
    node = Node(tmp_path / "node", config=config_of(tmp_path) if what == "tls" else "")
    node._listen = "0.0.0.0:0"
    if what == "tokens":
        cli("token", "bootstrap", "--data", node.data)
    with pytest.raises(NodeDidNotStart) as refused:
        node.start()
    said = str(refused.value)
    assert "other machines can reach 0.0.0.0:0" in said and "--insecure" in said
    assert ("no tokens" in said) is (what != "tokens") and ("no TLS" in said) is (what != "tls")


def test_other_machines_are_served_only_with_tokens_and_tls_or_if_insecure(cli: Cli, tmp_path: Path) -> None:
    node = Node(tmp_path / "one", config=config_of(tmp_path))
    node._listen = "0.0.0.0:0"
    cli("token", "bootstrap", "--data", node.data)
    with node:
        assert node.url.startswith("headponds://0.0.0.0:")
    found = Node(tmp_path / "two", config="insecure = true")
    found._listen = "0.0.0.0:0"
    with found:
        assert found.alive


def config_of(folder: Path) -> str:
    return f'tls_cert = "{Certificates.made(folder / "certificates").node}"\n'
