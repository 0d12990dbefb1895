"""A node stops although its disk does not answer."""

from __future__ import annotations

import asyncio
from typing import Any

from headpond.node.server import STOP_S_MAX
from headpond.testing.memory_node import Node, node
from tests.client.reading import receive

SLOW_S = STOP_S_MAX + 10.0
"""How long the disk takes for each step; the last one closes the files."""
GOODBYES_S = 5.0
"""At most, for connections to end."""


class JumpingLoop(asyncio.SelectorEventLoop):
    """Its clock jumps to the next timer."""

    ahead_s = 0.0

    def __init__(self) -> None:
        super().__init__()
        selector: Any = self._selector  # type: ignore[attr-defined]
        select = selector.select

        def jump(timeout: float | None) -> object:
            ready = select(0)
            self.ahead_s += 0.0 if ready else timeout or 0.0
            return ready

        selector.select = jump

    def time(self) -> float:
        return super().time() + self.ahead_s


async def stop_with_writes_under_way(it: Node) -> float:
    """How long the node takes, with writes of before and of the end of a connection."""
    loop = asyncio.get_running_loop()
    async with it.connect() as client, client.producer("t") as producer, client.consumer("t", "s") as consumer:
        await producer.send(b"stored")
        message = await receive(consumer)
        it.slow_disk(SLOW_S)
        producer.post(b"not stored")
        await consumer.nack(message)
        await asyncio.sleep(1.0)
        began_s = loop.time()
        await it.restart()
        it.slow_disk(0.0)
        return loop.time() - began_s


def test_a_node_waits_for_its_last_writes_once() -> None:
    async def scenario() -> float:
        it = node()
        await it.open()
        return await asyncio.wait_for(stop_with_writes_under_way(it), 10 * STOP_S_MAX)

    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        took_s = runner.run(scenario())
        assert took_s < STOP_S_MAX + GOODBYES_S + SLOW_S
