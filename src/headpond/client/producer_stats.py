"""What a producer counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headpond.model.receipt import Outcome

if TYPE_CHECKING:
    from headpond.client.run import Run


@dataclass(frozen=True, slots=True)
class ProducerStats:
    """Counts of messages; ``posted = stored + duplicate + spilled + rejected + unconfirmed``.

    Spilled ones are counted as such for good, also when they were delivered later.
    """

    posted: int
    stored: int
    duplicate: int
    rejected: int
    resent: int
    """Segments that were sent more than once."""
    in_flight_bytes: int
    memory_bytes: int
    reconnects: int
    spilled: int = 0
    refill_bytes: int = 0
    """Bytes on disk that wait for a destination."""
    refill_max: int = 0
    rotations: int = 0
    holes: tuple[str, ...] = ()
    """What a destination lacks and nobody has any more, by segment."""
    lost: tuple[str, ...] = ()
    """What cannot be read from the refill any more, by segment."""
    hindrances: tuple[str, ...] = ()
    """Why a destination takes nothing for now: its name, and the code and message of its last refusal."""

    @property
    def unconfirmed(self) -> int:
        return self.posted - self.stored - self.duplicate - self.spilled - self.rejected


def stats_of(
    posted: int, counts: dict[Outcome, int], run: Run, memory_bytes: int, reconnects: int
) -> ProducerStats:
    """The counts of a run as they stand now."""
    return ProducerStats(
        posted=posted,
        stored=counts[Outcome.STORED],
        duplicate=counts[Outcome.DUPLICATE],
        rejected=counts[Outcome.REJECTED],
        resent=run.keeper.resent,
        in_flight_bytes=run.in_flight_bytes,
        memory_bytes=memory_bytes,
        reconnects=reconnects,
        spilled=counts[Outcome.SPILLED],
        refill_bytes=run.refill_bytes,
        refill_max=run.refill_max,
        rotations=run.keeper.rotations,
        holes=tuple(
            f"{name}: block {block.hex()}, shard {hole.shard}, segments {hole.start}–{hole.end - 1}"
            for name, block, hole in run.keeper.holes
        ),
        lost=tuple(run.keeper.lost),
        hindrances=tuple(
            f"{name}: {error.code}: {error.message}" for name, error in run.keeper.hindrances.items()
        ),
    )
