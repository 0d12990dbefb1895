"""What comes from outside has a bound, field by field, and docs/limits.md says which."""

from __future__ import annotations

from typing import Annotated

import msgspec

from tests import limits_page


def test_every_field_that_comes_from_outside_has_a_bound() -> None:
    assert limits_page.all_unbounded() == []


def test_every_number_in_a_query_has_a_bound() -> None:
    assert [row for row in limits_page.http_parameters() if row[2] == "unbounded"] == []


def test_the_page_says_what_the_types_say() -> None:
    assert limits_page.PAGE.read_text() == limits_page.page(), "write it: python -m tests.limits_page"


class Loose(msgspec.Struct):
    whole: int
    low: Annotated[int, msgspec.Meta(ge=0)]
    text: str
    some: list[bool]
    inner: Annotated[list[tuple[bytes, bool]], msgspec.Meta(max_length=2)]
    other: dict[str, float] | None
    good: Annotated[int, msgspec.Meta(ge=0, lt=5)] = 0


def test_a_field_without_a_bound_is_found_wherever_it_is() -> None:
    found = list(limits_page.unbounded(Loose, "Loose"))
    assert set(found) == {f"Loose.{name}" for name in ("whole", "low", "text", "some", "inner", "other")}
    assert found.count("Loose.other") == 3, "the mapping, its keys and its values"
