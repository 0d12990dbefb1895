"""Parcels on their way, what became of the others, and the failures that nobody has seen yet."""

from __future__ import annotations

from collections import deque
from typing import Final

from headpond.client.promise import Parcel
from headpond.model.receipt import Outcome

FAILED_KEPT_MAX: Final = 1024


class Outstanding:
    def __init__(self) -> None:
        self.counts = dict.fromkeys(Outcome, 0)
        """Messages whose fate is known."""
        self._parcels: dict[Parcel, None] = {}
        self._failed: deque[Parcel] = deque(maxlen=FAILED_KEPT_MAX)

    def __bool__(self) -> bool:
        return bool(self._parcels)

    def add(self, parcel: Parcel) -> None:
        self._parcels[parcel] = None

    def ended(self, parcel: Parcel) -> None:
        """Its fate is known at every destination."""
        fate = parcel.fate
        assert fate is not None
        self._parcels.pop(parcel, None)
        self.counts[fate.outcome] += parcel.rows
        if fate.error is not None:
            self._failed.append(parcel)

    async def wait(self) -> None:
        """Returns when the fate of all that are on their way now is known."""
        for parcel in list(self._parcels):
            await parcel.wait()

    def raise_failures(self) -> None:
        """Raises the first failure that nobody awaited, saying how many there were."""
        failed = [parcel for parcel in self._failed if parcel.unclaimed]
        self._failed.clear()
        if not failed:
            return
        rows = sum(parcel.unclaimed for parcel in failed)
        fate = failed[0].fate
        assert fate is not None and fate.error is not None
        error = type(fate.error)(f"{rows:,} posted messages failed: {fate.error.message}", hint=fate.error.hint)
        error.receipt = failed[0].receipt(0)
        raise error
