"""What every command has in common: help, version, errors and exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
import typer.main

from headpond.cli.app import COMMON_OPTIONS, SECTIONS, app
from headpond.model.errors import CATALOGUE
from tests.cli.conftest import HEADPOND, Cli, Node, clean_environment
from tests.fire import forked


def commands(group: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """Every command by its words, those of groups included."""
    found: dict[tuple[str, ...], Any] = {}
    for name, command in group.commands.items():
        below = (*path, name)
        found |= commands(command, below) if hasattr(command, "commands") else {below: command}
    return found


COMMANDS = commands(typer.main.get_command(app))
PROMISED = "node topic produce consume inspect errors demo"
NOWHERE = "headpond://127.0.0.1:1"


def test_help_lists_every_command(cli: Cli) -> None:
    done = cli("--help")
    assert done.code == 0
    text = done.out.decode()
    names = {name for name, *_ in COMMANDS}
    assert names >= set(PROMISED.split())
    assert [name for name in names if f"\n  {name} " not in text] == []


def test_help_has_each_command_in_one_line_of_its_section(cli: Cli) -> None:
    text = cli("--help").out.decode()
    assert "..." not in text.replace("[ARGS]...", ""), "a line is cut off"
    places = [text.index(f"\n{title}:\n") for title in SECTIONS]
    assert places == sorted(places)
    assert text.index("\n  produce ") < text.index("\nTopics and their users:") < text.index("\n  topic ")


def test_help_loads_nothing_heavy() -> None:
    code = "import sys, headpond.cli.app; print([m for m in ('pyarrow', 'rich', 'uvloop') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_the_version_is_the_projects(cli: Cli) -> None:
    import headpond

    assert cli("--version").out.decode() == f"headpond {headpond.__version__}\n"


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_takes_url_token_and_json(command: tuple[str, ...]) -> None:
    options = {option for parameter in COMMANDS[command].params for option in parameter.opts}
    assert set(COMMON_OPTIONS) <= options


@pytest.mark.parametrize(
    "arguments",
    [
        ("nonsense",),
        ("consume", "t"),
        ("topic", "create"),
        ("topic", "create", "t", "--shards", "x"),
        ("token", "create", "t", "--admin", "--scope", "*", "--expires", "9q"),
    ],
    ids=" ".join,
)
def test_wrong_usage_exits_with_2(cli: Cli, arguments: tuple[str, ...]) -> None:
    done = cli(*arguments)
    assert (done.code, done.out) == (2, b"")
    assert "Usage:" in done.err


@pytest.mark.parametrize("option", ["--url", "--url=headpond://a:1", "--token", "--json"])
def test_an_option_of_commands_before_the_command_is_answered_with_its_place(cli: Cli, option: str) -> None:
    done = cli(option, "topic", "list")
    assert done.code == 2
    assert f"Error: {option.partition('=')[0]} comes after the command." in done.err


def test_a_wrong_word_is_answered_with_the_allowed_ones_alone(cli: Cli) -> None:
    done = cli("consume", "t", "-s", "s", "--kind", "share")
    assert "Invalid value for '--kind': 'share' is not one of 'unique', 'shared'," in done.err


@pytest.mark.parametrize("start", ["", "soon", "-1", "1.5"])
def test_a_start_that_is_no_position_is_wrong_usage(cli: Cli, start: str) -> None:
    assert cli("consume", "t", "--subscription", "s", f"--start={start}").code == 2


def test_an_error_has_a_hint_and_exits_with_1(cli: Cli) -> None:
    done = cli("topic", "list", "--url", NOWHERE)
    assert (done.code, done.out) == (1, b"")
    error, hint = done.err.splitlines()
    assert error.startswith("error: ")
    assert hint.startswith("hint: ")


def test_with_json_an_error_is_one_object_on_stderr(cli: Cli) -> None:
    done = cli("topic", "list", "--json", url=NOWHERE)
    assert (done.code, done.out) == (1, b"")
    error = json.loads(done.err)
    assert sorted(error) == ["code", "hint", "message", "retryable"]
    assert (error["code"], error["retryable"]) == ("unavailable", True)


def test_the_catalogue_is_listed_whole(cli: Cli) -> None:
    entries = json.loads(cli("errors", "--json").out)
    assert sorted(entry["code"] for entry in entries) == sorted(CATALOGUE)
    lines = cli("errors").out.decode().splitlines()
    assert [line.split()[0] for line in lines[1:]] == sorted(CATALOGUE)


def test_one_error_is_explained(cli: Cli) -> None:
    text = cli("errors", "disk-full").out.decode()
    kind = CATALOGUE["disk-full"]
    assert kind.default_hint in text
    assert (kind.__doc__ or "").splitlines()[0] in text


def test_an_unknown_code_names_the_nearest(cli: Cli) -> None:
    done = cli("errors", "disk-ful")
    assert done.code == 1
    assert "disk-full" in done.err


@pytest.mark.parametrize(
    "command", [("topic", "show"), ("sub", "list"), ("dead", "list", "-s", "s")], ids=" ".join
)
def test_a_mistyped_topic_is_answered_with_the_nearest(
    cli: Cli, service: Node, topic: str, command: tuple[str, ...]
) -> None:
    cli("topic", "create", f"invoices-{topic}", url=service.url)
    done = cli(*command, f"invocies-{topic}", url=service.url)
    assert done.code == 1
    assert f"hint: Did you mean invoices-{topic}" in done.err


def test_a_mistyped_subscription_is_answered_with_the_nearest(cli: Cli, service: Node, topic: str) -> None:
    cli("topic", "create", topic, url=service.url)
    cli("sub", "create", topic, "billing", url=service.url)
    done = cli("sub", "show", topic, "biling", url=service.url)
    assert (done.code, "hint: Did you mean billing?" in done.err) == (1, True)


def test_consuming_a_missing_topic_prints_a_note(cli: Cli, service: Node, topic: str) -> None:
    cli("topic", "create", f"invoices-{topic}", url=service.url)
    done = cli("consume", f"invocies-{topic}", "-s", "s", "--idle", 0.1, url=service.url)
    assert (done.code, done.out) == (0, b"")
    assert "is not there yet" in done.err and f"Did you mean invoices-{topic}" in done.err
    assert cli("consume", f"invocies-{topic}", "-s", "s", "--idle", 0.1, url=service.url).err == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ("topic", "show", b"\xff"),
        ("consume", "t", "-s", b"\xff", "-n", "1"),
        ("produce", "t", "--key-separator", b"\xff"),
        ("topic", "list", "--token", b"\xff"),
    ],
    ids=str,
)
def test_an_argument_that_is_no_text_is_an_error_and_no_traceback(
    service: Node, arguments: tuple[str | bytes, ...]
) -> None:
    environment = clean_environment() | {"HEADPOND_URL": service.url}
    done = forked.run([os.fsdecode(argument) for argument in arguments], environment)
    assert done.returncode == 1
    assert [line.split(b":")[0] for line in done.stderr.splitlines()[-2:]] == [b"error", b"hint"]
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize(("closed", "code"), [("2", 0), ("1", 1), ("0", 1)])
def test_a_closed_stream_is_no_crash(service: Node, closed: str, code: int) -> None:
    command = f'exec "$@" {closed}>&-'
    done = subprocess.run(
        ["sh", "-c", command, "sh", *HEADPOND, "topic", "list", "--url", service.url],
        capture_output=True,
        env=clean_environment(),
    )
    assert done.returncode == code, done.stderr


def test_with_stderr_closed_an_error_is_not_printed_on_stdout(service: Node) -> None:
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" 2>&-', "sh", *HEADPOND, "topic", "show", "nothing-here", "--url", service.url],
        capture_output=True,
        env=clean_environment(),
    )
    assert (done.returncode, done.stdout) == (1, b"")


@pytest.mark.parametrize("command", ["--help", "--version", "topic --help", "errors", "errors --json"])
def test_a_disk_that_is_full_is_an_error_also_of_help(command: str) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*HEADPOND, *command.split()],
            env=clean_environment(),
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "No space left on device" in done.stderr and "hint" in done.stderr


def test_a_terminal_without_utf_8_shows_what_it_can() -> None:
    done = subprocess.run(
        [*HEADPOND, "explain", "channel(loss=0.1)|dedup"],
        env=clean_environment() | {"PYTHONIOENCODING": "ascii"},
        capture_output=True,
        timeout=60,
    )
    assert done.stderr == b"" and b"window ? how late a message may come" in done.stdout


GROUPS = sorted({command[0] for command in COMMANDS if len(command) > 1})


@pytest.mark.parametrize("group", GROUPS)
def test_the_help_of_a_group_cuts_no_line_off(cli: Cli, group: str) -> None:
    done = cli(group, "--help")
    assert done.code == 0 and done.out.startswith(b"Usage: ")
    assert "..." not in done.out.decode().replace("[ARGS]...", "")
