"""Every field of all input has a bound, and docs/limits.md lists it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

import msgspec
import pytest

from headpond.model.errors import BadRequest
from headpond.spark import options as spark_options
from headpond.spark.options import Option
from headpond.wire.control.codec import CONTROL_TYPES
from tests import limits_page


def test_every_field_of_every_door_has_a_bound() -> None:
    assert limits_page.all_unbounded() == []


def test_every_number_in_a_query_has_a_bound() -> None:
    assert [row for row in limits_page.http_parameters() if row[2] == "unbounded"] == []


def test_the_page_says_what_the_types_say() -> None:
    page = limits_page.page()
    assert limits_page.PAGE.read_text() == page, "write it: python -m tests.limits_page"
    assert [kind.__name__ for kind in CONTROL_TYPES if f"| `{kind.__name__}` |" not in page] == ["Request"]


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


SPARK_TEXTS = {"url", "token", "ca", "cert", "key", "subscription", "filter", "sinkId"} | {
    option.name for option in spark_options.TOPIC_OPTIONS if option.name.startswith("topic")
}
BESIDE = {
    "assign": {},
    "maxTriggerDelay": {"topic": "t", "minEntriesPerTrigger": "2"},
    "batch": {"topic": "t", "sinkId": "s"},
}
"""What must stand beside an option."""


@pytest.mark.parametrize("value", ["9" * 30, "9" * 5000, "-1", "nan", "1e400"], ids=lambda value: f"{value:.6}")
@pytest.mark.parametrize(
    ("read", "option"),
    [(spark_options.read_source_options, each) for each in spark_options.SOURCE_OPTIONS]
    + [
        (lambda given: spark_options.read_sink_options(given, streaming=False), each)
        for each in spark_options.SINK_OPTIONS
    ],
    ids=lambda value: value.name if isinstance(value, Option) else "",
)
def test_an_option_of_spark_that_is_no_text_takes_no_number_of_any_size(
    read: Callable[[Mapping[str, str]], Any], option: Option, value: str
) -> None:
    if option.name not in SPARK_TEXTS:
        with pytest.raises(BadRequest):
            read({**BESIDE.get(option.name, {"topic": "t"}), option.name: value})
