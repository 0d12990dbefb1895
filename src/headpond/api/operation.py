"""An operation in the OpenAPI schema: its errors are those of the catalogue, not the framework's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from litestar.openapi.spec import OpenAPIMediaType, OpenAPIResponse, Operation, Schema
from litestar.openapi.spec.enums import OpenAPIType

_TEXT = Schema(type=OpenAPIType.STRING)
ERROR = OpenAPIResponse(
    description="An error of the catalogue (GET /v1/errors).",
    content={
        "application/json": OpenAPIMediaType(
            schema=Schema(
                title="Error",
                type=OpenAPIType.OBJECT,
                properties={
                    "code": _TEXT,
                    "message": _TEXT,
                    "hint": _TEXT,
                    "retryable": Schema(type=OpenAPIType.BOOLEAN),
                },
                required=["code", "message", "hint", "retryable"],
            )
        )
    },
)


@dataclass
class DoorOperation(Operation):
    def __post_init__(self, *args: Any) -> None:
        self.responses = {**(self.responses or {}), "default": ERROR}
        self.responses.pop("400", None)  # in the framework's shape, which nobody is sent
