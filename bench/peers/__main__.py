"""``python -m bench.peers``: Headpond beside other brokers on this machine, in turns.

Servers listen on 127.0.0.1 and store below --folder; choose one on the disk that is meant. A peer that is not
installed is named with the command that installs it.
"""

from __future__ import annotations

import argparse
import os
import platform
import signal
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from bench.peers import report, rounds
from bench.peers.headpond_node import HeadpondNode
from bench.peers.kafka import Kafka
from bench.peers.nats_jetstream import NatsJetstream
from bench.peers.peer import Peer
from bench.peers.plain_file import PlainFile
from bench.peers.rabbitmq import RabbitMq
from bench.peers.redis_streams import RedisStreams
from bench.peers.server import free_port
from bench.peers.workloads import WORKLOADS, Effort

PEERS: dict[str, type[Peer]] = {
    "redis": RedisStreams,
    "nats": NatsJetstream,
    "rabbitmq": RabbitMq,
    "kafka": Kafka,
}


def arguments() -> argparse.Namespace:
    usual = Effort()
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.add_argument("workload", nargs="*", metavar="WORKLOAD", help=", ".join(WORKLOADS))
    parser.add_argument("--peer", action="append", choices=PEERS, help="only this one; can be repeated")
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    parser.add_argument("--seconds", type=float, default=usual.seconds, metavar="S", help="of one measurement")
    parser.add_argument("--fill", type=int, default=usual.fill_messages, metavar="N", help="messages of `fill`")
    parser.add_argument("--folder", type=Path, default=Path(), metavar="DIR", help="on the disk to measure")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    parser.add_argument("--plots", type=Path, metavar="DIR", help="draw PNG files there")
    asked = parser.parse_args()
    if unknown := set(asked.workload) - set(WORKLOADS):
        parser.error(f"no such workload: {', '.join(sorted(unknown))}; there are {', '.join(WORKLOADS)}")
    if asked.rounds < 1 or asked.seconds <= 0 or asked.fill < 1:
        parser.error("--rounds, --seconds and --fill must be above 0")
    return asked


def main() -> None:
    asked = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that servers and folders go, too
    kinds = [PEERS[name] for name in asked.peer or PEERS]
    missing = {kind.name: kind.install for kind in kinds if not kind.is_installed()}
    for name, command in missing.items():
        print(f"{name} is missing; to measure it: {command}", file=sys.stderr)
    effort = Effort(asked.seconds, asked.fill)
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=asked.folder, prefix=".peers-")))
        place = place.absolute()
        peers = [kind(place / kind.__name__, free_port()) for kind in kinds if kind.name not in missing]
        headpond = HeadpondNode(place / "headpond", free_port())
        for peer in (*peers, headpond):
            stack.callback(peer.start().stop)
        file = PlainFile(place / "file", 0)
        names = asked.workload or list(WORKLOADS)
        pairs = rounds.measure(names, peers, file, headpond, asked.rounds, effort, _tell)
    columns = [kind.name for kind in kinds]
    if any(pair.peer == PlainFile.name for pair in pairs):
        columns.append(PlainFile.name)
    console = Console(width=max(120, Console().width))
    console.print(report.figures_table(pairs, columns))
    console.print(report.ratios_table(pairs, columns))
    console.print(report.goals_table(pairs))
    for name, command in missing.items():
        console.print(f"{name} is missing; to measure it: {command}")
    if asked.json is not None:
        machine = {"cores": len(os.sched_getaffinity(0)), "python": platform.python_version()}
        asked.json.write_text(report.as_json(machine, pairs, missing))
    if asked.plots is not None:
        for path in report.draw(pairs, columns, asked.plots):
            console.print(f"drawn: {path}")


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
