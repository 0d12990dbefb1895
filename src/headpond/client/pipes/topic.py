"""A ``stream`` over a node's topic: the topic is the storage, a subscription keeps the receiver's place.

The two ends need not be there at the same time. What the sender had confirmed is on the node's disk; what the
receiver had confirmed does not come again, to this receiver or to the next one of the subscription. So either
end, and the node, may die and come back; only what a dead sender had not had confirmed is lost.

The topic has one shard, because a stream has one index. A plain ``stream`` carries payloads as plain messages,
for and from any producer and consumer.
"""

from __future__ import annotations

from datetime import datetime

from headpond.client.connect import Client
from headpond.client.pipes.receiver import Receiver
from headpond.client.pipes.sender import Sender
from headpond.client.pipes.topic_source import TopicSource
from headpond.client.pipes.topic_store import TopicStore, check_stream
from headpond.pipes.compose import parse_drivable


def sender(client: Client, topic: str, *, name: str = "", route: str = "stream") -> Sender:
    """The sending end, to be opened with ``async with``. Pipes over the stream may follow in ``route``."""
    check_stream(parse_drivable(route))
    return Sender(route, TopicStore(client, topic, name), name=name)


def receiver(
    client: Client,
    topic: str,
    *,
    subscription: str,
    route: str = "stream",
    start: str | int | datetime = "earliest",
) -> Receiver:
    """The receiving end, to be opened with ``async with``; ``start`` is where a new subscription begins.

    A message is settled when the program is done with it: with the plain loop when the loop asks for the next,
    else with ``receiver.confirm``.
    """
    parsed = parse_drivable(route)
    check_stream(parsed)
    return Receiver(route, TopicSource(client, topic, subscription, parsed, start))
