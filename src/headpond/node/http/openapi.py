"""Parts of the OpenAPI schema that the framework cannot derive: errors, and the body of a publish."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, get_type_hints

from litestar.openapi.spec import OpenAPIMediaType, OpenAPIResponse, Operation, RequestBody, Schema
from litestar.openapi.spec.enums import OpenAPIType

from headpond.node.http.bodies import ARROW, JSON, NDJSON, RAW
from headpond.shapes.convert import ErrorShape

_TEXT = Schema(type=OpenAPIType.STRING)
_KINDS = {str: _TEXT, bool: Schema(type=OpenAPIType.BOOLEAN)}
_FIELDS = {name: _KINDS[kind] for name, kind in get_type_hints(ErrorShape).items()}
_ERROR = Schema(title="Error", type=OpenAPIType.OBJECT, properties={**_FIELDS}, required=list(_FIELDS))
ERROR = OpenAPIResponse(
    description="An error of the catalogue (GET /v1/errors).",
    content={"application/json": OpenAPIMediaType(schema=_ERROR)},
)


@dataclass
class DocumentedOperation(Operation):
    def __post_init__(self, *args: Any) -> None:
        self.responses = {**(self.responses or {}), "default": ERROR}
        self.responses.pop("400", None)  # in the framework's shape, which no client gets


_BYTES = Schema(
    one_of=[
        _TEXT,
        Schema(
            type=OpenAPIType.OBJECT,
            properties={"base64": _TEXT},
            required=["base64"],
            additional_properties=False,
        ),
        Schema(type=OpenAPIType.NULL),
    ]
)
MESSAGE = Schema(
    title="Message",
    type=OpenAPIType.OBJECT,
    properties={
        "value": Schema(description="Text, {base64}, or an object of a typed topic's columns; null deletes."),
        "key": _BYTES,
        "id": Schema(type=[OpenAPIType.STRING, OpenAPIType.NULL]),
        "headers": Schema(type=OpenAPIType.OBJECT, additional_properties=_TEXT),
        "sent_at": Schema(
            type=OpenAPIType.STRING, description="ISO 8601; left out: when the node got it first."
        ),
        "ttl": Schema(type=OpenAPIType.NUMBER, minimum=0, description="Seconds in which it may be delivered."),
    },
    additional_properties=False,
)
MANY = Schema(
    type=OpenAPIType.OBJECT,
    properties={"messages": Schema(type=OpenAPIType.ARRAY, items=MESSAGE, min_items=1, max_items=10_000)},
    required=["messages"],
    additional_properties=False,
)
BODY = RequestBody(
    required=True,
    content={
        JSON: OpenAPIMediaType(schema=Schema(one_of=[MANY, MESSAGE])),
        NDJSON: OpenAPIMediaType(schema=_TEXT),
        RAW: OpenAPIMediaType(schema=Schema(type=OpenAPIType.STRING, content_media_type=RAW)),
        ARROW: OpenAPIMediaType(schema=Schema(type=OpenAPIType.STRING, content_media_type=ARROW)),
    },
)


@dataclass
class PublishOperation(DocumentedOperation):
    """The operation of the route that takes messages."""

    def __post_init__(self, *args: Any) -> None:
        super().__post_init__(*args)
        self.request_body = BODY
