"""``headpond agent``: delivers what producers left on this disk, until SIGTERM or Ctrl-C.

A slot (one topic and producer name) is sent as ``headpond refill send`` sends it: when no process uses it, and
again after a pause if it could not be delivered. Slots are sent side by side, so that a node that is down does
not delay the messages for others.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from headpond.cli.command import command
from headpond.cli.data.refill import State, why_not_delivered
from headpond.cli.data.refill_files import all_files
from headpond.cli.logs import LogFormatOption, LogLevelOption, start_log
from headpond.cli.options import Token, option
from headpond.cli.output import Output, json_text, run
from headpond.client.contexts import Contexts
from headpond.client.produce.refill_send import Sent, send_slot
from headpond.storage.folder_lock import holder, refill_root

if TYPE_CHECKING:
    from headpond.client.connect import Tokens

log = logging.getLogger("headpond.agent")

SLOTS_MAX = 16
"""Slots that are sent at a time."""
SEND_S_MAX = 60.0
"""How long one try may take."""
INTERVAL_HELP = "Seconds between two looks at the folder."
PAUSE_HELP = "Seconds before a slot that could not be delivered is tried again."
Interval = Annotated[
    float,
    option("--interval", "S", INTERVAL_HELP, envvar="HEADPOND_AGENT_INTERVAL", min=0.1, max=3600.0),
]
Pause = Annotated[
    float, option("--pause", "S", PAUSE_HELP, envvar="HEADPOND_AGENT_PAUSE", min=0.1, max=86_400.0)
]


@command()
def agent(
    output: Output,
    interval: Interval = 1.0,
    pause: Pause = 15.0,
    log_format: LogFormatOption = None,
    log_level: LogLevelOption = None,
    state: State = None,
    token: Token = None,
) -> None:
    """Deliver the refill files of this disk whenever their producers do not run; prints a line per file.

    Runs until SIGTERM or Ctrl-C; undelivered files stay on this disk. It does not send files of replaced
    producers, nor files so old that they may be stored twice: use `headpond refill send`.
    """
    tokens = token or Contexts().tokens()
    root = refill_root(state)
    start_log(log_format, log_level, as_json=output.as_json)
    log.info("delivers refill files in %s", root)
    run(_Agent(output, root, tokens, interval, pause).run())


class _Agent:
    def __init__(self, output: Output, root: Path, tokens: Tokens, interval: float, pause: float) -> None:
        self._output = output
        self._root = root
        self._tokens = tokens
        self._interval_s = interval
        self._pause_s = pause
        self._sending: dict[str, asyncio.Task[None]] = {}
        self._rests_until_s: dict[str, float] = {}

    async def run(self) -> None:
        stopped = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
        while not stopped.is_set():
            self._look()
            with suppress(TimeoutError):
                await asyncio.wait_for(stopped.wait(), self._interval_s)
        tasks = list(self._sending.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _look(self) -> None:
        """Begins to send the slots that have files and that nobody uses."""
        if not self._root.is_dir():
            return
        by_slot: dict[str, dict[Path, int]] = {}
        for path in all_files(self._root):
            with suppress(FileNotFoundError):  # it was just delivered
                by_slot.setdefault(path.parent.name, {})[path] = path.stat().st_size
        now_s = time.monotonic()
        for slot, sizes in by_slot.items():
            if len(self._sending) >= SLOTS_MAX:
                return
            rests = self._rests_until_s.get(slot, 0.0) > now_s
            if slot not in self._sending and not rests and holder(self._root / slot) is None:
                self._sending[slot] = asyncio.create_task(self._send(slot, sizes))

    async def _send(self, slot: str, sizes: dict[Path, int]) -> None:
        try:
            sent = await send_slot(self._root, slot, token=self._tokens, timeout_s=SEND_S_MAX)
            for path, size in sizes.items():
                if not path.exists():
                    self._print(sent, path, size)
            if not sent.delivered:
                self._rest(slot, why_not_delivered(sent))
        except OSError as error:  # of this disk
            self._rest(slot, f": {error}")
        finally:
            del self._sending[slot]

    def _rest(self, slot: str, why: str) -> None:
        self._rests_until_s[slot] = time.monotonic() + self._pause_s
        log.warning("%s: delivery is not complete%s; tries again in %g s", slot, why, self._pause_s)

    def _print(self, sent: Sent, path: Path, size: int) -> None:
        shown = {"file": str(path), "slot": sent.slot, "topic": sent.topic, "bytes": size}
        line = f"delivered {path.name}: {size:,} bytes of {sent.topic}"
        print(json_text(shown) if self._output.as_json else line, flush=True)
