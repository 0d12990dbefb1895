"""The text of a route: pipes from the innermost out, ``resend_many(window=64) | dedup | index``.

The first pipe works on the channel; each one after it works on the route made of all before it: ``a | b`` is b
over a. At the receiving end messages pass the pipes in the order written, at the sending end in the reverse
order.

Two more words describe the ends of the pipes, for the calculus and the lab:

- ``channel(loss=0.1, duplicate=0, reorder=0, late=64, confirm_loss=0)`` stands first and gives this route its
  own rates. A channel alone is ``bare`` over it.
- ``worker(fail=0.1)`` stands last: the worker behind the pipes fails that share of its messages.

Routes in a row are a chain, ``A -> B``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from fractions import Fraction
from itertools import pairwise

from headpond.model.errors import BadRequest
from headpond.pipes.calculus.declarations import DECLARATIONS, Declaration, Gift, Parameter
from headpond.pipes.calculus.delivery import probability

STAGES_MAX = 8
HOPS_MAX = 8
TEXT_MAX = 2000

Value = int | bool | str

CHANNEL, WORKER = "channel", "worker"
_CHANNEL, _WORKER = re.compile(rf"\s*{CHANNEL}\b"), re.compile(rf"\s*{WORKER}\b")
CHANNEL_RATES = ("loss", "duplicate", "reorder", "confirm_loss")

_STAGE = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*(?:\((.*)\))?\s*", re.DOTALL)
_NUMBER = re.compile(r"[0-9]{0,9}\.?[0-9]{1,18}(?:[eE]-?[0-9]{1,2})?")
_SETTING = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*=\s*([^\s=]+)\s*")


@dataclass(frozen=True, slots=True)
class RouteStage:
    """One pipe of a route, with the settings of the text and the defaults of the rest."""

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
        """As written, without settings that have their default."""
        defaults = {each.name: each.default for each in self.declaration.parameters}
        changed = [f"{name}={_text(value)}" for name, value in self.settings.items() if value != defaults[name]]
        return f"{self.pipe}({', '.join(changed)})" if changed else self.pipe


@dataclass(frozen=True, slots=True)
class Route:
    """Pipes from the innermost out."""

    stages: tuple[RouteStage, ...]
    rates: Mapping[str, Fraction | int] = field(default_factory=dict)
    """Of its own channel, where they are given: ``CHANNEL_RATES`` and ``late``."""
    worker_fails: Fraction = Fraction(0)
    """The share of messages on which the worker behind it fails."""

    def __str__(self) -> str:
        rates = ", ".join(f"{name}={float(value):g}" for name, value in self.rates.items())
        parts = [f"{CHANNEL}({rates})"] if rates else []
        if not rates or self.stages[-1].pipe != "bare":
            parts += map(str, self.stages)
        if self.worker_fails:
            parts.append(f"{WORKER}(fail={float(self.worker_fails):g})")
        return " | ".join(parts)

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
        return replace(self, stages=(*self.stages[:position], changed, *self.stages[position + 1 :]))


def parse_route(text: str) -> Route:
    """Reads the text of a route; a fault in it is a ``BadRequest`` that names the nearest right word."""
    if len(text) > TEXT_MAX:
        raise BadRequest(f"the route has {len(text):,} characters; at most {TEXT_MAX:,} are allowed")
    parts = text.split("|")
    rates: dict[str, Fraction | int] = {}
    fails = Fraction(0)
    if _CHANNEL.match(parts[0]):
        rates = _parse_channel(parts.pop(0))
    if parts and _WORKER.match(parts[-1]):
        given = _parse_numbers(WORKER, parts.pop(), ("fail",))
        fails = probability(given.get("fail", 0), f"fail of {WORKER}")
    parts = parts or ["bare"]
    if len(parts) > STAGES_MAX:
        raise BadRequest(f"the route has {len(parts)} pipes; at most {STAGES_MAX} are allowed")
    return Route(tuple(_parse_stage(part, text) for part in parts), rates, fails)


def check_composition(route: Route) -> None:
    """``BadRequest`` where pipes cannot go over each other."""
    others = [each.pipe for each in route.stages if each.pipe != "stream"]
    for position, stage in enumerate(route.stages):
        if position and stage.pipe == "stream":
            raise BadRequest(
                "stream works on the bare route, so it stands first",
                hint=f"Write: {' | '.join(['stream', *others])}",
            )
        above = route.stages[position + 1 :]
        if stage.settles and not all(map(_bears_failure, above)):
            raise BadRequest(
                f"a pipe over {stage.pipe}(confirm=settled) would drop a message that failed and comes again",
                hint="Only dedup by id can stand over it; or give confirm=settled to the outermost pipe.",
            )


def parse_chain(text: str) -> tuple[Route, ...]:
    """The routes of a text, in the order a message passes them; ``BadRequest`` for what cannot be built."""
    parts = text.split("->")
    if len(parts) > HOPS_MAX:
        raise BadRequest(f"the route has {len(parts)} hops; at most {HOPS_MAX} are allowed")
    routes = tuple(parse_route(part.strip()) for part in parts)
    for route in routes:
        check_composition(route)
    return routes


def check_cascade(hops: Sequence[Route]) -> None:
    """``BadRequest`` where a route would wait for confirms that the next one does not have."""
    for before, after in pairwise(hops):
        if before.settles and not after.confirms:
            hint = "Put resend, resend_many or sequential into it, or leave confirm=settled out before it."
            raise BadRequest(f"confirms cannot cascade over {after}, which has none", hint=hint)


def _bears_failure(stage: RouteStage) -> bool:
    """Whether it lets a message pass again that had passed, and numbers each message once, as beneath."""
    return stage.pipe == "dedup" and stage.settings["by"] == "id"


def pipe_names() -> list[str]:
    """The pipes that a route may name, in the order of the directory."""
    return list(dict.fromkeys(each.pipe for each in DECLARATIONS))


def find_stage(pipe: str, settings: Mapping[str, Value]) -> RouteStage:
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
    (declaration,) = [each for each in variants if each.chosen_by(full)]
    return RouteStage(declaration, full)


def _parse_channel(part: str) -> dict[str, Fraction | int]:
    given = _parse_numbers(CHANNEL, part, (*CHANNEL_RATES, "late"))
    return {
        name: int(value) if name == "late" else probability(value, f"{name} of {CHANNEL}")
        for name, value in given.items()
    }


def _parse_numbers(word: str, part: str, names: Sequence[str]) -> dict[str, Fraction]:
    numbers: dict[str, Fraction] = {}
    for name, text in _parse_texts(part)[1].items():
        if name not in names:
            raise BadRequest(f"{word} has no parameter {name!r}", hint=_nearest(name, names, "Parameters"))
        if not _NUMBER.fullmatch(text) or (name == "late" and not text.isdecimal()):
            kind = "a whole number" if name == "late" else "a number from 0 to 1"
            raise BadRequest(f"{name} of {word} must be {kind}, not {text!r}")
        numbers[name] = Fraction(text)
    return numbers


def _parse_stage(part: str, text: str) -> RouteStage:
    if not part.strip():
        hint = f"Write pipes with | between: resend_many | dedup. Pipes: {', '.join(pipe_names())}."
        raise BadRequest(f"a pipe is missing in the route {text!r}", hint=hint)
    pipe, texts = _parse_texts(part)
    if pipe in (CHANNEL, WORKER):
        where = "first" if pipe == CHANNEL else "last"
        raise BadRequest(f"{pipe}(…) stands {where} in a route, once; this is {text!r}")
    return find_stage(pipe, {name: _value(each) for name, each in texts.items()})


def _parse_texts(stage: str) -> tuple[str, dict[str, str]]:
    """The name of a stage, and its settings as they are written."""
    parsed = _STAGE.fullmatch(stage)
    if parsed is None:
        hint = "Write NAME or NAME(parameter=value, …), pipes with | between."
        raise BadRequest(f"{stage.strip()!r} is not a pipe", hint=hint)
    pipe, inside = parsed[1], parsed[2] or ""
    settings: dict[str, str] = {}
    for part in inside.split(",") if inside.strip() else ():
        found = _SETTING.fullmatch(part)
        if found is None:
            hint = f"Write {pipe}(parameter=value, …)."
            raise BadRequest(f"{part.strip()!r} in {pipe}(…) is not parameter=value", hint=hint)
        name, value = found.groups()
        if name in settings:
            raise BadRequest(f"{pipe} is given {name!r} twice")
        settings[name] = value
    return pipe, settings


def _value(text: str) -> Value:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    return (
        int(text) if re.fullmatch(r"[0-9][0-9_]{0,18}", text) and text[-1] != "_" and "__" not in text else text
    )


def _check(pipe: str, parameter: Parameter, value: Value) -> None:
    name, default = parameter.name, parameter.default
    if type(value) is not type(default):
        raise BadRequest(f"{name} of {pipe} must be {_kind(parameter)}, not {_text(value)}")
    if parameter.choices and value not in parameter.choices:
        hint = _nearest(str(value), parameter.choices, "Values")
        raise BadRequest(f"{name} of {pipe} must be {_kind(parameter)}, not {value!r}", hint=hint)
    if type(value) is int and not parameter.minimum <= value <= parameter.maximum:
        raise BadRequest(
            f"{name} of {pipe} must be from {parameter.minimum:,} to {parameter.maximum:,}, not {value:,}"
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
