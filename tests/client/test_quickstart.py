"""The example that a newcomer runs first works, also the second time."""

from __future__ import annotations

import subprocess
import sys

from tests.fire.real_node import RealNode
from tests.root import ROOT

EXAMPLE = ROOT / "examples" / "quickstart.py"


def test_the_quickstart_sends_an_order_and_reads_it_back(node: RealNode) -> None:
    for _ in range(2):
        ran = subprocess.run([sys.executable, EXAMPLE, node.url], capture_output=True, text=True, timeout=60)
        assert (ran.returncode, ran.stderr) == (0, "")
        stored, read = ran.stdout.splitlines()
        assert stored.startswith("stored at entry")
        assert read.startswith("b'one tea' b'table-4' {'till': '1'}")
