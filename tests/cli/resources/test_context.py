"""Contexts: which one a command uses, and that only their owner can read them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from headpond.client.contexts import Contexts, NodeContext
from headpond.model.errors import BadContext
from headpond.node.bootstrap import bootstrap
from tests.cli.conftest import Cli, Node

NOWHERE = "headpond://127.0.0.1:1"


@pytest.fixture
def contexts(state_folder: Path) -> Path:
    return state_folder / "config" / "headpond" / "contexts.json"


def test_a_context_gives_url_and_token_unless_an_option_does(cli: Cli, tmp_path: Path, contexts: Path) -> None:
    _, token = bootstrap(tmp_path / "node" / "data", "admin")
    with Node(tmp_path / "node") as node:
        assert cli("context", "add", "here", "--url", node.url, "--token", "-", stdin=token.encode()).code == 0
        assert cli("context", "add", "nowhere", "--url", NOWHERE, "--token", "hpd_x_SECRET").code == 0
        assert contexts.stat().st_mode & 0o777 == 0o600
        assert cli("topic", "list").code == 0, "the first is used at once"
        assert cli("topic", "list", "--url", NOWHERE).code == 1, "--url wins"
        assert cli("topic", "list", url=NOWHERE).code == 1, "the environment wins"
        named = cli("topic", "list", HEADPOND_CONTEXT="nowhere")
        assert named.code == 1 and "127.0.0.1:1" in named.err
        mine = cli("topic", "list", "--token", "hpd_0_0", "--json")
        assert json.loads(mine.err)["code"] == "token-unknown", "--token wins"
        # A token is for the node that it was given for: another URL does not get it, not even the same node's.
        bare = cli("topic", "list", "--json", url=node.url)
        assert json.loads(bare.err)["code"] == "token-needed"
        bare = cli("doctor", node.url.replace("127.0.0.1", "localhost"), "--json")
        assert json.loads(bare.out)["addresses"][0]["error"]["code"] == "token-needed"
        assert cli("context", "use", "nowhere").code == 0
        assert cli("topic", "list").code == 1


def test_secrets_are_not_printed(cli: Cli, contexts: Path) -> None:
    said = [cli("context", "add", "prod", "--url", NOWHERE, "--token", "hpd_1234_SECRET")]
    said += [cli("context", "list", "--json"), cli("context", "show"), cli("doctor", "--json")]
    assert not any("SECRET" in done.out.decode() + done.err for done in said)
    assert json.loads(said[1].out)[0]["token"] == "1234"
    assert "SECRET" in contexts.read_text()
    assert "SECRET" not in repr(Contexts(contexts).get("prod"))
    assert cli("context", "remove", "prod").code == 0
    assert "SECRET" not in contexts.read_text()


@pytest.mark.parametrize("text", [b"", b"\n", b'{"secret": "hpd_1234_SECRET"}\n'])
def test_other_text_is_not_accepted_as_a_token(cli: Cli, contexts: Path, text: bytes) -> None:
    done = cli("context", "add", "prod", "--url", NOWHERE, "--token", "-", stdin=text)
    assert done.code == 1 and "not a token" in done.err and "1234" not in done.err
    assert not contexts.exists()


def test_a_file_that_others_may_read_is_not_used(cli: Cli, contexts: Path) -> None:
    it = Contexts(contexts)
    it.add("prod", NodeContext(NOWHERE, "hpd_1234_SECRET"))
    it.save()
    contexts.chmod(0o644)
    with pytest.raises(BadContext, match="others may read it"):
        Contexts(contexts)
    done = cli("topic", "list")
    assert done.code == 1 and "others may read it" in done.err and "chmod 600" in done.err
    assert cli("topic", "list", url=NOWHERE).err.startswith("error: no node answered"), "a URL needs none"


@pytest.mark.parametrize(
    "text", ["", "nonsense SECRET", "[]", '{"contexts": {"a": {"token": "SECRET"}}}', '{"contexts": 1}']
)
def test_a_file_that_cannot_be_read_is_named_and_not_quoted(contexts: Path, text: str) -> None:
    contexts.parent.mkdir(parents=True)
    contexts.write_text(text)
    contexts.chmod(0o600)
    with pytest.raises(BadContext) as caught:
        Contexts(contexts)
    assert str(contexts) in caught.value.message and "SECRET" not in caught.value.message
    assert caught.value.__cause__ is None and caught.value.__suppress_context__


def test_a_folder_in_place_of_the_file_is_an_error_with_a_hint(cli: Cli, contexts: Path) -> None:
    contexts.mkdir(parents=True)
    done = cli("topic", "list")
    assert done.code == 1 and f"error: cannot read {contexts}: " in done.err and "hint: " in done.err
    assert json.loads(cli("topic", "list", "--json").err)["code"] == "bad-context"


def test_an_invalid_context_is_refused(cli: Cli, contexts: Path) -> None:
    it = Contexts(contexts)
    acts: list[Callable[[], None]] = [
        lambda: it.add("a/b", NodeContext(NOWHERE)),
        lambda: it.use("absent"),
        lambda: it.remove("absent"),
    ]
    for act in acts:
        with pytest.raises(BadContext):
            act()
    assert cli("context", "add", "a", "--url", "http://x").code == 1
    assert "absent" in cli("topic", "list", HEADPOND_CONTEXT="absent").err
    assert not contexts.exists()
