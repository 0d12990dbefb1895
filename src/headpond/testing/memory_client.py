"""A client whose connections to the node of the same process are in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headpond.client.connect import Client, Tokens
from headpond.client.link.connection import Dial
from headpond.client.link.dialling import Backoff
from headpond.client.link.link import LinkOptions
from headpond.client.options import DEFAULT_REFILL, ProducerOptions
from headpond.client.produce.batcher import Batcher
from headpond.client.produce.producer import Producer

BACKOFF = Backoff(0.001, 0.02)
"""A test does not wait long for a client that reconnects."""


class MemoryClient(Client):
    """A ``headpond.Client`` that touches no disk: a producer has no refill unless ``refill`` names a folder."""

    def __init__(
        self, url: str, dial: Dial, token: Tokens, name: str, *, request_timeout: float, wait: bool
    ) -> None:
        options = LinkOptions(request_timeout_s=request_timeout, backoff=BACKOFF, dial=dial)
        super().__init__(url, token, name, options, wait=wait)

    def add_producer(
        self,
        topic: str,
        name: str | None,
        value: Any,
        options: ProducerOptions,
        make_batcher: type[Batcher] = Batcher,
    ) -> Producer[Any]:
        if options.refill == DEFAULT_REFILL:
            options = replace(options, refill=None)
        return super().add_producer(topic, name, value, options, make_batcher)
