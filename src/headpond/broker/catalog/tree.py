"""The tree of places: tenants, products and components, and the settings that topics below inherit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from headpond.broker.catalog.changes import PlaceCreated, SettingsChanged
from headpond.model.errors import PlaceNotFound
from headpond.model.names import DEFAULT_PART, Place
from headpond.model.topic_settings import NODE, Level, Value


@dataclass(slots=True)
class Holding:
    """A place that exists."""

    place: Place
    created_at_us: int
    own: dict[str, Value] = field(default_factory=dict)
    """Its own settings."""


class Tree:
    def __init__(self, node_values: Mapping[str, Value] | None = None) -> None:
        self._node = Level(NODE, "", dict(node_values or {}))
        self._holdings: dict[Place, Holding] = {}

    def get(self, place: Place) -> Holding | None:
        return self._holdings.get(place)

    def __iter__(self) -> Iterator[Holding]:
        """All places, those above before those below."""
        return iter(
            sorted(self._holdings.values(), key=lambda holding: (len(holding.place.parts), holding.place))
        )

    def ensure(self, place: Place, at_us: int) -> None:
        """Adds a place and all places above it; a topic itself is no place of this tree."""
        for above in (*place.ancestors, *([place] if place.level != "topic" else [])):
            if above not in self._holdings:
                self._holdings[above] = Holding(above, at_us)

    def create(self, created: PlaceCreated) -> None:
        place = Place.of(created.name)
        self.ensure(place, created.created_at_us)
        if created.settings:
            self._holdings[place].own = dict(created.settings)

    def remove(self, place: Place) -> None:
        """Removes a place with everything below it."""
        for below in self.below(place):
            del self._holdings[below]
        self._holdings.pop(place, None)

    def below(self, place: Place) -> list[Place]:
        return sorted(other for other in self._holdings if place.holds(other))

    def missing(self, place: Place) -> Place | None:
        """The highest place above that does not exist; the default places always may."""
        above = [each for each in place.ancestors if set(each.parts) != {DEFAULT_PART}]
        return next((each for each in reversed(above) if each not in self._holdings), None)

    def levels(self, place: Place) -> list[Level]:
        """The settings of a place and of those above it, the nearest first, the node last."""
        found = [
            Level(each.level, str(each), holding.own)
            for each in (place, *place.ancestors)
            if (holding := self._holdings.get(each)) is not None and holding.own
        ]
        return [*found, self._node]

    def creates_on_first_use(self, place: Place) -> bool:
        """Whether something that a client uses is created below what exists of the places above ``place``."""
        levels = self.levels(place)
        setting = next((each for each in levels if "create_on_first_use" in each.values), None)
        return bool(setting.values["create_on_first_use"]) if setting is not None else True

    def check_room(self, place: Place) -> None:
        """Raises ``PlaceNotFound`` if a place above this one is missing and is not created with it."""
        missing = self.missing(place)
        if missing is not None and not self.creates_on_first_use(place):
            raise PlaceNotFound(
                f"there is no {missing.shown}, and it is not created on first use here",
                hint=f"`headpond {missing.level} create {missing}` creates it; so does create_on_first_use.",
            )

    def snapshot(self) -> Iterator[PlaceCreated]:
        for holding in self:
            yield PlaceCreated(str(holding.place), holding.created_at_us, dict(holding.own))


def change_own(own: dict[str, Value], change: SettingsChanged) -> None:
    """Applies a change to the own settings of a place or a topic."""
    own.update(change.set)
    for name in change.unset:
        own.pop(name, None)
