"""A well-behaved producer and consumer that work in the background while a test attacks their node."""

from __future__ import annotations

import asyncio
import threading
import time
from types import TracebackType
from typing import Self

import headpond
from tests.fire.real_node import wait_until

TOPIC = "good"


class GoodPair:
    """``with GoodPair(url) as pair``: leaving the block stops both and raises their error."""

    def __init__(self, url: str, *, token: str | None = None, topic: str = TOPIC) -> None:
        self._url = url
        self._token = token
        self._topic = topic
        self._thread = threading.Thread(target=self._run, name="good-pair")
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self.received = 0
        self.reconnects = 0
        self.longest_s = 0.0
        """The longest time from sending a message to receiving it."""

    def _run(self) -> None:
        try:
            asyncio.run(self._exchange())
        except BaseException as error:
            self._error = error

    async def _exchange(self) -> None:
        async with (
            headpond.connect(self._url, token=self._token) as client,
            client.producer(self._topic) as producer,
            client.consumer(self._topic, subscription="pair") as consumer,
        ):
            while not self._stop.is_set():
                sent = b"message %d" % self.received
                began = time.monotonic()
                receipt = await producer.send(sent)
                message = await consumer.receive(timeout=20.0)
                assert message is not None, "the consumer got nothing for 20 s"
                assert (message.value, message.entry) == (sent, receipt.entry)
                await consumer.ack(message)
                self.longest_s = max(self.longest_s, time.monotonic() - began)
                self.received += 1
                self.reconnects = producer.stats.reconnects
                await asyncio.sleep(0.005)

    def goes_on(self) -> None:
        """Returns when a few more messages have been sent and received."""
        goal = self.received + 5
        wait_until(lambda: self._error is not None or self.received >= goal)
        assert self._error is None, repr(self._error)
        assert self.reconnects == 0, "the node dropped a connection that did nothing wrong"

    def __enter__(self) -> Self:
        self._thread.start()
        self.goes_on()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(30.0)
        assert not self._thread.is_alive()
        if error is None and self._error is not None:
            raise self._error
