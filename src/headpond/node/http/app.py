"""All routes, and the OpenAPI schema of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from litestar import Litestar, Router
from litestar.datastructures import State
from litestar.di import Provide
from litestar.exceptions import HTTPException
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin, YamlRenderPlugin
from litestar.openapi.spec import Components, Operation, SecurityScheme
from litestar.openapi.spec.license import License

from headpond import __version__
from headpond.model.errors import HeadpondError
from headpond.node.http.asking import provide_caller, refuse_unknown
from headpond.node.http.openapi import DoorOperation
from headpond.node.http.routes import (
    consuming,
    events,
    health,
    messages,
    metrics,
    node,
    peers,
    places,
    producers,
    subscriptions,
    tokens,
    topics,
    writers,
)
from headpond.node.http.status import on_fault, on_headpond_error, on_http_exception, on_recursion

if TYPE_CHECKING:
    from headpond.node.http.door import Door

DESCRIPTION = """Durable messaging. Answers have the shapes of docs/json.md; errors have `code`, `message`,
`hint` and `retryable`.
A topic is named `NAME` or `tenant:product:component:NAME` in a path, with slashes in bodies."""

V1 = [
    *topics.ROUTES,
    *messages.ROUTES,
    *subscriptions.ROUTES,
    *consuming.ROUTES,
    *events.ROUTES,
    *places.ROUTES,
    *producers.ROUTES,
    *writers.ROUTES,
    *tokens.ROUTES,
    *peers.ROUTES,
    *node.ROUTES,
]

for route in [*V1, *health.ROUTES, *metrics.ROUTES]:
    if route.operation_class is Operation:
        route.operation_class = DoorOperation


def make_app(door: Door | None) -> Litestar:
    """The application; without a door it can tell its schema alone."""
    return Litestar(
        [Router("/v1", route_handlers=V1, before_request=refuse_unknown), *health.ROUTES, *metrics.ROUTES],
        dependencies={"caller": Provide(provide_caller)},
        exception_handlers={
            HeadpondError: on_headpond_error,
            HTTPException: on_http_exception,
            RecursionError: on_recursion,
            Exception: on_fault,
        },
        openapi_config=OpenAPIConfig(
            title="Headpond",
            version=__version__,
            description=DESCRIPTION,
            license=License(name="Apache-2.0"),
            path="/schema",
            render_plugins=[JsonRenderPlugin(path=["/openapi.json", "/"]), YamlRenderPlugin()],
            components=Components(
                security_schemes={"token": SecurityScheme(type="http", scheme="bearer", bearer_format="hpd_…")}
            ),
            security=[{"token": []}, {}],
            use_handler_docstrings=True,
        ),
        request_max_body_size=None,  # the gate bounds bodies before this is asked
        logging_config=None,
        state=State({"door": door}),
        debug=False,
    )
