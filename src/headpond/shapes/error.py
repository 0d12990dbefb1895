"""An error of the catalogue."""

from __future__ import annotations

from typing import TypedDict

from headpond.model.errors import HeadpondError
from headpond.model.grant import redacted


class ErrorShape(TypedDict):
    code: str
    message: str
    hint: str
    retryable: bool


def error_object(error: HeadpondError) -> ErrorShape:
    message, hint = redacted(error.message), redacted(error.hint)
    return {"code": error.code, "message": message, "hint": hint, "retryable": error.retryable}
