"""Questions about tenants, products, components, settings and registered producers, and changes to them."""

from __future__ import annotations

from headpond.client.admin import Admin as AsyncAdmin
from headpond.client.tenancy_admin import Settings
from headpond.model.setting import Value
from headpond.sync.background import Background
from headpond.wire.control import PlaceDeleted, PlaceInfo, ProducerInfo, TopicInfo


class TenancyAdmin:
    """The part of ``client.admin`` that is about the tree that topics stand in, and about producers."""

    _admin: AsyncAdmin
    _background: Background

    # --- tenants, products, components --------------------------------------------------------------

    def create_tenant(
        self, tenant: str, *, settings: Settings | None = None, exist_ok: bool = False
    ) -> PlaceInfo:
        """Makes a tenant."""
        return self._background.run(self._admin.create_tenant(tenant, settings=settings, exist_ok=exist_ok))

    def create_product(
        self, product: str, *, settings: Settings | None = None, exist_ok: bool = False
    ) -> PlaceInfo:
        """Makes ``TENANT/PRODUCT``, with the tenant if that may come into being on first use."""
        return self._background.run(self._admin.create_product(product, settings=settings, exist_ok=exist_ok))

    def create_component(
        self, component: str, *, settings: Settings | None = None, exist_ok: bool = False
    ) -> PlaceInfo:
        """Makes ``TENANT/PRODUCT/COMPONENT``."""
        return self._background.run(
            self._admin.create_component(component, settings=settings, exist_ok=exist_ok)
        )

    def list_tenants(self) -> list[PlaceInfo]:
        return self._background.run(self._admin.list_tenants())

    def list_products(self) -> list[PlaceInfo]:
        return self._background.run(self._admin.list_products())

    def list_components(self) -> list[PlaceInfo]:
        return self._background.run(self._admin.list_components())

    def show_tenant(self, tenant: str) -> PlaceInfo:
        """A tenant, its settings with their origins, and what stands below it."""
        return self._background.run(self._admin.show_tenant(tenant))

    def show_product(self, product: str) -> PlaceInfo:
        return self._background.run(self._admin.show_product(product))

    def show_component(self, component: str) -> PlaceInfo:
        return self._background.run(self._admin.show_component(component))

    def delete_tenant(self, tenant: str, *, recursive: bool = False) -> PlaceDeleted:
        """Removes a tenant; with ``recursive`` also everything below it, messages and subscriptions too."""
        return self._background.run(self._admin.delete_tenant(tenant, recursive=recursive))

    def delete_product(self, product: str, *, recursive: bool = False) -> PlaceDeleted:
        return self._background.run(self._admin.delete_product(product, recursive=recursive))

    def delete_component(self, component: str, *, recursive: bool = False) -> PlaceDeleted:
        return self._background.run(self._admin.delete_component(component, recursive=recursive))

    # --- settings -----------------------------------------------------------------------------------

    def set_tenant(self, tenant: str, **settings: Value) -> PlaceInfo:
        """Sets what a tenant says; topics below inherit it. None lifts a limit."""
        return self._background.run(self._admin.set_tenant(tenant, **settings))

    def set_product(self, product: str, **settings: Value) -> PlaceInfo:
        return self._background.run(self._admin.set_product(product, **settings))

    def set_component(self, component: str, **settings: Value) -> PlaceInfo:
        return self._background.run(self._admin.set_component(component, **settings))

    def set_topic(self, topic: str, **settings: Value) -> TopicInfo:
        """Sets what a topic says itself: ``admin.set_topic("orders", hard_ttl="7d")``."""
        return self._background.run(self._admin.set_topic(topic, **settings))

    def unset_tenant(self, tenant: str, *names: str) -> PlaceInfo:
        """Goes back to what is inherited."""
        return self._background.run(self._admin.unset_tenant(tenant, *names))

    def unset_product(self, product: str, *names: str) -> PlaceInfo:
        return self._background.run(self._admin.unset_product(product, *names))

    def unset_component(self, component: str, *names: str) -> PlaceInfo:
        return self._background.run(self._admin.unset_component(component, *names))

    def unset_topic(self, topic: str, *names: str) -> TopicInfo:
        return self._background.run(self._admin.unset_topic(topic, *names))

    # --- producers ----------------------------------------------------------------------------------

    def create_producer(
        self, topic: str, producer: str, *, access: str = "multiple", exist_ok: bool = False
    ) -> ProducerInfo:
        """Registers a producer's name at a topic: ``single`` lets one instance at a time send under it."""
        return self._background.run(
            self._admin.create_producer(topic, producer, access=access, exist_ok=exist_ok)
        )

    def list_producers(self, topic: str | None = None) -> list[ProducerInfo]:
        """The producers registered at a topic, or at all of them."""
        return self._background.run(self._admin.list_producers(topic))

    def show_producer(self, topic: str, producer: str) -> ProducerInfo:
        return self._background.run(self._admin.show_producer(topic, producer))

    def delete_producer(self, topic: str, producer: str) -> None:
        """Removes a registration that nobody uses. Messages stay."""
        self._background.run(self._admin.delete_producer(topic, producer))
