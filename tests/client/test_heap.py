"""A process that stores segment after segment does not fetch new memory for each."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
from headpond.client.heap import keep_freed_memory

if sys.argv[1] == "keep":
    keep_freed_memory()

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def segments():
    held = [b"x" * 1_000_000 for _ in range(8)]
    return len(held)

segments()
before = faults()
for _ in range(10):
    segments()
print(faults() - before)
"""


def page_faults(how: str) -> int:
    done = subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc returns memory so early")
def test_freed_memory_is_used_again() -> None:
    assert page_faults("keep") < 100
    assert page_faults("do not") > 10_000
