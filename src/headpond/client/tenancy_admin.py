"""Questions about tenants, products, components, settings and registered producers, and changes to them."""

from __future__ import annotations

from collections.abc import Mapping

from headpond.client.arguments import checked_methods
from headpond.client.link import Link
from headpond.model.place import Place
from headpond.model.setting import Value
from headpond.model.topic import TopicName
from headpond.wire.control import (
    ChangeSettings,
    CreatePlace,
    CreateProducer,
    DeletePlace,
    DeleteProducer,
    ListPlaces,
    ListProducers,
    PlaceDeleted,
    PlaceInfo,
    ProducerInfo,
    ShowPlace,
    ShowProducer,
    TopicInfo,
    read_result,
)

Settings = Mapping[str, Value]
"""By name, as docs/tenancy.md lists them: ``{"hard_ttl": "7d", "durability": "os"}``."""


@checked_methods
class TenancyAdmin:
    """The part of ``client.admin`` that is about the tree that topics stand in, and about producers."""

    _link: Link

    # --- tenants, products, components --------------------------------------------------------------

    async def create_tenant(
        self, tenant: str, *, settings: Settings | None = None, exist_ok: bool = False
    ) -> PlaceInfo:
        """Makes a tenant."""
        return await self._create("tenant", tenant, settings, exist_ok)

    async def create_product(
        self, product: str, *, settings: Settings | None = None, exist_ok: bool = False
    ) -> PlaceInfo:
        """Makes ``TENANT/PRODUCT``, with the tenant if that may come into being on first use."""
        return await self._create("product", product, settings, exist_ok)

    async def create_component(
        self, component: str, *, settings: Settings | None = None, exist_ok: bool = False
    ) -> PlaceInfo:
        """Makes ``TENANT/PRODUCT/COMPONENT``."""
        return await self._create("component", component, settings, exist_ok)

    async def list_tenants(self) -> list[PlaceInfo]:
        return await self._list("tenant")

    async def list_products(self) -> list[PlaceInfo]:
        return await self._list("product")

    async def list_components(self) -> list[PlaceInfo]:
        return await self._list("component")

    async def show_tenant(self, tenant: str) -> PlaceInfo:
        """A tenant, its settings with their origins, and what stands below it."""
        return await self._show("tenant", tenant)

    async def show_product(self, product: str) -> PlaceInfo:
        return await self._show("product", product)

    async def show_component(self, component: str) -> PlaceInfo:
        return await self._show("component", component)

    async def delete_tenant(self, tenant: str, *, recursive: bool = False) -> PlaceDeleted:
        """Removes a tenant; with ``recursive`` also everything below it, messages and subscriptions too."""
        return await self._delete("tenant", tenant, recursive)

    async def delete_product(self, product: str, *, recursive: bool = False) -> PlaceDeleted:
        return await self._delete("product", product, recursive)

    async def delete_component(self, component: str, *, recursive: bool = False) -> PlaceDeleted:
        return await self._delete("component", component, recursive)

    # --- settings -----------------------------------------------------------------------------------

    async def set_tenant(self, tenant: str, **settings: Value) -> PlaceInfo:
        """Sets what a tenant says; topics below inherit it. None lifts a limit."""
        return await self._change("tenant", tenant, settings, ())

    async def set_product(self, product: str, **settings: Value) -> PlaceInfo:
        return await self._change("product", product, settings, ())

    async def set_component(self, component: str, **settings: Value) -> PlaceInfo:
        return await self._change("component", component, settings, ())

    async def set_topic(self, topic: str, **settings: Value) -> TopicInfo:
        """Sets what a topic says itself: ``await admin.set_topic("orders", hard_ttl="7d")``."""
        ask = ChangeSettings("topic", str(TopicName.parse(topic)), dict(settings))
        return read_result(await self._link.request(ask, retry=True), TopicInfo)

    async def unset_tenant(self, tenant: str, *names: str) -> PlaceInfo:
        """Goes back to what is inherited."""
        return await self._change("tenant", tenant, {}, names)

    async def unset_product(self, product: str, *names: str) -> PlaceInfo:
        return await self._change("product", product, {}, names)

    async def unset_component(self, component: str, *names: str) -> PlaceInfo:
        return await self._change("component", component, {}, names)

    async def unset_topic(self, topic: str, *names: str) -> TopicInfo:
        ask = ChangeSettings("topic", str(TopicName.parse(topic)), {}, list(names))
        return read_result(await self._link.request(ask, retry=True), TopicInfo)

    # --- producers ----------------------------------------------------------------------------------

    async def create_producer(
        self, topic: str, producer: str, *, access: str = "multiple", exist_ok: bool = False
    ) -> ProducerInfo:
        """Registers a producer's name at a topic: ``single`` lets one instance at a time send under it."""
        ask = CreateProducer(str(TopicName.parse(topic)), producer, access, exist_ok)
        return read_result(await self._link.request(ask, retry=exist_ok), ProducerInfo)

    async def list_producers(self, topic: str | None = None) -> list[ProducerInfo]:
        """The producers registered at a topic, or at all of them."""
        ask = ListProducers(str(TopicName.parse(topic)) if topic is not None else "")
        return read_result(await self._link.request(ask, retry=True), list[ProducerInfo])

    async def show_producer(self, topic: str, producer: str) -> ProducerInfo:
        ask = ShowProducer(str(TopicName.parse(topic)), producer)
        return read_result(await self._link.request(ask, retry=True), ProducerInfo)

    async def delete_producer(self, topic: str, producer: str) -> None:
        """Removes a registration that nobody uses. Messages stay."""
        await self._link.request(DeleteProducer(str(TopicName.parse(topic)), producer))

    # --- all levels alike ---------------------------------------------------------------------------

    async def _create(self, level: str, name: str, settings: Settings | None, exist_ok: bool) -> PlaceInfo:
        ask = CreatePlace(level, str(Place.parse(name, level)), dict(settings or {}), exist_ok)
        return read_result(await self._link.request(ask, retry=exist_ok), PlaceInfo)

    async def _list(self, level: str) -> list[PlaceInfo]:
        return read_result(await self._link.request(ListPlaces(level), retry=True), list[PlaceInfo])

    async def _show(self, level: str, name: str) -> PlaceInfo:
        ask = ShowPlace(level, str(Place.parse(name, level)))
        return read_result(await self._link.request(ask, retry=True), PlaceInfo)

    async def _delete(self, level: str, name: str, recursive: bool) -> PlaceDeleted:
        ask = DeletePlace(level, str(Place.parse(name, level)), recursive)
        return read_result(await self._link.request(ask), PlaceDeleted)

    async def _change(self, level: str, name: str, settings: Settings, unset: tuple[str, ...]) -> PlaceInfo:
        ask = ChangeSettings(level, str(Place.parse(name, level)), dict(settings), list(unset))
        return read_result(await self._link.request(ask, retry=True), PlaceInfo)
