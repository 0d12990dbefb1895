"""The blocking twin of the client: the same names, for programs without an event loop.

A background thread runs the client on an event loop. The calling thread puts rows and settlements into their
buffers, under a lock; the loop's thread takes them in batches, so that no message costs a hop between threads::

    with headpond.sync.connect("headpond://127.0.0.1:7411") as client:
        with client.producer("orders") as producer:
            receipt = producer.send(b"...")
            promise = producer.post(b"...")
            promise.result(timeout=5)
        with client.consumer("orders", "billing") as consumer:
            for message in consumer:
                consumer.ack(message)

In reading order::

    background    the thread with the loop, and what makes a blocking method of an async one
    client        connect, and the reader by position
    producer      messages in, receipts out
    consumer      messages out, settlements in
    writer        staged batches
    admin         requests that show or change what a node keeps
"""

from __future__ import annotations

from headpond.sync.admin import Admin
from headpond.sync.client import Client, Reader, connect
from headpond.sync.consumer import Consumer
from headpond.sync.producer import Producer, Promise
from headpond.sync.writer import Writer

__all__ = ["Admin", "Client", "Consumer", "Producer", "Promise", "Reader", "Writer", "connect"]
