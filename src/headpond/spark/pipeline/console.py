"""The sink ``console``: the first rows of each batch, printed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROWS_MAX = 20
CELL_MAX = 60


def printer(name: str) -> Callable[[DataFrame, int], None]:
    def show(rows: DataFrame, batch: int) -> None:
        kept = rows.persist()
        try:
            count = kept.count()  # all of it is worked off: state that was only looked at in part cannot commit
            some = kept.limit(ROWS_MAX).collect()
        finally:
            kept.unpersist()
        lines = [f"--- {name}, batch {batch}: {count:,} rows"]
        lines += ["  ".join(f"{column}={_cell(cell)}" for column, cell in row.asDict().items()) for row in some]
        lines += [f"… {count - len(some):,} more"] if count > len(some) else []
        print("\n".join(lines), flush=True)

    return show


def _cell(value: Any) -> str:
    if isinstance(value, bytes | bytearray):
        value = bytes(value).decode(errors="backslashreplace")
    text = str(value)
    return text if len(text) <= CELL_MAX else f"{text[: CELL_MAX - 1]}…"
