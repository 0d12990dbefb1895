"""Administration of the tree: places created, shown, given settings, deleted with everything below them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headpond.broker.catalog.changes import PlaceCreated, PlaceRemoved, SettingsChanged, encode_change
from headpond.broker.catalog.topics import Topic, setting_infos
from headpond.broker.catalog.tree import Holding
from headpond.broker.session import Session
from headpond.model.errors import BadRequest, HeadpondError, LimitReached, NotEmpty, PlaceExists, PlaceNotFound
from headpond.model.names import LEVELS, Place
from headpond.model.topic_settings import check_changeable, check_names, read_values
from headpond.wire.control.catalog import (
    ChangeSettings,
    CreatePlace,
    DeletePlace,
    ListPlaces,
    PlaceDeleted,
    PlaceInfo,
    ShowPlace,
)
from headpond.wire.control.codec import Operation

if TYPE_CHECKING:
    from headpond.broker.core import NodeCore

PLACES_MAX = 100_000
LISTED_MAX = 10_000
NAMED_MAX = 5
"""How many of the things that a place holds are named where it is not deleted because of them."""

Answer = Callable[[Any], None]
Refuse = Callable[[HeadpondError], None]


class TenancyRequests:
    """``topic_of`` finds a topic by its name, or raises; ``creating`` names topics that are being made."""

    def __init__(
        self, node: NodeCore, topic_of: Callable[[str], Topic], creating: Callable[[], list[str]]
    ) -> None:
        self._node = node
        self._topic = topic_of
        self._creating = creating

    def on_request(self, session: Session, operation: Operation, answer: Answer, refuse: Refuse) -> bool:
        """Carries out an operation if it is one about places and settings."""
        if isinstance(operation, CreatePlace):
            self._create(session, operation, answer, refuse)
        elif isinstance(operation, ListPlaces):
            answer(self._list(operation.level))
        elif isinstance(operation, ShowPlace):
            answer(self._info(self._find(operation.level, operation.place), whole=True))
        elif isinstance(operation, DeletePlace):
            self._delete(operation, answer, refuse)
        elif isinstance(operation, ChangeSettings):
            self._change(operation, answer, refuse)
        else:
            return False
        return True

    # --- finding ------------------------------------------------------------------------------------

    def _find(self, level: str, name: str) -> Holding:
        place = _place(level, name)
        holding = self._node.catalog.tree.get(place)
        if holding is None:
            raise PlaceNotFound(f"there is no {place.shown}")
        return holding

    def check_room(self, place: Place) -> None:
        """Whether the places above one that is to be made exist, or may come into being with it."""
        tree = self._node.catalog.tree
        missing = tree.missing(place)
        if missing is not None and not self.may_create(place):
            raise PlaceNotFound(
                f"there is no {missing.shown}, and it is not created on first use here",
                hint=f"`headpond {missing.level} create {missing}` creates it; so does create_on_first_use.",
            )

    def may_create(self, place: Place) -> bool:
        """Whether something may come into being below what exists of the places above ``place``."""
        levels = self._node.catalog.tree.levels(place)
        said = next((each for each in levels if "create_on_first_use" in each.values), None)
        return bool(said.values["create_on_first_use"]) if said is not None else True

    # --- showing ------------------------------------------------------------------------------------

    def _list(self, level: str) -> list[PlaceInfo]:
        _check_level(level)
        return [self._info(each) for each in self._node.catalog.tree if each.place.level == level]

    def _info(self, holding: Holding, *, whole: bool = False) -> PlaceInfo:
        place, catalog = holding.place, self._node.catalog
        topics = catalog.below(place)
        places = catalog.tree.below(place)
        settings = setting_infos(catalog.tree.levels(place))
        if not whole:
            return PlaceInfo(str(place), place.level, holding.created_at_us, settings, len(places), len(topics))
        logs = [shard.log for topic in topics for shard in topic.shards]
        return PlaceInfo(
            str(place),
            place.level,
            holding.created_at_us,
            settings,
            len(places),
            len(topics),
            [topic.name for topic in topics][:LISTED_MAX],
            [str(each) for each in places][:LISTED_MAX],
            sum(log.entry_durable - log.entry_first for log in logs),
            sum(log.bytes for log in logs),
            sum(len(list(self._node.subscriptions.of_topic(topic.uuid))) for topic in topics),
            sum(len(topic.producers) for topic in topics),
            *self._usage(place),
        )

    def _usage(self, place: Place) -> tuple[int, int, int]:
        if place.level != "tenant":
            return 0, 0, 0
        usage = self._node.quotas.usage(str(place))
        return len(usage.connections), usage.slowed, usage.refused

    # --- changing -----------------------------------------------------------------------------------

    def _create(self, session: Session, ask: CreatePlace, answer: Answer, refuse: Refuse) -> None:
        place = _place(ask.level, ask.place)
        settings = read_values(ask.settings, place.level)
        tree = self._node.catalog.tree
        known = tree.get(place)
        if known is not None:
            if not ask.exist_ok:
                raise PlaceExists(f"there is a {place.shown} already")
            answer(self._info(known))
            return
        self.check_room(place)
        if sum(1 for _ in tree) >= PLACES_MAX:
            raise LimitReached(f"this node holds at most {PLACES_MAX:,} tenants, products and components")
        tenant = place.parts[0]
        have = sum(each.place.parts[0] == tenant for each in tree)
        self._node.quotas.create(session, tenant, "places", have)
        created = PlaceCreated(str(place), self._node.now_us(), settings)

        def durable(error: HeadpondError | None) -> None:
            if error is not None:
                refuse(error)
                return
            exists = tree.get(place) is not None
            if not exists:  # else somebody else was faster, and what they said stands
                self._node.catalog.apply(created)
            if exists and not ask.exist_ok:
                refuse(PlaceExists(f"there is a {place.shown} already"))
            else:
                answer(self._info(self._find(place.level, str(place))))

        self._node.stores.change_catalog(encode_change(created), durable)

    def _change(self, ask: ChangeSettings, answer: Answer, refuse: Refuse) -> None:
        values = read_values(ask.set, ask.level)
        check_names(ask.unset, ask.level)
        check_changeable([*values, *ask.unset])
        both = sorted(set(values) & set(ask.unset))
        if both:
            raise BadRequest(f"{', '.join(both)} cannot be set and unset at once")
        if ask.level == "topic":
            name = self._topic(ask.place).name
        else:
            name = str(self._find(ask.level, ask.place).place)
        changed = SettingsChanged(name, values, list(ask.unset))

        def durable(error: HeadpondError | None) -> None:
            if error is not None:
                refuse(error)
                return
            self._node.catalog.apply(changed)
            try:
                if ask.level == "topic":
                    answer(self._topic(name).info(with_shards=True))
                else:
                    answer(self._info(self._find(ask.level, name)))
            except HeadpondError as gone:  # deleted meanwhile
                refuse(gone)

        self._node.stores.change_catalog(encode_change(changed), durable)

    def _delete(self, ask: DeletePlace, answer: Answer, refuse: Refuse) -> None:
        place = self._find(ask.level, ask.place).place
        if not ask.recursive:
            self._check_empty(place)
        removed = PlaceRemoved(str(place))

        def durable(error: HeadpondError | None) -> None:
            if error is not None:
                refuse(error)
                return
            catalog = self._node.catalog
            topics = [topic.name for topic in catalog.below(place)]
            places = [str(each) for each in catalog.tree.below(place)]
            self._node.changes.place_removed(removed)
            gone = PlaceDeleted(str(place), place.level, places[:LISTED_MAX], topics[:LISTED_MAX])
            answer(gone)

        def barred(error: HeadpondError | None) -> None:
            if error is not None:
                refuse(error)
            else:
                self._node.stores.change_catalog(encode_change(removed), durable)

        self._node.peering.before_deletion(self._node.catalog.below(place), barred)

    def _check_empty(self, place: Place) -> None:
        catalog = self._node.catalog
        held = [each.shown for each in catalog.tree.below(place) if each.parent == place]
        held += [f"topic {topic.name}" for topic in catalog.below(place)]
        held += [f"topic {name}" for name in self._creating() if place.holds(Place.of(name))]
        if held:
            more = f" and {len(held) - NAMED_MAX} more" if len(held) > NAMED_MAX else ""
            raise NotEmpty(f"{place.shown} is not empty: it holds {', '.join(held[:NAMED_MAX])}{more}")


def _place(level: str, name: str) -> Place:
    _check_level(level)
    return Place.parse(name, level)


def _check_level(level: str) -> None:
    if level not in LEVELS[:3]:
        raise BadRequest(f"there is no level {level[:80]!r}", hint=f"It is one of {', '.join(LEVELS[:3])}.")
