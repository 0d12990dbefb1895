"""Sends the files that producers left in a refill folder, as the next producer of the same name would.

The files of a slot name their topic, producer and destinations. A producer for these is opened, sends nothing
else, and closes when every destination that answers has all files.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic

from headpond.client.connect import Client, Tokens, connect
from headpond.client.options import ProducerOptions
from headpond.client.produce.producer import Producer
from headpond.model.errors import HeadpondError, ProducerBusy, Unavailable
from headpond.producer.refill.folder import files, size_bytes
from headpond.producer.refill.refill import Refill
from headpond.storage.os_disk import OsDisk

POLL_S = 0.1
CONNECT_S = 5.0
"""How long it waits for destinations to answer."""


@dataclass(slots=True)
class Sent:
    """The result for one slot."""

    slot: str
    topic: str = ""
    producer: str = ""
    destinations: list[str] = field(default_factory=list)
    bytes_before: int = 0
    bytes_left: int = 0
    unreachable: list[str] = field(default_factory=list)
    error: HeadpondError | None = None
    lost: tuple[str, ...] = ()
    """The segments that the files lost to damage or cuts."""

    @property
    def delivered(self) -> bool:
        return self.error is None and not self.bytes_left

    def as_object(self) -> dict[str, object]:
        return {
            "slot": self.slot,
            "topic": self.topic,
            "producer": self.producer or None,
            "destinations": self.destinations,
            "bytes": self.bytes_before,
            "bytes_left": self.bytes_left,
            "unreachable": self.unreachable,
            "delivered": self.delivered,
            "error": None if self.error is None else self.error.code,
            "lost": list(self.lost),
        }


async def send_slot(
    root: Path,
    slot: str,
    *,
    token: Tokens,
    timeout_s: float,
    create: bool = True,
    may_duplicate: bool = False,
    late: bool = False,
    on_progress: Callable[[int, int], None] = lambda left, before: None,
) -> Sent:
    """Delivers one slot's files; files that cannot be delivered within the time stay.

    If the producer's name has a lease whose holder is gone, that time includes waiting for the lease to lapse.

    ``late`` also sends the files of an instance that was taken over.
    """
    disk = OsDisk(root)
    sent = Sent(slot, bytes_before=size_bytes(disk, slot))
    try:
        _read_titles(disk, slot, sent)
        options = ProducerOptions(
            copies=sent.destinations[1:],
            refill=root,
            create=create,
            close_timeout=timeout_s,
            may_duplicate=may_duplicate,
            late=late,
        )
        await _send(sent, token, options, on_progress)
    except HeadpondError as error:
        sent.error = error
    sent.bytes_left = size_bytes(disk, slot)
    return sent


def _read_titles(disk: OsDisk, slot: str, sent: Sent) -> None:
    fault: HeadpondError | None = None
    for path in files(disk, slot):
        try:
            refill = Refill.open(disk, path)
        except HeadpondError as error:
            fault = error
            continue
        sent.topic, sent.producer = refill.title.topic, refill.title.producer
        for name in refill.destinations:
            if name not in sent.destinations and refill.pending_runs(name):
                sent.destinations.append(name)
        if not sent.destinations:
            sent.destinations.append(refill.destinations[0])
        refill.release()
    if not sent.topic:
        raise fault or Unavailable(f"there is nothing to send in {slot}")


class _Sending(Producer):
    """A producer that only sends the files left behind."""

    @property
    def refusal(self) -> HeadpondError | None:
        """Why a destination takes nothing more, if there is one."""
        return next(iter(self._run.refusals.values()), None)


async def _opened(client: Client, sent: Sent, options: ProducerOptions) -> _Sending:
    """An open producer; it waits for a lease whose holder is gone, if that lapses in time."""
    over_at = monotonic() + options.close_timeout
    while True:
        left = replace(options, close_timeout=max(over_at - monotonic(), POLL_S))
        producer = _Sending(client.links(options.copies), sent.topic, sent.producer or None, left)
        try:
            await client.add(producer).open()
            return producer
        except ProducerBusy:
            info = await client.admin.show_producer(sent.topic, sent.producer)
            lapses_in_s = 0.0 if not info.holder else info.lapses_in_s
            if lapses_in_s is None or monotonic() + lapses_in_s > over_at:
                raise
            await asyncio.sleep(lapses_in_s + POLL_S)


async def _send(
    sent: Sent, token: Tokens, options: ProducerOptions, on_progress: Callable[[int, int], None]
) -> None:
    async with connect(sent.destinations[0], token, wait=False) as client:
        producer = await _opened(client, sent, options)

        async def report() -> None:
            while True:
                on_progress(producer.stats.refill_bytes, sent.bytes_before)
                await asyncio.sleep(POLL_S)

        reporting = asyncio.create_task(report())
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(min(options.close_timeout, CONNECT_S)):
                    await producer.reached()
            sent.unreachable = producer.unreachable
            await producer.close()
            sent.error = producer.refusal
            sent.lost = producer.stats.lost
        finally:
            reporting.cancel()
