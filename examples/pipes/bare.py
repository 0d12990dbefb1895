"""bare: sent once, so losses and repeats of the route stay. The R of two such hops multiply."""

from __future__ import annotations

from headpond.pipes.lab.faults import Faults
from headpond.pipes.lab.run import run

result = run("channel(loss=0.5) -> channel(loss=0.2)", Faults(), messages=20_000, seed=1)
assert result.predicted is not None
print(f"R(A->B) x R(B->C) = 0.5 x 0.8 = {result.predicted.reliability_low:g}")
print(f"measured {result.reliability.value:.3f}, {result.predicted.sentences[0].split(') ')[1]}")
