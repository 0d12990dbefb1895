"""Whether an operation is for topics of another group of a cluster (cluster/groups.py)."""

from __future__ import annotations

from collections.abc import Callable

from headpond.broker.access.rights import Checked
from headpond.model.errors import NotAcrossNodes, WrongGroup

Elsewhere = Callable[[str], WrongGroup | None]
"""The error for a tenant on another group; None for one on this."""


def check_group(operation: Checked, elsewhere: Elsewhere) -> None:
    """Raises ``WrongGroup`` if an operation is another group's, ``NotAcrossNodes`` if it is for several."""
    errors = [elsewhere(tenant) for tenant in {place.parts[0] for place in operation.rule.places(operation)}]
    wrong = next((error for error in errors if error is not None), None)
    if wrong is None:
        return
    if any(error is None or error.group != wrong.group for error in errors):
        raise NotAcrossNodes(
            f"the operation is for tenants on several groups of the cluster: {wrong.message}",
            hint="Give each operation topics of one group; `headpond cluster groups` shows where tenants are.",
        )
    raise wrong
