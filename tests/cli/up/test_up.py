"""``headpond up``: the console comes first, the programs of a tea house work, and nothing is left behind."""

from __future__ import annotations

import json
import os
import signal
import socket
from typing import Any

import httpx
import pytest

from tests.cli.conftest import Cli
from tests.cli.contract import check
from tests.cli.up.running import Up, up
from tests.fire.real_node import wait_until

pytestmark = pytest.mark.timeout(240)
START_S_MAX = 120.0


def pids(lines: list[str]) -> dict[str, int]:
    """Of the processes in the table that it prints, by name."""
    rows = [line.split() for line in lines if line[:1].isalpha() and line.split()[1:2][0].isdigit()]
    return {row[0]: int(row[1]) for row in rows}


def subscriptions(running: Up) -> dict[str, Any]:
    with running.client() as http:
        return {each["subscription"]: each for each in http.get("/v1/subscriptions").json()}


def test_it_prints_the_console_and_keeps_a_node_busy_in_many_ways() -> None:
    with up() as running:
        assert running.console.startswith("http://127.0.0.1:")

        def busy() -> bool:
            found = subscriptions(running)
            settled = {name for name, each in found.items() if each["settled"]}
            names = {"kitchen", "billing", "archive", "mailer", "accounting", "dashboard", "screens"}
            return settled >= names and found["mailer"]["dead"] > 0

        wait_until(busy, START_S_MAX)
        found = subscriptions(running)
        kinds = {"kitchen": "key_shared", "billing": "shared", "archive": "unique", "dashboard": "failover"}
        assert {name: found[name]["kind"] for name in kinds} == kinds
        with running.client() as http:
            reasons = {
                each["reason"] for each in http.get("/v1/topics/emails/subscriptions/mailer/dead").json()
            }
            assert all(reason.startswith("550 no such mailbox") for reason in reasons) and reasons
            topics = {each["topic"].rpartition("/")[2]: each for each in http.get("/v1/topics").json()}
            assert topics["readings"]["schema"] and topics["menu"]["state"] and not topics["orders"]["schema"]
            (link,) = http.get("/v1/peers").json()
            assert link["following"] == 2 and link["refused"] == 0
            access = {each["producer"]: each["access"] for each in http.get("/v1/producers").json()}
            assert access["till-1"] == "single"


def test_the_link_takes_only_faults_that_it_can_have() -> None:
    with up() as running, running.client() as http:
        for body in (
            {"loss": 0.6},
            {"loss": -0.1},
            {"duplicates": 1},
            {"delay_s": 9},
            {"cut_s": 1},
            {"loss": "a"},
        ):
            answer = http.patch("/v1/lossy-link", json=body)
            assert (answer.status_code, answer.json()["code"]) == (400, "bad-request"), body
        found = http.patch("/v1/lossy-link", json={"loss": 0.5}).json()
        assert (found["faults"]["loss"], found["faults"]["duplicates"]) == (0.5, 0.05)
        assert (found["topic"], found["subscription"]) == ("default/default/default/payments", "accounting")


def test_only_an_admin_of_everything_sees_and_changes_the_link() -> None:
    with up() as running, running.client() as http:
        running.read_until("Ctrl-C")  # from the first token on the node refuses the programs
        root: dict[str, str] = {}

        def make_token(rights: list[str], scope: str) -> dict[str, str]:
            body = {"name": f"{rights[0]} {scope}", "rights": rights, "scopes": [scope]}
            made = http.post("/v1/tokens", json=body, headers=root).raise_for_status().json()
            return {"Authorization": f"Bearer {made['secret']}"}

        root = make_token(["admin"], "*")
        before = http.get("/v1/lossy-link", headers=root).raise_for_status().json()["faults"]
        user, other = make_token(["produce", "consume"], "*"), make_token(["admin"], "acme")
        for headers, status in (({}, 401), (user, 403), (other, 403)):
            assert http.get("/v1/lossy-link", headers=headers).status_code == status
            assert http.patch("/v1/lossy-link", json={"loss": 0.5}, headers=headers).status_code == status
        assert http.get("/v1/lossy-link", headers=root).json()["faults"] == before


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_it_ends_cleanly_and_leaves_no_process_no_port_and_no_folder(how: signal.Signals) -> None:
    with up() as running:
        started = pids(running.read_until("Ctrl-C"))
        assert sorted(started) == ["copy", "programs"]
        assert list(running.temporary.iterdir()) != []
        assert running.end(how) == 0
        assert list(running.temporary.iterdir()) == []
        for pid in started.values():
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)
        port = int(running.console.rpartition(":")[2])
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), 5).close()


