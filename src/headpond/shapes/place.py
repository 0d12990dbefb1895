"""A tenant, a product or a component."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from headpond.shapes.times import iso_time
from headpond.shapes.topic import SettingShape, settings_object

if TYPE_CHECKING:
    from headpond.wire.control.codec import PlaceDeleted, PlaceInfo


class PlaceListed(TypedDict):
    created_at: str
    places: int
    topics: int
    settings: dict[str, SettingShape]


class PlaceShape(PlaceListed, total=False):
    """One of the first three names it, with all its parts."""

    tenant: str
    product: str
    component: str
    entries: int
    bytes: int
    subscriptions: int
    producers: int
    place_list: list[str]
    topic_list: list[str]
    connections: int
    quota_slowed: int
    quota_refused: int


class PlaceDeletedShape(TypedDict):
    deleted: str
    places: list[str]
    topics: list[str]


def place_object(info: PlaceInfo, *, whole: bool = False) -> PlaceShape:
    """``whole`` tells what stands below it, too."""
    found: PlaceShape = {
        info.level: info.place,  # type: ignore[misc]  # one of the three names
        "created_at": iso_time(info.created_at_us),
        "places": info.places,
        "topics": info.topics,
        "settings": settings_object(info.settings),
    }
    if whole:
        found |= {
            "entries": info.entries,
            "bytes": info.bytes,
            "subscriptions": info.subscriptions,
            "producers": info.producers,
            "place_list": info.place_list,
            "topic_list": info.topic_list,
        }
    if whole and info.level == "tenant":
        found |= {
            "connections": info.connections,
            "quota_slowed": info.quota_slowed,
            "quota_refused": info.quota_refused,
        }
    return found


def place_deleted_object(gone: PlaceDeleted) -> PlaceDeletedShape:
    return {"deleted": gone.place, "places": gone.places, "topics": gone.topics}
