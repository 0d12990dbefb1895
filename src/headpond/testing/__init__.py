"""The test kit for programs that use Headpond: a node in the test's process, and a pytest plugin.

``node()`` is the real node with the real client, on a disk and over connections in memory. Tests advance its
clock, cut its connections, kill and restart it, and make its disk slow or full (docs/testing.md).

In reading order::

    clock          The node's clock, which a test advances
    loop_executor  The node's threads: jobs that run on the loop
    server         The node's shell, which a test can cut and kill
    memory_client  A client whose connections to the node are in memory
    memory_node    The node for asyncio tests
    blocking       The same for blocking tests, in a thread
    plugin         The fixtures for pytest
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what a type checker reads; the interpreter reads `_MODULES`
    from headpond.testing.blocking import BlockingNode as BlockingNode
    from headpond.testing.blocking import blocking_node as blocking_node
    from headpond.testing.clock import Clock as Clock
    from headpond.testing.memory_node import Node as Node
    from headpond.testing.memory_node import node as node

_MODULES = {
    "BlockingNode": "blocking",
    "Clock": "clock",
    "Node": "memory_node",
    "blocking_node": "blocking",
    "node": "memory_node",
}
__all__ = ["BlockingNode", "Clock", "Node", "blocking_node", "node"]


def __getattr__(name: str) -> Any:
    """Loads the node when a test first uses it: pytest imports this package for the plugin, in every run."""
    if name not in _MODULES:
        raise AttributeError(f"module 'headpond.testing' has no attribute {name!r}")
    found = getattr(import_module(f"headpond.testing.{_MODULES[name]}"), name)
    globals()[name] = found
    return found
