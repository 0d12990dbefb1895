"""The text of a route: pipes from the innermost out, ``resend_many(window=64) | dedup | index``.

The first pipe works on the channel; each one after it works on the route made of all before it: ``a | b`` is b
over a. At the receiving end messages pass the pipes in the order written, at the sending end in the reverse
order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from penstock.calculus.declaration import Declaration, Gift, Parameter
from penstock.calculus.declarations import DECLARATIONS
from penstock.model.errors import BadRequest

STAGES_MAX = 8
TEXT_MAX = 2000

Value = int | bool | str

_STAGE = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*(?:\((.*)\))?\s*", re.DOTALL)
_SETTING = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*=\s*([^\s=]+)\s*")


@dataclass(frozen=True, slots=True)
class Stage:
    """One pipe of a route, with what was set in the text and the defaults of the rest."""

    declaration: Declaration
    settings: Mapping[str, Value]

    @property
    def pipe(self) -> str:
        return self.declaration.pipe

    @property
    def settles(self) -> bool:
        """Whether it confirms a message when the worker after is done with it."""
        return self.settings.get("confirm") == "settled"

    def __str__(self) -> str:
        """As written, without what is at its default."""
        defaults = {each.name: each.default for each in self.declaration.parameters}
        told = [f"{name}={_text(value)}" for name, value in self.settings.items() if value != defaults[name]]
        return f"{self.pipe}({', '.join(told)})" if told else self.pipe


@dataclass(frozen=True, slots=True)
class Route:
    """Pipes from the innermost out."""

    stages: tuple[Stage, ...]

    def __str__(self) -> str:
        return " | ".join(map(str, self.stages))

    @property
    def settles(self) -> bool:
        """Whether it waits for the worker after before it confirms."""
        return any(stage.settles for stage in self.stages)

    @property
    def confirms(self) -> bool:
        """Whether its sender hears what arrived, and has no more than so much room until then."""
        return any(stage.declaration.confirms for stage in self.stages)

    @property
    def drops_repeats(self) -> bool:
        """Whether its outermost pipe lets no repeat pass, whatever is repeated beneath."""
        return self.stages[-1].declaration.gives in (Gift.UNIQUE, Gift.EXACTLY_ONCE)

    def with_setting(self, position: int, name: str, value: Value) -> Route:
        """The same route with one setting changed."""
        stage = self.stages[position]
        changed = find_stage(stage.pipe, {**stage.settings, name: value})
        return Route((*self.stages[:position], changed, *self.stages[position + 1 :]))


def parse_route(text: str) -> Route:
    """Reads the text of a route; a fault in it is a ``BadRequest`` that names the nearest right word."""
    if len(text) > TEXT_MAX:
        raise BadRequest(f"the route is {len(text):,} characters long, and {TEXT_MAX:,} are allowed")
    parts = text.split("|")
    if len(parts) > STAGES_MAX:
        raise BadRequest(f"the route has {len(parts)} pipes, and {STAGES_MAX} are allowed")
    return Route(tuple(_parse_stage(part, text) for part in parts))


def pipe_names() -> list[str]:
    """The pipes that a route may name, in the order of the directory."""
    return list(dict.fromkeys(each.pipe for each in DECLARATIONS))


def find_stage(pipe: str, settings: Mapping[str, Value]) -> Stage:
    """The pipe of that name with these settings; ``BadRequest`` where there is none or a setting is wrong."""
    variants = [each for each in DECLARATIONS if each.pipe == pipe]
    if not variants:
        names = pipe_names()
        raise BadRequest(f"there is no pipe {pipe!r}", hint=_nearest(pipe, names, "Pipes"))
    parameters = {each.name: each for each in variants[0].parameters}
    for name, value in settings.items():
        if name not in parameters:
            raise BadRequest(f"{pipe} has no parameter {name!r}", hint=_nearest(name, parameters, "Parameters"))
        _check(pipe, parameters[name], value)
    full = {name: settings.get(name, parameter.default) for name, parameter in parameters.items()}
    (declaration,) = [
        each for each in variants if all(full[name] == value for name, value in each.variant.items())
    ]
    return Stage(declaration, full)


def _parse_stage(part: str, text: str) -> Stage:
    if not part.strip():
        hint = f"Write pipes with | between: resend_many | dedup. Pipes: {', '.join(pipe_names())}."
        raise BadRequest(f"a pipe is missing in the route {text!r}", hint=hint)
    found = _STAGE.fullmatch(part)
    if found is None:
        hint = "Write NAME or NAME(parameter=value, …), pipes with | between."
        raise BadRequest(f"{part.strip()!r} is not a pipe", hint=hint)
    pipe, inside = found.groups()
    return find_stage(pipe, _parse_settings(pipe, inside or ""))


def _parse_settings(pipe: str, inside: str) -> dict[str, Value]:
    settings: dict[str, Value] = {}
    for part in inside.split(",") if inside.strip() else ():
        found = _SETTING.fullmatch(part)
        if found is None:
            hint = f"Write {pipe}(parameter=value, …)."
            raise BadRequest(f"{part.strip()!r} in {pipe}(…) is not parameter=value", hint=hint)
        name, value = found.groups()
        if name in settings:
            raise BadRequest(f"{pipe} is given {name!r} twice")
        settings[name] = _value(value)
    return settings


def _value(text: str) -> Value:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    return (
        int(text) if re.fullmatch(r"[0-9][0-9_]{0,18}", text) and text[-1] != "_" and "__" not in text else text
    )


def _check(pipe: str, parameter: Parameter, value: Value) -> None:
    name, default = parameter.name, parameter.default
    if type(value) is not type(default):
        raise BadRequest(f"{name} of {pipe} is {_text(value)}, and {_kind(parameter)} is expected")
    if parameter.choices and value not in parameter.choices:
        hint = _nearest(str(value), parameter.choices, "Values")
        raise BadRequest(f"{name} of {pipe} is {value!r}, and {_kind(parameter)} is expected", hint=hint)
    if type(value) is int and not parameter.minimum <= value <= parameter.maximum:
        raise BadRequest(
            f"{name} of {pipe} is {value:,}, and {parameter.minimum:,} to {parameter.maximum:,} is allowed"
        )


def _kind(parameter: Parameter) -> str:
    if parameter.choices:
        return " or ".join(parameter.choices)
    return "true or false" if isinstance(parameter.default, bool) else "a whole number"


def _text(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _nearest(wrong: str, right: Iterable[str], what: str) -> str:
    names = list(right)
    near = get_close_matches(wrong.lower(), names, n=1, cutoff=0.4)
    listed = f"{what}: {', '.join(names)}."
    return f"Did you mean {near[0]}? {listed}" if near else listed
