"""Who is measured when. A peer and Headpond take turns, and a ratio is that of two neighbours in time, so that
a machine with other work slows down both of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from bench.peers.peer import Peer
from bench.peers.workloads import METRICS, WORKLOADS, Effort, Figures


@dataclass(frozen=True, slots=True)
class Pair:
    """One turn of a peer, and the turn of Headpond after it."""

    workload: str
    round: int
    peer: str
    theirs: Figures
    ours: Figures

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of all rounds, the lowest and the highest."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(median(values), min(values), max(values))


def measure(
    names: Sequence[str],
    peers: Sequence[Peer],
    file: Peer,
    headpond: Peer,
    rounds: int,
    effort: Effort,
    tell: Callable[[str], None],
) -> list[Pair]:
    """Servers of all peers run the whole time, and one of them is busy at a time."""
    pairs: list[Pair] = []
    for name in names:
        workload = WORKLOADS[name]
        beside = [*peers, file] if workload.beside_file else list(peers)
        for number in range(1 if workload.once else rounds):
            for peer in beside:
                pair = Pair(name, number, peer.name, workload.run(peer, effort), workload.run(headpond, effort))
                pairs.append(pair)
                tell(f"{name}, round {number + 1}, {peer.name}: {_shown(pair)}")
    return pairs


def _shown(pair: Pair) -> str:
    return ", ".join(f"{key} {value:,.5g} beside {pair.theirs[key]:,.5g}" for key, value in pair.ours.items())


def ratios(pairs: Sequence[Pair], metric: str, peer: str) -> Spread | None:
    """Headpond's figure by that of the peer, over all rounds; None if the peer was not measured."""
    found = [
        pair.ours[metric] / pair.theirs[metric]
        for pair in pairs
        if pair.peer == peer and metric in pair.ours and pair.theirs[metric]
    ]
    return Spread.of(found) if found else None


def figures(pairs: Sequence[Pair], metric: str, peer: str | None) -> Spread | None:
    """Those of a peer, or of Headpond in all its turns."""
    sides = [(pair.ours if peer is None else pair.theirs) for pair in pairs if peer in (None, pair.peer)]
    found = [side[metric] for side in sides if metric in side]
    return Spread.of(found) if found else None


def measured_metrics(pairs: Sequence[Pair]) -> list[str]:
    return [metric for metric in METRICS if any(metric in pair.ours for pair in pairs)]
