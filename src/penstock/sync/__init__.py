"""The blocking twin of the client: the same names, for programs without an event loop.

A background thread runs the client on a loop of its own. Rows and settlements are put into their buffers by the
calling thread, under a lock; the loop's thread takes them by the batch, so no message costs a hop between
threads::

    with penstock.sync.connect("penstock://127.0.0.1:7411") as client:
        with client.producer("orders") as producer:
            receipt = producer.send(b"...")
            promise = producer.post(b"...")
            promise.result(timeout=5)
        with client.consumer("orders", "billing") as consumer:
            for message in consumer:
                consumer.ack(message)
"""

from __future__ import annotations

from penstock.sync.admin import Admin
from penstock.sync.client import Client, connect
from penstock.sync.consumer import Consumer
from penstock.sync.producer import Producer, Promise
from penstock.sync.reader import Reader
from penstock.sync.writer import Writer

__all__ = ["Admin", "Client", "Consumer", "Producer", "Promise", "Reader", "Writer", "connect"]
