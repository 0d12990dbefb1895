"""Audits ten million messages whose fate is known: is every figure right, in what time, in what memory?

    python -m bench.audit [--rows 10000000] [--master 'local[*]'] [--json]

The audit runs in a process of its own; its memory is that of this process and all it starts, Java included.
Exits with 1 if a figure is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.dataset as ds

from bench.audit_truth import Truth, generate

PAGE = os.sysconf("SC_PAGE_SIZE")
SAMPLE_S = 0.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--master", default="local[*]")
    parser.add_argument("--json", action="store_true")
    told = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headpond-audit-") as place:
        folder = Path(place)
        truth = generate(folder, told.rows)
        print(f"{truth.sent:,} sent, {truth.received:,} received; auditing", file=sys.stderr, flush=True)
        began = time.monotonic()
        found, peak = _audited(folder, told.master)
        seconds = time.monotonic() - began
        wrong = differences(truth, found, folder / "out")
    result = {"rows": truth.sent, "seconds": round(seconds, 1), "peak_mib": peak >> 20, "wrong": wrong}
    if told.json:
        print(json.dumps(result))
    else:
        print(f"{truth.sent:,} messages in {seconds:.1f} s, {peak >> 20:,} MiB at the most")
        print("\n".join(wrong) or "every figure is right")
    sys.exit(bool(wrong))


def _audited(folder: Path, master: str) -> tuple[dict[str, Any], int]:
    command = [sys.executable, "-m", "headpond", "spark", "audit", "--json", "--master", master]
    command += ["--out", str(folder / "out"), str(folder / "sent"), str(folder / "received")]
    with (folder / "found.json").open("wb") as output:
        process = subprocess.Popen(command, stdout=output)
        peak = 0
        while process.poll() is None:
            peak = max(peak, tree_bytes(process.pid))
            time.sleep(SAMPLE_S)
    if process.returncode not in (0, 1, 3) or not (folder / "found.json").stat().st_size:
        sys.exit(f"the audit failed with {process.returncode}")
    return json.loads((folder / "found.json").read_bytes()), peak


def tree_bytes(root: int) -> int:
    """The memory of a process and of all that it started, as the system counts it."""
    parents: dict[int, int] = {}
    sizes: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            fields = (path / "stat").read_text().rpartition(")")[2].split()
            sizes[int(path.name)] = int(fields[21]) * PAGE
            parents[int(path.name)] = int(fields[1])
        except (OSError, IndexError):
            continue  # it ended while it was looked at
    tree, grew = {root}, True
    while grew:
        more = {process for process, parent in parents.items() if parent in tree} - tree
        tree |= more
        grew = bool(more)
    return sum(sizes.get(process, 0) for process in tree)


def differences(truth: Truth, found: dict[str, Any], out: Path | None) -> list[str]:
    """Every figure of an audit that is not the truth."""
    copies = truth.received - truth.strangers
    wanted: dict[str, Any] = {
        "sent": truth.sent,
        "received": truth.received,
        "copies": copies,
        "unique": truth.unique,
        "missing": len(truth.missing),
        "repeated": len(truth.repeated),
        "strangers": truth.strangers,
        "R": truth.unique / truth.sent,
        "UR": truth.unique / copies,
        "arrivals": {str(times): count for times, count in truth.arrivals.items()},
    }
    pairs = [(name, value, found[name]) for name, value in wanted.items()]
    pairs += [
        ("orders", dict(sorted(truth.orders.items())), found["orders"]["by_order"]),
        ("falls", truth.falls, found["orders"]["falls"]),
        (
            "producers",
            truth.producers,
            _parts(found["producers"], lambda name: name["producer"], truth.producers),
        ),
        ("shards", truth.shards, _parts(found["shards"], lambda name: name["shard"], truth.shards)),
        ("windows", truth.windows, _parts(found["windows"], _window(found), truth.windows)),
    ]
    if out is not None:
        for name, ids in (("missing", truth.missing), ("repeated", truth.repeated)):
            listed = ds.dataset(out / name).to_table(columns=["message"])["message"].to_pylist()
            pairs.append((f"the list of {name}", (len(ids), True), (len(listed), set(listed) == ids)))
    wrong = [f"{name}: {there!r} instead of {value!r}" for name, value, there in pairs if value != there]
    return wrong + _wrong_latencies(truth, found["latency"])


def _window(found: dict[str, Any]) -> Any:
    return lambda name: name["window"] // int(found["window_s"] * 1_000_000)


def _parts(parts: list[dict[str, Any]], name: Any, known: Any) -> dict[Any, dict[str, int]]:
    sums = ("sent", "copies", "missing", "repeated")
    return {name(p["name"]): {each: p[each] for each in sums} for p in parts if name(p["name"]) in known}


def _wrong_latencies(truth: Truth, found: dict[str, Any]) -> list[str]:
    every = np.sort(np.concatenate(truth.latencies_us)) / 1e6
    wrong = []
    for name, share in (("p50_s", 0.5), ("p90_s", 0.9), ("p99_s", 0.99), ("p999_s", 0.999)):
        exact = float(every[int(np.ceil(share * len(every))) - 1])
        if abs(found[name] / exact - 1) > 0.0051:
            wrong.append(f"latency {name}: {found[name]} instead of {exact}, to half a percent")
    ends = (float(every[0]), float(every[-1]))
    if (found["min_s"], found["max_s"]) != ends:
        wrong.append(f"latency from {found['min_s']} to {found['max_s']} instead of {ends}")
    return wrong


if __name__ == "__main__":
    main()
