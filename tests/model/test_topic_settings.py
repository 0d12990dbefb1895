"""Settings: valid values, and the origin of an effective value."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headpond.model.errors import BadSetting
from headpond.model.policy import Policy
from headpond.model.topic_settings import (
    SETTINGS,
    Level,
    TopicSettings,
    Value,
    check_names,
    effective,
    read_values,
    resolve,
)
from tests.root import ROOT

LEVELS = ("topic", "component", "product", "tenant", "node")
some_values = st.fixed_dictionaries(
    {},
    optional={
        "hard_ttl": st.none() | st.floats(1, 1e6),
        "max_bytes": st.none() | st.integers(1, 2**40),
        "durability": st.sampled_from(["sync", "os"]),
        "backoff": st.floats(0, 100),
        "a_later_setting": st.just("kept"),
    },
)


@given(st.lists(some_values, min_size=5, max_size=5))
def test_the_nearest_place_that_sets_a_value_wins(said: list[dict[str, Value]]) -> None:
    chain = [Level(level, f"at-{level}", values) for level, values in zip(LEVELS, said, strict=True)]
    found = resolve(chain)
    for name in SETTINGS:
        nearest = next((level for level in chain if name in level.values), None)
        if nearest is None:
            assert found[name] == (getattr(TopicSettings(), name), "default", "")
        else:
            assert found[name] == (nearest.values[name], nearest.level, nearest.place)
    settings = effective(chain)
    assert {name: getattr(settings, name) for name in SETTINGS} == {n: o.value for n, o in found.items()}


@given(st.lists(some_values, min_size=5, max_size=5), st.integers(0, 4), st.sampled_from(sorted(SETTINGS)))
def test_unset_restores_the_inherited_value(said: list[dict[str, Value]], at: int, name: str) -> None:
    chain = [Level(level, "", dict(values)) for level, values in zip(LEVELS, said, strict=True)]
    said[at].pop(name, None)
    without = [Level(level, "", values) for level, values in zip(LEVELS, said, strict=True)]
    dict(chain[at].values).pop(name, None)
    chain[at] = chain[at]._replace(values={n: v for n, v in chain[at].values.items() if n != name})
    assert resolve(chain) == resolve(without)


def test_none_lifts_an_inherited_limit() -> None:
    chain = [Level("topic", "", {"hard_ttl": None}), Level("tenant", "", {"hard_ttl": 60.0})]
    assert effective(chain).hard_ttl is None
    assert effective(chain[1:]).hard_ttl == 60.0


def test_every_setting_is_a_field_of_the_effective_settings() -> None:
    assert set(SETTINGS) == set(TopicSettings.__struct_fields__)
    assert effective([]) == TopicSettings()


@pytest.mark.parametrize(
    ("name", "given", "stored"),
    [
        ("hard_ttl", "7d", 604_800.0),
        ("hard_ttl", "1.5h", 5400.0),
        ("hard_ttl", 90, 90.0),
        ("soft_ttl", "500ms", 0.5),
        ("max_bytes", "10GiB", 10 * 2**30),
        ("max_bytes", "10GB", 10**10),
        ("max_bytes", "none", None),
        ("durability", "os", "os"),
        ("max_attempts", "3", 3),
        ("dead_letter", "bin", "default/default/default/bin"),
        ("dead_letter", "", ""),
    ],
)
def test_a_value_parses_as_people_write_it(name: str, given: Value, stored: Value) -> None:
    assert read_values({name: given}, "topic") == {name: stored}


def test_a_choice_is_yes_or_no() -> None:
    for text, stored in (("yes", True), ("off", False), (True, True)):
        assert read_values({"create_on_first_use": text}, "tenant") == {"create_on_first_use": stored}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("hard_ttl", "soon"),
        ("hard_ttl", -1),
        ("hard_ttl", float("nan")),
        ("hard_ttl", True),
        ("max_bytes", 0),
        ("max_bytes", 1.5),
        ("max_bytes", "10 parsecs"),
        ("max_bytes", "9" * 400 + "KiB"),
        ("hard_ttl", "9" * 5000),
        ("durability", "fast"),
        ("durability", None),
        ("backoff", None),
        ("producer_lease", 0),
        ("dead_letter", "a/b"),
        ("failover_after", "x"),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_the_settings_name(name: str, value: Value) -> None:
    with pytest.raises(BadSetting, match=name):
        read_values({name: value}, "topic")


def test_an_unknown_setting_is_refused_with_similar_names() -> None:
    with pytest.raises(BadSetting) as caught:
        read_values({"hardttl": 1}, "topic")
    assert "hard_ttl" in caught.value.hint
    with pytest.raises(BadSetting, match="create_on_first_use"):
        check_names(["create_on_first_use"], "topic")


@given(some_values)
def test_the_text_of_a_value_parses_to_the_value(values: dict[str, Value]) -> None:
    for name, value in values.items():
        setting = SETTINGS.get(name)
        if setting is not None and name in ("max_bytes", "durability"):
            assert setting.read(setting.shown(value)) == value


def test_a_subscription_takes_its_own_values_and_the_topics_for_the_rest() -> None:
    said = Policy(
        max_attempts=3, deadline=9.0, backoff=2.0, backoff_max=60.0, redelivery="after_backoff", lease=1.0
    )
    topic = TopicSettings(max_attempts=3, deadline=9.0, backoff=2.0, redelivery="after_backoff", lease=1.0)
    assert topic.policy(None) == said
    asked = Policy(max_attempts=7, redelivery="after_backlog")
    assert topic.policy(asked) == msgspec.structs.replace(said, max_attempts=7, redelivery="after_backlog")


def test_every_setting_is_documented() -> None:
    page = (ROOT / "docs" / "tenancy.md").read_text()
    assert [name for name in SETTINGS if f"| `{name}` |" not in page] == []
