"""Headpond: durable messaging for Python that feeds Spark, and measures what it delivered.

The public surface is what this module names; ``headpond.sync`` is its blocking twin. Names are loaded when they
are first used, so that the command line starts without loading Arrow.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headpond.client.batch import Batch
    from headpond.client.connect import Client, connect
    from headpond.client.consumer import Consumer
    from headpond.client.options import LostSpan, NodeState
    from headpond.client.producer import Producer
    from headpond.client.producer_stats import ProducerStats
    from headpond.client.promise import BatchReceipt, Promise
    from headpond.client.writer import Writer
    from headpond.model.errors import HeadpondError
    from headpond.model.identity import Identity
    from headpond.model.message import Message
    from headpond.model.policy import Policy
    from headpond.model.receipt import Durability, Outcome, Receipt
    from headpond.model.stage import Stage

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
    "HeadpondError": "model.errors",
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
        found = getattr(import_module(f"headpond.{_PLACES[name]}"), name)
    elif name in _MODULES:
        found = import_module(f"headpond.{_MODULES[name]}")
    else:
        raise AttributeError(f"module 'headpond' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