def test_it_can_be_ended_while_it_starts() -> None:
    with up() as running:
        assert running.end() == 0
        assert list(running.temporary.iterdir()) == []


def test_a_program_that_was_killed_starts_again() -> None:
    with up() as running:
        started = pids(running.read_until("Ctrl-C"))
        wait_until(lambda: subscriptions(running).get("kitchen", {}).get("consumers"), START_S_MAX)
        os.kill(started["programs"], signal.SIGKILL)
        before = subscriptions(running)["kitchen"]["settled"]
        wait_until(lambda: subscriptions(running)["kitchen"]["settled"] > before + 50, START_S_MAX)


def test_the_console_and_the_programs_continue_when_the_active_node_of_a_cluster_is_killed() -> None:
    with up("--cluster", "--http", "127.0.0.1:0", "--json") as running:
        found = check("up", f"{running.console}\n".encode())
        running.console = found["console"]
        names = [each["name"] for each in found["processes"]]
        assert names == ["m1", "m2", "m3", "n1", "n2", "n3"]
        before = busy_payments(running)
        killed = active(running)
        (pid,) = (each["pid"] for each in found["processes"] if each["name"] == killed)
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: active(running) not in (None, killed), START_S_MAX)
        wait_until(lambda: busy_payments(running) > before + 50, START_S_MAX)
        with running.client() as http:
            ledger = http.get("/v1/topics/payments/ledger").json()
        assert [each["r"]["value"] for each in ledger["producers"]] == [1.0]
        assert running.end() == 0
        assert list(running.temporary.iterdir()) == []
        for each in found["processes"]:
            with pytest.raises(ProcessLookupError):
                os.kill(each["pid"], 0)


def active(running: Up) -> str | None:
    """The active member, as the console sees it."""
    members = asked(running, "/v1/cluster").get("members", [])
    return next((each["member"] for each in members if each["role"] == "active"), None)


def busy_payments(running: Up) -> int:
    """How many payments are settled, once there are some."""
    found: list[int] = []

    def look() -> bool:
        found[:] = [asked(running, "/v1/topics/payments/subscriptions/accounting").get("settled", 0)]
        return found[0] > 0

    wait_until(look, START_S_MAX)
    return found[0]


def asked(running: Up, path: str) -> dict[str, Any]:
    """An answer of the console, or nothing while no node is active."""
    try:
        with running.client() as http:
            answer = http.get(path)
    except httpx.TransportError:
        return {}
    return answer.json() if answer.status_code == 200 else {}


def test_the_nodes_of_a_cluster_choose_where_they_listen(cli: Cli) -> None:
    done = cli("up", "--cluster", "--listen", "127.0.0.1:7500")
    assert (done.code, done.out) == (2, b"") and "--listen" in done.err


def test_the_console_of_a_cluster_is_for_this_machine_alone(cli: Cli) -> None:
    done = cli("up", "--cluster", "--http", "0.0.0.0:0", "--json")
    assert (done.code, json.loads(done.err)["code"]) == (1, "insecure")


@pytest.mark.parametrize("option", ["--listen", "--http"])
def test_a_port_that_is_taken_is_an_error_with_a_hint(cli: Cli, option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        other = {"--listen": "--http", "--http": "--listen"}[option]
        done = cli("up", option, place, other, "127.0.0.1:0")
    assert (done.code, done.out) == (1, b"")
    assert f"cannot listen on {place}" in done.err and "hint:" in done.err
