"""What every error of Headpond is: a message, a code, a hint, and whether a retry can help."""

from __future__ import annotations

from typing import Any, ClassVar, Self


class HeadpondError(Exception):
    """Something failed that has no entry of its own in the catalogue."""

    code: ClassVar[str] = "error"
    default_hint: ClassVar[str] = "See the node's log for what led to this."
    retryable: ClassVar[bool] = False
    receipt: Any = None
    """Of a message that was refused: its ``Receipt``."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint or self.default_hint

    def __str__(self) -> str:
        return self.message

    def again(self) -> Self:
        """The same error as a new exception, so that each place that raises it has a traceback of its own."""
        return type(self)(self.message, hint=self.hint)
