"""Headpond: durable messaging for Python that feeds Spark, and measures what it delivered.

The public surface is what this module names; ``headpond.sync`` is its blocking twin. Names are loaded when they
are first used, so that the command line starts without loading Arrow.

In reading order: model, wire, storage, broker, node (a message at rest); producer, client, sync (on its way);
pipes (delivery as machines); shapes, cli, spark (for people and for Spark); errors (the catalogue).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headpond.client.connect import Client, connect
    from headpond.client.consume.batch import Batch
    from headpond.client.consume.consumer import Consumer
    from headpond.client.options import LostSpan, NodeState
    from headpond.client.produce.producer import Producer, ProducerStats
    from headpond.client.produce.promise import BatchReceipt, Promise
    from headpond.client.writer import Writer
    from headpond.model.errors import HeadpondError
    from headpond.model.identity import Identity
    from headpond.model.message import Message
    from headpond.model.policy import Policy
    from headpond.model.receipt import Durability, Outcome, Receipt, Stage

__all__ = [
    "Batch",
    "BatchReceipt",
    "Client",
    "Consumer",
    "Durability",
    "HeadpondError",
    "Identity",
    "LostSpan",
    "Message",
    "NodeState",
    "Outcome",
    "Policy",
    "Producer",
    "ProducerStats",
    "Promise",
    "Receipt",
    "Stage",
    "Writer",
    "connect",
    "errors",
    "sync",
]

__version__ = "0.1.0"

_PLACES = {
    "Batch": "client.consume.batch",
    "BatchReceipt": "client.produce.promise",
    "Client": "client.connect",
    "Consumer": "client.consume.consumer",
    "Durability": "model.receipt",
    "Identity": "model.identity",
    "LostSpan": "client.options",
    "NodeState": "client.options",
    "Message": "model.message",
    "Outcome": "model.receipt",
    "HeadpondError": "model.errors",
    "Policy": "model.policy",
    "Producer": "client.produce.producer",
    "ProducerStats": "client.produce.producer",
    "Promise": "client.produce.promise",
    "Receipt": "model.receipt",
    "Stage": "model.receipt",
    "Writer": "client.writer",
    "connect": "client.connect",
}
_MODULES = {"errors": "errors", "sync": "sync"}


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        found = getattr(import_module(f"headpond.{_PLACES[name]}"), name)
    elif name in _MODULES:
        found = import_module(f"headpond.{_MODULES[name]}")
    else:
        raise AttributeError(f"module 'headpond' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
