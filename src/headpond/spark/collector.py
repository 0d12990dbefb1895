"""Python's garbage collector in Spark's workers.

A worker that is used again looks through all of its memory after every task (``gc.collect()`` in pyspark's
daemon), modules and all: 20 to 30 ms, several times a batch. What was loaded by the first task stays for good
anyhow, and need not be looked through.
"""

from __future__ import annotations

import functools
import gc
import sys

_WORKERS = ("pyspark.daemon", "pyspark.worker")


@functools.cache
def spare_what_is_loaded() -> None:
    """In a worker of Spark's, once: whatever is in memory by now is left alone by the collector."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if spec is not None and spec.name in _WORKERS:
        gc.collect()
        gc.freeze()
