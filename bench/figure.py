"""One measured figure, beside the machine's limit for it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Figure:
    name: str
    value: float
    unit: str
    limit_name: str = ""
    limit: float | None = None
    """In the same unit as ``value``."""
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """How much of the limit was reached; of a time, how many times the limit it is."""
        return None if not self.limit else self.value / self.limit

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": self.ratio}


def quantile(values: list[float], share: float) -> float:
    """The value below which ``share`` of all lie."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]
