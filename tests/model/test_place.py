"""Names of tenants, products and components."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headpond.model.errors import BadTopicName
from headpond.model.names import LEVELS, Place, TopicName

parts = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,8}", fullmatch=True)


@given(st.lists(parts, min_size=1, max_size=4))
def test_a_whole_name_is_read_as_it_is_written(names: list[str]) -> None:
    place = Place(tuple(names))
    assert Place.parse(str(place), place.level) == place == Place.of(str(place))


@given(parts)
def test_a_bare_name_stands_below_defaults_as_a_topic_does(name: str) -> None:
    assert str(Place.parse(name, "topic")) == str(TopicName.parse(name))
    assert str(Place.parse(name, "product")) == f"default/{name}"
    assert str(Place.parse(name, "tenant")) == name


@given(st.lists(parts, min_size=2, max_size=4))
def test_a_place_is_held_by_those_above_it_and_by_nothing_else(names: list[str]) -> None:
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
