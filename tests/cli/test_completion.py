"""Shell completion, run as bash, zsh and fish run it: the node's names, or silence."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import headpond.sync
from headpond.model.errors import CATALOGUE
from tests.cli.conftest import Cli, Node, clean_environment
from tests.fire import forked

NOWHERE = "headpond://127.0.0.1:1"


def complete(line: str, url: str = NOWHERE, shell: str = "bash") -> list[str]:
    """What is offered at the end of a line; nothing is ever said on stderr."""
    words = line.split(" ")
    names = {
        "_HEADPOND_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
        "_TYPER_COMPLETE_ARGS": line,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "HEADPOND_URL": url,
    }
    done = forked.run([], clean_environment() | names)
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout.decode().split()


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A node that knows two topics, two subscriptions, a producer and a writer."""
    with Node(tmp_path_factory.mktemp("completion")) as node:
        environment = clean_environment() | {"HEADPOND_URL": node.url}
        for command in (
            "topic create orders",
            "topic create acme/shop/web/clicks",
            "sub create orders billing",
            "sub create acme/shop/web/clicks others",
            "producer create orders till-1",
        ):
            forked.run(command.split(), environment).check_returncode()
        with headpond.sync.connect(node.url) as client, client.writer("nightly") as writer:
            writer.commit(0, [])
        yield node.url


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("headpond topic show ", ["acme/shop/web/clicks", "orders"]),
        ("headpond topic show o", ["orders"]),
        ("headpond topic show default/", ["default/default/default/orders"]),
        ("headpond produce ", ["acme/shop/web/clicks", "orders"]),
        ("headpond topic create o", []),
        ("headpond sub show orders ", ["billing"]),
        ("headpond consume acme/shop/web/clicks -s ", ["others"]),
        ("headpond dead list orders --subscription b", ["billing"]),
        ("headpond dead list --subscription b", []),
        ("headpond producer show orders t", ["till-1"]),
        ("headpond writer show n", ["nightly"]),
        ("headpond tenant show ", ["acme", "default"]),
        ("headpond product show a", ["acme/shop"]),
        ("headpond component delete a", ["acme/shop/web"]),
        ("headpond topic set orders hard", ["hard_ttl="]),
        ("headpond sub seek orders billing --to ", ["earliest", "latest"]),
        ("headpond consume orders --kind f", ["failover"]),
        ("headpond sub p", ["pause", "promote"]),
    ],
)
def test_the_names_that_the_node_knows_are_offered(url: str, line: str, offered: list[str]) -> None:
    assert complete(line, url) == offered


@pytest.mark.parametrize(
    ("shell", "printed"), [("zsh", """_arguments '*: :(("billing"))'"""), ("fish", "billing")]
)
def test_every_shell_gets_them_in_its_own_words(url: str, shell: str, printed: str) -> None:
    assert " ".join(complete("headpond sub show orders ", url, shell)) == printed


def test_error_codes_need_no_node() -> None:
    assert complete("headpond errors disk") == ["disk-full"]
    assert complete("headpond errors ") == sorted(CATALOGUE)


def test_slots_with_refill_files_are_offered(cli: Cli, topic: str) -> None:
    assert cli("produce", topic, url=NOWHERE, stdin=b"spilled\n").code == 0
    (slot,) = complete("headpond refill show ")
    assert slot.startswith(topic)


@pytest.mark.parametrize("url", [NOWHERE, "garbage", "headpond://", "headpond://no.such.host.invalid"])
def test_without_a_node_completion_offers_and_prints_nothing(url: str) -> None:
    assert complete("headpond topic show ", url) == []


def test_a_node_that_hangs_is_not_waited_for(node: Node) -> None:
    os.kill(node.pid, signal.SIGSTOP)  # its system still takes connections
    try:
        assert complete("headpond topic show ", node.url) == []
    finally:
        os.kill(node.pid, signal.SIGCONT)


def test_a_server_that_is_no_node_offers_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def talk() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=talk, daemon=True)
        thread.start()
        assert complete("headpond topic show ", f"headpond://127.0.0.1:{server.getsockname()[1]}") == []
        thread.join(10)


def test_bash_itself_completes_with_the_script_that_is_shown(url: str, tmp_path: Path) -> None:
    command = tmp_path / "headpond"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m headpond "$@"\n')
    command.chmod(0o755)
    names = {"HEADPOND_URL": url, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    script = """
        set -e
        eval "$(_HEADPOND_COMPLETE=source_bash headpond)"
        complete -p headpond
        COMP_WORDS=(headpond sub show orders ""); COMP_CWORD=4
        _headpond_completion headpond
        echo "${COMPREPLY[@]}"
    """
    done = subprocess.run(
        ["bash", "--norc", "-c", script], env=clean_environment() | names, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["complete -o default -F _headpond_completion headpond", "billing"]
