"""A node's settings: options override variables, variables override the file, the file the defaults."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from headpond.broker.settings import Settings, variables
from headpond.model.errors import BadConfig
from tests.root import ROOT


def example_variables() -> dict[str, str]:
    """Those that the page of the settings shows."""
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    return dict(re.findall(r"^(HEADPOND_\w+)=(.*)$", page, re.MULTILINE))


def test_every_setting_has_a_variable_of_its_own() -> None:
    keys: list[str] = []
    for name in Settings.__struct_fields__:
        value = getattr(Settings(), name)
        inner = value.__struct_fields__ if isinstance(value, msgspec.Struct) else [""]
        keys += [f"{name}_{each}".removesuffix("_") for each in inner]
    assert sorted(variables()) == sorted(f"HEADPOND_{key.upper()}" for key in keys)


@pytest.mark.parametrize("name", sorted(variables()))
def test_a_variable_takes_the_default_of_its_setting(name: str) -> None:
    section, key, _ = variables()[name]
    default = getattr(getattr(Settings(), section) if section else Settings(), key)
    if default is not None and default not in ("", [], {}):
        text = default if isinstance(default, str) else str(default).lower()
        assert Settings.load(None, None, {name: text}) == Settings()


def test_the_variables_of_the_page_are_what_they_look_like() -> None:
    found = Settings.load(None, None, example_variables())
    assert (found.data, found.listen) == ("/var/lib/headpond", "127.0.0.1:7411")
    assert (found.create_on_first_use, found.limits.connections) == (False, 2000)
    assert (found.http_names, found.topics) == (["queue.example.com"], {"soft_ttl": "7d"})


def test_options_override_variables_and_variables_override_the_file(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text('group = "file"\nmember = "file"\ndata = "file"\n[limits]\nshards = 7\ntopics = 8\n')
    environment = {"HEADPOND_MEMBER": "variable", "HEADPOND_DATA": "variable", "HEADPOND_LIMITS_TOPICS": "9"}
    found = Settings.load(str(file), {"data": "option", "group": None}, environment)
    assert (found.group, found.member, found.data) == ("file", "variable", "option")
    assert (found.limits.shards, found.limits.topics) == (7, 9)


def test_an_empty_variable_and_one_of_no_setting_count_as_unset() -> None:
    environment = {"HEADPOND_THREADS": "", "HEADPOND_LISTEN": "", "HEADPOND_PORT_7411_TCP": "tcp://10.0.0.1"}
    assert Settings.load(None, None, environment) == Settings()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("HEADPOND_THREADS", "many"),
        ("HEADPOND_THREADS", "0"),
        ("HEADPOND_THREADS", "2\ninsecure = true"),
        ("HEADPOND_INSECURE", "yes"),
        ("HEADPOND_INSECURE", "1"),
        ("HEADPOND_CONFIRM", "standby"),
        ("HEADPOND_LISTEN", "7411"),
        ("HEADPOND_HTTP", "localhost"),
        ("HEADPOND_HTTP_NAMES", "queue.example.com"),
        ("HEADPOND_TOPICS", '{soft_ttl = "soon"}'),
        ("HEADPOND_SUCCESSOR", "http://a"),
        ("HEADPOND_TLS_KEY", "node.key"),
        ("HEADPOND_LIMITS_HANDSHAKE_S", "-1"),
    ],
)
def test_an_error_names_the_variable(name: str, text: str) -> None:
    with pytest.raises(BadConfig, match=name):
        Settings.load(None, None, {name: text})


def test_an_error_names_the_key_if_an_option_gave_the_value() -> None:
    with pytest.raises(BadConfig, match=r"^listen = 'there'"):
        Settings.load(None, {"listen": "there"}, {"HEADPOND_LISTEN": "127.0.0.1:7411"})


def test_a_stream_that_would_always_be_too_full_is_refused() -> None:
    small = {"cluster": "nats://a", "stream_bytes": 2**26}
    with pytest.raises(BadConfig, match=r"stream_bytes = 67,108,864 .* refuse every message"):
        Settings.load(None, small, {})
    assert Settings.load(None, {**small, "limits": {"free_bytes_min": 2**20}}, {}).stream_bytes == 2**26


@pytest.mark.parametrize(
    ("text", "says", "hint"),
    [
        ('data = "d"\nlisen = "x"\n', "line 2: there is no setting lisen", "Did you mean listen?"),
        (
            "[limits]\n\nconections = 1\n",
            "line 3: there is no setting limits.conections",
            "limits.connections?",
        ),
        ("limits.topics = 0\n", "line 1: limits.topics: Expected `int` >= 1", "docs/settings.md"),
        ("[limit]\ntopics = 1\n", "line 1: there is no setting limit", "Did you mean limits?"),
        ("zzz = 1\n", "line 1: there is no setting zzz", "docs/settings.md"),
        ("data = \n", r"is not TOML: .* \(at line 1", "NAME = VALUE"),
    ],
)
def test_an_error_names_the_line_and_the_setting_that_was_meant(
    tmp_path: Path, text: str, says: str, hint: str
) -> None:
    file = tmp_path / "node.toml"
    file.write_text(text)
    with pytest.raises(BadConfig, match=says) as raised:
        Settings.load(str(file))
    assert hint in raised.value.hint


def test_a_settings_file_that_cannot_be_read_has_a_hint_about_the_file(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match="cannot read settings file") as raised:
        Settings.load(str(tmp_path / "nowhere.toml"))
    assert "--config or HEADPOND_CONFIG" in raised.value.hint
    (tmp_path / "node.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(BadConfig, match="is not TOML") as raised:
        Settings.load(str(tmp_path / "node.toml"))
    assert raised.value.hint == "Write it in UTF-8."
