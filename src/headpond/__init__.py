"""Headpond: durable messaging for Python that feeds Spark, and measures what it delivered.

This module names the public surface; ``headpond.sync`` is its blocking twin. A name is loaded when a program
first uses it, so that the command line starts without loading Arrow.

In reading order: model, wire, storage, broker, node (a message at rest), cluster (on several machines);
producer, client, sync, app (on its way), otel (spans of that); pipes (delivery as machines); sim (all of it
under faults); testing (a node for users' tests); shapes, cli, spark (for people and for Spark); errors (the
catalogue).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what a type checker reads; the interpreter reads `_PLACES`
    from headpond import errors as errors
    from headpond import sync as sync
    from headpond.app.application import App as App
    from headpond.app.verdicts import DeadLetter as DeadLetter
    from headpond.app.verdicts import Retry as Retry
    from headpond.app.verdicts import Skip as Skip
    from headpond.client.codecs import Codec as Codec
    from headpond.client.connect import Client as Client
    from headpond.client.connect import connect as connect
    from headpond.client.consume.batch import Batch as Batch
    from headpond.client.consume.consumer import Consumer as Consumer
    from headpond.client.options import LostSpan as LostSpan
    from headpond.client.options import NodeState as NodeState
    from headpond.client.produce.producer import Producer as Producer
    from headpond.client.produce.producer import ProducerStats as ProducerStats
    from headpond.client.produce.promise import BatchReceipt as BatchReceipt
    from headpond.client.produce.promise import Promise as Promise
    from headpond.client.writer import Writer as Writer
    from headpond.model.errors import HeadpondError as HeadpondError
    from headpond.model.identity import Identity as Identity
    from headpond.model.message import Message as Message
    from headpond.model.policy import Policy as Policy
    from headpond.model.receipt import Durability as Durability
    from headpond.model.receipt import Outcome as Outcome
    from headpond.model.receipt import Receipt as Receipt
    from headpond.model.receipt import Stage as Stage

__version__ = "0.1.0"

_PLACES = {
    "app.application": "App",
    "app.verdicts": "DeadLetter Retry Skip",
    "client.codecs": "Codec",
    "client.connect": "Client connect",
    "client.consume.batch": "Batch",
    "client.consume.consumer": "Consumer",
    "client.options": "LostSpan NodeState",
    "client.produce.producer": "Producer ProducerStats",
    "client.produce.promise": "BatchReceipt Promise",
    "client.writer": "Writer",
    "model.errors": "HeadpondError",
    "model.identity": "Identity",
    "model.message": "Message",
    "model.policy": "Policy",
    "model.receipt": "Durability Outcome Receipt Stage",
}
_MODULES = {name: place for place, names in _PLACES.items() for name in names.split()}
__all__ = sorted([*_MODULES, "errors", "sync"])


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        found = getattr(import_module(f"headpond.{_MODULES[name]}"), name)
    elif name in ("errors", "sync"):
        found = import_module(f"headpond.{name}")
    else:
        raise AttributeError(f"module 'headpond' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
