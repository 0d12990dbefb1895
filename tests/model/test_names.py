"""Names of topics and places: parts of characters that are safe in a path and a URL."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headpond.model.errors import BadTopicName
from headpond.model.names import LEVELS, Place, TopicName
from headpond.model.policy import Policy

PARTS = st.from_regex(r"[A-Za-z0-9](?:(?:[A-Za-z0-9_-]|\.(?!\.)){0,121}[A-Za-z0-9_-])?", fullmatch=True)


def test_a_bare_name_lives_in_the_default_places() -> None:
    name = TopicName.parse("orders")
    assert str(name) == "default/default/default/orders"
    assert name.short == "orders"


def test_four_parts_are_tenant_product_component_topic() -> None:
    name = TopicName.parse("acme/shop/till/orders")
    assert (name.tenant, name.product, name.component, name.topic) == ("acme", "shop", "till", "orders")
    assert name.short == str(name) == "acme/shop/till/orders"


def test_the_whole_default_name_and_the_bare_one_are_the_same() -> None:
    assert TopicName.parse("default/default/default/orders") == TopicName.parse("orders")


@given(st.one_of(st.lists(PARTS, min_size=1, max_size=1), st.lists(PARTS, min_size=4, max_size=4)))
@settings(deadline=None)
def test_a_name_is_read_back_from_both_its_texts(parts: list[str]) -> None:
    name = TopicName.parse("/".join(parts))
    assert TopicName.parse(str(name)) == name
    assert TopicName.parse(name.short) == name


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/",
        ".",
        "..",
        "a..b",
        "a/b/../d",
        "../../../etc",
        ".hidden",
        "-x",
        "_x",
        "a b",
        "a\n",
        "a\0",
        "a\\b",
        "a%2e",
        "é",
        "a/b",
        "a/b/c",
        "a/b/c/d/e",
        "a//c/d",
        "a/b/c/",
        "x.",
        "x./b/c/d",
        "x" * 124,
        f"{'x' * 129}/b/c/d",
        f"{'x' * 124}.dead",
    ],
)
def test_other_names_are_refused(text: str) -> None:
    with pytest.raises(BadTopicName):
        TopicName.parse(text)


def test_the_longest_part_is_128_characters_and_a_topic_leaves_room_for_its_dead_letters() -> None:
    long = "x" * 128
    assert TopicName.parse(f"{long}/{long}/{long}/{'x' * 123}").tenant == long
    assert TopicName.parse(f"{'x' * 123}.dead").topic == f"{'x' * 123}.dead"
    with pytest.raises(BadTopicName, match="at most 123 leave room"):
        TopicName.parse("x" * 124)


@given(st.from_regex(r"[A-Za-z0-9._-]{1,130}", fullmatch=True), st.sampled_from(["resilient", "non_resilient"]))
@settings(deadline=None)
def test_a_topic_that_has_a_name_can_be_subscribed_to(text: str, mode: str) -> None:
    """Its dead letters have a topic, which can be subscribed to as well."""
    try:
        topic = str(TopicName.parse(text))
    except BadTopicName:
        return
    dead = Policy().effective(topic, mode).dead_letter
    assert dead in ("", f"{topic}.dead")
    assert not dead or Policy().effective(dead, mode).dead_letter == ""


def test_a_refusal_names_the_part_and_stays_short() -> None:
    with pytest.raises(BadTopicName, match=r"its component 'c\.\.' is not allowed"):
        TopicName.parse("a/b/c../d")
    with pytest.raises(BadTopicName) as caught:
        TopicName.parse("x" * 10_000)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("value", [None, 1, b"orders", ["orders"]])
def test_a_name_that_is_not_text_is_refused(value: object) -> None:
    with pytest.raises(BadTopicName, match="is text"):
        TopicName.parse(value)  # type: ignore[arg-type]


# --- places -----------------------------------------------------------------------------------------

SHORT_PARTS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,8}", fullmatch=True)


@given(st.lists(SHORT_PARTS, min_size=1, max_size=4))
def test_a_whole_name_is_read_as_it_is_written(names: list[str]) -> None:
    place = Place(tuple(names))
    assert Place.parse(str(place), place.level) == place == Place.of(str(place))


@given(SHORT_PARTS)
def test_a_bare_place_is_below_default_as_a_bare_topic_is(name: str) -> None:
    assert str(Place.parse(name, "topic")) == str(TopicName.parse(name))
    assert str(Place.parse(name, "product")) == f"default/{name}"
    assert str(Place.parse(name, "tenant")) == name


@given(st.lists(SHORT_PARTS, min_size=2, max_size=4))
def test_only_the_places_above_a_place_hold_it(names: list[str]) -> None:
    place = Place(tuple(names))
    above = list(place.ancestors)
    assert [each.level for each in above] == list(reversed(LEVELS[: len(names) - 1]))
    assert all(each.holds(place) and not place.holds(each) for each in above)
    assert not place.holds(place)
    assert not Place((names[0] + "x",)).holds(place)


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("a/b", "tenant"),
        ("a/b/c", "product"),
        ("a/b", "component"),
        ("", "tenant"),
        ("a//c", "component"),
        ("..", "tenant"),
    ],
)
def test_a_name_of_another_level_or_with_a_bad_part_is_refused(text: str, level: str) -> None:
    with pytest.raises(BadTopicName, match=level):
        Place.parse(text, level)
