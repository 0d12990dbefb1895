"""Which pipes can stand over which: what cannot be built is refused before anything is promised for it."""

from __future__ import annotations

from headpond.model.errors import BadRequest
from headpond.pipes.calculus.route import Route, Stage


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
        if stage.settings.get("confirm") == "settled" and not all(map(_bears_failure, above)):
            raise BadRequest(
                f"over {stage.pipe}(confirm=settled) stands a pipe that would drop what failed and comes again",
                hint="Only dedup by id can stand over it; or give confirm=settled to the outermost pipe.",
            )


def _bears_failure(stage: Stage) -> bool:
    """Whether it lets a message pass again that had passed, and numbers each message once, as beneath."""
    return stage.pipe == "dedup" and stage.settings["by"] == "id"
