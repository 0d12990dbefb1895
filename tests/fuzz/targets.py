"""All targets by name, and their corpus: one file each, an input in base64 per line (``run.py --minimise``)."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable

from tests.fuzz import file_targets, node_targets, wire_targets
from tests.root import ROOT

Target = Callable[[bytes], None]
SEEDS: dict[Target, list[bytes]] = {**wire_targets.SEEDS, **file_targets.SEEDS, **node_targets.SEEDS}
TARGETS: dict[str, Target] = {target.__name__: target for target in SEEDS}
CORPUS = ROOT / "tests" / "fuzz" / "corpus"


def inputs(name: str) -> list[bytes]:
    """The corpus of a target."""
    path = CORPUS / f"{name}.txt"
    return [b64decode(line, validate=True) for line in path.read_bytes().split()] if path.exists() else []


def keep(name: str, corpus: Iterable[bytes]) -> None:
    """Makes these inputs the corpus of a target, the shortest first."""
    lines = [b64encode(data) + b"\n" for data in sorted(set(corpus), key=lambda data: (len(data), data))]
    (CORPUS / f"{name}.txt").write_bytes(b"".join(lines))
