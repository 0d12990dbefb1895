"""One of the simulator's programs as a process: ``python -m tests.torture.program sender|taker FOLDER JSON LIFE
URL...``.

It runs until it is killed, or until SIGTERM ends it in good order. It works in its own folder, which has its
refill. Once ``FOLDER/calm`` exists, consumers refuse nothing.
"""

from __future__ import annotations

import asyncio
import logging
import random
import signal
import sys
from pathlib import Path

import msgspec

from headpond.model.errors import HeadpondError
from headpond.sim.actors.consumer import ConsumerProgram
from headpond.sim.actors.producer import ProducerProgram
from headpond.sim.actors.program import Program, Role
from tests.torture.cast import Sender, Taker
from tests.torture.journal import Journal

LOOK_S = 0.2


async def main(kind: str, folder: Path, spec: str, life: int, urls: list[str]) -> int:
    kinds: dict[str, type[Sender | Taker]] = {"sender": Sender, "taker": Taker}
    plan = msgspec.json.decode(spec, type=kinds[kind])
    journal = Journal(folder / "journals" / f"{plan.name}.{life}.jsonl")
    role = Role(plan.name, journal, random.Random(f"{plan.name} {life}"), tokens={})
    running = asyncio.create_task(program(role, life, plan, urls).run())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, setattr, role, "ending", True)
    while not running.done():
        role.calm = (folder / "calm").exists()
        await asyncio.wait([running], timeout=LOOK_S)
    try:
        await running
    except HeadpondError as error:
        print(f"life {life} ends: {error.code}: {error.message}", file=sys.stderr)
    return 0


def program(role: Role, life: int, plan: Sender | Taker, urls: list[str]) -> Program:
    if isinstance(plan, Sender):
        return ProducerProgram(role, life, plan.plan, urls, typed=False)
    service = urls if plan.reads == "any" else urls[:1]
    copies = urls[1:] if plan.reads == "all" else []
    return ConsumerProgram(role, life, plan.plan, service, lambda: 0, copies)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)  # what the client logs under faults is no news
    _, kind, folder, spec, life, *urls = sys.argv
    sys.exit(asyncio.run(main(kind, Path(folder), spec, int(life), urls)))
