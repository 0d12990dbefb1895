"""How many seeds a test runs: a few in the whole suite, ``TEST_SEEDS`` in ``make cuts``."""

from __future__ import annotations

import os

ASKED = int(os.environ.get("TEST_SEEDS", "0"))


def seeds(usual: int) -> range:
    return range(ASKED or usual)
