"""Starting and stopping a node from the command line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import httpx
import pytest

from tests.cli.conftest import Cli, Node, Spawn
from tests.fire.real_node import wait_until

START = ("node", "--listen", "127.0.0.1:0")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_node_says_when_it_is_ready_and_stops_on(
    spawn: Spawn, tmp_path: Path, number: signal.Signals
) -> None:
    process = spawn(*START, "--data", tmp_path / "data")
    assert process.stdout is not None
    ready = process.stdout.readline().decode()
    assert ready.startswith("ready headpond://127.0.0.1:")
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (0, b"")
    assert b"Traceback" not in err


def test_a_node_without_tls_ignores_sighup(node: Node) -> None:
    os.kill(node.pid, signal.SIGHUP)
    wait_until(lambda: "SIGHUP" in node.errors)
    assert node.alive and node.stop() == 0


def test_with_json_ready_is_an_object(spawn: Spawn, tmp_path: Path) -> None:
    process = spawn(*START, "--data", tmp_path / "data", "--json")
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["ready"].startswith("headpond://")
    process.terminate()
    process.communicate(timeout=30)


def test_without_a_data_folder_it_takes_the_users_and_says_so(spawn: Spawn, tmp_path: Path) -> None:
    process = spawn(*START, XDG_DATA_HOME=str(tmp_path))
    assert process.stdout is not None
    assert process.stdout.readline().startswith(b"ready ")
    process.terminate()
    _, err = process.communicate(timeout=30)
    assert str(tmp_path / "headpond") in err.decode()
    assert (tmp_path / "headpond" / "NODE").exists()


def test_a_settings_file_counts_and_options_win(cli: Cli, spawn: Spawn, tmp_path: Path) -> None:
    config = tmp_path / "node.toml"
    config.write_text(f'data = "{tmp_path / "mine"}"\nlisten = "not an address"\ncreate_on_first_use = false\n')
    process = spawn(*START, "--config", config)
    assert process.stdout is not None
    url = process.stdout.readline().decode().split()[1]
    done = cli("produce", "t", "--json", url=url, stdin=b"x\n")
    assert json.loads(done.err)["code"] == "topic-not-found"
    process.terminate()
    process.communicate(timeout=30)
    assert (tmp_path / "mine").is_dir()


def test_a_variable_counts_and_a_fault_in_one_is_named(cli: Cli, spawn: Spawn, tmp_path: Path) -> None:
    process = spawn("node", HEADPOND_DATA=str(tmp_path / "mine"), HEADPOND_LISTEN="127.0.0.1:0")
    assert process.stdout is not None
    assert process.stdout.readline().startswith(b"ready headpond://127.0.0.1:")
    process.terminate()
    process.communicate(timeout=30)
    assert (tmp_path / "mine" / "NODE").exists()
    done = cli("node", "--json", HEADPOND_THREADS="many")
    assert (done.code, json.loads(done.err)["code"]) == (1, "bad-config")
    assert "HEADPOND_THREADS" in json.loads(done.err)["message"]


def test_a_fault_in_the_settings_is_named(cli: Cli, tmp_path: Path) -> None:
    config = tmp_path / "node.toml"
    config.write_text("colour = 3\n")
    done = cli("node", "--config", config, "--json")
    assert (done.code, json.loads(done.err)["code"]) == (1, "bad-config")
    assert "colour" in json.loads(done.err)["message"]


def test_a_folder_or_a_port_in_use_is_an_error(cli: Cli, service: Node, tmp_path: Path) -> None:
    listen = service.url.removeprefix("headpond://")
    taken = cli("node", "--data", tmp_path / "other", "--listen", listen)
    assert taken.code == 1
    assert f"cannot listen on {listen}: Address already in use\nhint: " in taken.err
    assert "for HTTP by --http" in taken.err
    assert (tmp_path / "other" / "SEAL").is_file(), (
        "a node that could not serve leaves its folder in good order"
    )
    locked = cli("node", "--data", service.data, "--listen", "127.0.0.1:0")
    assert locked.code == 1
    assert str(service.data) in locked.err


def log_lines(process: subprocess.Popen[bytes]) -> list[dict[str, str]]:
    process.terminate()
    _, err = process.communicate(timeout=30)
    return [json.loads(line) for line in err.splitlines()]


def test_with_json_every_line_of_the_log_is_an_object(spawn: Spawn, cli: Cli, tmp_path: Path) -> None:
    data = tmp_path / "a\nb"
    process = spawn(*START, "--http", "127.0.0.1:0", "--data", data, "--json", "--log-level", "debug")
    assert process.stdout is not None
    ready = json.loads(process.stdout.readline())
    assert httpx.get(f"{ready['http']}/livez").text == "ok\n"
    cli("topic", "create", "orders", url=ready["ready"])
    lines = log_lines(process)
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in lines)
    assert [line["message"] for line in lines if line["message"].startswith("data in")] == [f"data in {data}"]
    (made,) = [line for line in lines if line["logger"] == "headpond.admin"]
    assert (made["operation"], made["result"], made["level"]) == ("create_topic", "done", "info")


def test_the_form_of_the_log_is_a_setting_and_its_option_wins(spawn: Spawn, tmp_path: Path) -> None:
    variables = {"HEADPOND_LOG_FORMAT": "json", "HEADPOND_LOG_LEVEL": "info"}
    process = spawn(*START, "--data", tmp_path / "a", **variables)
    assert process.stdout is not None and process.stdout.readline().startswith(b"ready ")
    assert [line["message"] for line in log_lines(process)][-1] == "stopping"
    process = spawn(*START, "--data", tmp_path / "b", "--json", "--log-format", "text", **variables)
    assert process.stdout is not None and json.loads(process.stdout.readline())["ready"]
    process.terminate()
    _, err = process.communicate(timeout=30)
    assert b" INFO headpond.node: stopping\n" in err
    process = spawn(*START, "--data", tmp_path / "c", "--log-level", "warning")
    assert process.stdout is not None and process.stdout.readline()
    process.terminate()
    assert process.communicate(timeout=30)[1] == b""
