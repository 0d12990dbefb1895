"""How many seeds a test runs: a handful with all the others, as many as are asked for in ``make cuts``."""

from __future__ import annotations

import os

ASKED = int(os.environ.get("TEST_SEEDS", "0"))


def seeds(usual: int) -> range:
    return range(ASKED or usual)
