"""Tenants, products and components: created, shown, given settings, deleted with everything below them."""

from __future__ import annotations

from headpond.broker.access.quotas import Quotas
from headpond.broker.catalog.changes import PlaceCreated, SettingsChanged
from headpond.broker.catalog.topic_requests import TopicRequests
from headpond.broker.catalog.topics import setting_infos
from headpond.broker.catalog.tree import Holding
from headpond.broker.context import Context
from headpond.broker.session import Session
from headpond.broker.steps import Steps, journaled
from headpond.broker.stores import Stores
from headpond.model.errors import BadRequest, LimitReached, NotEmpty, PlaceExists, PlaceNotFound
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
    TopicInfo,
)

PLACES_MAX = 100_000
LISTED_MAX = 10_000
NAMED_MAX = 5
"""How many things the refusal to delete a place names."""


class PlaceRequests:
    def __init__(self, context: Context, stores: Stores, quotas: Quotas, topics: TopicRequests) -> None:
        self._context = context
        self._stores = stores
        self._catalog = stores.catalog
        self._tree = stores.catalog.tree
        self._quotas = quotas
        self._topics = topics

    def show_place(self, session: Session, ask: ShowPlace) -> PlaceInfo:
        return self._info(self._find(ask.level, ask.place), whole=True)

    # --- finding ------------------------------------------------------------------------------------

    def _find(self, level: str, name: str) -> Holding:
        place = _place(level, name)
        holding = self._tree.get(place)
        if holding is None:
            raise PlaceNotFound(f"there is no {place.shown}")
        return holding

    # --- showing ------------------------------------------------------------------------------------

    def list_places(self, session: Session, ask: ListPlaces) -> list[PlaceInfo]:
        _check_level(ask.level)
        return [self._info(each) for each in self._tree if each.place.level == ask.level]

    def _info(self, holding: Holding, *, whole: bool = False) -> PlaceInfo:
        place, catalog = holding.place, self._catalog
        topics = catalog.below(place)
        places = self._tree.below(place)
        settings = setting_infos(self._tree.levels(place))
        short = (str(place), place.level, holding.created_at_us, settings, len(places), len(topics))
        if not whole:
            return PlaceInfo(*short)
        logs = [shard.log for topic in topics for shard in topic.shards]
        return PlaceInfo(
            *short,
            [topic.name for topic in topics][:LISTED_MAX],
            [str(each) for each in places][:LISTED_MAX],
            sum(log.entry_durable - log.entry_first for log in logs),
            sum(log.bytes for log in logs),
            sum(self._stores.subscriptions.count_of(topic.uuid) for topic in topics),
            sum(len(topic.producers) for topic in topics),
            *self._usage(place),
        )

    def _usage(self, place: Place) -> tuple[int, int, int]:
        if place.level != "tenant":
            return 0, 0, 0
        usage = self._quotas.usage(str(place))
        return len(usage.connections), usage.slowed, usage.refused

    # --- changing -----------------------------------------------------------------------------------

    def create_place(self, session: Session, ask: CreatePlace) -> Steps[PlaceInfo]:
        place = _place(ask.level, ask.place)
        settings = read_values(ask.settings, place.level)
        known = self._tree.get(place)
        if known is not None:
            if not ask.exist_ok:
                raise PlaceExists(f"there is a {place.shown} already")
            return self._info(known)
        self._tree.check_room(place)
        if sum(1 for _ in self._tree) >= PLACES_MAX:
            raise LimitReached(f"this node holds at most {PLACES_MAX:,} tenants, products and components")
        tenant = place.parts[0]
        have = sum(each.place.parts[0] == tenant for each in self._tree)
        self._quotas.create(session, tenant, "places", have)
        created = PlaceCreated(str(place), self._context.now_us(), settings)
        yield journaled(self._stores.catalog_journal, created)
        if self._tree.get(place) is None:  # else another client was faster, and its settings count
            self._catalog.apply(created)
        elif not ask.exist_ok:
            raise PlaceExists(f"there is a {place.shown} already")
        return self._info(self._find(place.level, str(place)))

    def change_settings(self, session: Session, ask: ChangeSettings) -> Steps[PlaceInfo | TopicInfo]:
        values = read_values(ask.set, ask.level)
        check_names(ask.unset, ask.level)
        check_changeable([*values, *ask.unset])
        both = sorted(set(values) & set(ask.unset))
        if both:
            raise BadRequest(f"{', '.join(both)} cannot be set and unset at once")
        if ask.level == "topic":
            name = self._topics.find(ask.place).name
        else:
            name = str(self._find(ask.level, ask.place).place)
        changed = SettingsChanged(name, values, list(ask.unset))
        yield journaled(self._stores.catalog_journal, changed)
        self._catalog.apply(changed)
        if ask.level == "topic":
            return self._topics.find(name).info(with_shards=True)
        return self._info(self._find(ask.level, name))

    def delete_place(self, session: Session, ask: DeletePlace) -> Steps[PlaceDeleted]:
        place = self._find(ask.level, ask.place).place
        if not ask.recursive:
            self._check_empty(place)
        places, topics = yield from self._topics.delete_below(place)
        return PlaceDeleted(str(place), place.level, places[:LISTED_MAX], topics[:LISTED_MAX])

    def _check_empty(self, place: Place) -> None:
        catalog = self._catalog
        held = [each.shown for each in self._tree.below(place) if each.parent == place]
        held += [f"topic {topic.name}" for topic in catalog.below(place)]
        held += [f"topic {name}" for name in self._topics.creating_below(place)]
        if held:
            more = f" and {len(held) - NAMED_MAX} more" if len(held) > NAMED_MAX else ""
            raise NotEmpty(f"{place.shown} is not empty: it holds {', '.join(held[:NAMED_MAX])}{more}")


def _place(level: str, name: str) -> Place:
    _check_level(level)
    return Place.parse(name, level)


def _check_level(level: str) -> None:
    if level not in LEVELS[:3]:
        raise BadRequest(f"there is no level {level[:80]!r}", hint=f"It is one of {', '.join(LEVELS[:3])}.")
