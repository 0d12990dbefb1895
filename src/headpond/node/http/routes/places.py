"""``/v1/tenants``, ``/v1/products``, ``/v1/components``: the same for three levels of the tree."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import delete, get, patch, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromQuery, JSONBody, PathParameter

from headpond.model.bounds import SettingValues, TopicText
from headpond.model.names import Place
from headpond.node.http.asking import Called
from headpond.node.http.routes.topics import SettingsBody
from headpond.shapes.resources import PlaceDeletedShape, PlaceShape, place_deleted_object, place_object
from headpond.wire.control.catalog import PlaceInfo
from headpond.wire.control.codec import read_result

PlacePath = Annotated[
    str, PathParameter(description="`tenant`, `tenant:product` or `tenant:product:component`.")
]


class PlaceBody(msgspec.Struct, forbid_unknown_fields=True):
    name: TopicText
    """With all its parts: acme, acme/shop, acme/shop/till."""
    settings: SettingValues = {}
    exist_ok: bool = False


def _call(caller: Called, verb: str, noun: str) -> Any:
    """``admin.create_tenant`` and its like: the three levels differ in their names alone."""
    return getattr(caller.client.admin, f"{verb}_{noun}")


def _slashed(text: str) -> str:
    return text.replace(":", "/")


def routes_of(level: str) -> list[HTTPRouteHandler]:
    """The routes of one level."""
    path = f"/{level}s"

    @get(path, tags=["places"], operation_id=f"list_{level}s", summary=f"List {level}s")
    async def list_places(caller: Called) -> list[PlaceShape]:
        return [place_object(info) for info in await _call(caller, "list", f"{level}s")()]

    @post(path, tags=["places"], operation_id=f"create_{level}", summary=f"Create a {level}")
    async def create_place(caller: Called, data: JSONBody[PlaceBody]) -> PlaceShape:
        create = _call(caller, "create", level)
        return place_object(await create(data.name, settings=data.settings, exist_ok=data.exist_ok))

    @get(path + "/{place:str}", tags=["places"], operation_id=f"show_{level}", summary=f"Show a {level}")
    async def show_place(caller: Called, place: PlacePath) -> PlaceShape:
        return place_object(await _call(caller, "show", level)(_slashed(place)), whole=True)

    @patch(
        path + "/{place:str}/settings",
        tags=["places"],
        operation_id=f"change_{level}",
        summary=f"Set what a {level} says, or go back to what it inherits",
    )
    async def change_place(caller: Called, place: PlacePath, data: JSONBody[SettingsBody]) -> PlaceShape:
        name = str(Place.parse(_slashed(place), level))
        return place_object(read_result(await data.change(caller, level, name), PlaceInfo))

    @delete(
        path + "/{place:str}",
        status_code=200,
        tags=["places"],
        operation_id=f"delete_{level}",
        summary=f"Delete a {level}; with `recursive` everything below it too",
    )
    async def delete_place(
        caller: Called, place: PlacePath, recursive: FromQuery[bool] = False
    ) -> PlaceDeletedShape:
        gone = await _call(caller, "delete", level)(_slashed(place), recursive=recursive)
        return place_deleted_object(gone)

    return [list_places, create_place, show_place, change_place, delete_place]


ROUTES = [route for level in ("tenant", "product", "component") for route in routes_of(level)]
