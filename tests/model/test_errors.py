"""Every error of the catalogue is complete and can be found by its code."""

from __future__ import annotations

import inspect
import re

import pytest

from headpond.model import errors
from headpond.model.errors import CATALOGUE, HeadpondError, from_code

CLASSES = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, HeadpondError)]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_an_entry_is_complete(kind: type[HeadpondError]) -> None:
    assert "__doc__" in vars(kind)
    assert kind.__doc__
    assert kind.__doc__.strip()
    assert "code" in vars(kind), "an entry has a code of its own"
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", kind.code)
    assert kind.default_hint.endswith(".")
    assert kind is HeadpondError or "default_hint" in vars(kind)
    assert isinstance(kind.retryable, bool)


def test_codes_are_unique_and_all_are_in_the_catalogue() -> None:
    assert sorted(kind.code for kind in CLASSES) == sorted(CATALOGUE)
    assert {kind.code: kind for kind in CLASSES} == CATALOGUE


@pytest.mark.parametrize("code", sorted(CATALOGUE))
def test_a_code_gives_its_error_back(code: str) -> None:
    error = from_code(code, "what happened")
    assert type(error) is CATALOGUE[code]
    assert str(error) == "what happened"
    assert error.hint == CATALOGUE[code].default_hint


def test_a_given_hint_replaces_the_default() -> None:
    assert from_code("gap", "what", "do this").hint == "do this"


def test_an_unknown_code_keeps_its_text() -> None:
    error = from_code("new-thing", "what happened", "hint")
    assert type(error) is HeadpondError
    assert str(error) == "what happened (new-thing)"
    assert error.hint == "hint"
