"""``make cluster`` (``python -m tests.fire.cluster``): a Spark cluster on this machine, with faults.

A pipeline and a submitted program run while a worker is killed; slow tasks run twice by speculation; workers
lack packages. The program prints where tasks ran, the counts, and the errors that a user reads. It exits with 1
unless every row was written once and every missing package was named.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.fire import bare_worker, lost_worker, speculation


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=100_000, help="for the pipeline and the program")
    parser.add_argument("--speculated", type=int, default=5_000, help="for the tasks that run twice")
    asked = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="headpond-cluster-") as folder:
        lost = lost_worker.run(Path(folder, "lost"), asked.messages)
        print(lost, flush=True)
        speculated = speculation.run(Path(folder, "speculation"), asked.speculated)
        print(speculated, flush=True)
        bare = bare_worker.run(Path(folder, "bare"))
        print(bare)
    good = lost.exact and speculated.exact and bare.named
    print(f"{'exact' if good else 'NOT EXACT'}, in {time.monotonic() - began:.0f} s")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
