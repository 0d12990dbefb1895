"""An error of the catalogue."""

from __future__ import annotations

from typing import TypedDict

from penstock.model.error import PenstockError
from penstock.model.token_text import redacted


class ErrorShape(TypedDict):
    code: str
    message: str
    hint: str
    retryable: bool


def error_object(error: PenstockError) -> ErrorShape:
    message, hint = redacted(error.message), redacted(error.hint)
    return {"code": error.code, "message": message, "hint": hint, "retryable": error.retryable}
