"""All routes, and the OpenAPI schema of them."""

from __future__ import annotations

from types import ModuleType

from litestar import Litestar, Router
from litestar.datastructures import State
from litestar.di import Provide
from litestar.exceptions import HTTPException
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin, YamlRenderPlugin
from litestar.openapi.spec import Components, Operation, SecurityScheme
from litestar.openapi.spec.license import License

from headpond import __version__
from headpond.model.errors import HeadpondError
from headpond.node.http.console import site
from headpond.node.http.openapi import DocumentedOperation
from headpond.node.http.request import HttpState, provide_caller, refuse_unknown
from headpond.node.http.routes import (
    consuming,
    events,
    lossy_link,
    messages,
    monitoring,
    resources,
    subscriptions,
)
from headpond.node.http.status import on_bad_text, on_fault, on_headpond_error, on_http_exception, on_recursion

DESCRIPTION = """Durable messaging. Answers have the shapes of docs/json.md; errors have `code`, `message`,
`hint` and `retryable`.
A topic is named `NAME` or `tenant:product:component:NAME` in a path, with slashes in bodies."""


def _routes_of(module: ModuleType) -> list[HTTPRouteHandler]:
    return [each for each in vars(module).values() if isinstance(each, HTTPRouteHandler)]


HEALTH = [monitoring.livez, monitoring.readyz, monitoring.metrics]
V1 = [
    *_routes_of(resources),
    *(route for level in ("tenant", "product", "component") for route in resources.place_routes(level)),
    *_routes_of(messages),
    *_routes_of(subscriptions),
    *_routes_of(consuming),
    *_routes_of(events),
    *(route for route in _routes_of(monitoring) if route not in HEALTH),
]

for route in [*V1, *HEALTH]:
    if route.operation_class is Operation:
        route.operation_class = DocumentedOperation


def make_app(state: HttpState | None) -> Litestar:
    """The application; without a state it serves only its schema."""
    routes = V1 if state is None or state.lossy_link is None else [*V1, *_routes_of(lossy_link)]
    return Litestar(
        [Router("/v1", route_handlers=routes, before_request=refuse_unknown), *HEALTH, site.file],
        dependencies={"caller": Provide(provide_caller)},
        exception_handlers={
            HeadpondError: on_headpond_error,
            HTTPException: on_http_exception,
            RecursionError: on_recursion,
            UnicodeDecodeError: on_bad_text,
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
        request_max_body_size=None,  # the gate bounds bodies before
        logging_config=None,
        state=State({"http": state}),
        debug=False,
    )
