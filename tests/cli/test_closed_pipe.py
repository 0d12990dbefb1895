"""A pipe that its reader closed (``| head -1``) is no error, whatever a command prints."""

from __future__ import annotations

import os

import pytest

import headpond
from tests.cli.conftest import Cli, Node, clean_environment
from tests.fire.forked import Forked

PRINTING = [
    "--help",
    "--version",
    "topic --help",
    "topic create -h",
    "errors",
    "errors gap",
    "explain channel(loss=0.1)|dedup",
    "topic list",
    "topic show TOPIC",
    "sub list",
    "sub show TOPIC s",
    "producer list",
    "writer list",
    "tenant list",
    "product list",
    "component list",
    "token list",
    "peer list",
    "log admin",
    "context list",
    "refill list",
    "dead list TOPIC -s s",
    "ledger TOPIC",
    "top --once --interval 0.1",
    "doctor",
    "consume TOPIC -s s --idle 1",
]


def end_of(arguments: list[str], url: str) -> tuple[int, str]:
    """The exit code and stderr of a command whose stdout is closed."""
    from_out, to_out = os.pipe()
    from_err, to_err = os.pipe()
    os.close(from_out)
    nothing = os.open(os.devnull, os.O_RDONLY)
    environment = clean_environment() | {"HEADPOND_URL": url}
    process = Forked(arguments, environment, (nothing, to_out, to_err))
    with os.fdopen(from_err) as errors:
        said = errors.read()
    return process.wait(30), said


@pytest.fixture(scope="module")
def read(service: Node) -> str:
    """A topic with messages and a subscription."""
    with headpond.sync.connect(service.url) as client:
        client.admin.create_topic("closed-pipe")
        client.admin.create_subscription("closed-pipe", "s")
        with client.producer("closed-pipe") as producer:
            producer.send(b"a")
    return "closed-pipe"


@pytest.mark.parametrize("command", PRINTING)
def test_a_closed_pipe_ends_a_command_quietly_with_0(service: Node, read: str, command: str) -> None:
    arguments = command.replace("TOPIC", read).split()
    takes_json = not {"--help", "-h", "--version"} & set(arguments)
    for each in [arguments, [*arguments, "--json"]][: 1 + takes_json]:
        code, said = end_of(each, service.url)
        assert code == 0, (each, said)
        assert not any(word in said for word in ("error", "Traceback", "ignored")), (each, said)


def test_a_command_does_its_work_if_nobody_reads_stderr(cli: Cli, service: Node, topic: str) -> None:
    from_in, to_in = os.pipe()
    from_err, to_err = os.pipe()
    os.close(from_err)
    nothing = os.open(os.devnull, os.O_WRONLY)
    environment = clean_environment() | {"HEADPOND_URL": service.url}
    process = Forked(["produce", topic], environment, (from_in, nothing, to_err))
    os.write(to_in, b"a\nb\n")
    os.close(to_in)
    assert process.wait(30) == 0
    assert cli("consume", topic, "-s", "s", "-n", 2, url=service.url).out == b"a\nb\n"
