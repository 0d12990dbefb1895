"""Checks of the arguments of public calls against their annotations: a ``BadRequest`` names a wrong one.

A program without a type checker gets the same errors, before the client asks a node. ``checked`` is for
functions, ``checked_methods`` for all public methods of a class, ``check_options`` for a dataclass. Methods
that programs call for every message (``post``, ``ack``, ``receive``) check their arguments themselves.
"""

from __future__ import annotations

import inspect
import math
import types
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from difflib import get_close_matches
from functools import cache, wraps
from typing import (
    Annotated,
    Any,
    Literal,
    ParamSpec,
    TypeVar,
    Union,
    Unpack,
    get_args,
    get_origin,
    get_type_hints,
)

from headpond.model.errors import BadRequest

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Kind = TypeVar("Kind", bound=type)

SECRETS = ("token", "secret")
"""Arguments that no error shows."""
_WORDS = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "text",
    bytes: "bytes",
    type(None): "None",
    datetime: "a datetime",
}
_TEXTS = str | bytes | bytearray | memoryview


def checked(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """The function, with a check of its arguments before each call."""

    @wraps(function)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        _check_call(function, args, kwargs)
        return function(*args, **kwargs)

    return call


def checked_methods(kind: Kind) -> Kind:
    """The class, with every public method that it defines ``checked``."""
    for name, member in list(vars(kind).items()):
        if not name.startswith("_") and inspect.isfunction(member):
            setattr(kind, name, checked(member))
    return kind


def check_options(options: object) -> None:
    """Refuses values that the annotations of a dataclass do not allow."""
    kind: Any = type(options)
    for name, hint in _field_hints(kind).items():
        check_argument(name, getattr(options, name), hint)


_field_hints = cache(get_type_hints)


def check_argument(name: str, value: Any, hint: Any) -> None:
    if not _fits(value, hint):
        raise BadRequest(f"{name} is {_said(name, value)}; it must be {_words(hint)}")


@cache
def _hints(function: Callable[..., object]) -> tuple[list[str], dict[str, Any], Any, dict[str, Any] | Any]:
    """Names by position, hints by name, and the hints of ``*args`` and of ``**kwargs``."""
    parameters = inspect.signature(function).parameters
    hints = get_type_hints(function)
    names = [name for name, each in parameters.items() if each.kind is each.POSITIONAL_OR_KEYWORD]
    more: Any = Any
    named: Any = Any
    for name, each in parameters.items():
        if each.kind is each.VAR_POSITIONAL:
            more = hints.pop(name)
        elif each.kind is each.VAR_KEYWORD:
            named = hints.pop(name)
            if get_origin(named) is Unpack:
                hints |= get_type_hints(get_args(named)[0])
    return names, hints, more, named


def _check_call(function: Callable[..., object], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    names, hints, more, named = _hints(function)
    for name, value in zip(names, args, strict=False):
        if name in hints:  # `self` has none
            check_argument(name, value, hints[name])
    for value in args[len(names) :]:
        check_argument("an argument", value, more)
    for name, value in kwargs.items():
        if name not in hints and get_origin(named) is Unpack:  # else the error would name a class of ours
            near = "".join(f". Did you mean {each!r}?" for each in get_close_matches(name, hints, n=1))
            raise TypeError(f"{function.__qualname__}() got an unexpected keyword argument {name!r}{near}")
        check_argument(name, value, hints.get(name, named))


def _fits(value: Any, hint: Any) -> bool:
    origin, args = get_origin(hint), get_args(hint)
    if hint is Any or isinstance(hint, TypeVar) or origin is Unpack:
        return True
    if hint is None:
        return value is None
    if origin is Annotated:
        return _fits(value, args[0])
    if origin is Literal:
        return isinstance(value, str) and value in args
    if origin in (Union, types.UnionType):
        return any(_fits(value, each) for each in args)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if hint is float:
        return _is_number(value)
    if hint is str:
        return isinstance(value, str) and _is_utf8(value)
    if origin is None:
        return isinstance(value, hint)
    if not isinstance(value, origin) or isinstance(value, _TEXTS):
        return False
    if issubclass(origin, Mapping):
        return all(_fits(key, args[0]) and _fits(each, args[1]) for key, each in value.items())
    if issubclass(origin, tuple):
        return len(value) == len(args) and all(map(_fits, value, args))
    if issubclass(origin, Iterable) and isinstance(
        value, Collection
    ):  # a look at an iterator would take its items
        return all(_fits(each, args[0]) for each in value)
    return True


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _is_utf8(text: str) -> bool:
    """Surrogates stand for bytes that are not UTF-8; a node takes only text."""
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


def _said(name: str, value: Any) -> str:
    kind = type(value).__name__
    plain = isinstance(value, bool | int | float | str | bytes) and name not in SECRETS
    return "None" if value is None else f"{value!r:.60} ({kind})" if plain else f"of type {kind}"


def _words(hint: Any) -> str:
    origin, args = get_origin(hint), get_args(hint)
    if hint is None:
        return _words(type(None))
    if origin is Annotated:
        return _words(args[0])
    if origin is Literal:
        return f"one of {', '.join(args)}"
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(map(_words, args)))
    if origin is not None and issubclass(origin, Mapping):
        return f"a mapping of {_words(args[0])} to {_words(args[1])}"
    if origin is tuple:
        return f"({', '.join(map(_words, args))})"
    if origin is not None and issubclass(origin, Iterable):
        return f"a list of {_words(args[0])}"
    if origin is not None:
        return "something that can be called"
    return _WORDS.get(hint) or f"a {hint.__name__}"
