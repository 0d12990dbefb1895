"""The doctor: which addresses answer, what the token allows, and advice."""

from __future__ import annotations

import json
from pathlib import Path

from headpond.node.bootstrap import bootstrap
from tests.cli.conftest import Cli, Node

NOWHERE = "headpond://127.0.0.1:1"


def test_every_address_is_asked_and_the_one_that_serves_is_named(cli: Cli, service: Node) -> None:
    done = cli("doctor", f"{NOWHERE},{service.url}", "--json")
    assert done.code == 0
    first, second = json.loads(done.out)["addresses"]
    assert first["error"]["code"] == "unavailable" and first["advice"]
    assert (second["serves"], second["tokens_needed"], second["tls"]) == (True, False, False)
    assert second["software"].startswith("headpond ") and abs(second["clock_ahead_s"]) < 60
    assert second["free_bytes"] > 0
    text = cli("doctor", url=service.url).out.decode()
    assert "open: this node has no tokens" in text


def test_how_the_last_run_ended_and_what_the_start_found_is_shown(cli: Cli, tmp_path: Path) -> None:
    with Node(tmp_path) as node:
        assert node.stop() == 0
        (journal,) = node.data.glob("catalog/*.journal")
        journal.unlink()
        node.start()
        (found,) = json.loads(cli("doctor", "--json", url=node.url).out)["addresses"]
        assert found["last_stop"] == "clean" and "catalog" in found["recovered"][0]
        text = cli("doctor", url=node.url).out.decode()
        assert "the file is missing" in text and "not as it was left" in text


def test_the_exit_code_shows_that_no_address_answers(cli: Cli) -> None:
    done = cli("doctor", NOWHERE)
    assert done.code == 1 and "refused" in done.out.decode().lower() and "headpond node" in done.out.decode()


def test_the_rights_of_a_token_are_shown_and_when_it_ends(cli: Cli, tmp_path: Path) -> None:
    _, admin = bootstrap(tmp_path / "node" / "data", "admin")
    with Node(tmp_path / "node") as node:
        made = cli(
            *("token", "create", "till", "--produce", "--scope", "acme/shop", "--producer", "t1"),
            *("--expires", "2h", "--json"),
            url=node.url,
            HEADPOND_TOKEN=admin,
        )
        secret = json.loads(made.out)["secret"]
        done = cli("doctor", "--json", url=node.url, HEADPOND_TOKEN=secret)
        (found,) = json.loads(done.out)["addresses"]
        assert (found["rights"], found["scopes"], found["producer"]) == (["produce"], ["acme/shop"], "t1")
        assert found["free_bytes"] is None, "that is for an admin of everything"
        assert any("ends in" in advice for advice in found["advice"])
        text = cli("doctor", url=node.url, HEADPOND_TOKEN=secret).out.decode()
        assert "only t1" in text and secret not in text
        refused = cli("doctor", url=node.url)
        assert refused.code == 1 and "token-needed" in refused.out.decode()
