"""Errors as Spark passes them on: it keeps the text of an exception alone, so code and hint go into that."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from headpond.model.errors import HeadpondError


@contextmanager
def told() -> Iterator[None]:
    """Raises an error of the catalogue with its code and its hint in its text, and without what led to it."""
    try:
        yield
    except HeadpondError as error:
        raise type(error)(f"{error.message} [{error.code}] {error.hint}", hint=error.hint) from None
