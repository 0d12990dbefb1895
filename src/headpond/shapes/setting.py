"""Settings with where they come from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from headpond.wire.control import SettingInfo


class SettingShape(TypedDict):
    value: bool | int | float | str | None
    origin: str
    place: str | None


def settings_object(settings: Sequence[SettingInfo]) -> dict[str, SettingShape]:
    """By name."""
    return {
        each.name: {"value": each.value, "origin": each.origin, "place": each.place or None}
        for each in settings
    }
