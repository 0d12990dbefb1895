"""Penstock: durable messaging for Python that feeds Spark, and measures what it delivered.

The public surface is what this module names; ``penstock.sync`` is its blocking twin. Names are loaded when they
are first used, so that the command line starts without loading Arrow.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.client.batch import Batch
    from penstock.client.connect import Client, connect
    from penstock.client.consumer import Consumer
    from penstock.client.options import LostSpan, NodeState
    from penstock.client.producer import Producer
    from penstock.client.producer_stats import ProducerStats
    from penstock.client.promise import BatchReceipt, Promise
    from penstock.client.writer import Writer
    from penstock.model.errors import PenstockError
    from penstock.model.identity import Identity
    from penstock.model.message import Message
    from penstock.model.policy import Policy
    from penstock.model.receipt import Durability, Outcome, Receipt
    from penstock.model.stage import Stage

__all__ = [
    "Batch",
    "BatchReceipt",
    "Client",
    "Consumer",
    "Durability",
    "Identity",
    "LostSpan",
    "Message",
    "NodeState",
    "Outcome",
    "PenstockError",
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
    "Batch": "client.batch",
    "BatchReceipt": "client.promise",
    "Client": "client.connect",
    "Consumer": "client.consumer",
    "Durability": "model.receipt",
    "Identity": "model.identity",
    "LostSpan": "client.options",
    "NodeState": "client.options",
    "Message": "model.message",
    "Outcome": "model.receipt",
    "PenstockError": "model.errors",
    "Policy": "model.policy",
    "Producer": "client.producer",
    "ProducerStats": "client.producer_stats",
    "Promise": "client.promise",
    "Receipt": "model.receipt",
    "Stage": "model.stage",
    "Writer": "client.writer",
    "connect": "client.connect",
}
_MODULES = {"errors": "errors", "sync": "sync"}


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        found = getattr(import_module(f"penstock.{_PLACES[name]}"), name)
    elif name in _MODULES:
        found = import_module(f"penstock.{_MODULES[name]}")
    else:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
